//! Defining and starting the node's services.
//!
//! Source: ARCHITECTURE.md; as in current releases networkd and udevd are tasks of machined.

use runtime::sequencer::{TaskError, TaskFuture};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubernetes_node::{etcd, kubelet};
use runtime::services::Check;
use runtime::services::definition::{self, Answer, Definition, Identity, Runner};

use super::status::{Stage, publish_stage};
use crate::late_services::may_wait;
use crate::node::Node;
use crate::{
    apid, containerd, controllers, host_dns, identity, mounts, network, server, time, trustd, udevd,
};
use containers::Client;

/// How long the API may take to answer once there is a config.
pub const API_READY_DEADLINE: Duration = Duration::from_secs(60);
/// How long all services may take.
const ALL_UP_DEADLINE: Duration = Duration::from_secs(15 * 60);
/// Where layers put service definitions.
const IMAGE_SERVICES: &str = "/usr/lib/billet/services.d";
pub(crate) const TIMED: &str = time::ID;
const CONTAINERD: &str = "/usr/bin/containerd";
const CRI_SOCKET: &str = "/run/containerd/containerd.sock";

/// Starts everything that follows from resources.
pub fn start_controllers(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        controllers::start(&node);
        tokio::spawn(super::status::follow_services(node.clone()));
        mounts::publish_now(&node.runtime).map_err(|e| TaskError(format!("read the mount table: {e}")))
    })
}

/// Opens the API socket and serves it.
pub fn start_machined(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        define_machined(&node)?;
        node.runtime.services.start("machined");
        Ok(())
    })
}

/// Starts loopback and DHCP.
pub fn start_networkd(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        define_networkd(&node);
        node.runtime.services.start("networkd");
        Ok(())
    })
}

/// Starts the clock's keeper.
pub fn start_timed(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        define_timed(&node);
        node.runtime.services.start(TIMED);
        Ok(())
    })
}

/// Starts module loading for devices.
pub fn start_udevd(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        define_udevd(&node);
        node.runtime.services.start("udevd");
        Ok(())
    })
}

/// Starts the API's front end.
pub fn start_apid(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        define_apid(&node)?;
        node.runtime.services.start("apid");
        Ok(())
    })
}

/// Defines the named services again after a restart of machined, as far as they are ours or the image's.
pub fn define_services(node: &Arc<Node>, ids: &[&str]) -> Vec<TaskError> {
    let mut errors = Vec::new();
    for id in in_order(ids) {
        let result = match id {
            "machined" => define_machined(node),
            "networkd" => {
                define_networkd(node);
                Ok(())
            }
            "udevd" => {
                define_udevd(node);
                Ok(())
            }
            TIMED => {
                define_timed(node);
                Ok(())
            }
            host_dns::ID => {
                host_dns::define(&node.runtime);
                Ok(())
            }
            "apid" => define_apid(node),
            "trustd" => define_trustd(node),
            etcd::ID => {
                define_etcd(node);
                Ok(())
            }
            kubelet::ID => {
                define_kubelet(node);
                Ok(())
            }
            "containerd" | "cri" => {
                define_containerd(node);
                Ok(())
            }
            _ => Ok(()),
        };
        errors.extend(result.err());
    }
    define_image_services(node, |id| ids.contains(&id));
    errors
}

/// Those of Kubernetes come last: they are defined where a containerd is. The ids come in the order in which the services
/// first changed, which differs from boot to boot.
fn in_order<'a>(ids: &[&'a str]) -> Vec<&'a str> {
    let mut ids = ids.to_vec();
    ids.sort_by_key(|id| [etcd::ID, kubelet::ID].contains(id));
    ids
}

fn define_machined(node: &Arc<Node>) -> Result<(), TaskError> {
    // Opened once: a second socket would take the place of the one that serves.
    if node.runtime.services.record("machined").is_some() {
        return Ok(());
    }
    server::open(node).map_err(|e| TaskError(e.to_string()))?;
    let serving = node.clone();
    node.runtime
        .services
        .define(Definition::internal("machined", move || Box::pin(server::serve(serving.clone()))));
    Ok(())
}

fn define_networkd(node: &Arc<Node>) {
    let working = node.clone();
    node.runtime.services.define(Definition::internal("networkd", move || {
        let beside = identity::give_up_without_lease(working.clone());
        Box::pin(network::run(working.runtime.clone(), working.configuration.states(), beside))
    }));
}

fn define_timed(node: &Arc<Node>) {
    let working = node.clone();
    let mut definition = Definition::internal(TIMED, move || Box::pin(time::run(working.runtime.clone())));
    definition.check = Some(Check::Clock);
    // The one service of the node's own that clients may start again.
    definition.api_control = true;
    node.runtime.services.define(definition);
}

