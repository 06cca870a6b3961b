//! Every service of the node's own, as one table. `cargo xtask plan` prints it.
//!
//! Owns: what each service is, which nodes have it, what it needs, and who starts it. Services that layers bring are files in
//! [`IMAGE_SERVICES`].
//! Does not: start anything (tasks of the sequences and features do), or run it ([`runtime::services`]).
//! Source: as in current releases networkd and udevd are tasks of machined.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use containers::Client;
use kubernetes_node::{KubernetesNode, etcd, kubelet};
use runtime::listeners::ListenError;
use runtime::services::Check;
use runtime::services::definition::{self, Answer, Definition, Identity, Runner, Work};

use crate::node::Node;
use crate::programs::MACHINED_SOCKET;
use crate::programs::Program::{Apid, Trustd};
use crate::{containerd, controllers, host_dns, identity, network, server, time, udevd};

const MACHINED: &str = "machined";
const NETWORKD: &str = "networkd";
const CRI: &str = "cri";
const CONTAINERD: &str = "/usr/bin/containerd";
const CRI_SOCKET: &str = "/run/containerd/containerd.sock";
/// Where layers put service definitions.
const IMAGE_SERVICES: &str = "/usr/lib/billet/services.d";

/// A service of the node's own.
pub(crate) struct Service {
    id: &'static str,
    about: &'static str,
    starts: Starts,
    on: Nodes,
    /// Services that must be up before it starts, as far as this node has them.
    needs: &'static [&'static str],
    program: Program,
    health: Health,
    /// Opens what its clients connect to, once: a second socket would take the place of the one that serves. The answer is the
    /// socket that a process inherits.
    listen: Option<Listen>,
    /// Whether clients may start and stop it.
    api_control: bool,
}

type Listen = fn(&Arc<Node>) -> Result<Option<OwnedFd>, ListenError>;

/// Who starts a service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Starts {
    /// A task of a sequence of its own, by this name.
    Task(&'static str),
    /// The task `startAllServices`.
    WithAll,
    /// A feature, while the config asks for it.
    Feature,
}

/// Which nodes have a service.
#[derive(Clone, Copy)]
struct Nodes {
    about: &'static str,
    include: fn(&Node) -> bool,
}

const ALL: Nodes = Nodes { about: "every node", include: |_| true };
const MACHINES: Nodes =
    Nodes { about: "machines; containers have their host's clock", include: |node| !node.is_container() };
const WITH_CONTAINERD: Nodes =
    Nodes { about: "nodes whose image has containerd", include: |_| has_containerd() };
const CONTROL_PLANES: Nodes = Nodes { about: "control planes", include: is_control_plane };
const KUBERNETES_CONTROL_PLANES: Nodes = Nodes {
    about: "control planes whose image has containerd",
    include: |node| is_control_plane(node) && has_containerd(),
};
const KUBERNETES_NODES: Nodes = Nodes {
    about: "nodes with a config whose image has containerd",
    include: |node| node.runtime.config().is_some() && has_containerd(),
};

/// How a service runs.
enum Program {
    /// A task of machined.
    Task(fn(Arc<Node>) -> Work),
    /// A process: its arguments, and what else is set.
    Process(&'static [&'static str], fn(&Node, &mut Definition)),
    /// A task of a feature, which defines it too.
    Feature(fn(&Node) -> Definition),
    /// A container of kubernetes-node, which brings its check.
    Container(fn(&KubernetesNode) -> Definition),
}

