//! What users add to the system: files, registries, environment.
//!
//! Source: docs/users/files.md.

use runtime::sequencer::{TaskError, TaskFuture};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::v1alpha1::FileOp;
use config::{Config, Document};
use runtime::store::{FILE_STATUS, FileStatus, Spec};

use crate::containerd;
use crate::controllers;
use crate::files::{self, EtcFile, Image, Operation, Target, Wanted};
use crate::modules;
use crate::mounts;
use crate::node::Node;
use runtime::beneath;

/// Where each boot leaves what users wanted of containerd.
const FRAGMENTS: &str = "/var/cri/conf.d";
/// Of a file below /etc that says none.
const ETC_FILE_MODE: u32 = 0o644;

/// Writes the files of the config, then the generated parts of containerd's settings.
pub fn write_user_files(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        beneath::make_directory(&node.runtime.root, Path::new(FRAGMENTS), 0o755)
            .map_err(|e| TaskError(format!("create {FRAGMENTS}: {e}")))?;
        let Some(config) = node.runtime.config() else { return Ok(()) };
        let all = |errors: Vec<String>| TaskError(errors.join("; "));
        let wanted = wanted(&config).map_err(all)?;
        let in_etc = etc_files(&node);
        if wanted.is_empty() && in_etc.is_empty() {
            return Ok(());
        }
        let image = Image::open().map_err(TaskError)?;
        // First: what is bound into /etc afterwards stays in sight.
        let mut targets = show_in_etc(&node, &image, &in_etc, &wanted).map_err(all)?;
        targets.extend(files::write(&node.runtime.root, &image, &wanted).map_err(all)?);
        publish(&node, &targets)
    })
}

/// The files of the config's `EtcFileConfig` documents.
fn etc_files(node: &Node) -> Vec<EtcFile> {
    let Some(document) = node.runtime.document() else { return Vec::new() };
    let file = |document: &Document| match document {
        Document::EtcFileConfig(file) => Some(EtcFile {
            name: file.name.clone(),
            content: file.contents.clone(),
            mode: file.mode.map_or(ETC_FILE_MODE, |mode| mode.0),
        }),
        _ => None,
    };
    document.documents.iter().filter_map(file).collect()
}

fn show_in_etc(
    node: &Node,
    image: &Image,
    in_etc: &[EtcFile],
    wanted: &[Wanted],
) -> Result<Vec<Target>, Vec<String>> {
    if in_etc.is_empty() {
        return Ok(Vec::new());
    }
    // A root of one layer is mounted without it.
    modules::load_modules(&["overlay"]).map_err(|error| vec![error])?;
    let others = wanted.iter().map(|file| PathBuf::from(&file.path)).collect();
    let mounted = mounts::table().map_err(|error| vec![format!("read what is mounted: {error}")])?;
    let targets = files::show_in_etc(&node.runtime.root, image, in_etc, &others, &mounted)?;
    for (file, target) in in_etc.iter().zip(&targets) {
        controllers::publish_etc_file(&node.runtime, &file.name, &target.content, target.mode)
            .map_err(|error| vec![error])?;
    }
    Ok(targets)
}

/// Loads the modules that containers need and those that the config names, whatever devices there are.
pub fn load_kernel_modules(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let loading = tokio::task::spawn_blocking(move || modules::apply(&node.runtime));
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
    node.runtime
        .store
        .replace(FILE_STATUS.writer, &FILE_STATUS, statuses.collect())
        .map_err(|e| TaskError(e.to_string()))
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
    fn documents_of_files_below_etc_have_their_content_and_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let text = "version: v1alpha1\nmachine: {type: worker, token: a.b}\n---\napiVersion: v1alpha1\nkind: \
                    EtcFileConfig\nname: nfsmount.conf\ncontents: '[a]'\n---\napiVersion: v1alpha1\nkind: \
                    EtcFileConfig\nname: a/b\nmode: 0600\n";
        let loaded = config::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let document = runtime::store::MachineDocument::new(
            zeroize::Zeroizing::new(text.to_owned()),
            loaded.config,
            loaded.documents,
        );
        let spec = Spec::MachineConfig(Arc::new(document));
        let kind = &runtime::store::MACHINE_CONFIG;
        node.runtime.store.put(kind.writer, kind, "v1alpha1", spec).unwrap();
        let files = etc_files(&node);
        let found: Vec<_> =
            files.iter().map(|file| (file.name.as_str(), file.content.as_str(), file.mode)).collect();
        assert_eq!(found, [("nfsmount.conf", "[a]", 0o644), ("a/b", "", 0o600)]);
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
