//! Rules of the `machine` section.

use super::{Problems, network, static_pods, storage, text};
use crate::{
    CertificateAndKey, Mode,
    v1alpha1::{Config, FileOp, Install, Machine, RegistryAuth},
};
use std::{collections::BTreeMap, net::IpAddr};

/// Arguments of the kubelet that are always set.
const KUBELET_ARGS: &[&str] = &[
    "bootstrap-kubeconfig",
    "kubeconfig",
    "container-runtime",
    "container-runtime-endpoint",
    "config",
    "dynamic-config-dir",
    "cert-dir",
    "cni-conf-dir",
    "hostname-override",
];

pub(super) fn check(config: &Config, mode: Mode, problems: &mut Problems) {
    let machine = &config.machine;
    if *machine == Machine::default() {
        problems.add("machine", "machine instructions are required");
    }
    if !config.persist {
        problems
            .warn("persist", "the configuration is fetched again at each boot; .persist should be enabled");
    }
    identity(machine, problems);
    install(&machine.install, mode, problems);
    files(machine, problems);
    registries(machine, problems);
    settings(machine, problems);
    logging(machine, problems);
    network::check(machine, problems);
    storage::check(machine, problems);
    fixed(config, problems);
}

/// Switches that are known but cannot be turned.
fn fixed(config: &Config, problems: &mut Problems) {
    if config.debug {
        problems.warn(
            "debug",
            "without effect: services do not log to the console; read them with `billetctl logs`",
        );
    }
    let Some(features) = &config.machine.features else { return };
    if features.rbac == Some(false) {
        problems.warn("machine.features.rbac", "without effect: roles are always checked");
    }
    if features.apid_check_ext_key_usage == Some(false) {
        let message = "without effect: client certificates are always checked for their purpose";
        problems.warn("machine.features.apidCheckExtKeyUsage", message);
    }
}

fn logging(machine: &Machine, problems: &mut Problems) {
    for (index, receiver) in machine.logging.iter().flat_map(|logging| &logging.destinations).enumerate() {
        let field = format!("machine.logging.destinations[{index}]");
        problems.expect(format!("{field}.endpoint"), text::log_receiver(&receiver.endpoint));
        if receiver.format != "json_lines" {
            problems.add(format!("{field}.format"), "write `json_lines`, the only format there is");
        }
    }
}

fn identity(machine: &Machine, problems: &mut Problems) {
    if machine.token.is_empty() {
        problems.add("machine.token", "missing; it is the secret that all nodes of a cluster share");
    }
    if machine.machine_type.is_control_plane() {
        if machine.ca.crt.0.is_empty() || machine.ca.key().is_none() {
            problems.add("machine.ca", "a control plane node needs the API's CA with `crt` and `key`");
        }
    } else if machine.ca.key().is_some() {
        let message = "issuing Talos API CA key is not allowed on non-controlplane nodes (.machine.ca); leave `key` out";
        problems.add("machine.ca.key", message);
    }
    accepted_authorities("machine", &machine.accepted_cas, problems);
    for (index, san) in machine.cert_sans.iter().enumerate() {
        if san.parse::<IpAddr>().is_err() && !text::is_host_name(san.strip_prefix("*.").unwrap_or(san)) {
            problems.add(
                format!("machine.certSANs[{index}]"),
                format!("`{san}` is neither an address nor a name"),
            );
        }
    }
    for (index, pod) in machine.pods.iter().enumerate() {
        for (field, message) in static_pods::faults(&format!("machine.pods[{index}]"), pod) {
            problems.add(field, message);
        }
    }
    for key in machine.kubelet.extra_args.keys().filter(|k| KUBELET_ARGS.contains(&k.as_str())) {
        problems.add(format!("machine.kubelet.extraArgs.{key}"), format!("extra arg {key:?} is not allowed"));
    }
}

fn install(install: &Install, mode: Mode, problems: &mut Problems) {
    if install.grub_use_uki_cmdline == Some(true) && !install.extra_kernel_args.is_empty() {
        let message = "install.extraKernelArgs and install.grubUseUKICmdline can't be used together";
        problems.add("machine.install.extraKernelArgs", message);
    }
    if !install.extensions.is_empty() {
        problems.warn(
            "machine.install.extensions",
            "deprecated and without effect; put extensions into the image",
        );
    }
    if mode != Mode::Metal {
        return;
    }
    if *install == Install::default() {
        problems.add("machine.install", "install instructions are required in \"metal\" mode");
    }
    if !install.names_a_disk() {
        let message = "an install disk is required in \"metal\" mode: either install disk or diskSelector should be defined";
        problems.add("machine.install.disk", message);
    } else if !install.disk.is_empty() && !install.disk.starts_with("/dev/") {
        problems.add("machine.install.disk", format!("`{}` is not a device: /dev/sda", install.disk));
    }
}