/// How a service's health is asked.
enum Health {
    /// It is healthy while it runs.
    Runs,
    /// A connection to this port of the node opens.
    Port(u16),
    /// The clock is synchronised.
    Clock,
    /// containerd says that it serves.
    Containerd,
    /// The container's crate asks it, there.
    Asked(&'static str),
}

/// In the order in which they are defined.
static SERVICES: [Service; 11] = [
    Service {
        id: MACHINED,
        about: "serves the node API to apid",
        starts: Starts::Task("startMachined"),
        program: Program::Task(|node| Box::pin(server::serve(node))),
        listen: Some(|node| server::open(node).map(|()| None)),
        ..TASK
    },
    Service {
        id: NETWORKD,
        about: "loopback, links, addresses, routes, DHCP",
        starts: Starts::Task("startNetworkd"),
        program: Program::Task(|node| {
            let beside = identity::give_up_without_lease(node.identity.clone());
            Box::pin(network::run(node.runtime.clone(), node.volumes.states(), beside))
        }),
        ..TASK
    },
    Service {
        id: "apid",
        about: "the node API for clients and other nodes",
        starts: Starts::Task("startApid"),
        // It sees the API's socket only if that is there when it starts.
        needs: &[MACHINED],
        program: Program::Process(&["/usr/bin/apid"], |_, definition| {
            // Other nodes are reached by name, too.
            let names = ["/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"].map(Path::new);
            let sockets = [Path::new(MACHINED_SOCKET), Apid.socket()];
            confine(definition, Apid.user(), &[&sockets[..], &names[..]].concat());
        }),
        health: Health::Port(Apid.port()),
        listen: Some(|node| {
            identity::open(&node.identity, Apid)?;
            node.runtime.listeners.tcp("apid", Apid.port()).map(Some)
        }),
        ..TASK
    },
    Service {
        id: time::ID,
        about: "asks time servers and sets the clock",
        starts: Starts::Task("startTimed"),
        on: MACHINES,
        program: Program::Task(|node| Box::pin(time::run(node.runtime.clone()))),
        health: Health::Clock,
        // The one service of the node's own that clients may start again.
        api_control: true,
        ..TASK
    },
    Service {
        id: "udevd",
        about: "loads modules for devices",
        starts: Starts::Task("startUdevd"),
        program: Program::Task(|node| Box::pin(udevd::run(of_udevd(&node)))),
        ..TASK
    },
    Service {
        id: host_dns::ID,
        about: "the node's own resolver",
        starts: Starts::Feature,
        program: Program::Feature(|node| host_dns::definition(&node.runtime)),
        ..TASK
    },
    Service {
        id: CRI,
        about: "containerd: Kubernetes' containers, and those of the system in a namespace of their own",
        starts: Starts::WithAll,
        on: WITH_CONTAINERD,
        needs: &[NETWORKD],
        program: Program::Process(
            &[CONTAINERD, "--address", CRI_SOCKET, "--config", containerd::CONFIG],
            |node, definition| {
                definition.share.group = "podruntime/runtime".to_owned();
                definition.share.oom_score_adj = Some(-500);
                definition.share.most_processes = 4096;
                if let Runner::Process(program) = &mut definition.runner {
                    // Its containers outlive it.
                    program.ends_group = false;
                    // Proxies, for what it pulls.
                    program.env.extend(controllers::environment(&node.runtime));
                }
            },
        ),
        health: Health::Containerd,
        ..TASK
    },
    // One process serves both (docs/decisions/0030): clients ask for either name.
    Service {
        id: "containerd",
        about: "the same process under its second name",
        starts: Starts::WithAll,
        on: WITH_CONTAINERD,
        needs: &[CRI],
        program: Program::Task(|_| Box::pin(std::future::pending())),
        health: Health::Containerd,
        ..TASK
    },
    Service {
        id: "trustd",
        about: "signs certificates of workers",
        starts: Starts::WithAll,
        on: CONTROL_PLANES,
        needs: &[NETWORKD],
        program: Program::Process(&["/usr/bin/trustd"], |_, definition| {
            confine(definition, Trustd.user(), &[Trustd.socket()]);
        }),
        health: Health::Port(Trustd.port()),
        listen: Some(|node| {
            identity::open(&node.identity, Trustd)?;
            node.runtime.listeners.tcp("trustd", Trustd.port()).map(Some)
        }),
        ..TASK
    },
    Service {
        id: etcd::ID,
        about: "the member of etcd; it waits for the cluster's bootstrap",
        starts: Starts::WithAll,
        on: KUBERNETES_CONTROL_PLANES,
        // Certificates take the time.
        needs: &[CRI, NETWORKD, time::ID],
        program: Program::Container(KubernetesNode::etcd),
        health: Health::Asked(etcd::HEALTH_PLACE),
        ..TASK
    },
    Service {
        id: kubelet::ID,
        about: "runs pods",
        starts: Starts::WithAll,
        on: KUBERNETES_NODES,
        needs: &[CRI, NETWORKD, time::ID],
        program: Program::Container(KubernetesNode::kubelet),
        health: Health::Asked(kubelet::HEALTH_PLACE),
        api_control: true,
        ..TASK
    },
];

/// What most services have in common.
const TASK: Service = Service {
    id: "",
    about: "",
    starts: Starts::Feature,
    on: ALL,
    needs: &[],
    program: Program::Task(|_| Box::pin(std::future::pending())),
    health: Health::Runs,
    listen: None,
    api_control: false,
};

impl Service {
    fn find(id: &str) -> Option<&'static Self> {
        SERVICES.iter().find(|service| service.id == id)
    }

