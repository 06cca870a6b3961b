//! Kernel parameters: what the node needs, and what the config says besides or instead.
//!
//! A parameter that leaves the config gets its former value back. One that the kernel lacks, or whose value it
//! refuses, is `unsupported` in its status and a line in the log; nothing else stops. It is tried again when modules came.
//! Source: docs/users/files.md; sysctl(8).

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use runtime::Runtime;
use runtime::store::{
    Fact, KERNEL_PARAM_DEFAULT_SPEC, KERNEL_PARAM_SPEC, KERNEL_PARAM_STATUS, KernelParam, KernelParamStatus,
    LOADED_KERNEL_MODULE, MACHINE_CONFIG, Spec,
};

use super::controller::{Action, Controller, KernelParams, Snapshot};
use crate::container;

pub(crate) static CONTROLLER: Controller = Controller {
    name: "runtime.KernelParamSpecController",
    inputs: &[&MACHINE_CONFIG, &LOADED_KERNEL_MODULE],
    outputs: &[&KERNEL_PARAM_STATUS, &KERNEL_PARAM_SPEC, &KERNEL_PARAM_DEFAULT_SPEC],
    reconcile,
};

/// Written once at the start by `writeRequiredSysctls`, kept here. `kernel.panic` is left to the command line.
pub(crate) const NEEDED: [(&str, &str); 30] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv6.conf.default.forwarding", "1"),
    ("net.ipv6.conf.default.accept_ra", "2"),
    ("net.ipv4.icmp_echo_ignore_broadcasts", "1"),
    ("net.ipv4.icmp_ignore_bogus_error_responses", "1"),
    ("net.ipv4.ip_local_reserved_ports", "50000,50001"),
    ("net.ipv4.tcp_keepalive_time", "600"),
    ("net.ipv4.tcp_keepalive_intvl", "60"),
    ("kernel.ctrl-alt-del", "0"),
    // Keys of a console that anybody may touch; what init writes to the trigger file at the end is not asked of this.
    ("kernel.sysrq", "0"),
    ("kernel.pid_max", "262144"),
    ("kernel.kptr_restrict", "2"),
    ("kernel.dmesg_restrict", "1"),
    ("kernel.perf_event_paranoid", "3"),
    ("kernel.randomize_va_space", "2"),
    ("kernel.yama.ptrace_scope", "2"),
    ("kernel.unprivileged_bpf_disabled", "1"),
    ("net.core.bpf_jit_harden", "2"),
    ("vm.overcommit_memory", "1"),
    ("vm.unprivileged_userfaultfd", "0"),
    ("dev.tty.ldisc_autoload", "0"),
    ("dev.tty.legacy_tiocsti", "0"),
    ("fs.protected_symlinks", "1"),
    ("fs.protected_hardlinks", "1"),
    ("fs.protected_fifos", "2"),
    ("fs.protected_regular", "2"),
    ("fs.suid_dumpable", "0"),
    ("fs.aio-max-nr", "1048576"),
    ("fs.inotify.max_user_instances", "8192"),
    ("user.max_user_namespaces", "0"),
];

/// Those that every network namespace has of its own.
const NETWORK: &str = "proc.sys.net.";

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let Some(document) = snapshot.machine_config() else { return Ok(Vec::new()) };
    let needed: KernelParams =
        NEEDED.iter().map(|(name, value)| (format!("proc.sys.{name}"), (*value).to_owned())).collect();
    let machine = &document.config.machine;
    let sysctls = machine.sysctls.iter().map(|(name, value)| (format!("proc.sys.{}", plain(name)), value));
    let sysfs = machine.sysfs.iter().map(|(name, value)| (format!("sys.{}", plain(name)), value));
    let given: KernelParams = sysctls.chain(sysfs).map(|(id, value)| (id, value.clone())).collect();
    let given_specs = Action::Replace(&KERNEL_PARAM_SPEC, specs(&given));
    let defaults = Action::Replace(&KERNEL_PARAM_DEFAULT_SPEC, specs(&needed));
    let wanted = needed.into_iter().chain(given).collect();
    Ok(vec![given_specs, defaults, Action::KernelParams(wanted)])
}

fn specs(params: &KernelParams) -> Vec<(String, Spec)> {
    let spec = |(id, value): (&String, &String)| {
        let param = KernelParam { value: value.clone(), ignore_errors: true };
        (id.clone(), Spec::Fact(Box::new(Fact::KernelParam(param))))
    };
    params.iter().map(spec).collect()
}

