//! `config`: the client configuration file.

mod make;

use crate::{
    expiry,
    global::Global,
    output::{self, Format, Table},
    session,
};
use anyhow::{Context as _, Result, bail};
use api::{
    pki::CertificateFacts,
    talosconfig::{Context, Talosconfig, TalosconfigError},
};
use std::path::PathBuf;

/// Nodes that the table of contexts shows.
const SHOWN_NODES: usize = 3;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// All contexts
    #[command(alias = "get-contexts")]
    Contexts,
    /// Choose the current context
    #[command(alias = "use-context")]
    Context {
        /// Name of the context
        name: String,
    },
    /// What the current context is
    Info,
    /// Add a context from files
    Add(make::AddFlags),
    /// Ask the node for a client configuration with a fresh certificate
    New(make::NewFlags),
    /// Remove a context
    Remove {
        /// Name of the context
        name: String,
        /// Say what would be removed only
        #[arg(long)]
        dry_run: bool,
        /// For those who write it: nothing is asked
        #[arg(short = 'y', long, hide = true)]
        noconfirm: bool,
    },
    /// Add the contexts of another file
    Merge {
        /// The other file
        file: PathBuf,
    },
    /// Set the endpoints of the current context
    #[command(alias = "endpoints")]
    Endpoint {
        /// Addresses to connect to
        endpoints: Vec<String>,
    },
    /// Set the nodes of the current context
    #[command(alias = "nodes")]
    Node {
        /// Nodes that calls are for; none for the endpoint itself
        nodes: Vec<String>,
    },
}

/// Runs one of the commands; only `new` asks a node.
pub(crate) async fn run(global: &Global, command: Command) -> Result<()> {
    match command {
        Command::New(flags) => make::new(global, &flags).await,
        other => local(global, other),
    }
}

fn local(global: &Global, command: Command) -> Result<()> {
    let path = session::config_path(global);
    let mut config = match (&command, Talosconfig::load(&path)) {
        // A first file may begin with a merge or a context of its own.
        (Command::Merge { .. } | Command::Add(_), Err(TalosconfigError::Missing(_))) => {
            Talosconfig::default()
        }
        (_, loaded) => loaded?,
    };
    match command {
        Command::Contexts => {
            warn_of_expiry(&config);
            return output::print_table(&contexts(&config), global.output);
        }
        Command::Info => {
            let (name, context) = config.choose(global.context.as_deref())?;
            return print_info(name, context, global.output);
        }
        Command::Add(flags) => make::add(&mut config, &flags)?,
        Command::New(_) => bail!("`config new` asks a node"),
        Command::Remove { name, dry_run, .. } => {
            let known = config.choose(Some(&name))?.0.to_owned();
            if dry_run {
                return Ok(output::print(format!("context {known:?} would be removed\n"))?);
            }
            config.contexts.remove(&known);
            if config.context == known {
                config.context.clear();
            }
        }
        Command::Context { name } => {
            let chosen = config.choose(Some(&name))?.0.to_owned();
            config.context = chosen;
        }
        Command::Merge { file } => {
            for (old, new) in config.merge(Talosconfig::load(&file)?) {
                output::print(format!("renamed talosconfig context {old:?} -> {new:?}\n"))?;
            }
        }
        Command::Endpoint { endpoints } => current(&mut config, global)?.endpoints = endpoints,
        Command::Node { nodes } => current(&mut config, global)?.nodes = nodes,
    }
    Ok(config.save(&path)?)
}

fn current<'a>(config: &'a mut Talosconfig, global: &Global) -> Result<&'a mut Context> {
    let name = config.choose(global.context.as_deref())?.0.to_owned();
    config.contexts.get_mut(&name).context("invariant: the chosen context exists")
}

fn contexts(config: &Talosconfig) -> Table {
    let mut table = Table::new(&[
        ("CURRENT", "current"),
        ("NAME", "name"),
        ("ENDPOINTS", "endpoints"),
        ("NODES", "nodes"),
    ]);
    for (name, context) in &config.contexts {
        let star = if *name == config.context { "*" } else { "" };
        let mut nodes: Vec<_> = context.nodes.iter().take(SHOWN_NODES).cloned().collect();
        if context.nodes.len() > SHOWN_NODES {
            nodes.push("...".to_owned());
        }
        table.push(vec![
            star.into(),
            name.as_str().into(),
            context.endpoints.join(",").into(),
            nodes.join(",").into(),
        ]);
    }
    table
}

