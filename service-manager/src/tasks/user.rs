//! What users add to the system: files, registries, environment.
//!
//! Source: spec/machine-facts.md §4.4 (`userSetup`), §11.3.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use config::Config;
use config::v1alpha1::FileOp;

use crate::beneath;
use crate::containerd;
use crate::controllers;
use crate::files::{self, Image, Operation, Target, Wanted};
use crate::modules;
use crate::node::Node;
use crate::sequencer::{TaskError, TaskFuture};
use crate::store::{FILE_STATUS, FileStatus, Spec};

/// Where each boot leaves what users wanted of containerd.
const FRAGMENTS: &str = "/var/cri/conf.d";

/// Writes the files of the config, then the generated parts of containerd's settings.
pub fn write_user_files(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        beneath::make_folder(&node.root, Path::new(FRAGMENTS), 0o755)
            .map_err(|e| TaskError(format!("create {FRAGMENTS}: {e}")))?;
        let Some(config) = node.config() else { return Ok(()) };
        let wanted = wanted(&config).map_err(|errors| TaskError(errors.join("; ")))?;
        if wanted.is_empty() {
            return Ok(());
        }
        let image = Image::open().map_err(TaskError)?;
        let targets =
            files::write(&node.root, &image, &wanted).map_err(|errors| TaskError(errors.join("; ")))?;
        publish(&node, &targets)
    })
}

/// Loads the modules that the config names, whatever devices there are.
pub fn load_kernel_modules(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let loading = tokio::task::spawn_blocking(move || modules::apply(&node));
        loading.await.map_err(|e| TaskError(format!("load kernel modules: {e}")))
    })
}

/// The user's files, then those of the registries.
fn wanted(config: &Config) -> Result<Vec<Wanted>, Vec<String>> {
    let machine = &config.machine;
    let mut all: Vec<Wanted> = machine
        .files
        .iter()
        .map(|file| Wanted {
            path: file.path.clone(),
            content: file.content.clone(),
            // 0 is what a config says that names none.
            mode: file.permissions.map(|mode| mode.0).filter(|mode| *mode != 0),
            operation: match file.op {
                Some(FileOp::Append) => Operation::Append,
                Some(FileOp::Overwrite) => Operation::Overwrite,
                Some(FileOp::Create) | None => Operation::Create,
            },
        })
        .collect();
    all.extend(containerd::files(&machine.registries)?);
    Ok(all)
}

fn publish(node: &Node, targets: &[Target]) -> Result<(), TaskError> {
    let statuses = targets.iter().map(|target| {
        let shown = target.shown.as_ref().unwrap_or(&target.written);
        let status = FileStatus {
            path: shown.display().to_string(),
            written: target.written.display().to_string(),
            size: target.content.len(),
            mode: format!("0{:o}", target.mode),
        };
        (status.path.trim_start_matches('/').to_owned(), Spec::FileStatus(status))
    });
    node.store
        .replace(FILE_STATUS.writer, &FILE_STATUS, statuses.collect())
        .map_err(|e| TaskError(e.to_string()))
}

/// `NAME=value` of every variable that the command line and the config give to services.
pub fn environment(node: &Node) -> Vec<String> {
    variables(node).into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// The same by name. The config wins over the command line.
pub fn variables(node: &Node) -> BTreeMap<String, String> {
    controllers::variables(&node.parameters, node.config().as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(machine: &str) -> Config {
        let text = format!("version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n{machine}");
        config::parse(&text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn the_guides_files_become_operations() {
        let config = config(
            "  files:\n    - content: |\n        [metrics]\n          address = \"0.0.0.0:11234\"        \n      path: /var/cri/conf.d/metrics.toml\n      op: create\n    - content: x\n      permissions: 0644\n      path: /etc/ssl/certs/ca-certificates\n      op: append\n",
        );
        let files = wanted(&config).ok().unwrap();
        assert_eq!((files[0].operation, files[0].mode), (Operation::Create, None));
        assert_eq!((files[1].operation, files[1].mode), (Operation::Append, Some(0o644)));
        assert!(files[0].content.starts_with("[metrics]\n"));
    }

    #[test]
    fn registries_come_after_the_users_own_files() {
        let config = config(
            "  files:\n    - {content: '# mine', path: /etc/cri/containerd.toml, op: append}\n  registries:\n    mirrors:\n      '*':\n        endpoints: ['http://10.5.0.1:6000/']\n",
        );
        let paths: Vec<String> = wanted(&config).ok().unwrap().into_iter().map(|file| file.path).collect();
        let expected = [
            "/etc/cri/containerd.toml",
            "/var/etc/cri/hosts/_default/hosts.toml",
            "/etc/cri/containerd.toml",
        ];
        assert_eq!(paths, expected);
    }
}
