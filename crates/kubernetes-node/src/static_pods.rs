//! Static pods of a control plane node: when their manifests lie where the kubelet finds them, and what they say.
//!
//! Owns: the files `talos-*` of /etc/kubernetes/manifests: another hand's changes are put back, and said. Other files there are
//! not the node's. The same files lie in [`paths::OWN_MANIFESTS`], which the kubelet sees in the place of that directory
//! where the configuration disables it. `StaticPods` shows what is there.
//! Order: keys and files of a program before its manifest; the API server before its clients, which would wait in back-offs of
//! their own. A new machined leaves what it finds until it knows whether etcd is there: a restart of machined ends no pod.
//! Fails by: [`Error`], said once each; the next look tries again.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kubernetes::pod::Rendered;
use kubernetes::{Cluster, File, Node, Owner, api_server, controller_manager, paths, scheduler, static_pods};
use ondisk::Digest;
use runtime::beneath;
use runtime::store::SERVICE;
use rustix::fs::Access;
use rustix::io::Errno;
use serde_json::Value;

use crate::certificates::{self, Current, Part};
use crate::pod_resources as resources;
use crate::{Error, KubernetesNode, api_server as serving, config_resources, etcd, facts, files};

/// Between two looks while something else is awaited than the API server.
const SHORT_PERIOD: Duration = Duration::from_secs(1);
/// Between two looks otherwise; a changed configuration is seen at once.
const LONG_PERIOD: Duration = Duration::from_secs(10);
/// How long etcd may be away before the pods that need it go.
const ETCD_DEADLINE: Duration = Duration::from_secs(60);
const MANIFEST_MODE: u32 = 0o600;
/// Hexadecimal digits of a version that comes from what it is the version of.
const VERSION_DIGITS: usize = 16;

/// Pods by their ids.
type Pods = BTreeMap<String, Value>;
/// Manifests by the names of their files.
type Manifests = BTreeMap<String, Vec<u8>>;

/// What the loop remembers between two looks.
#[derive(Default)]
struct Memory {
    /// What was said last, so that it is said once.
    said: String,
    /// What this machined wrote.
    written: Manifests,
    /// Whether the API server has answered.
    has_answered: bool,
    /// The wait for that.
    start: serving::Start,
    /// Since when etcd is away.
    away_since: Option<Instant>,
}

impl KubernetesNode {
    /// Has the manifests be there while the node's etcd is, for as long as this is polled.
    pub async fn keep_static_pods(&self) {
        let mut config = self.runtime.config.subscribe();
        let mut services = self.runtime.store.follow(&[&SERVICE]);
        let mut memory = Memory::default();
        loop {
            let looked = self.look_at_static_pods(&mut memory).await;
            let (period, said) = match looked {
                Ok(period) => (period, String::new()),
                Err(error) => (LONG_PERIOD, format!("static pods: {error}")),
            };
            if said != memory.said && !said.is_empty() {
                self.runtime.journal.warn(&said);
            }
            memory.said = said;
            tokio::select! {
                changed = config.changed() => if changed.is_err() { return },
                () = self.renewed.notified() => {}
                () = services.next(), if memory.away_since.is_some() => {}
                () = tokio::time::sleep(period) => {}
            }
        }
    }

    /// Looks once; answers when to look again.
    async fn look_at_static_pods(&self, memory: &mut Memory) -> Result<Duration, Error> {
        let Some(config) = self.runtime.config() else { return Ok(LONG_PERIOD) };
        if is_read_only(&self.runtime.root) {
            return Ok(SHORT_PERIOD);
        }
        let cluster = Cluster::new(&config)?;
        let mut pods: Pods = static_pods::configured(&cluster)?.into_iter().collect();
        if !cluster.is_control_plane() {
            config_resources::remove_programs(&self.runtime);
            self.put(memory, &pods)?;
            return Ok(LONG_PERIOD);
        }
        match self.has_etcd(memory) {
            Some(true) => {}
            Some(false) => {
                self.put(memory, &pods)?;
                return Ok(SHORT_PERIOD);
            }
            None => {
                self.write(memory, &manifests(&pods)?, Others::Stay)?;
                return Ok(SHORT_PERIOD);
            }
        }
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        let prepared = self.prepare(&cluster, &node)?;
        for (id, pod) in self.programs(&cluster, &node, &prepared)? {
            // One that runs already stays.
            let comes = id == api_server::NAME || memory.has_answered;
            if comes || self.manifest_path(&paths::manifest_file(&id)).exists() {
                pods.insert(id, pod);
            }
        }
        self.put(memory, &pods)?;
        if memory.has_answered {
            return Ok(LONG_PERIOD);
        }
        let client = serving::client(&cluster).await?;
        if serving::is_ready(&client).await.is_ok() {
            memory.has_answered = true;
            self.runtime.journal.say("the API server of Kubernetes answers");
            return Ok(Duration::ZERO);
        }
        Ok(memory.start.period())
    }