    /// Defines it, where this node has it.
    fn define(&self, node: &Arc<Node>) -> Result<(), ListenError> {
        if !(self.on.include)(node) {
            return Ok(());
        }
        let mut socket = None;
        if let Some(listen) = self.listen {
            if node.runtime.services.record(self.id).is_some() {
                return Ok(());
            }
            socket = listen(node)?;
        }
        if let Some(definition) = self.definition(node, socket) {
            node.runtime.services.define(definition);
        }
        Ok(())
    }

    /// `None` for a container while this machined knows no Kubernetes.
    fn definition(&self, node: &Arc<Node>, socket: Option<OwnedFd>) -> Option<Definition> {
        let mut definition = match &self.program {
            Program::Task(work) => {
                let (node, work) = (node.clone(), *work);
                Definition::internal(self.id, move || work(node.clone()))
            }
            Program::Process(argv, set) => {
                let mut definition = Definition::process(self.id, argv);
                set(node, &mut definition);
                definition
            }
            Program::Feature(define) => define(node),
            Program::Container(define) => define(node.kubernetes.get()?),
        };
        if let (Some(socket), Runner::Process(program)) = (socket, &mut definition.runner) {
            program.listener = Some(Arc::new(socket));
        }
        let is_here = |id: &&&str| Self::find(id).is_some_and(|service| (service.on.include)(node));
        definition.depends_on = self.needs.iter().filter(is_here).map(|&id| id.to_owned()).collect();
        definition.api_control = self.api_control;
        match self.health {
            Health::Runs | Health::Asked(_) => {}
            Health::Port(port) => definition.check = Some(Check::Tcp(([127, 0, 0, 1], port).into())),
            Health::Clock => definition.check = Some(Check::Clock),
            Health::Containerd => definition.check = Some(containerd_serves()),
        }
        Some(definition)
    }
}

/// Defines a service of the table, and starts it where this node has it.
pub(crate) fn start(node: &Arc<Node>, id: &str) -> Result<(), ListenError> {
    if let Some(service) = Service::find(id) {
        service.define(node)?;
    }
    if node.runtime.services.record(id).is_some() {
        node.runtime.services.start(id);
    }
    Ok(())
}

/// Defines what starts with all, and what layers bring.
pub(crate) fn define_all(node: &Arc<Node>) -> Result<(), ListenError> {
    if !has_containerd() {
        node.runtime.journal.warn(&format!("{CONTAINERD} is not in this image: no containers"));
    }
    for service in SERVICES.iter().filter(|service| service.starts == Starts::WithAll) {
        service.define(node)?;
    }
    define_image_services(node, |_| true);
    Ok(())
}

/// Defines the named services again after a restart of machined, as far as they are ours or the image's.
pub(crate) fn define_again(node: &Arc<Node>, ids: &[&str]) -> Vec<ListenError> {
    let known = SERVICES.iter().filter(|service| ids.contains(&service.id));
    let errors = known.filter_map(|service| service.define(node).err()).collect();
    define_image_services(node, |id| ids.contains(&id));
    errors
}

/// Adds the services that layers bring. One that takes a name of ours is ignored: ours came first.
fn define_image_services(node: &Node, wanted: impl Fn(&str) -> bool) {
    let (definitions, wrong) = definition::read_directory(Path::new(IMAGE_SERVICES));
    for error in wrong {
        node.runtime.journal.warn(&error);
    }
    for mut definition in definitions.into_iter().filter(|definition| wanted(&definition.id)) {
        if let Runner::Process(program) = &mut definition.runner {
            // What the image's author set comes last and wins.
            program.env.splice(0..0, controllers::environment(&node.runtime));
        }
        node.runtime.services.define(definition);
    }
}

fn is_control_plane(node: &Node) -> bool {
    node.runtime.config().is_some_and(|config| config.machine.machine_type.is_control_plane())
}

fn has_containerd() -> bool {
    Path::new(CONTAINERD).exists()
}

