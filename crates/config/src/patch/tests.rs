//! Both kinds of patches on small configurations.

use super::*;

const CONFIG: &str = "\
version: v1alpha1 # a comment
machine:
  type: controlplane
  token: abcdef.0123456789abcdef
  certSANs: [a, b]
  network:
    hostname: one
    interfaces:
      - interface: eth0
        dhcp: true
        vlans:
          - vlanId: 5
            mtu: 1500
      - deviceSelector: {driver: virtio}
        dhcp: false
  files:
    - permissions: 0644
      content: |
        first
          second
cluster:
  network:
    podSubnets: [10.244.0.0/16]
  apiServer:
    extraArgs: {a: '1'}
    auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy}
";

fn patched(target: &str, patch: &str) -> String {
    apply(target, &load_patches(patch).unwrap()).unwrap()
}

fn refused(target: &str, patch: &str) -> String {
    load_patches(patch).and_then(|patches| apply(target, &patches)).unwrap_err().to_string()
}

#[test]
fn order_spelling_and_blocks_survive() {
    let text = patched(CONFIG, "[{op: test, path: /version, value: v1alpha1}]");
    assert!(text.starts_with("version: v1alpha1\nmachine:\n    type: controlplane\n"), "{text}");
    assert!(
        text.contains(
            "- permissions: 0644\n          content: |\n              first\n                second\n"
        ),
        "{text}"
    );
    assert!(text.contains("extraArgs:\n            a: \"1\"\n"), "{text}");
    assert_eq!(apply(CONFIG, &[]).unwrap(), CONFIG);
    assert_eq!(patched(&text, "[{op: test, path: /version, value: v1alpha1}]"), text);
}

