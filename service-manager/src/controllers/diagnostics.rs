//! `Diagnostics`: what is wrong with this node, since when, and what to do.
//!
//! Owns: one [`cause`] function a type that can say so, and the words. Does not: find anything out: the causes are those that
//! other resources tell.
//! Order: what is not there yet while the machine starts is no cause; a volume that failed is one at any time. A cause keeps the
//! time at which it was first told, whatever else its resource says meanwhile.

use runtime::store::{
    Addressing, Block, CERTIFICATE_STATUS, CLOCK_SOURCE, CONFIG_REFUSAL, ConfigRefusal, DIAGNOSTIC,
    DISCOVERED_VOLUME, DNS_UPSTREAM, Definition, Diagnostic, ETCD_SNAPSHOT_STATUS, Fact, KERNEL_MODULE_SPEC,
    KERNEL_PARAM_STATUS, KUBE_PRISM_STATUS, KubernetesSpec, LOG_DESTINATION_STATUS, MACHINE_STATUS,
    NETWORK_STATUS, NetworkSpec, NetworkStatus, PROBE_STATUS, Resource, RuntimeSpec, STATIC_POD_STATUS, Spec,
    TIME_STATUS, UDEV_RULE_STATUS, UPGRADE_STATUS, VOLUME_STATUS,
};
use serde_json::Value;

use super::controller::{Action, Controller, Snapshot};

static INPUTS: [&Definition; 19] = [
    &CERTIFICATE_STATUS,
    &CLOCK_SOURCE,
    &CONFIG_REFUSAL,
    // What was told before: since when.
    &DIAGNOSTIC,
    &DISCOVERED_VOLUME,
    &DNS_UPSTREAM,
    &ETCD_SNAPSHOT_STATUS,
    &KERNEL_MODULE_SPEC,
    &KERNEL_PARAM_STATUS,
    &KUBE_PRISM_STATUS,
    &LOG_DESTINATION_STATUS,
    &MACHINE_STATUS,
    &NETWORK_STATUS,
    &PROBE_STATUS,
    &STATIC_POD_STATUS,
    &TIME_STATUS,
    &UDEV_RULE_STATUS,
    &UPGRADE_STATUS,
    &VOLUME_STATUS,
];

pub(crate) static CONTROLLER: Controller =
    Controller { name: "runtime.DiagnosticsController", inputs: &INPUTS, outputs: &[&DIAGNOSTIC], reconcile };

/// Something that is wrong.
struct Cause {
    id: String,
    message: String,
    what_to_do: String,
    /// What else is known.
    more: Vec<String>,
}

/// The condition of a machine that is locked, and the place of a config that locks it.
const STATE: &str = "state";

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let has_started = has_started(snapshot);
    // It says more than the condition that a locked machine does not meet.
    let state_is_refused = snapshot.list(&CONFIG_REFUSAL).any(|resource| resource.metadata.id == STATE);
    let mut wanted = Vec::new();
    for kind in INPUTS {
        for resource in snapshot.list(kind) {
            for mut cause in causes(resource, has_started) {
                if state_is_refused && cause.id == STATE {
                    continue;
                }
                if kind.kind == TIME_STATUS.kind {
                    cause.more = snapshot.list(&CLOCK_SOURCE).filter_map(of_server).collect();
                }
                let told = snapshot.list(&DIAGNOSTIC).find(|told| told.metadata.id == cause.id);
                wanted.push(shown(resource, told, cause));
            }
        }
    }
    Ok(vec![Action::Replace(&DIAGNOSTIC, wanted)])
}

/// Begins the detail that says when a cause was first told.
const SINCE: &str = "since: ";