fn define_udevd(node: &Arc<Node>) {
    let working = node.clone();
    node.runtime
        .services
        .define(Definition::internal("udevd", move || Box::pin(udevd::run(working.clone()))));
}

fn define_apid(node: &Arc<Node>) -> Result<(), TaskError> {
    if node.runtime.services.record("apid").is_some() {
        return Ok(());
    }
    identity::open(node, identity::Role::Apid).map_err(|e| TaskError(e.to_string()))?;
    let socket = node.runtime.listeners.tcp("apid", apid::PORT).map_err(|e| TaskError(e.to_string()))?;
    node.runtime.services.define(apid_definition(socket));
    Ok(())
}

fn apid_definition(socket: OwnedFd) -> Definition {
    let mut definition = Definition::process("apid", &["/usr/bin/apid"]);
    // Other nodes are reached by name, too.
    let names = ["/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"].map(Path::new);
    let sockets = [Path::new(server::SOCKET), identity::Role::Apid.socket()];
    let sees = [&sockets[..], &names[..]].concat();
    set_program(&mut definition, Identity { user: apid::USER, group: apid::USER }, socket, &sees);
    definition.check = Some(Check::Tcp(([127, 0, 0, 1], apid::PORT).into()));
    // It sees the API's socket only if that is there when it starts.
    definition.depends_on = vec!["machined".to_owned()];
    definition
}

fn trustd_definition(socket: OwnedFd) -> Definition {
    let mut definition = Definition::process("trustd", &["/usr/bin/trustd"]);
    let identity = Identity { user: trustd::USER, group: trustd::USER };
    set_program(&mut definition, identity, socket, &[identity::Role::Trustd.socket()]);
    definition.check = Some(Check::Tcp(([127, 0, 0, 1], trustd::PORT).into()));
    definition.depends_on = vec!["networkd".to_owned()];
    definition
}

/// What the network reaches: a user, a root and no rights of its own.
fn set_program(definition: &mut Definition, identity: Identity, listener: OwnedFd, sees: &[&Path]) {
    if let Runner::Process(program) = &mut definition.runner {
        program.identity = Some(identity);
        program.listener = Some(Arc::new(listener));
        program.sees = Some(sees.iter().map(|path| path.display().to_string()).collect());
        // Two arenas at most: each costs address space and pages that are never given back.
        program.env.push("MALLOC_ARENA_MAX=1".to_owned());
    }
}

/// Waits until the API has answered, or says what it waited for.
pub fn wait_for_api(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        // Its API comes with its cluster, and nothing of the cluster runs before the next phases.
        if node.runtime.config().is_some_and(|config| config::lacks_authority(&config)) {
            return Ok(());
        }
        let mut readiness = node.readiness.subscribe();
        let ready = readiness.wait_for(|readiness| readiness.announced);
        if tokio::time::timeout(API_READY_DEADLINE, ready).await.is_err() {
            let seconds = API_READY_DEADLINE.as_secs();
            node.runtime.journal.warn(&format!(
                "API not ready within {seconds} s (deadline waitForAPI); going on without it"
            ));
        }
        Ok(())
    })
}

/// Starts all services and waits for them.
pub fn start_all_services(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        define_containerd(&node);
        define_trustd(&node)?;
        define_etcd(&node);
        define_kubelet(&node);
        define_image_services(&node, |_| true);
        let ids = node.runtime.services.ids();
        for id in &ids {
            node.runtime.services.start(id);
        }
        node.runtime.timeline.close();
        // A node without a time server is up all the same; what needs the time waits for it by itself. So is one that waits
        // for its cluster's bootstrap.
        let awaited: Vec<String> = ids.into_iter().filter(|id| !may_wait(&node.runtime.root, id)).collect();
        let late = node.runtime.services.wait_up(&awaited, ALL_UP_DEADLINE).await.err().unwrap_or_default();
        publish_stage(&node, "", &Stage::Running(late.clone()));
        if late.is_empty() {
            return Ok(());
        }
        let seconds = ALL_UP_DEADLINE.as_secs();
        Err(TaskError(format!("not up within {seconds} s (deadline startAllServices): {}", late.join(", "))))
    })
}

fn define_containerd(node: &Arc<Node>) {
    if !Path::new(CONTAINERD).exists() {
        node.runtime.journal.warn(&format!("{CONTAINERD} is not in this image: no containers"));
        return;
    }
    define_cri(node);
    // One process serves both (docs/decisions/0030): clients ask for either name.
    let mut definition = Definition::internal("containerd", || Box::pin(std::future::pending()));
    definition.check = Some(containerd_serves());
    definition.depends_on = vec!["cri".to_owned()];
    node.runtime.services.define(definition);
}

/// containerd says that it serves.
fn containerd_serves() -> Check {
    let ask = move || -> Answer {
        Box::pin(async move {
            let health = Client::new(Path::new(CRI_SOCKET), "system").health().await;
            health.map_err(|status| format!("ask containerd at {CRI_SOCKET}: {}", status.message()))
        })
    };
    Check::Call { place: CRI_SOCKET.to_owned(), ask: Arc::new(ask) }
}

