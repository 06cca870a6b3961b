//! A static pod of the control plane.
//!
//! Owns: what all of them have in common: the host's network, a user that is not root, no capability, labels, annotations by
//! which clients see which configuration a pod has.
//! Source: the pod specification of Kubernetes 1.19 to 1.37; clients of both generations read the annotations.

use std::collections::BTreeMap;

use config::v1alpha1::{ExtraVolume, Resources};
use serde_json::{Map, Value, json};

use crate::file::Owner;

/// Share of a memory limit that Go's collector keeps below, percent.
const MEMORY_SHARE: u64 = 95;

/// Seconds from the start of a container to the first question whether it is ready.
const READY_AFTER: u32 = 10;

/// Which state of the node's resources a pod was rendered from: versions of three resources, as texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Version of the secrets that the program reads at its start alone.
    pub secrets: String,
    /// Version of the program's configuration.
    pub config: String,
    /// Version of the files beside the secrets.
    pub files: String,
}

/// Annotations of a pod by which clients see what it was rendered from.
const CONFIG: &str = "talos.dev/config-version";
const SECRETS: &str = "talos.dev/secrets-version";
const FILES: &str = "talos.dev/config-file-version";

impl Rendered {
    /// What a static pod was rendered from, if it is one of the control plane's.
    #[must_use]
    pub fn of(pod: &Value) -> Option<Self> {
        let annotations = &pod["metadata"]["annotations"];
        let text = |key: &str| annotations[key].as_str().map(str::to_owned);
        Some(Self { secrets: text(SECRETS)?, config: text(CONFIG)?, files: text(FILES)? })
    }
}

/// How the kubelet asks whether a container is well.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Probe {
    /// GET over TLS on loopback.
    Https {
        /// Path of the request.
        path: &'static str,
        /// Port on loopback.
        port: u16,
    },
    /// Whether the port is open.
    Tcp {
        /// The port.
        port: u16,
    },
}

/// What differs between the static pods.
pub(crate) struct StaticPod<'a> {
    pub(crate) name: &'static str,
    pub(crate) image: String,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    pub(crate) owner: Owner,
    pub(crate) env: BTreeMap<String, String>,
    /// Directories of the node that it reads, with the volume's name.
    pub(crate) directories: &'a [(&'static str, &'static str)],
    /// A directory that it writes, with the volume's name.
    pub(crate) writes: Option<(&'static str, &'static str)>,
    pub(crate) extra_volumes: &'a [ExtraVolume],
    pub(crate) resources: Option<&'a Resources>,
    /// Processor time and memory where the configuration has none.
    pub(crate) requests: (&'static str, &'static str),
    pub(crate) startup: Option<Probe>,
    /// Asked from [`READY_AFTER`] seconds on.
    pub(crate) readiness: Option<Probe>,
    pub(crate) liveness: Option<Probe>,
    pub(crate) rendered: &'a Rendered,
}