/// `told`: the same cause as it was told before.
fn shown(resource: &Resource, told: Option<&Resource>, cause: Cause) -> (String, Spec) {
    let before = told.and_then(|told| match &told.spec {
        Spec::Fact(fact) => match &**fact {
            Fact::Diagnostic(told) => told.details.iter().find(|detail| detail.starts_with(SINCE)).cloned(),
            _ => None,
        },
        _ => None,
    });
    let since = before.unwrap_or_else(|| format!("{SINCE}{}", resource.metadata.updated));
    let mut details = vec![since, format!("what to do: {}", cause.what_to_do)];
    details.extend(cause.more);
    let diagnostic = Diagnostic { message: cause.message, details };
    (cause.id, Spec::Fact(Box::new(Fact::Diagnostic(diagnostic))))
}

/// Whether the machine is past its start: running, or waiting for a config.
fn has_started(snapshot: &Snapshot<'_>) -> bool {
    snapshot.list(&MACHINE_STATUS).any(|resource| match &resource.spec {
        Spec::Runtime(RuntimeSpec::MachineStatus(status)) => {
            matches!(status.stage, "running" | "maintenance")
        }
        _ => false,
    })
}

fn cause(id: impl Into<String>, message: impl Into<String>, what_to_do: impl Into<String>) -> Cause {
    Cause { id: id.into(), message: message.into(), what_to_do: what_to_do.into(), more: Vec::new() }
}

/// What one resource says is wrong.
fn causes(resource: &Resource, has_started: bool) -> Vec<Cause> {
    let id = &resource.metadata.id;
    match &resource.spec {
        Spec::Runtime(runtime) => of_runtime(id, runtime),
        Spec::Block(block) => of_block(id, block),
        Spec::Addressing(Addressing::Status(status)) if has_started => of_network(status),
        Spec::Addressing(Addressing::Upstream(server)) if has_started && !server.healthy => vec![cause(
            format!("name-server-{}", server.addr),
            format!("name server {} does not answer", server.addr),
            "let this node reach it (port 53), or name others in machine.network.nameservers or ResolverConfig",
        )],
        Spec::Network(spec) => match &**spec {
            NetworkSpec::ProbeStatus(probe) if has_started && !probe.success => vec![cause(
                format!("probe-{id}"),
                format!("probe {id} fails: {}", probe.last_error),
                "start what it asks, or correct its TCPProbeConfig or HTTPProbeConfig document",
            )],
            _ => Vec::new(),
        },
        Spec::Kubernetes(KubernetesSpec::StaticPodStatus(status)) if has_started => of_static_pod(id, status),
        Spec::Fields(fields) => of_fields(id, resource.metadata.kind, fields, has_started),
        Spec::TimeStatus(status) if has_started && !status.synced && !status.sync_disabled => vec![cause(
            "time-not-synchronised",
            "no majority of the time servers confirms the clock",
            "let this node reach its time servers (UDP port 123), or name others in machine.time.servers",
        )],
        Spec::KernelParamStatus(status) if status.unsupported => vec![cause(
            format!("kernel-parameter-{id}"),
            format!("the kernel has no parameter {id}, or refuses its value"),
            "correct machine.sysctls or machine.sysfs, or load the module that has it (machine.kernel.modules)",
        )],
        _ => Vec::new(),
    }
}

/// Containers of a pod that the kubelet cannot start, or starts again and again.
fn of_static_pod(id: &str, status: &Value) -> Vec<Cause> {
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    let waits = |container: &Value| {
        let (reason, message) = (
            container["state"]["waiting"]["reason"].as_str()?,
            container["state"]["waiting"]["message"].as_str(),
        );
        // Others are steps of a start.
        if !reason.contains("Err") && !reason.contains("BackOff") {
            return None;
        }
        let name = container["name"].as_str().unwrap_or_default();
        let message =
            format!("container {name} of {id} does not run: {reason}: {}", message.unwrap_or_default());
        let what_to_do = "read its log (logs -k) and the kubelet's, and correct its image or its arguments";
        Some(cause(format!("static-pod-{id}-{name}"), message, what_to_do))
    };
    containers.filter_map(waits).collect()
}