#[test]
fn every_operation_in_json_and_yaml() {
    for (patch, expected) in [
        (r#"[{"op": "add", "path": "/a/c", "value": 2}]"#, "a:\n    b: 1\n    c: 2\nl:\n    - x\n"),
        ("- {op: add, path: /a/b, value: [1]}", "a:\n    b:\n        - 1\nl:\n    - x\n"),
        ("- {op: add, path: /l/0, value: w}", "a:\n    b: 1\nl:\n    - w\n    - x\n"),
        ("- {op: add, path: /l/1, value: z}", "a:\n    b: 1\nl:\n    - x\n    - z\n"),
        ("- {op: add, path: /l/-, value: z}", "a:\n    b: 1\nl:\n    - x\n    - z\n"),
        ("- {op: remove, path: /a/b}", "a: {}\nl:\n    - x\n"),
        ("- {op: remove, path: /l/0}", "a:\n    b: 1\nl: []\n"),
        ("- {op: replace, path: /a, value: {c: ~}}", "a:\n    c: ~\nl:\n    - x\n"),
        ("- {op: replace, path: /l/0, value: 'no'}", "a:\n    b: 1\nl:\n    - \"no\"\n"),
        ("- {op: replace, path: '', value: {k: v}}", "k: v\n"),
        ("- {op: move, from: /a/b, path: /l/0}", "a: {}\nl:\n    - 1\n    - x\n"),
        ("- {op: move, from: /a, path: /a}", "a:\n    b: 1\nl:\n    - x\n"),
        ("- {op: copy, from: /a, path: /a/m}", "a:\n    b: 1\n    m:\n        b: 1\nl:\n    - x\n"),
        ("- {op: test, path: /a, value: {b: 1.0}}", "a:\n    b: 1\nl:\n    - x\n"),
        ("- {op: add, path: /a~1b~0c, value: 1}", "a:\n    b: 1\nl:\n    - x\na/b~c: 1\n"),
        ("---\n- {op: remove, path: /a}\n---\n- {op: remove, path: /l}\n", "{}\n"),
    ] {
        assert_eq!(patched("a: {b: 1}\nl: [x]\n", patch), expected, "{patch}");
    }
}

#[test]
fn json_patches_that_do_not_fit_say_what_exists() {
    for (patch, expected) in [
        (
            "- {op: replace, path: /machine/kubelet/image, value: x}",
            "patch 1, operation 1 (replace /machine/kubelet/image): there is no `kubelet` at /machine; there is type, \
             token, certSANs, network, files; `add` makes what does not exist",
        ),
        (
            "[{op: test, path: /version, value: v1alpha1}, {op: remove, path: /machine/certSANs/2}]",
            "patch 1, operation 2 (remove /machine/certSANs/2): there is no element 2 at /machine/certSANs, which is a \
             list of 2 (counted from 0)",
        ),
        (
            "- {op: add, path: /machine/type/x, value: 1}",
            "patch 1, operation 1 (add /machine/type/x): /machine/type is a text; nothing can be added to it",
        ),
        (
            "- {op: add, path: /machine/certSANs/9, value: x}",
            "patch 1, operation 1 (add /machine/certSANs/9): there is no element 9 at /machine/certSANs, which is a list \
             of 3 (counted from 0)",
        ),
        (
            "- {op: remove, path: /machine/certSANs/-}",
            "patch 1, operation 1 (remove /machine/certSANs/-): `-` is not an index (`-`, the place after the last, is \
             for `add` only); /machine/certSANs is a list of 2",
        ),
        (
            "- {op: test, path: /machine/token, value: x}",
            "patch 1, operation 1 (test /machine/token): the value there is another one; it is a text",
        ),
        (
            "- {op: move, from: /machine, path: /machine/type}",
            "patch 1, operation 1 (move /machine/type): a value can not be moved into itself (from /machine)",
        ),
        (
            "- {op: add, path: machine, value: 1}",
            "read the patch: operation 1: `machine` is not a path; it starts with `/`",
        ),
        (
            "- {op: add, path: /machine}",
            "read the patch: operation 1: `add` needs a `value`; there is op, path",
        ),
        (
            "- {op: sub, path: /machine}",
            "read the patch: operation 1: `sub` is not known; there is add, remove",
        ),
        (
            "- {op: copy, path: /machine}",
            "read the patch: operation 1: `copy` needs `from`; there is op, path",
        ),
        ("- [1]", "read the patch: operation 1: it is a list of 1, not a map with `op` and `path`"),
        ("{op: remove, path: /machine}", "read the patch: a JSON patch is a list of operations"),
        ("hello", "read the patch: a single value is no patch"),
        ("", "read the patch: it is empty"),
        ("- {op: add, op: add}", "read the patch: line 1, column 13: this key stands in the same map twice"),
        ("[{", "read the patch: line 1, column "),
    ] {
        let error = refused(CONFIG, patch);
        // A list that grows by one counts the place after the last.
        assert!(error.starts_with(expected), "{patch}\n{error}\n{expected}");
        assert!(!error.contains("abcdef.0123"), "{error}");
    }
}

#[test]
fn a_json_patch_is_applied_in_full_or_not_at_all() {
    let patches = load_patches("[{op: remove, path: /a}, {op: remove, path: /nothing}]").unwrap();
    assert!(apply("a: 1\n", &patches).is_err());
    let error = refused("a: 1\n---\nb: 1\n", "- {op: remove, path: /a}");
    assert!(error.contains("JSON6902 patches are not supported for multi-document machine configuration"));
}

#[test]
fn maps_merge_and_lists_append() {
    let text = patched(CONFIG, "machine: {certSANs: [c], network: {hostname: two}, env: {A: b}}");
    assert!(text.contains("certSANs:\n        - a\n        - b\n        - c\n"), "{text}");
    assert!(text.contains("hostname: two\n") && text.contains("env:\n        A: b\n"), "{text}");
}

#[test]
fn keyed_lists_merge_by_their_key() {
    let patch = "machine: {network: {interfaces: [
      {interface: eth0, dhcp: false, vlans: [{vlanId: 5, mtu: 9000}, {vlanId: 6}]},
      {deviceSelector: {driver: virtio}, mtu: 1400},
      {interface: eth1}]}}";
    let text = patched(CONFIG, patch);
    assert!(
        text.contains(
            "            - interface: eth0
              dhcp: false
              vlans:
                  - vlanId: 5
                    mtu: 9000
                  - vlanId: 6
            - deviceSelector:
                  driver: virtio
              dhcp: false
              mtu: 1400
            - interface: eth1
"
        ),
        "{text}"
    );
}

#[test]
fn some_places_are_replaced() {
    let patch = "cluster: {network: {podSubnets: [10.0.0.0/8]}, apiServer: {auditPolicy: {kind: Other}, extraArgs: {a: [x, y]}}}";
    let text = patched(CONFIG, patch);
    assert!(text.contains("podSubnets:\n            - 10.0.0.0/8\n    apiServer:"), "{text}");
    assert!(text.contains("auditPolicy:\n            kind: Other\n"), "{text}");
    assert!(text.contains("a:\n                - x\n                - y\n"), "{text}");
}

#[test]
fn unset_values_change_nothing_but_false_does() {
    assert_eq!(
        patched("a: x\nb: 1\nc: true\nd: {e: 1}\n", "{a: '', b: 0, c: false, d: ~, m: ''}"),
        "a: x\nb: 1\nc: false\nd:\n    e: 1\nm: \"\"\n"
    );
    assert_eq!(patched("a:\n", "a: {b: 1}"), "a:\n    b: 1\n");
}

#[test]
fn directives_delete() {
    let patch =
        "machine: {certSANs: {$patch: delete}, network: {interfaces: [{interface: eth0, $patch: delete}]}}";
    let text = patched(CONFIG, patch);
    assert!(
        !text.contains("certSANs") && !text.contains("eth0") && text.contains("driver: virtio"),
        "{text}"
    );
    for (patch, expected) in [
        (
            "machine: {certSANs: [{$patch: delete}]}",
            "patch 1, at machine.certSANs: `$patch: delete` in a list needs a field",
        ),
        ("machine: {env: {$patch: replace}}", "patch 1, at machine.env: `$patch` takes `delete` only"),
        (
            "machine: [1]",
            "patch 1, at machine: the patch has a list of 1, but there is a map with type, token",
        ),
    ] {
        let error = refused(CONFIG, patch);
        assert!(error.starts_with(expected), "{error}\n{expected}");
    }
}