    /// `None`: that is not known yet.
    fn has_etcd(&self, memory: &mut Memory) -> Option<bool> {
        if self.is_etcd_up() {
            memory.away_since = None;
            return Some(true);
        }
        memory.start = serving::Start::default();
        let since = *memory.away_since.get_or_insert_with(Instant::now);
        (since.elapsed() > ETCD_DEADLINE).then_some(false)
    }

    /// Keys and files of the programs; answers which they are.
    fn prepare(&self, cluster: &Cluster<'_>, node: &Node) -> Result<Prepared, Error> {
        let root = &self.runtime.root;
        let secrets = certificates::bring(root, cluster, node, Part::ControlPlane)?;
        let beside: Vec<File> =
            [api_server::files(cluster)?, scheduler::files(cluster)?].into_iter().flatten().collect();
        for file in &beside {
            files::write(root, file)?;
        }
        make_audit_log(root)?;
        // An API server that had begun without etcd waits minutes for its next try, and its caches are of the data before.
        let restored = etcd::restored(root);
        let files = beside.iter().map(|file| file.contents.expose_secret().as_bytes());
        let parts: Vec<&[u8]> = files.chain(restored.as_deref()).collect();
        let files = version(&parts);
        config_resources::publish_files(&self.runtime, &secrets.version.to_string(), &files);
        Ok(Prepared { secrets, files })
    }

    /// The pods of the programs that are wanted. Each carries the version of the resource that shows what it runs with.
    fn programs(&self, cluster: &Cluster<'_>, node: &Node, prepared: &Prepared) -> Result<Pods, Error> {
        let render = |name: &str, rendered: &Rendered| match name {
            controller_manager::NAME => controller_manager::pod(cluster, rendered),
            scheduler::NAME => scheduler::pod(cluster, rendered),
            _ => api_server::pod(cluster, node, rendered),
        };
        let first = |name: &str| match self.earlier_pod(name) {
            // Rendered as it was it is the same, unless its configuration is another.
            Some((pod, earlier, version)) => match render(name, &earlier) {
                Ok((_, same)) if same == pod => version,
                _ => version.saturating_add(1),
            },
            None => 1,
        };
        let programs = kubernetes::resources::programs(cluster, node)?;
        let versions = config_resources::publish_programs(&self.runtime, &programs, first);
        let is_wanted = |name: &str| match name {
            controller_manager::NAME => controller_manager::is_wanted(cluster),
            scheduler::NAME => scheduler::is_wanted(cluster),
            _ => true,
        };
        let wanted = versions.into_iter().filter(|(name, _)| is_wanted(name));
        let pod = |(name, version): (&str, u64)| {
            let secrets = prepared.secrets.needed_by(name).to_string();
            let (config, files) = (version.to_string(), prepared.files.clone());
            Ok(render(name, &Rendered { secrets, config, files })?)
        };
        wanted.map(pod).collect()
    }

    /// The pod that an earlier machined wrote, what it was rendered from, and the version of its program.
    fn earlier_pod(&self, name: &str) -> Option<(Value, Rendered, u64)> {
        let text = std::fs::read(self.manifest_path(&paths::manifest_file(name))).ok()?;
        let pod = kubernetes::manifests::objects(&text).ok()?.pop()?;
        let rendered = Rendered::of(&pod)?;
        let version = rendered.config.parse().ok()?;
        Some((pod, rendered, version))
    }

    fn manifest_path(&self, name: &str) -> PathBuf {
        self.runtime.root.join(paths::MANIFESTS.trim_start_matches('/')).join(name)
    }

    /// Has these pods, and no others of the node's, be in the directories, and shows them.
    fn put(&self, memory: &mut Memory, pods: &Pods) -> Result<(), Error> {
        let manifests = manifests(pods)?;
        self.write(memory, &manifests, Others::Go)?;
        memory.written = manifests;
        resources::publish_pods(&self.runtime, pods);
        Ok(())
    }

