//! Static pods of the config: each has a name that Kubernetes takes, and that no other one on the node has.
//!
//! Source: Kubernetes' names of objects (RFC 1123 subdomains of at most 253 bytes).

use crate::schema::Value;

/// Longest name of an object, bytes.
const MOST_NAME_BYTES: usize = 253;
/// What static pods of the control plane are called on their node.
const OWN: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
/// Where a pod is that names no namespace.
const NAMESPACE: &str = "default";

/// What a static pod of the config is called on its node: `namespace-name`. `None` where it has no name.
#[must_use]
pub fn static_pod_id(pod: &Value) -> Option<String> {
    let metadata = pod.get("metadata")?;
    let text = |key| metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    Some(format!("{}-{}", text("namespace").unwrap_or(NAMESPACE), text("name")?))
}

/// Why the kubelet would not take it: fields below `field`, each with what is wrong.
pub(super) fn faults(field: &str, pod: &Value) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    let mut add = |key: &str, message: String| faults.push((format!("{field}.{key}"), message));
    // Both are added where they are missing.
    for (key, wanted) in [("apiVersion", "v1"), ("kind", "Pod")] {
        let given = pod.get(key).and_then(Value::as_str).unwrap_or(wanted);
        if !given.eq_ignore_ascii_case(wanted) {
            add(key, format!("`{given}` is no static pod; write `{wanted}`"));
        }
    }
    if !matches!(pod.get("spec"), Some(Value::Map(_))) {
        add("spec", "missing; write the pod's containers".to_owned());
    }
    let metadata = pod.get("metadata");
    let text = |key| metadata.and_then(|metadata| metadata.get(key)).and_then(Value::as_str);
    if text("name").is_none() {
        add("metadata.name", "missing; write the pod's name".to_owned());
    }
    for key in ["name", "namespace"] {
        if let Some(name) = text(key).filter(|name| !is_name(name)) {
            let message = format!(
                "`{name}` is no name in Kubernetes: lower-case letters, digits, `-` and `.`, at most 253"
            );
            add(&format!("metadata.{key}"), message);
        }
    }
    faults
}

/// Names that more than one static pod of the node has.
pub(super) fn doubles(pods: &[Value]) -> Vec<String> {
    let mut seen: Vec<String> = OWN.map(str::to_owned).to_vec();
    let mut doubles = Vec::new();
    for id in pods.iter().filter_map(static_pod_id) {
        if seen.contains(&id) {
            doubles.push(id);
        } else {
            seen.push(id);
        }
    }
    doubles
}

fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        part.bytes().all(inner) && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= MOST_NAME_BYTES && text.split('.').all(is_part)
}
