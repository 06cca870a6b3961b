//! How the kubelet runs: a container that is the host's root, with the directories of the host that pods need.
//!
//! Owns: when it starts again: where its command line, its files or its image would be others than those it runs with, also of
//! one that an earlier machined started ([`FINGERPRINT`]); which
//! directory of static pods it sees: with `disableManifestsDirectory` one that only machined writes, in the place of the usual.
//! Order: its files are there before it starts. It needs no API server: static pods come first, and bring one.
//! Source: `kubelet --help`; clients know the service by this id.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use containers::service::{Boxed, Describe, Description, Mount, Rights};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use kubernetes::{Cluster, File, Node, Owner, images, kubeconfig, kubelet, paths};
use ondisk::Digest;
use runtime::beneath;
use runtime::services::definition::Answer;
use runtime::services::machine::State;
use runtime::services::{Check, Definition, Operation, Step};
use runtime::store::{KUBELET_STATUS, Spec};
use serde_json::json;
use tokio::net::TcpStream;

use crate::published::replace;
use crate::{Error, KubernetesNode, etcd, facts, files, kubelet_credentials};

/// The service's id.
pub const ID: &str = "kubelet";
/// Where health is asked, on loopback, without TLS.
const HEALTH: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 10248);
const HEALTH_PATH: &str = "/healthz";
/// The same for people.
pub const HEALTH_PLACE: &str = "http://127.0.0.1:10248/healthz";
const HEALTH_DEADLINE: Duration = Duration::from_secs(5);
/// Its place in the tree of control groups.
const GROUP: &str = "podruntime/kubelet";
const OOM_SCORE: i16 = -450;
const OPEN_FILES: u64 = 1_048_576;
/// Of programs in its image.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Between two comparisons of what runs with what would run; a changed configuration is seen at once.
const LOOK_PERIOD: Duration = Duration::from_secs(60);
const RESTART_DEADLINE: Duration = Duration::from_secs(60);
/// Directories of the host that it writes, with the options of their mounts. What it mounts for pods appears on the host.
const WRITES: [(&str, &str); 8] = [
    ("/etc/kubernetes", "rprivate"),
    ("/etc/cni", "rprivate"),
    ("/usr/libexec/kubernetes", "rprivate"),
    ("/var/lib/containerd", "rshared"),
    (STATE, "rshared"),
    ("/var/log/pods", "rprivate"),
    ("/var/log/containers", "rprivate"),
    ("/run", "rshared"),
];
/// Files of the host that it reads, where they are there.
const READS: [&str; 6] = [
    "/lib/modules",
    "/etc/os-release",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/machine-id",
    facts::RESOLV_DIRECTORY,
];
const STATE: &str = "/var/lib/kubelet";
const DIRECTORY_MODE: u32 = 0o755;
/// Of a directory that a further mount of the configuration names.
const EXTRA_DIRECTORY_MODE: u32 = 0o700;

/// Says what the kubelet was started with, to a later machined too.
const FINGERPRINT: &str = "/system/config/kubernetes/kubelet.fingerprint";

/// Everything that a kubelet of the present configuration runs with.
struct Plan {
    node: Node,
    image: String,
    files: Vec<File>,
    description: Description,
}

impl Plan {
    /// Differs where the kubelet has to start again.
    fn fingerprint(&self) -> String {
        let description = format!("{} {:?}", self.image, self.description);
        let files = self.files.iter().map(|file| file.contents.expose_secret().as_bytes());
        let parts: Vec<&[u8]> = std::iter::once(description.as_bytes()).chain(files).collect();
        Digest::sha256(&parts).to_string()
    }
}

/// Whether a kubelet of the node with this root is in a cluster: it has a certificate. One that the node signed itself says nothing
/// before the node is a member of etcd.
pub fn has_joined(root: &Path) -> bool {
    kubelet_credentials::are_there(root)
        && (!kubelet_credentials::are_of_this_node(root) || etcd::is_member(root))
}