fn of_fields(id: &str, kind: &str, fields: &Value, has_started: bool) -> Vec<Cause> {
    let text = |name: &str| fields[name].as_str().unwrap_or_default();
    if kind == ETCD_SNAPSHOT_STATUS.kind && !text("error").is_empty() {
        return vec![cause(
            "etcd-snapshot",
            format!("the last snapshot of etcd is not where it belongs: {}", text("error")),
            "let this node reach the target, or correct the document billet-etcd-snapshots; it is tried again with the next one",
        )];
    }
    if kind == CERTIFICATE_STATUS.kind && fields["endsSoon"] == true {
        return vec![cause(
            format!("certificate-{id}"),
            format!("certificate {id} of {} ends at {}", text("subject"), text("notAfter")),
            "look at who renews it (get certificatestatuses): certs renew makes the node's own anew; an authority is replaced by \
             its rotation",
        )];
    }
    if kind == KUBE_PRISM_STATUS.kind && has_started && fields["healthy"] == false {
        return vec![cause(
            "kubeprism",
            "no API server of the cluster answers the node's balancer",
            "look at the control plane nodes (get kubeprismendpoints, health)",
        )];
    }
    Vec::new()
}

fn of_server(resource: &Resource) -> Option<String> {
    match &resource.spec {
        Spec::ClockSource(source) if source.error.is_empty() => {
            Some(format!("{}: {}", source.server, source.state))
        }
        Spec::ClockSource(source) => Some(format!("{}: {}: {}", source.server, source.state, source.error)),
        _ => None,
    }
}

fn of_network(status: &NetworkStatus) -> Vec<Cause> {
    let mut cause = match (status.address_ready, status.connectivity_ready) {
        (false, _) => cause(
            "network-no-address",
            "the node has no address that others can reach",
            "look at the links (get links) and the DHCP server, or give an address in machine.network.interfaces",
        ),
        (true, false) => cause(
            "network-no-default-route",
            "the node has no default route",
            "have the DHCP server give a router, or add a route in machine.network.interfaces",
        ),
        (true, true) if !status.reasons.is_empty() => cause(
            "network-gateway-silent",
            "a gateway of the node does not answer",
            "look at the gateway and at what is between (get gatewaystatuses), or correct the route",
        ),
        (true, true) => return Vec::new(),
    };
    cause.more.clone_from(&status.reasons);
    vec![cause]
}

fn of_runtime(id: &str, runtime: &RuntimeSpec) -> Vec<Cause> {
    match runtime {
        RuntimeSpec::MachineStatus(status) if matches!(status.stage, "running" | "maintenance") => {
            let unmet = status.status.unmet_conditions.iter();
            unmet.map(|unmet| of_condition(&unmet.name, &unmet.reason)).collect()
        }
        RuntimeSpec::ConfigRefusal(refusal) => vec![of_refusal(id, refusal)],
        RuntimeSpec::KernelModule(module) if !module.error.is_empty() => vec![cause(
            format!("kernel-module-{id}"),
            format!("kernel module {id}: {}", module.error),
            "correct machine.kernel.modules, or use an image that has the module",
        )],
        RuntimeSpec::UdevRule(rule) if !rule.problem.is_empty() => vec![cause(
            format!("device-rule-{id}"),
            format!("device rule {:?}: {}", rule.rule, rule.problem),
            "correct machine.udev.rules",
        )],
        RuntimeSpec::LogDestination(receiver) if !receiver.error.is_empty() => vec![cause(
            format!("log-receiver-{id}"),
            format!("logs do not reach {}: {}", receiver.endpoint, receiver.error),
            "start the receiver, or correct its address in the machine config",
        )],
        RuntimeSpec::UpgradeStatus(upgrade)
            if matches!(upgrade.state, "failed" | "fell back" | "interrupted") =>
        {
            let mut failed = cause(
                "upgrade",
                format!("the last upgrade, to {}, {}: {}", upgrade.image, upgrade.state, upgrade.reason),
                "remove the reason and upgrade again; the node runs the version that it had",
            );
            failed.more = upgrade.last_lines.clone();
            vec![failed]
        }
        _ => Vec::new(),
    }
}