/// The node's containerd: Kubernetes' containers, and those of the system in a namespace of their own.
fn define_cri(node: &Arc<Node>) {
    let argv = [CONTAINERD, "--address", CRI_SOCKET, "--config", containerd::CONFIG];
    let mut definition = Definition::process("cri", &argv);
    definition.check = Some(containerd_serves());
    definition.depends_on = vec!["networkd".to_owned()];
    definition.share.group = "podruntime/runtime".to_owned();
    definition.share.oom_score_adj = Some(-500);
    definition.share.most_processes = 4096;
    set_runtime(&mut definition, node);
    node.runtime.services.define(definition);
}

/// What pulls images gets the config's environment (proxies), and its containers outlive it.
fn set_runtime(definition: &mut Definition, node: &Node) {
    if let Runner::Process(program) = &mut definition.runner {
        program.ends_group = false;
        program.env.extend(super::environment(node));
    }
}

/// etcd of a control plane node.
fn define_etcd(node: &Arc<Node>) {
    let is_control_plane =
        node.runtime.config().is_some_and(|config| config.machine.machine_type.is_control_plane());
    if !is_control_plane || node.runtime.services.record("cri").is_none() {
        return;
    }
    let Some(kubernetes) = node.kubernetes.get() else { return };
    let mut definition = kubernetes.etcd();
    definition.depends_on = needs_of_kubernetes(node);
    node.runtime.services.define(definition);
}

/// Certificates take the time; a container has its host's.
fn needs_of_kubernetes(node: &Node) -> Vec<String> {
    let mut needs = vec!["cri".to_owned(), "networkd".to_owned()];
    needs.extend((!node.is_container()).then(|| TIMED.to_owned()));
    needs
}

/// The kubelet of every node that has a config, and a containerd.
fn define_kubelet(node: &Arc<Node>) {
    if node.runtime.config().is_none() || node.runtime.services.record("cri").is_none() {
        return;
    }
    let Some(kubernetes) = node.kubernetes.get() else { return };
    let mut definition = kubernetes.kubelet();
    definition.depends_on = needs_of_kubernetes(node);
    node.runtime.services.define(definition);
}

fn define_trustd(node: &Arc<Node>) -> Result<(), TaskError> {
    let Some(config) = node.runtime.config().filter(|_| node.runtime.services.record("trustd").is_none())
    else {
        return Ok(());
    };
    if !config.machine.machine_type.is_control_plane() {
        return Ok(());
    }
    identity::open(node, identity::Role::Trustd).map_err(|e| TaskError(e.to_string()))?;
    let socket = node.runtime.listeners.tcp("trustd", trustd::PORT).map_err(|e| TaskError(e.to_string()))?;
    node.runtime.services.define(trustd_definition(socket));
    Ok(())
}

/// Adds the services that layers bring. One that takes a name of ours is ignored: ours came first.
fn define_image_services(node: &Node, wanted: impl Fn(&str) -> bool) {
    let (definitions, wrong) = definition::read_folder(Path::new(IMAGE_SERVICES));
    for error in wrong {
        node.runtime.journal.warn(&error);
    }
    for mut definition in definitions.into_iter().filter(|definition| wanted(&definition.id)) {
        if let Runner::Process(program) = &mut definition.runner {
            // What the image's author set comes last and wins.
            program.env.splice(0..0, super::environment(node));
        }
        node.runtime.services.define(definition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sees(definition: &Definition) -> &[String] {
        match &definition.runner {
            Runner::Process(program) => program.sees.as_deref().unwrap(),
            Runner::Internal(_) | Runner::Container(..) => panic!("{definition:?}"),
        }
    }

    /// What the network reaches can name nothing else of the system.
    #[test]
    fn containerd_is_defined_before_what_needs_it() {
        let ids = in_order(&["etcd", "apid", "kubelet", "cri", "trustd", "containerd"]);
        assert_eq!(ids, ["apid", "cri", "trustd", "containerd", "etcd", "kubelet"]);
    }

    #[test]
    fn apid_and_trustd_see_their_own_sockets_and_how_names_are_found() {
        let socket = || std::io::pipe().unwrap().0.into();
        let (apid, trustd) = (apid_definition(socket()), trustd_definition(socket()));
        assert_eq!(
            sees(&apid),
            [
                "/system/run/machined/machine.sock",
                "/system/run/machined/apid.sock",
                "/etc/hosts",
                "/etc/nsswitch.conf",
                "/etc/resolv.conf"
            ]
        );
        assert_eq!(apid.depends_on, ["machined"]);
        assert_eq!(sees(&trustd), ["/system/run/machined/trustd.sock"]);
    }
}