impl StaticPod<'_> {
    pub(crate) fn to_value(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": "kube-system",
                "annotations": {
                    CONFIG: self.rendered.config,
                    SECRETS: self.rendered.secrets,
                    FILES: self.rendered.files,
                },
                "labels": {
                    "tier": "control-plane",
                    "k8s-app": self.name,
                    "component": self.name,
                    "app.kubernetes.io/name": self.name,
                    "app.kubernetes.io/component": "control-plane",
                    "app.kubernetes.io/managed-by": "Billet",
                },
            },
            "spec": {
                "priority": 2_000_000_000,
                "priorityClassName": "system-cluster-critical",
                "hostNetwork": true,
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": self.owner.id(),
                    "runAsGroup": self.owner.id(),
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [self.container()],
                "volumes": self.volumes(),
            },
        })
    }

    fn container(&self) -> Value {
        let mut container = json!({
            "name": self.name,
            "image": self.image,
            "command": self.command,
            "env": self.env(),
            "volumeMounts": self.mounts(),
            "resources": self.resources(),
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "seccompProfile": { "type": "RuntimeDefault" },
            },
        });
        if let Value::Object(fields) = &mut container {
            // Twelve times five seconds: a busy machine's first start.
            insert(fields, "startupProbe", self.startup.map(|probe| check(probe, 5, 12)));
            let readiness = self.readiness.map(|probe| {
                let mut probe = check(probe, 10, 3);
                probe["initialDelaySeconds"] = json!(READY_AFTER);
                probe
            });
            insert(fields, "readinessProbe", readiness);
            insert(fields, "livenessProbe", self.liveness.map(|probe| check(probe, 10, 3)));
        }
        container
    }

    fn env(&self) -> Vec<Value> {
        let mut env = self.env.clone();
        let limit = self.resources.and_then(|resources| resources.limits.get("memory"));
        if let Some(bytes) = limit.and_then(|text| quantity_bytes(text)) {
            let most = bytes.saturating_mul(MEMORY_SHARE) / 100;
            env.entry("GOMEMLIMIT".to_owned()).or_insert_with(|| most.to_string());
        }
        let address =
            json!({ "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } });
        let own = env.iter().map(|(name, value)| json!({ "name": name, "value": value }));
        std::iter::once(address).chain(own).collect()
    }

    fn resources(&self) -> Value {
        let (cpu, memory) = self.requests;
        match self.resources {
            Some(resources) if !resources.requests.is_empty() || !resources.limits.is_empty() => {
                json!({ "requests": resources.requests, "limits": resources.limits })
            }
            _ => json!({ "requests": { "cpu": cpu, "memory": memory } }),
        }
    }

    fn mounts(&self) -> Vec<Value> {
        let reads = self.directories.iter().map(|(name, path)| mount(name, path, true));
        let writes = self.writes.iter().map(|(name, path)| mount(name, path, false));
        let extra = self
            .extra_volumes
            .iter()
            .map(|volume| mount(&volume_name(volume), &volume.mount_path, volume.readonly));
        reads.chain(writes).chain(extra).collect()
    }

    fn volumes(&self) -> Vec<Value> {
        let reads = self.directories.iter().map(|(name, path)| volume(name, path));
        let writes = self.writes.iter().map(|(name, path)| volume(name, path));
        let extra = self.extra_volumes.iter().map(|extra| volume(&volume_name(extra), &extra.host_path));
        reads.chain(writes).chain(extra).collect()
    }
}

fn insert(fields: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        fields.insert(name.to_owned(), value);
    }
}

fn check(probe: Probe, period_seconds: u32, failures: u32) -> Value {
    let how = match probe {
        Probe::Https { path, port } => {
            ("httpGet", json!({ "host": "localhost", "path": path, "port": port, "scheme": "HTTPS" }))
        }
        Probe::Tcp { port } => ("tcpSocket", json!({ "host": "localhost", "port": port })),
    };
    json!({ how.0: how.1, "periodSeconds": period_seconds, "failureThreshold": failures, "timeoutSeconds": 15 })
}

fn mount(name: &str, path: &str, read_only: bool) -> Value {
    json!({ "name": name, "mountPath": path, "readOnly": read_only })
}

fn volume(name: &str, path: &str) -> Value {
    json!({ "name": name, "hostPath": { "path": path } })
}

/// The name that both client generations give to such a volume.
pub(crate) fn volume_name(volume: &ExtraVolume) -> String {
    volume.mount_path.replace(['/', '_', '.'], "-").trim_matches('-').to_lowercase()
}

/// Bytes of a quantity such as `2500Mi`; `None` for one that is not a whole number of bytes.
fn quantity_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit {
        "" => 1,
        "k" => 1000,
        "M" => 1000_u64.pow(2),
        "G" => 1000_u64.pow(3),
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_bytes() {
        assert_eq!(quantity_bytes("2500Mi"), Some(2500 << 20));
        assert_eq!(quantity_bytes("1G"), Some(1_000_000_000));
        assert_eq!(quantity_bytes("512"), Some(512));
        for none in ["", "Mi", "1.5Gi", "1e3", "20000000000Gi"] {
            assert_eq!(quantity_bytes(none), None, "{none}");
        }
    }

    #[test]
    fn volumes_are_named_after_where_they_appear() {
        let volume =
            ExtraVolume { mount_path: "/etc/kubernetes/my_auth.d/".into(), ..ExtraVolume::default() };
        assert_eq!(volume_name(&volume), "etc-kubernetes-my-auth-d");
    }
}