impl KubernetesNode {
    /// The service.
    pub fn kubelet(&self) -> Definition {
        let this = self.clone();
        let image = move || -> Step<String> {
            let plan = this.plan_kubelet();
            Box::pin(async move { Ok(plan.map_err(|error| error.to_string())?.image) })
        };
        let this = self.clone();
        let describe: Describe = Arc::new(move |_| {
            let this = this.clone();
            Box::pin(async move {
                let mut config = this.runtime.config.subscribe();
                let described = this.prepare_kubelet().map_err(|error| error.to_string())?;
                match this.wait_for_cluster(&mut config).await {
                    true => Ok(described),
                    false => Err("the config changed; starting with the new one".to_owned()),
                }
            })
        });
        let container = Boxed::new(ID, self.engine.clone(), image, self.fetch.clone(), describe);
        let mut definition = Definition::container(ID, GROUP, container);
        let ask = || -> Answer { Box::pin(answers()) };
        definition.check = Some(Check::Call { place: HEALTH_PLACE.to_owned(), ask: Arc::new(ask) });
        definition.share.oom_score_adj = Some(OOM_SCORE);
        definition
    }

    fn plan_kubelet(&self) -> Result<Plan, Error> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let cluster = Cluster::new(&config)?;
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        let mut files = kubelet::files(&cluster, &node)?;
        let authority = config::Secret::new(cluster.authorities());
        files.push(File { path: paths::KUBELET_CA.to_owned(), owner: Owner::Root, contents: authority });
        if cluster.kubelet().skip_node_registration != Some(true) {
            let contents = kubeconfig::bootstrap(&cluster)?;
            files.push(File { path: paths::BOOTSTRAP_KUBECONFIG.to_owned(), owner: Owner::Root, contents });
        }
        let arguments = kubelet::arguments(&cluster, &node)?.to_vec();
        let variables = config.machine.env.iter().map(|(name, value)| format!("{name}={value}"));
        let description = Description {
            argv: [vec![kubelet::PROGRAM.to_owned()], arguments].concat(),
            env: std::iter::once(PATH.to_owned()).chain(variables).collect(),
            user: (Owner::Root.id(), Owner::Root.id()),
            mounts: mounts(&self.runtime.root, &cluster),
            rights: Rights::Privileged,
            host_pid: true,
            group: GROUP.to_owned(),
            oom_score_adj: OOM_SCORE,
            open_files: OPEN_FILES,
        };
        Ok(Plan { image: images::kubelet(&cluster), files, description, node })
    }

    fn prepare_kubelet(&self) -> Result<Description, Error> {
        let plan = self.plan_kubelet()?;
        let root = &self.runtime.root;
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let own = WRITES.iter().map(|(path, _)| (*path, DIRECTORY_MODE));
        let extra = config.machine.kubelet.extra_mounts.iter().filter(|mount| mount.kind == "bind");
        let manifests = [(paths::MANIFESTS, DIRECTORY_MODE), (paths::OWN_MANIFESTS, DIRECTORY_MODE)];
        let own = own.chain(manifests);
        for (path, mode) in own.chain(extra.map(|mount| (mount.source.as_str(), EXTRA_DIRECTORY_MODE))) {
            make_directory(root, path, mode)?;
        }
        for file in &plan.files {
            files::write(root, file)?;
        }
        let cluster = Cluster::new(&config)?;
        if let Some(reason) = kubelet_credentials::forget(root, &cluster)? {
            self.runtime.journal.say(&format!("kubelet gets its credentials anew: {reason}"));
        }
        if cluster.kubelet().skip_node_registration != Some(true) {
            kubelet_credentials::issue(root, &cluster, &plan.node)?;
        }
        let contents = config::Secret::new(plan.fingerprint());
        files::write(root, &File { path: FINGERPRINT.to_owned(), owner: Owner::Root, contents })?;
        self.show_image(&plan);
        Ok(plan.description)
    }

    /// Starts the kubelet again when it would run with something else, for as long as this is polled.
    pub async fn keep_kubelet(&self) {
        let mut config = self.runtime.config.subscribe();
        loop {
            tokio::select! {
                changed = config.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_PERIOD) => {}
            }
            // What cannot be planned is said where the service prepares, and by the loop of static pods.
            let Ok(plan) = self.plan_kubelet() else { continue };
            if !self.is_running() {
                continue;
            }
            if !self.started_with_something_else(&plan) {
                // One that an earlier machined started.
                self.show_image(&plan);
                continue;
            }
            self.runtime
                .journal
                .say("kubelet starts again: its command line, its files or its image changed");
            if let Err(error) = self.runtime.services.operate(ID, Operation::Restart, RESTART_DEADLINE).await
            {
                self.runtime.journal.warn(&format!("restart the kubelet: {error}"));
            }
        }
    }
}