    /// Has these files be in the directories, and says what changed. What happens to both is said of the first.
    fn write(&self, memory: &mut Memory, manifests: &Manifests, others: Others) -> Result<(), Error> {
        for directory in DIRECTORIES {
            for (name, what) in write(&self.runtime.root, directory, manifests, others)? {
                let is_foreign = what != What::Removed && memory.written.get(&name) == manifests.get(&name);
                if is_foreign {
                    self.runtime.journal.warn(&format!(
                        "static pod {name}: something else changed or removed it in {directory}; it is as before"
                    ));
                } else if directory == paths::MANIFESTS {
                    self.runtime.journal.say(&format!("static pod {name}: {what}"));
                }
            }
        }
        memory.written.extend(manifests.clone());
        Ok(())
    }
}

/// Whether manifests lie in the image still: what makes their directory writable lies on /var, which is mounted during the boot.
fn is_read_only(root: &Path) -> bool {
    let directory = root.join(paths::MANIFESTS.trim_start_matches('/'));
    rustix::fs::access(directory, Access::WRITE_OK) == Err(Errno::ROFS)
}

/// What the programs are given besides their arguments.
struct Prepared {
    secrets: Current,
    /// Digest of the files without a secret.
    files: String,
}

/// Where the files lie: the one that people know, and the one that only machined writes.
const DIRECTORIES: [&str; 2] = [paths::MANIFESTS, paths::OWN_MANIFESTS];

/// What becomes of the node's other files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Stay,
    Go,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Written,
    Changed,
    Removed,
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Written => "written",
            Self::Changed => "changed",
            Self::Removed => "removed",
        })
    }
}

fn manifests(pods: &Pods) -> Result<Manifests, Error> {
    let one = |(id, pod): (&String, &Value)| {
        Ok((paths::manifest_file(id), kubernetes::yaml("a static pod", pod)?.into_bytes()))
    };
    pods.iter().map(one).collect()
}

/// Has these files be in a directory; answers which of the node's files changed.
fn write(
    root: &Path,
    directory: &'static str,
    manifests: &Manifests,
    others: Others,
) -> Result<Vec<(String, What)>, Error> {
    let mut changes = Vec::new();
    let opened = open(root, directory)?;
    let present = if others == Others::Go { present(root, directory)? } else { Vec::new() };
    for name in present.into_iter().filter(|name| !manifests.contains_key(name)) {
        opened.remove_all(Path::new(OsStr::new(&name))).map_err(file("remove", &name))?;
        changes.push((name, What::Removed));
    }
    for (name, text) in manifests {
        let before = std::fs::read(root.join(directory.trim_start_matches('/')).join(name)).ok();
        if before.as_ref() == Some(text) {
            continue;
        }
        opened.replace(Path::new(name), text, MANIFEST_MODE).map_err(file("write", name))?;
        changes.push((name.clone(), if before.is_some() { What::Changed } else { What::Written }));
    }
    Ok(changes)
}

/// Removes the node's manifests of an earlier boot.
///
/// # Errors
/// [`Error::File`].
pub fn remove_static_pods(root: &Path) -> Result<(), Error> {
    for directory in DIRECTORIES {
        write(root, directory, &Manifests::new(), Others::Go)?;
    }
    Ok(())
}

fn file(what: &'static str, path: &str) -> impl FnOnce(std::io::Error) -> Error {
    let path = PathBuf::from(path);
    move |source| Error::File { what, path, source }
}

fn open(root: &Path, directory: &'static str) -> Result<beneath::Directory, Error> {
    beneath::make_directory(root, Path::new(directory), 0o755).map_err(file("make", directory))
}

/// Names of the node's own files in a directory.
fn present(root: &Path, directory: &'static str) -> Result<Vec<String>, Error> {
    let listed = std::fs::read_dir(root.join(directory.trim_start_matches('/')));
    let listed = listed.map_err(file("read", directory))?;
    let names = listed.flatten().filter_map(|entry| entry.file_name().to_str().map(str::to_owned));
    Ok(names.filter(|name| name.starts_with(paths::MANIFEST_PREFIX)).collect())
}

fn version(parts: &[&[u8]]) -> String {
    Digest::sha256(parts).to_string().chars().take(VERSION_DIGITS).collect()
}

/// The API server writes there, and is not root.
fn make_audit_log(root: &Path) -> Result<(), Error> {
    let failed = |source| Error::File { what: "make", path: paths::AUDIT_LOG.into(), source };
    let directory = beneath::make_directory(root, Path::new(paths::AUDIT_LOG), 0o700).map_err(failed)?;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    directory.set_owner(Owner::ApiServer.id()).map_err(failed)
}

#[cfg(test)]
mod tests;
