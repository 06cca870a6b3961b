//! Taints of a control plane node after its registration: what the configuration says now.
//!
//! Owns: the keys that an annotation of the node's object names. Without it they are those of control plane nodes, with which
//! the kubelet registered.
//! Does not: touch other taints, which the cluster's controllers set; or those of workers, which may not change their own.
//! Order: the list is replaced as a whole, and only as it was read: another change in between refuses ours, which is tried again.
//! Source: kubernetes.io, "Taints and Tolerations"; "NodeRestriction" of the admission controllers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// The keys of taints that are the configuration's, as JSON.
const OWNED: &str = "talos.dev/owned-taints";
/// With which kubelets of control plane nodes register, of both generations.
const OF_CONTROL_PLANES: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The merge patch that gives a node these taints (`key`, `value`, `effect`), if it has others.
pub(crate) fn change(node: &Value, wanted: &[Value]) -> Option<Value> {
    let key = |taint: &Value| taint["key"].as_str().unwrap_or_default().to_owned();
    let present = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let annotation = node["metadata"]["annotations"][OWNED].as_str();
    let owned: BTreeSet<String> = match annotation {
        Some(text) => serde_json::from_str(text).unwrap_or_default(),
        None => OF_CONTROL_PLANES.map(str::to_owned).into(),
    };
    let keys: BTreeSet<String> = wanted.iter().map(key).collect();
    let is_ours = |taint: &Value| owned.contains(&key(taint)) || keys.contains(&key(taint));
    let same = |a: &Value, b: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        ["key", "value", "effect"].iter().all(|field| text(&a[field]) == text(&b[field]))
    };
    let ours: Vec<&Value> = present.iter().filter(|taint| is_ours(taint)).collect();
    let is_as_wanted = ours.len() == wanted.len()
        && wanted.iter().all(|wanted| ours.iter().any(|taint| same(taint, wanted)));
    if is_as_wanted && annotation.is_some() && owned == keys {
        return None;
    }
    let taints: Vec<Value> = present.iter().filter(|taint| !is_ours(taint)).chain(wanted).cloned().collect();
    Some(json!({
        "metadata": {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "annotations": { OWNED: json!(keys).to_string() },
        },
        "spec": { "taints": taints },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Value {
        json!({ "key": key, "value": value, "effect": effect })
    }

    fn node(taints: &[Value], owned: Option<&str>) -> Value {
        let annotations = owned.map(|owned| json!({ OWNED: owned }));
        json!({
            "metadata": { "resourceVersion": "7", "annotations": annotations },
            "spec": { "taints": taints },
        })
    }

    #[test]
    fn a_control_plane_that_takes_pods_loses_the_taint_of_its_registration() {
        let registered = json!({ "key": OF_CONTROL_PLANES[0], "effect": "NoSchedule" });
        let others = taint("node.kubernetes.io/not-ready", "", "NoSchedule");
        let patch = change(&node(&[registered.clone(), others.clone()], None), &[]).unwrap();
        assert_eq!(patch["spec"]["taints"], json!([others]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["metadata"]["annotations"][OWNED], "[]");
        assert_eq!(change(&node(std::slice::from_ref(&others), Some("[]")), &[]), None);
        // And gets it back.
        let wanted = taint(OF_CONTROL_PLANES[0], "", "NoSchedule");
        let patch =
            change(&node(std::slice::from_ref(&others), Some("[]")), std::slice::from_ref(&wanted)).unwrap();
        assert_eq!(patch["spec"]["taints"], json!([others, wanted]));
        let owned = format!("[\"{}\"]", OF_CONTROL_PLANES[0]);
        assert_eq!(change(&node(&[others, registered], Some(&owned)), &[wanted]), None);
    }

    #[test]
    fn taints_that_leave_the_configuration_leave_the_node_and_others_stay() {
        let (gone, changed, other) = (
            taint("gone", "", "NoExecute"),
            taint("changed", "old", "NoSchedule"),
            taint("of-others", "", "NoSchedule"),
        );
        let wanted = taint("changed", "new", "PreferNoSchedule");
        let node = node(&[gone, changed, other.clone()], Some(r#"["changed","gone"]"#));
        let patch = change(&node, std::slice::from_ref(&wanted)).unwrap();
        assert_eq!(patch["spec"]["taints"], json!([other, wanted]));
        assert_eq!(patch["metadata"]["annotations"][OWNED], r#"["changed"]"#);
    }
}