impl KubernetesNode {
    /// Shows what the kubelet was started from.
    fn show_image(&self, plan: &Plan) {
        let status = Spec::Fields(json!({ "image": plan.image }));
        replace(&self.runtime, &KUBELET_STATUS, [(ID.to_owned(), status)]);
    }

    fn is_running(&self) -> bool {
        self.runtime.services.record(ID).is_some_and(|record| record.state == State::Running)
    }

    /// Whether the kubelet was started with another plan.
    fn started_with_something_else(&self, plan: &Plan) -> bool {
        let path = self.runtime.root.join(FINGERPRINT.trim_start_matches('/'));
        std::fs::read_to_string(path).is_ok_and(|started| started != plan.fingerprint())
    }
}

fn make_directory(root: &Path, path: &str, mode: u32) -> Result<(), Error> {
    let at = Path::new(path);
    // In the place of its own directories below /var a link of a workload gives way.
    let is_own = path.starts_with("/var/") && WRITES.iter().any(|(own, _)| *own == path);
    // What a mount of the configuration names may be a file.
    if !is_own && root.join(path.trim_start_matches('/')).exists() {
        return Ok(());
    }
    let made = beneath::make_directory(root, at, mode);
    made.map(drop).map_err(|source| Error::File { what: "make", path: at.to_owned(), source })
}

fn mounts(root: &Path, cluster: &Cluster<'_>) -> Vec<Mount> {
    let below = |path: &str| root.join(path.trim_start_matches('/')).display().to_string();
    let devices =
        [Mount::bind("/dev", &["rshared", "rw"]), Mount::bind("/sys/fs/cgroup", &["rprivate", "rw"])];
    let reads = READS.iter().filter(|path| Path::new(path).exists());
    let reads = reads.map(|path| Mount::bind(path, &["rprivate", "ro"]));
    let writes =
        WRITES.iter().map(|(path, propagation)| Mount::bind_at(&below(path), path, &[propagation, "rw"]));
    let extra = cluster.kubelet().extra_mounts.iter().map(|mount| Mount {
        destination: mount.destination.clone(),
        kind: mount.kind.clone(),
        source: mount.source.clone(),
        options: mount.options.clone(),
    });
    // Behind the mount that it lies in.
    let own = cluster
        .has_own_manifests_only()
        .then(|| Mount::bind_at(&below(paths::OWN_MANIFESTS), paths::MANIFESTS, &["rprivate", "ro"]));
    devices.into_iter().chain(reads).chain(writes).chain(own).chain(extra).collect()
}

/// Whether the kubelet says that it is well.
async fn answers() -> Result<(), String> {
    let asked = tokio::time::timeout(HEALTH_DEADLINE, status());
    let status = asked.await.map_err(|_| format!("no answer within {} s", HEALTH_DEADLINE.as_secs()))?;
    match status.map_err(|error| error.to_string())? {
        StatusCode::OK => Ok(()),
        status => Err(format!("it answers {status}")),
    }
}