#[test]
fn deleting_what_is_absent_changes_nothing() {
    let unchanged = patched(CONFIG, "{}");
    for patch in [
        "machine: {kubelet: {$patch: delete}}",
        "machine: {network: {interfaces: [{interface: eth7, $patch: delete}]}}",
        "machine: {time: {x: {$patch: delete}}}",
        "machine: {env: {a: {b: {$patch: delete}}, c: [{d: 1, $patch: delete}]}}",
        "kind: HostnameConfig\n$patch: delete\n",
    ] {
        assert_eq!(patched(CONFIG, patch), unchanged, "{patch}");
    }
    let text = patched(CONFIG, "machine: {time: {disabled: true, servers: {$patch: delete}}}");
    assert!(text.contains("    time:\n        disabled: true\n") && !text.contains("servers"), "{text}");
}

#[test]
fn a_certificate_is_never_kept_beside_the_key_of_another() {
    let target = "machine:
  ca: {crt: old, key: old}
  acceptedCAs: [{crt: a}]
  registries: {config: {registry.example.org: {tls: {clientIdentity: {crt: old, key: old}, ca: x}}}}
cluster:
  etcd: {ca: {crt: old, key: old}}
---
kind: RegistryTLSConfig
name: registry.example.org
clientIdentity: {crt: old, key: old}
";
    let patch = "machine:
  ca: {crt: new}
  acceptedCAs: [{crt: b}]
  registries: {config: {registry.example.org: {tls: {clientIdentity: {crt: new}}}}}
cluster:
  etcd: {ca: {crt: new, key: ''}}
---
kind: RegistryTLSConfig
name: registry.example.org
clientIdentity: {crt: new, key: new}
";
    let expected = "machine:
  ca: {crt: new}
  acceptedCAs: [{crt: a}, {crt: b}]
  registries: {config: {registry.example.org: {tls: {clientIdentity: {crt: new}, ca: x}}}}
cluster:
  etcd: {ca: {crt: new, key: ''}}
---
kind: RegistryTLSConfig
name: registry.example.org
clientIdentity: {crt: new, key: new}
";
    let text = patched(target, patch);
    assert!(is_same(&text, expected), "{text}");
}

#[test]
fn files_of_an_extension_service_merge_by_the_path_they_are_mounted_at() {
    let target = "kind: ExtensionServiceConfig\nname: a\nconfigFiles:\n  - {content: one, mountPath: /a}\n  - {content: two, mountPath: /b}\n";
    let patch = "kind: ExtensionServiceConfig\nname: a\nconfigFiles:\n  - {content: three, mountPath: /b}\n  - {content: four, mountPath: /c}\n";
    let expected = "kind: ExtensionServiceConfig\nname: a\nconfigFiles: [{content: one, mountPath: /a}, {content: three, mountPath: /b}, {content: four, mountPath: /c}]\n";
    let text = patched(target, patch);
    assert!(is_same(&text, expected), "{text}");
}

#[test]
fn documents_are_found_by_kind_and_name() {
    let target = "version: v1alpha1\nmachine: {type: worker}\n---\nkind: LinkConfig\nname: eth0\nmtu: 1\n";
    let patch = "machine: {type: controlplane}\n---\nkind: LinkConfig\nname: eth0\nmtu: 2\n---\nkind: LinkConfig\nname: eth1\n";
    assert_eq!(
        patched(target, patch),
        "version: v1alpha1\nmachine:\n    type: controlplane\n---\nkind: LinkConfig\nname: eth0\nmtu: 2\n---\nkind: LinkConfig\nname: eth1\n"
    );
    let deleted = patched(target, "kind: LinkConfig\nname: eth0\n$patch: delete\n");
    assert!(!deleted.contains("LinkConfig"), "{deleted}");
}

#[test]
fn aliases_and_merge_keys_are_resolved_and_bombs_refused() {
    assert_eq!(
        patched("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: *x\n", "{}"),
        "x:\n    a: 1\n    b: 2\n\"y\":\n    b: 3\n    a: 1\nz:\n    a: 1\n    b: 2\n"
    );
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert!(load_patches(&bomb).err().unwrap().to_string().contains("too many values"));
    let deep = format!("a: {}1{}", "[".repeat(200), "]".repeat(200));
    assert!(load_patches(&deep).err().unwrap().to_string().contains("nested too deeply"));
    assert!(load_patches("a: &a [*a]").is_err());
}

#[test]
fn faults_of_the_configuration_are_not_the_patches() {
    let error = refused("a: [", "b: 1");
    assert!(error.starts_with("read the configuration that shall be patched: line "), "{error}");
}