/// A machine config that is not taken, by where it came from.
fn of_refusal(place: &str, refusal: &ConfigRefusal) -> Cause {
    let (what, what_to_do) = match place {
        STATE => (
            "this machine's own machine config is not taken",
            "start the version that wrote it, or start with the kernel parameter billet.maintenance=open and apply a \
             corrected one (apply-config --insecure)",
        ),
        "outside" => (
            "the machine config that was found is not taken",
            "correct it where it lies; it is looked for again within 30 s and when a disk appears",
        ),
        _ => (
            "the last machine config that a client sent was refused",
            "correct it and apply it again; what was in force before still is",
        ),
    };
    let mut lines = refusal.reason.lines();
    let message = format!("{what}: {}", lines.next().unwrap_or_default());
    Cause {
        more: lines.map(str::to_owned).collect(),
        ..cause(format!("config-{place}"), message, what_to_do)
    }
}

/// A condition of the machine's stage.
fn of_condition(name: &str, reason: &str) -> Cause {
    let what_to_do = match name {
        "services" => "read the service's state and log (service, logs), then restart it",
        STATE => "have the keys of STATE reached, or unlock it with its recovery key (unlock)",
        _ => "read the node's own log (logs machined)",
    };
    // Several services may be down: each has a cause of its own.
    let service = if name == "services" { reason.split('"').nth(1).unwrap_or_default() } else { "" };
    let id = if service.is_empty() { name.to_owned() } else { format!("{name}-{service}") };
    cause(id, reason, what_to_do)
}