async fn status() -> Result<StatusCode, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(HEALTH).await?;
    let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let request = Request::get(HEALTH_PATH).header("host", HEALTH.to_string()).body(Empty::new())?;
    // The connection moves while the answer is waited for, and ends with it.
    tokio::select! {
        answer = sender.send_request(request) => Ok(answer?.status()),
        ended = connection => {
            ended?;
            Err("it closed the connection".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[tokio::test]
    async fn a_later_machined_knows_what_the_kubelet_was_started_with() {
        let root = tempfile::tempdir().unwrap();
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        let node = |config: &config::Config| {
            let runtime = samples::known(root.path(), config);
            let fetch: containers::service::Fetch = Arc::new(|_, _| Box::pin(async { Ok(()) }));
            let forever = || -> runtime::services::definition::Work { Box::pin(std::future::pending()) };
            runtime.services.define(Definition::internal(ID, forever));
            let engine = containers::Client::new(root.path(), "system");
            KubernetesNode::new(runtime, engine, fetch, false)
        };
        let first = node(&config);
        first.prepare_kubelet().unwrap();
        assert!(!first.is_running());
        let image = |node: &KubernetesNode| {
            let status = node.runtime.store.get(&KUBELET_STATUS, ID);
            status.map(|status| status.spec.yaml().unwrap())
        };
        assert!(image(&first).is_some_and(|image| image.ends_with(":v1.34.10\n")), "{:?}", image(&first));
        config.machine.kubelet.extra_args =
            [("v".to_owned(), config::schema::Arguments(vec!["2".to_owned()]))].into();
        let second = node(&config);
        second.runtime.services.start(ID);
        second.runtime.services.wait_up(&[ID.to_owned()], Duration::from_secs(60)).await.unwrap();
        assert!(second.is_running() && second.started_with_something_else(&second.plan_kubelet().unwrap()));
        assert_eq!(image(&second), None, "what that one was started from is not known");
        second.prepare_kubelet().unwrap();
        assert!(!second.started_with_something_else(&second.plan_kubelet().unwrap()));
    }

    /// A workload that writes below /var must not choose what the kubelet writes to.
    #[tokio::test]
    async fn a_planted_link_is_no_source_of_a_mount() {
        let root = tempfile::tempdir().unwrap();
        let runtime = samples::known(root.path(), &samples::control_plane("v1.34.10", "v3.6.4"));
        let fetch: containers::service::Fetch = Arc::new(|_, _| Box::pin(async { Ok(()) }));
        let node = KubernetesNode::new(runtime, containers::Client::new(root.path(), "system"), fetch, false);
        let (secret, planted) = (root.path().join("secret"), root.path().join("var/log/pods"));
        std::fs::create_dir(&secret).unwrap();
        std::fs::create_dir_all(root.path().join("var/log")).unwrap();
        std::os::unix::fs::symlink(&secret, &planted).unwrap();
        node.prepare_kubelet().unwrap();
        assert!(std::fs::symlink_metadata(&planted).unwrap().is_dir());
        assert!(secret.is_dir());
    }

    #[test]
    fn the_container_has_the_mounts_of_the_configuration() {
        let change = "machine: {kubelet: {extraMounts: [{destination: /var/lib/data, type: bind, source: /var/data, \
                      options: [rbind, ro]}]}}";
        let patches = config::patch::load_patches(change).unwrap();
        let text = config::patch::apply("version: v1alpha1\n", &patches).unwrap();
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        config.machine.kubelet.extra_mounts = config::parse(&text).unwrap().machine.kubelet.extra_mounts;
        let mounts = mounts(Path::new("/"), &Cluster::new(&config).unwrap());
        let own = mounts.last().unwrap();
        assert_eq!((own.destination.as_str(), own.kind.as_str()), ("/var/lib/data", "bind"));
        assert_eq!((own.source.as_str(), own.options.join(",").as_str()), ("/var/data", "rbind,ro"));
    }
    #[test]
    fn where_the_directory_is_disabled_only_the_nodes_own_files_are_in_sight() {
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        for (disabled, sources) in
            [(None, &[][..]), (Some(false), &[]), (Some(true), &[paths::OWN_MANIFESTS])]
        {
            config.machine.kubelet.disable_manifests_directory = disabled;
            let mounts = mounts(Path::new("/"), &Cluster::new(&config).unwrap());
            let at = |path: &str| mounts.iter().position(|mount| mount.destination == path);
            let found: Vec<_> =
                at(paths::MANIFESTS).map(|at| mounts[at].source.as_str()).into_iter().collect();
            assert_eq!(found, sources);
            if let Some(own) = at(paths::MANIFESTS) {
                assert!(at("/etc/kubernetes").unwrap() < own, "a later mount covers an earlier one");
                assert!(mounts[own].options.contains(&"ro".to_owned()));
            }
        }
    }
}
