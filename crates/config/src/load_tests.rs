//! Tests of the reading: places, secrets, bad input.

use super::*;

fn errors(text: &str) -> Vec<Diagnostic> {
    load(text.as_bytes()).err().expect("an error").0
}

fn error(text: &str) -> Diagnostic {
    errors(text).remove(0)
}

#[test]
fn an_unknown_field_is_named_with_its_place_and_the_nearest_field() {
    let e = error("version: v1alpha1\nmachine:\n  type: worker\n  certSAN: [a]\n");
    assert_eq!((e.document, e.line, e.column, e.path.as_str()), (1, 4, 3, "machine.certSAN"));
    assert!(e.message.starts_with("unknown field `certSAN`; did you mean `certSANs`?"), "{e}");
    assert_eq!(e.snippet, "  certSAN: …");
}

#[test]
fn all_errors_come_at_once_in_the_order_of_the_text() {
    let text = "version: v1alpha1
machine:
  type: manager
  network:
    nameservers: [here, 10.0.0.1, there]
    interfaces:
      - interface: eth0
        mtu: big
        routes: {}
  time: 3
cluster:
  controlPlane:
    endpont: x
---
apiVersion: v1alpha1
kind: FooConfig
";
    let found: Vec<_> =
        errors(text).iter().map(|e| format!("{} {}:{} {}", e.document, e.line, e.column, e.path)).collect();
    assert_eq!(
        found,
        [
            "1 3:9 machine.type",
            "1 5:19 machine.network.nameservers[0]",
            "1 5:35 machine.network.nameservers[2]",
            "1 8:14 machine.network.interfaces[0].mtu",
            "1 9:17 machine.network.interfaces[0].routes",
            "1 10:9 machine.time",
            "1 13:5 cluster.controlPlane.endpont",
            "2 16:7 kind",
        ]
    );
}

#[test]
fn the_line_is_shown() {
    let e = error("version: v1alpha1\nmachine:\n  network:\n    nameservers: [here]\n");
    assert!(e.to_string().ends_with("\n4 |     nameservers: [here]"), "{e}");
}

#[test]
fn no_error_repeats_a_secret() {
    for text in [
        "version: v1alpha1\nmachine:\n  token: [hunter2]\n",
        "version: v1alpha1\nmachine: {token: hunter2, mtu: 3}\n",
        "version: v1alpha1\nmachine:\n  tokn: hunter2\n",
        "version: v1alpha1\nmachine:\n  ca:\n    key: hunter2!\n",
        "version: v1alpha1\nmachine:\n  ca:\n    key: |\n      hunter2!\n      hunter2\n",
        "version: v1alpha1\nmachine: {}\ncluster:\n  secret: {hunter2: 1}\n",
        "version: v1alpha1\nmachine:\n  env: {a: [hunter2]}\n",
        "version: v1alpha1\nmachine:\n  systemDiskEncryption: {state: {keys: [{static: hunter2}]}}\n",
        "version: v1alpha1\nmachine:\n  token: hunter2: x\n",
        "version: v1alpha1\nmachine:\n  ca: {key: hunter2\n",
        "version: v1alpha1\nmachine:\n  network: hunter2\n",
        "version: v1alpha1\nmachine:\n  files: hunter2\n",
    ] {
        for e in errors(text) {
            assert!(!format!("{e} {e:?}").contains("hunter2"), "{text}\n{e:?}");
        }
    }
}

#[test]
fn another_version_is_refused_and_a_missing_one_is_told() {
    let e = error("version: v2\nmachine: {}\n");
    assert_eq!(
        e.to_string(),
        "line 1, column 10: version: version `v2` is not known; write `version: v1alpha1`\n1 | version: v2"
    );
    let loaded = load(b"machine: {}\n").ok().unwrap();
    assert_eq!((loaded.config.version.as_str(), loaded.warnings.len()), ("v1alpha1", 1));
}

#[test]
fn a_second_value_for_a_field_is_refused() {
    assert_eq!(error("version: v1alpha1\nmachine: {}\ndebug: true\ndebug: false\n").line, 4);
}

#[test]
fn what_is_no_configuration_is_named() {
    for (text, message) in [
        ("", "config not found"),
        ("# nothing\n", "config not found"),
        ("---\n---\n", "config not found"),
        ("....\n", "config not found"),
        ("- a\n", "missing kind"),
        ("a: b\n", "missing kind"),
        ("text", "missing kind"),
        ("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n", "doesn't contain v1alpha1 config"),
    ] {
        assert!(error(text).message.contains(message), "{text:?}: {}", error(text));
    }
}

#[test]
fn a_second_configuration_and_a_second_document_of_a_name_are_refused() {
    let e = error("machine: {}\n---\nmachine: {}\n");
    assert_eq!((e.document, e.line), (2, 3));
    let link = "---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n";
    let e = error(&format!("machine: {{}}\n{link}{link}"));
    assert!(e.message.contains("LinkConfig eth0") && e.document == 3, "{e}");
}

#[test]
fn bytes_that_are_no_text_and_texts_that_are_too_long() {
    let e = load(b"machine: {}\nx: \xff\n").err().unwrap().0.remove(0);
    assert_eq!((e.line, e.column), (2, 4));
    let e = error(&" ".repeat(MAX_BYTES + 1));
    assert!(e.message.contains("at most 16777216"), "{e}");
}

#[test]
fn the_text_is_kept_as_it_was_sent() {
    let text = "# mine\r\nversion: v1alpha1\r\nmachine:   {type: join}   # worker\r\n";
    assert_eq!(load(text.as_bytes()).ok().unwrap().text.as_slice(), text.as_bytes());
}

#[test]
fn a_flood_of_errors_is_cut() {
    let text = format!(
        "version: v1alpha1\nmachine:\n{}",
        (0..1000).map(|i| format!("  x{i}: 1\n")).collect::<String>()
    );
    let found = errors(&text);
    assert!(found.len() == 200 && found[199].message.ends_with("(and 800 more remarks)"), "{}", found[199]);
}

#[test]
fn a_feature_that_is_not_built_is_named_once_with_its_fields() {
    let text = "machine:\n  network: {kubespan: {enabled: true}}\n  kubelet: {image: a}\ncluster:\n  secret: c2VjcmV0\n  discovery: {enabled: true}\n";
    let loaded = load(text.as_bytes()).ok().unwrap();
    let found: Vec<_> =
        loaded.warnings.iter().map(|w| w.message.as_str()).filter(|m| m.contains("not built")).collect();
    assert_eq!(
        found,
        [
            "accepted, but without effect, since KubeSpan is not built yet: machine.network.kubespan",
            "accepted, but without effect, since discovery is not built yet: cluster.secret, cluster.discovery",
        ]
    );
}