/// Slashes are taken for dots, as sysctl(8) takes them; then dots inside a name are written as slashes.
fn plain(name: &str) -> String {
    match (name.find('/'), name.find('.')) {
        (Some(slash), dot) if dot.is_none_or(|dot| slash < dot) => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// The file of a parameter; `None` for a name that leads elsewhere.
fn path(id: &str) -> Option<PathBuf> {
    let parts: Vec<String> = id.split('.').map(|part| part.replace('/', ".")).collect();
    let fits = |part: &String| !part.is_empty() && part != ".." && part != ".";
    parts.iter().all(fits).then(|| parts.iter().fold(PathBuf::from("/"), |path, part| path.join(part)))
}

/// Writes what differs, restores what is not wanted any more, publishes how it stands.
pub(crate) fn perform(runtime: &Runtime, wanted: &KernelParams) -> Result<(), String> {
    // All others of a container's are its host's, and what the host needs is not for a node to say.
    let own = wanted.iter().filter(|(id, _)| !container::is_one(runtime) || id.starts_with(NETWORK));
    let wanted: &KernelParams = &own.map(|(id, value)| (id.clone(), value.clone())).collect();
    let before: BTreeMap<String, KernelParamStatus> = runtime
        .store
        .list(&KERNEL_PARAM_STATUS)
        .iter()
        .filter_map(|resource| match &resource.spec {
            Spec::KernelParamStatus(status) => Some((resource.metadata.id.clone(), status.clone())),
            _ => None,
        })
        .collect();
    for (id, status) in before.iter().filter(|(id, status)| !wanted.contains_key(*id) && !status.unsupported)
    {
        set(runtime, id, &status.default);
    }
    let statuses = wanted.iter().map(|(id, value)| {
        let old = before.get(id).map(|status| status.default.clone());
        (id.clone(), Spec::KernelParamStatus(keep(runtime, id, value, old)))
    });
    let statuses = statuses.collect();
    runtime
        .store
        .replace(KERNEL_PARAM_STATUS.writer, &KERNEL_PARAM_STATUS, statuses)
        .map_err(|e| e.to_string())
}

fn keep(runtime: &Runtime, id: &str, value: &str, default: Option<String>) -> KernelParamStatus {
    let found = read(runtime, id);
    let default = default.or_else(|| found.clone()).unwrap_or_default();
    let Some(found) = found else {
        let text = format!("{}: {id}: this kernel has no such parameter", CONTROLLER.name);
        runtime.journal.controller(&text);
        return KernelParamStatus { current: String::new(), default, unsupported: true };
    };
    let written = same(&found, value) || set(runtime, id, value);
    let current = read(runtime, id).unwrap_or_default();
    KernelParamStatus { current, default, unsupported: !written }
}

/// The kernel puts tabs between numbers.
fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

fn read(runtime: &Runtime, id: &str) -> Option<String> {
    let path = runtime.path(path(id)?.to_str()?);
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Says whether the kernel took the value.
fn set(runtime: &Runtime, id: &str, value: &str) -> bool {
    let written = path(id)
        .ok_or_else(|| "no name of a parameter".to_owned())
        .and_then(|path| fs::write(runtime.path(&path.to_string_lossy()), value).map_err(|e| e.to_string()));
    if let Err(error) = &written {
        let text = format!("{}: write {value:?} to {id}: {error}", CONTROLLER.name);
        runtime.journal.controller(&text);
        runtime.journal.warn(&text);
    }
    written.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    fn wanted(machine: &str) -> KernelParams {
        let actions = reconcile(&snapshot(&store_with_config(machine), &Default::default())).unwrap();
        let wanted = actions.into_iter().find_map(|action| match action {
            Action::KernelParams(wanted) => Some(wanted),
            _ => None,
        });
        wanted.expect("no parameters")
    }

    #[test]
    fn the_config_adds_and_overrides() {
        let wanted = wanted(
            "  sysctls:\n    net.ipv4.ip_forward: \"0\"\n    kernel/domainname: lab\n  sysfs:\n    block.sda.queue.scheduler: none\n",
        );
        assert_eq!(wanted["proc.sys.net.ipv4.ip_forward"], "0");
        assert_eq!(wanted["proc.sys.kernel.domainname"], "lab");
        assert_eq!(wanted["sys.block.sda.queue.scheduler"], "none");
        assert_eq!(wanted["proc.sys.kernel.kptr_restrict"], "2");
    }

    #[test]
    fn what_the_config_gives_and_what_the_node_needs_are_two_types() {
        let store =
            store_with_config("  sysctls: {net.ipv4.ip_forward: \"0\"}\n  sysfs: {block.sda.ro: \"1\"}\n");
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        let of = |kind| {
            let found = actions.iter().find_map(|action| match action {
                Action::Replace(found, specs) if *found == kind => Some(specs),
                _ => None,
            });
            found.unwrap().iter().map(|(id, spec)| (id.as_str(), spec.yaml().unwrap())).collect::<Vec<_>>()
        };
        let zero = "value: \"0\"\nignoreErrors: true\n".to_owned();
        let one = "value: \"1\"\nignoreErrors: true\n".to_owned();
        let given = of(&KERNEL_PARAM_SPEC);
        assert_eq!(given, [("proc.sys.net.ipv4.ip_forward", zero), ("sys.block.sda.ro", one.clone())]);
        let needed = of(&KERNEL_PARAM_DEFAULT_SPEC);
        assert_eq!(needed.len(), NEEDED.len());
        assert!(needed.contains(&("proc.sys.net.ipv4.ip_forward", one)));
    }

    #[test]
    fn keys_at_the_console_do_nothing_unless_the_config_says_so() {
        assert_eq!(wanted("  sysfs: {}\n")["proc.sys.kernel.sysrq"], "0");
        assert_eq!(wanted("  sysctls:\n    kernel.sysrq: \"176\"\n")["proc.sys.kernel.sysrq"], "176");
    }

    #[test]
    fn names_lead_to_files_and_nowhere_else() {
        let file = |name: &str| path(&format!("proc.sys.{}", plain(name))).map(|p| p.display().to_string());
        assert_eq!(file("net.ipv4.ip_forward").as_deref(), Some("/proc/sys/net/ipv4/ip_forward"));
        assert_eq!(
            file("net/ipv4/conf/eth0.100/forwarding").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.100/forwarding")
        );
        for bad in ["", "a..b", "net////", "..", "a./../../etc"] {
            assert_eq!(file(bad), None, "{bad}");
        }
    }

    #[test]
    fn values_are_compared_word_by_word() {
        assert!(same("4096\t131072\t6291456", "4096 131072 6291456") && !same("1", "10"));
    }
}