fn files(machine: &Machine, problems: &mut Problems) {
    for (index, file) in machine.files.iter().enumerate() {
        let field = format!("machine.files[{index}].path");
        let path = file.path.as_str();
        // A create outside /var fails the boot; the second generation lets this one file through.
        let excepted = path == "/etc/cri/conf.d/20-customization.part";
        if !path.starts_with('/') || path.ends_with('/') || path.split('/').any(|part| part == "..") {
            problems.add(field, format!("`{path}` is not the full path of a file"));
        } else if matches!(file.op.unwrap_or_default(), FileOp::Create)
            && !path.starts_with("/var/")
            && !excepted
        {
            problems.add(field, format!("create operation not allowed outside of /var: {path:?}"));
        }
    }
}

fn registries(machine: &Machine, problems: &mut Problems) {
    let registries = &machine.registries;
    for (host, mirror) in &registries.mirrors {
        for (index, endpoint) in mirror.endpoints.iter().enumerate() {
            problems.expect(
                format!("machine.registries.mirrors.{host}.endpoints[{index}]"),
                text::http_url(endpoint),
            );
        }
    }
    for (host, config) in &registries.config {
        let field = format!("machine.registries.config.{host}");
        let plain = |endpoint: &&str| {
            endpoint.strip_prefix("http://").and_then(|r| r.split('/').next()) == Some(host)
        };
        let mut endpoints = registries.mirrors.values().flat_map(|m| m.normal_endpoints());
        if config.tls.is_some() && endpoints.any(|e| plain(&e)) {
            problems.add(
                format!("{field}.tls"),
                format!("TLS config specified for non-HTTPS registry: {host:?}"),
            );
        }
        if let Some(auth) = &config.auth {
            authentication(auth, host, &format!("{field}.auth"), problems);
        }
    }
}

fn authentication(auth: &RegistryAuth, host: &str, field: &str, problems: &mut Problems) {
    let given = |secret: &Option<crate::Secret>| secret.as_ref().is_some_and(|s| !s.is_empty());
    if auth.username.is_empty() && given(&auth.password) {
        problems.add(field, format!("invalid auth config for {host:?}: a password without a username"));
    }
    if let Some(both) = auth.auth.as_ref().filter(|a| !a.is_empty()) {
        let decoded = crate::decode_base64(both.expose_secret());
        if !decoded.is_ok_and(|text| text.contains(':')) {
            problems.add(
                format!("{field}.auth"),
                format!("invalid decoded auth for {host:?}: base64 of `name:password` is needed"),
            );
        }
    }
}

fn settings(machine: &Machine, problems: &mut Problems) {
    time_servers(&machine.time.servers, "machine.time.servers", problems);
    parameters(&machine.sysctls, "machine.sysctls", problems);
    parameters(&machine.sysfs, "machine.sysfs", problems);
    variables(&machine.env, "machine.env", problems);
    for (index, module) in machine.kernel.iter().flat_map(|k| &k.modules).enumerate() {
        module_name(&module.name, format!("machine.kernel.modules[{index}].name"), problems);
    }
}

/// Names of values below /proc/sys and /sys.
pub(super) fn parameters(params: &BTreeMap<String, String>, field: &str, problems: &mut Problems) {
    for key in params.keys() {
        let good = !key.is_empty()
            && !key.contains("..")
            && !key.starts_with(['/', '.'])
            && !key.contains(char::is_whitespace);
        if !good {
            problems.add(format!("{field}.{key}"), format!("`{key}` is not a name like net.ipv4.ip_forward"));
        }
    }
}

/// Name of a kernel module.
pub(super) fn module_name(name: &str, field: String, problems: &mut Problems) {
    if name.is_empty() || name.contains(['/', ' ']) {
        problems.add(field, format!("`{name}` is not the name of a module"));
    }
}

/// Addresses and names of time servers.
pub(super) fn time_servers(servers: &[String], field: &str, problems: &mut Problems) {
    for (index, server) in servers.iter().enumerate() {
        if !text::is_host_with_port(server) && !server.starts_with("/dev/ptp") {
            problems.add(format!("{field}[{index}]"), format!("`{server}` is neither an address nor a name"));
        }
    }
}

/// Variables of the environment.
pub(super) fn variables(env: &BTreeMap<String, String>, field: &str, problems: &mut Problems) {
    for (key, value) in env {
        let is_name = !key.is_empty()
            && !key.starts_with(|c: char| c.is_ascii_digit())
            && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            let text =
                format!("`{key}` cannot be the name of a variable: letters, digits and `_`, no digit first");
            problems.add(format!("{field}.{key}"), text);
        } else if value.contains('\0') {
            problems.add(format!("{field}.{key}"), "the value holds a byte 0");
        }
    }
}

/// Authorities that are trusted and sign nothing, of a section.
pub(super) fn accepted_authorities(
    section: &str,
    authorities: &[CertificateAndKey],
    problems: &mut Problems,
) {
    for (index, authority) in authorities.iter().enumerate() {
        if !authority.crt.0.contains("-----BEGIN CERTIFICATE-----") {
            problems.add(
                format!("{section}.acceptedCAs[{index}].crt"),
                "not a certificate; write base64 of its PEM text",
            );
        }
        if authority.key().is_some() {
            let message =
                "without effect: clients are let in by the certificate, and nothing is signed with this key";
            problems.warn(format!("{section}.acceptedCAs[{index}].key"), message);
        }
    }
}
