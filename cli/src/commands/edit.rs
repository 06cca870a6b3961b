//! `edit`: opens the configuration of a node in an editor and applies what was written.
//!
//! Order: fetch, edit, check, apply; what is refused is opened again with the reasons above it, until it is taken or
//! left unchanged. Fails by: an error that names the file in which the changes are kept.

use super::machine_config::{self, Fetched, ModeFlags, Outdated};
use crate::{output, session::Session};
use anyhow::{Context as _, Result, anyhow, bail};
use config::Secret;
use std::{
    env,
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// How our own lines begin; they are taken out again.
const MARK: &str = "#|";

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// What to edit: `machineconfig` or `mc`
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Its id; there is only one
    #[arg(value_parser = ["v1alpha1"], hide = true)]
    id: Option<String>,
    #[command(flatten)]
    when: ModeFlags,
    /// For those who write it
    #[arg(long, hide = true)]
    namespace: Option<String>,
}

/// Edits the configuration of each node in turn.
pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    machine_config::check_type(&flags.kind)?;
    for node in session.each_node() {
        let name = session.name_of(node.as_deref()).to_owned();
        let old = machine_config::fetch(session, node.as_deref(), &flags.when)
            .await
            .with_context(|| name.clone())?;
        edit_one(session, node.as_deref(), &name, &old, &flags).await?;
    }
    Ok(())
}

async fn edit_one(
    session: &Session,
    node: Option<&str>,
    name: &str,
    Fetched { text: old, base }: &Fetched,
    flags: &Flags,
) -> Result<()> {
    let file = Draft::create()?;
    let mut shown = old.clone();
    let mut faults: Option<String> = None;
    loop {
        file.write(&heading(name, faults.as_deref()), shown.expose_secret())?;
        open_editor(&file.path)?;
        let text = file.read()?;
        if text.expose_secret().trim().is_empty() {
            file.remove();
            return Ok(output::print("Apply was skipped: empty file.\n")?);
        }
        // A changed comment is a change: the node keeps the text as it is sent.
        if old == &text {
            file.remove();
            return Ok(output::print("Apply was skipped: no changes detected.\n")?);
        }
        // Saved again as it was refused: the person gives up, or no editor is there to ask.
        if let Some(reason) = faults.as_ref().filter(|_| shown == text) {
            return Err(anyhow!(
                "{reason}\nnothing was applied; your changes are kept in {}",
                file.path.display()
            ));
        }
        let refused = match check(text.expose_secret()) {
            Ok(()) => {
                match machine_config::send(session, node, text.expose_secret(), &flags.when, Some(base)).await
                {
                    Ok(()) => {
                        file.remove();
                        return Ok(());
                    }
                    Err(error) if error.is::<Outdated>() => {
                        return Err(anyhow!(
                            "{error:#}\nnothing was applied; your changes are kept in {}",
                            file.path.display()
                        ));
                    }
                    Err(error) => format!("{error:#}"),
                }
            }
            Err(reason) => reason,
        };
        (shown, faults) = (text, Some(refused));
    }
}

/// What can be told without the node.
fn check(text: &str) -> Result<(), String> {
    config::load(text.as_bytes()).map(|_| ()).map_err(|e| e.to_string())
}

fn heading(node: &str, faults: Option<&str>) -> String {
    let mut lines =
        vec![format!("The machine configuration of {node}. Lines that begin with {MARK} are ignored.")];
    lines.push("Save it unchanged or empty to apply nothing.".to_owned());
    if let Some(faults) = faults {
        lines.push(String::new());
        lines.push("It was refused:".to_owned());
        lines.extend(faults.lines().map(|l| format!("  {l}")));
    }
    lines.iter().map(|line| format!("{MARK} {line}").trim_end().to_owned() + "\n").collect()
}

fn open_editor(path: &Path) -> Result<()> {
    let set = |name| env::var(name).ok().filter(|v| !v.trim().is_empty());
    let editor = set("TALOS_EDITOR").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // Through a shell, since EDITOR may hold arguments; the file's name is passed beside the text of the command.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "edit"])
        .arg(path)
        .status()
        .with_context(|| format!("start the editor `{editor}`"))?;
    if status.success() {
        return Ok(());
    }
    bail!("the editor `{editor}` ended with {status}; your changes are kept in {}", path.display())
}

/// The file under edit: readable by its owner only, since it holds keys.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn create() -> Result<Self> {
        for attempt in 0..100 {
            let path = env::temp_dir().join(format!("billetctl-edit-{}-{attempt}.yaml", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Self { path }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).with_context(|| format!("create {}", path.display())),
            }
        }
        bail!("no free file name in {}", env::temp_dir().display())
    }

    fn write(&self, heading: &str, text: &str) -> Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&self.path)
            .with_context(|| format!("write {}", self.path.display()))?;
        file.write_all(heading.as_bytes())?;
        Ok(file.write_all(text.as_bytes())?)
    }

    /// The text without our own lines.
    fn read(&self) -> Result<Secret> {
        let text = Secret::new(
            fs::read_to_string(&self.path).with_context(|| format!("read {}", self.path.display()))?,
        );
        let kept = text.expose_secret().split_inclusive('\n').filter(|line| !line.starts_with(MARK));
        Ok(Secret::new(kept.collect::<String>()))
    }

    fn remove(&self) {
        // It lies in the directory for temporary files and is private: nothing depends on this.
        let _ = fs::remove_file(&self.path);
    }
}