/// What the network reaches: a user, a root and no rights of its own.
fn confine(definition: &mut Definition, user: u32, sees: &[&Path]) {
    if let Runner::Process(program) = &mut definition.runner {
        program.identity = Some(Identity { user, group: user });
        program.sees = Some(sees.iter().map(|path| path.display().to_string()).collect());
        // Two arenas at most: each costs address space and pages that are never given back.
        program.env.push("MALLOC_ARENA_MAX=1".to_owned());
    }
}

fn containerd_serves() -> Check {
    let ask = || -> Answer {
        Box::pin(async {
            let health = Client::new(Path::new(CRI_SOCKET), "system").health().await;
            health.map_err(|status| format!("ask containerd at {CRI_SOCKET}: {}", status.message()))
        })
    };
    Check::Call { place: CRI_SOCKET.to_owned(), ask: Arc::new(ask) }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.program {
            Program::Task(_) | Program::Feature(_) => "task of machined",
            Program::Process(argv, _) => argv[0],
            Program::Container(_) => "container",
        };
        writeln!(f, "  {}: {}", self.id, self.about)?;
        writeln!(f, "    runs as: {kind}; on {}", self.on.about)?;
        if !self.needs.is_empty() {
            writeln!(f, "    needs: {}", self.needs.join(", "))?;
        }
        match self.health {
            Health::Runs => {}
            Health::Port(port) => writeln!(f, "    check: port {port}")?,
            Health::Clock => writeln!(f, "    check: the clock is synchronised")?,
            Health::Containerd => writeln!(f, "    check: {CRI_SOCKET}")?,
            Health::Asked(place) => writeln!(f, "    check: {place}")?,
        }
        match self.starts {
            Starts::Task(name) => write!(f, "    started by: {name}")?,
            Starts::WithAll => write!(f, "    started by: startAllServices")?,
            Starts::Feature => write!(f, "    started by: its feature, while the config asks for it")?,
        }
        f.write_str(if self.api_control { "; clients may start and stop it\n" } else { "\n" })
    }
}

/// Writes the table, for `cargo xtask plan`.
pub(crate) fn print(out: &mut dyn fmt::Write) -> fmt::Result {
    writeln!(out, "services:")?;
    SERVICES.iter().try_for_each(|service| write!(out, "{service}"))
}

fn of_udevd(node: &Node) -> udevd::Parts {
    udevd::Parts {
        runtime: node.runtime.clone(),
        orders: node.orders.clone(),
        udev: node.udev.clone(),
        devices: node.devices.clone(),
        buses: node.buses.clone(),
        readiness: node.readiness.subscribe(),
        misses: node.configuration.misses.subscribe(),
        disks_settled: node.configuration.disks_settled.clone(),
        settled: node.configuration.settled.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(node: &Arc<Node>, id: &str) -> Definition {
        Service::find(id).unwrap().definition(node, Some(std::io::pipe().unwrap().0.into())).unwrap()
    }

    fn sees(definition: &Definition) -> &[String] {
        match &definition.runner {
            Runner::Process(program) => program.sees.as_deref().unwrap(),
            Runner::Internal(_) | Runner::Container(..) => panic!("{definition:?}"),
        }
    }

    #[test]
    fn a_service_is_defined_after_what_it_needs_and_once() {
        for (index, service) in SERVICES.iter().enumerate() {
            let before = &SERVICES[..index];
            assert!(before.iter().all(|earlier| earlier.id != service.id), "{}", service.id);
            for need in service.needs {
                assert!(before.iter().any(|earlier| earlier.id == *need), "{} needs {need}", service.id);
            }
        }
    }

    #[tokio::test]
    async fn the_checks_of_containers_are_asked_where_the_table_says() {
        let directory = tempfile::tempdir().unwrap();
        let node = server::tests_node(directory.path().to_owned());
        crate::kubernetes::join(&node);
        for service in &SERVICES {
            if let Health::Asked(place) = service.health {
                let definition = service.definition(&node, None).unwrap();
                assert_eq!(definition.check.unwrap().to_string(), place, "{}", service.id);
            }
        }
    }

    /// What the network reaches can name nothing else of the system.
    #[tokio::test]
    async fn apid_and_trustd_see_their_own_sockets_and_how_names_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let node = server::tests_node(directory.path().to_owned());
        let (apid, trustd) = (definition(&node, "apid"), definition(&node, "trustd"));
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