fn of_block(id: &str, block: &Block) -> Vec<Cause> {
    match block {
        Block::VolumeStatus(status) if !status.error_message.is_empty() => vec![cause(
            format!("volume-{id}"),
            format!("volume {id} cannot be used: {}", status.error_message),
            "correct the volume's document or its keys in the machine config, attach its disk, or unlock it with its \
             recovery key (unlock)",
        )],
        Block::VolumeStatus(status) if !status.encryption_failed_syncs.is_empty() => {
            let mut keys = cause(
                format!("volume-keys-{id}"),
                format!("keys of volume {id} are not as the machine config wants them"),
                "have the key servers or the TPM reached; it is tried again with the next config",
            );
            keys.more = status.encryption_failed_syncs.clone();
            vec![keys]
        }
        Block::Volume(volume) if !volume.error.is_empty() => vec![cause(
            format!("disk-{id}"),
            format!("{} cannot be read: {}", volume.dev_path, volume.error),
            "look at the kernel's log (dmesg); the disk may be failing",
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use runtime::store::{
        ClockSource, KernelModule, MachineStatus, StageStatus, Store, TimeStatus, UnmetCondition,
        VolumeStatus,
    };

    use super::*;
    use crate::controllers::testing::snapshot;

    fn put(store: &Store, kind: &'static Definition, id: &str, spec: Spec) {
        store.put(kind.writer, kind, id, spec).unwrap();
    }

    fn stage(store: &Store, stage: &'static str, unmet: &[&str]) {
        let condition =
            |reason: &&str| UnmetCondition { name: "services".into(), reason: (*reason).to_owned() };
        let unmet_conditions = unmet.iter().map(condition).collect();
        let status = StageStatus { ready: unmet.is_empty(), unmet_conditions };
        let spec = Spec::Runtime(RuntimeSpec::MachineStatus(MachineStatus { stage, status }));
        put(store, &MACHINE_STATUS, "machine", spec);
    }

    fn found(store: &Store) -> Vec<(String, String)> {
        let mut actions = reconcile(&snapshot(store, &Default::default())).unwrap();
        let Action::Replace(_, wanted) = actions.remove(0) else { panic!("{actions:?}") };
        wanted.into_iter().map(|(id, spec)| (id, spec.yaml().unwrap())).collect()
    }

    fn ids(store: &Store) -> Vec<String> {
        found(store).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn what_is_not_there_yet_is_no_cause() {
        let store = Store::new();
        let time = |synced| Spec::TimeStatus(TimeStatus { synced, epoch: 0, sync_disabled: false });
        let network = |address_ready, connectivity_ready| {
            let status = NetworkStatus {
                address_ready,
                connectivity_ready,
                hostname_ready: true,
                etc_files_ready: true,
                reasons: Vec::new(),
            };
            Spec::Addressing(Addressing::Status(status))
        };
        put(&store, &TIME_STATUS, "node", time(false));
        put(&store, &NETWORK_STATUS, "status", network(false, false));
        stage(&store, "booting", &["service \"cri\" is not up"]);
        assert!(ids(&store).is_empty());
        let silent = ClockSource {
            server: "192.0.2.1".into(),
            state: "silent",
            stratum: 0,
            offset_ms: 0,
            round_trip_ms: 0,
            error: "no answer within 5 s".into(),
        };
        put(&store, &CLOCK_SOURCE, "192.0.2.1", Spec::ClockSource(silent));
        stage(&store, "running", &["service \"cri\" is not up", "service \"apid\" is not up"]);
        let expected = ["services-cri", "services-apid", "network-no-address", "time-not-synchronised"];
        assert_eq!(ids(&store), expected);
        let clock = found(&store).pop().unwrap().1;
        for part in ["since: ", "what to do: ", "UDP port 123", "192.0.2.1: silent: no answer within 5 s"] {
            assert!(clock.contains(part), "{part}: {clock}");
        }
        put(&store, &NETWORK_STATUS, "status", network(true, false));
        put(&store, &TIME_STATUS, "node", time(true));
        stage(&store, "running", &[]);
        assert_eq!(ids(&store), ["network-no-default-route"]);
        put(&store, &NETWORK_STATUS, "status", network(true, true));
        assert!(ids(&store).is_empty(), "what is well again is no cause");
        let reason = "eth0: carrier; gateway 10.0.0.1 does not answer ARP";
        let silent = NetworkStatus {
            address_ready: true,
            connectivity_ready: true,
            reasons: vec![reason.into()],
            ..NetworkStatus::default()
        };
        put(&store, &NETWORK_STATUS, "status", Spec::Addressing(Addressing::Status(silent)));
        assert_eq!(ids(&store), ["network-gateway-silent"]);
        assert!(found(&store)[0].1.contains(reason));
    }

    #[test]
    fn a_refused_config_is_named_instead_of_the_lock_that_it_is_the_cause_of() {
        let store = Store::new();
        let reason = "the configuration on STATE cannot be used: \"woker\" is no type";
        let unmet = UnmetCondition { name: "state".into(), reason: reason.into() };
        let status = StageStatus { ready: false, unmet_conditions: vec![unmet] };
        let stage = RuntimeSpec::MachineStatus(MachineStatus { stage: "maintenance", status });
        put(&store, &MACHINE_STATUS, "machine", Spec::Runtime(stage));
        assert_eq!(ids(&store), ["state"]);
        for place in ["state", "outside", "call"] {
            let refusal = ConfigRefusal { reason: format!("{reason}\nline 2 of it") };
            put(&store, &CONFIG_REFUSAL, place, Spec::Runtime(RuntimeSpec::ConfigRefusal(refusal)));
        }
        assert_eq!(ids(&store), ["config-call", "config-outside", "config-state"]);
        let of_state = found(&store).pop().unwrap().1;
        for part in [
            "message: ",
            "\\\"woker\\\" is no type",
            "since: ",
            "what to do: start the version",
            "line 2 of it",
        ] {
            assert!(of_state.contains(part), "{part}: {of_state}");
        }
    }

    #[test]
    fn a_cause_keeps_the_time_at_which_it_was_first_told() {
        let store = Store::new();
        stage(&store, "running", &["service \"cri\" is not up"]);
        let since = |store: &Store| {
            found(store).remove(0).1.lines().find(|line| line.contains(SINCE)).unwrap().to_owned()
        };
        let diagnostic =
            Diagnostic { message: "m".into(), details: vec!["since: before".into(), "what to do: x".into()] };
        assert!(!since(&store).contains("before"));
        let spec = Spec::Fact(Box::new(Fact::Diagnostic(diagnostic)));
        put(&store, &DIAGNOSTIC, "services-cri", spec);
        stage(&store, "running", &["service \"cri\" is not up", "service \"etcd\" is not up"]);
        assert!(since(&store).contains("since: before"), "{}", since(&store));
        assert!(!found(&store)[1].1.contains("since: before"));
    }

    #[test]
    fn what_kubernetes_lacks_is_told() {
        let store = Store::new();
        let waiting = serde_json::json!({ "containerStatuses": [
            { "name": "a", "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 5m0s" } } },
            { "name": "b", "state": { "waiting": { "reason": "ContainerCreating" } } },
            { "name": "c", "state": { "running": {} } },
        ] });
        let pod = Spec::Kubernetes(KubernetesSpec::StaticPodStatus(waiting));
        put(&store, &STATIC_POD_STATUS, "kube-system/x", pod);
        put(
            &store,
            &KUBE_PRISM_STATUS,
            "k",
            Spec::Fields(serde_json::json!({ "host": "x", "healthy": false })),
        );
        put(&store, &ETCD_SNAPSHOT_STATUS, "s", Spec::Fields(serde_json::json!({ "error": "no route" })));
        let ends = serde_json::json!({ "subject": "n1", "notAfter": "tomorrow", "endsSoon": true });
        put(&store, &CERTIFICATE_STATUS, "api", Spec::Fields(ends));
        assert_eq!(ids(&store), ["certificate-api", "etcd-snapshot"], "the node has not started");
        stage(&store, "running", &[]);
        assert_eq!(
            ids(&store),
            ["certificate-api", "etcd-snapshot", "kubeprism", "static-pod-kube-system/x-a"]
        );
        let upstream = runtime::store::DnsUpstream { healthy: false, addr: "10.0.0.2:53".into() };
        put(&store, &DNS_UPSTREAM, "#0", Spec::Addressing(Addressing::Upstream(upstream)));
        let probe = runtime::store::ProbeStatus { success: false, last_error: "refused".into() };
        put(&store, &PROBE_STATUS, "p", Spec::Network(Box::new(NetworkSpec::ProbeStatus(probe))));
        assert!(ids(&store).contains(&"name-server-10.0.0.2:53".to_owned()));
        let told = found(&store).into_iter().find(|(id, _)| id == "probe-p").unwrap().1;
        assert!(told.contains("probe p fails: refused") && told.contains("what to do: "), "{told}");
    }

    #[test]
    fn volumes_and_modules_tell_their_reasons() {
        let store = Store::new();
        let status = VolumeStatus { error_message: "no key matched".into(), ..VolumeStatus::default() };
        put(&store, &VOLUME_STATUS, "EPHEMERAL", Spec::Block(Box::new(Block::VolumeStatus(status))));
        let module = KernelModule {
            name: "none".into(),
            parameters: Vec::new(),
            loaded: false,
            error: "the image has no such module".into(),
        };
        put(&store, &KERNEL_MODULE_SPEC, "none", Spec::Runtime(RuntimeSpec::KernelModule(module)));
        let found = found(&store);
        let messages: Vec<_> = found.iter().map(|(_, text)| text.lines().next().unwrap()).collect();
        let expected = [
            "message: \"kernel module none: the image has no such module\"",
            "message: \"volume EPHEMERAL cannot be used: no key matched\"",
        ];
        assert_eq!(messages, expected);
    }
}
