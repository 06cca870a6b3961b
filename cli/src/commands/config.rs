//! `config`: the client configuration file.

use crate::{
    args::Global,
    output::{self, Table},
    session,
};
use anyhow::{Context as _, Result};
use api::{
    pki::CertificateFacts,
    talosconfig::{Context, Talosconfig, TalosconfigError},
};
use jiff::Timestamp;
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

pub(crate) fn run(global: &Global, command: Command) -> Result<()> {
    let path = session::config_path(global);
    let mut config = match (&command, Talosconfig::load(&path)) {
        // A first file may begin with a merge.
        (Command::Merge { .. }, Err(TalosconfigError::Missing(_))) => Talosconfig::default(),
        (_, loaded) => loaded?,
    };
    match command {
        Command::Contexts => return output::print_table(&contexts(&config), global.output),
        Command::Info => {
            let (name, context) = config.choose(global.context.as_deref())?;
            return Ok(output::print(info(name, context)?)?);
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

fn info(name: &str, context: &Context) -> Result<String> {
    let list =
        |items: &[String], none: &str| if items.is_empty() { none.to_owned() } else { items.join(", ") };
    let facts = context
        .identity()?
        .map(|i| CertificateFacts::from_pem("the client certificate", &i.certificate))
        .transpose()?;
    let (roles, expiry) = match &facts {
        None => ("none: there is no certificate".to_owned(), "-".to_owned()),
        Some(facts) => {
            let roles = list(&facts.organizations, "none: counts as os:admin");
            let until = Timestamp::try_from(facts.not_after)
                .map_or_else(|_| "?".to_owned(), |t| t.strftime("%Y-%m-%d").to_string());
            (roles, if facts.remaining().is_some() { until } else { format!("{until} (expired)") })
        }
    };
    Ok(format!(
        "Current context:     {name}\nNodes:               {}\nEndpoints:           {}\nRoles:               {roles}\nCertificate expires: {expiry}\n",
        list(&context.nodes, "not defined"),
        list(&context.endpoints, "not defined"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
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
        run(&global, Command::Merge { file: path.clone() }).unwrap();
        run(&global, Command::Endpoint { endpoints: vec!["10.0.0.9".into()] }).unwrap();
        assert_eq!(
            contexts(&Talosconfig::load(&path).unwrap()).to_string(),
            "CURRENT   NAME       ENDPOINTS         NODES\n          \
             billet     127.0.0.1:40000   a,b,c,...\n\
             *         billet-1   10.0.0.9          a,b,c,...\n"
        );
        run(&global, Command::Context { name: "billet".into() }).unwrap();
        assert_eq!(Talosconfig::load(&path).unwrap().context, "billet");
        let error = run(&global, Command::Context { name: "x".into() }).unwrap_err().to_string();
        assert_eq!(error, "there is no context `x`; there are: billet, billet-1");
    }

    #[test]
    fn info_names_roles_and_expiry() {
        let dir = tempfile::tempdir().unwrap();
        let config = Talosconfig::load(&file(dir.path())).unwrap();
        let (name, context) = config.choose(None).unwrap();
        let text = info(name, context).unwrap();
        assert!(
            text.contains("Roles:               os:admin\n") && text.contains("Certificate expires: 20"),
            "{text}"
        );
    }

    #[test]
    fn a_first_file_may_begin_with_a_merge() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("fresh/config");
        run(&global(&new), Command::Merge { file: file(dir.path()) }).unwrap();
        assert_eq!(Talosconfig::load(&new).unwrap().context, "billet");
    }
}