/// Certificates that end soon or have ended, on stderr.
fn warn_of_expiry(config: &Talosconfig) {
    for (name, context) in &config.contexts {
        let Ok(Some(facts)) = facts(context) else { continue };
        if let Some(warning) = expiry::warning(name, &facts) {
            output::note(&format!("WARNING: {warning}"));
        }
    }
}

fn facts(context: &Context) -> Result<Option<CertificateFacts>> {
    let identity = context.identity()?;
    let facts = identity.map(|i| CertificateFacts::from_pem("the client certificate", &i.certificate));
    Ok(facts.transpose()?)
}

fn print_info(name: &str, context: &Context, format: Format) -> Result<()> {
    let facts = facts(context)?;
    if let Some(warning) = facts.as_ref().and_then(|f| expiry::warning(name, f)) {
        output::note(&format!("WARNING: {warning}"));
    }
    let roles = facts.as_ref().map_or(&[][..], |f| &f.organizations);
    let until = facts.as_ref().map_or_else(|| "-".to_owned(), expiry::day);
    let value = serde_json::json!({
        "context": name, "nodes": context.nodes, "endpoints": context.endpoints, "roles": roles, "certTTL": until,
    });
    Ok(output::print(match format {
        Format::Table => info(name, context, facts.as_ref()),
        Format::Yaml => output::yaml(&value)?,
        Format::Json => output::json(&value)?,
    })?)
}

fn info(name: &str, context: &Context, facts: Option<&CertificateFacts>) -> String {
    let list =
        |items: &[String], none: &str| if items.is_empty() { none.to_owned() } else { items.join(", ") };
    let (roles, until) = match facts {
        None => ("none: there is no certificate".to_owned(), "-".to_owned()),
        Some(facts) => (list(&facts.organizations, "none: counts as os:admin"), expiry::day(facts)),
    };
    format!(
        "Current context:     {name}\nNodes:               {}\nEndpoints:           {}\nRoles:               {roles}\nCertificate expires: {until}\n",
        list(&context.nodes, "not defined"),
        list(&context.endpoints, "not defined"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::generate::{Request, fresh};

    fn file(dir: &std::path::Path) -> PathBuf {
        let request = Request {
            cluster_name: "billet".into(),
            endpoint: "https://10.0.2.15:6443".into(),
            cert_sans: vec![],
            hostname: None,
            api_endpoints: vec!["127.0.0.1:40000".into()],
            api_nodes: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
        };
        let path = dir.join("config");
        std::fs::write(&path, fresh(&request).unwrap().talosconfig.expose_secret()).unwrap();
        path
    }

    fn global(path: &std::path::Path) -> Global {
        Global {
            talosconfig: Some(path.to_owned()),
            context: None,
            nodes: vec![],
            endpoints: vec![],
            output_word: None,
            output: Format::Table,
            part_failed: Default::default(),
        }
    }

    #[test]
    fn contexts_are_listed_chosen_merged_and_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path());
        let global = global(&path);
        local(&global, Command::Merge { file: path.clone() }).unwrap();
        local(&global, Command::Endpoint { endpoints: vec!["10.0.0.9".into()] }).unwrap();
        assert_eq!(
            contexts(&Talosconfig::load(&path).unwrap()).to_string(),
            "CURRENT   NAME       ENDPOINTS         NODES\n          \
             billet     127.0.0.1:40000   a,b,c,...\n\
             *         billet-1   10.0.0.9          a,b,c,...\n"
        );
        local(&global, Command::Context { name: "billet".into() }).unwrap();
        assert_eq!(Talosconfig::load(&path).unwrap().context, "billet");
        let error = local(&global, Command::Context { name: "x".into() }).unwrap_err().to_string();
        assert_eq!(error, "there is no context `x`; there are: billet, billet-1");
    }

    #[test]
    fn info_names_roles_and_expiry() {
        let dir = tempfile::tempdir().unwrap();
        let config = Talosconfig::load(&file(dir.path())).unwrap();
        let (name, context) = config.choose(None).unwrap();
        let text = info(name, context, facts(context).unwrap().as_ref());
        assert!(
            text.contains("Roles:               os:admin\n") && text.contains("Certificate expires: 20"),
            "{text}"
        );
    }

    #[test]
    fn a_first_file_may_begin_with_a_merge() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("fresh/config");
        local(&global(&new), Command::Merge { file: file(dir.path()) }).unwrap();
        assert_eq!(Talosconfig::load(&new).unwrap().context, "billet");
    }
}
