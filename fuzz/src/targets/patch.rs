//! Patches, and what they are applied to.
//!
//! An input is a patch; below a line `=====`, if there is one, the configuration that it is for.
//! What must hold: nothing panics; what was patched can be read again; a patch that is refused says why.

use crate::shape;
use crate::target::{Outcome, Target};
use config::{
    load,
    patch::{PatchError, apply, is_same, load_patches},
};

pub(super) const TARGET: Target =
    Target { name: "patch", about: "JSON patches and strategic merge patches", seeds, words: WORDS, run };

/// Between patch and configuration.
const BORDER: &str = "\n=====\n";

/// What a patch without a configuration of its own is for.
const CONFIG: &str = "version: v1alpha1
machine:
  type: worker
  token: a.b
  certSANs: [a, b]
  network:
    hostname: one
    interfaces:
      - interface: eth0
        addresses: [10.0.0.2/24]
        vlans:
          - vlanId: 5
  kubelet:
    extraArgs: {a: \"1\"}
cluster:
  controlPlane: {endpoint: \"https://a:6443\"}
";

const WORDS: &[&str] = &[
    "op: ",
    "path: /machine",
    "from: /machine/network",
    "value: ",
    "add",
    "remove",
    "replace",
    "move",
    "copy",
    "test",
    "/-",
    "/0",
    "~0",
    "~1",
    "$patch: delete\n",
    "/machine/network/interfaces/0",
    "/machine/certSANs/-",
    "interface: eth0\n",
    "deviceSelector: {driver: x}\n",
    "---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n",
    "=====\n",
];

fn seeds() -> Vec<Vec<u8>> {
    let plain = [
        "[{\"op\": \"replace\", \"path\": \"/machine/kubelet/extraArgs/a\", \"value\": \"x\"}]",
        "- {op: add, path: /machine/certSANs/-, value: c}\n- {op: test, path: /machine/type, value: worker}\n",
        "- {op: move, from: /machine/certSANs/0, path: /machine/certSANs/1}\n- {op: copy, from: /machine/token, path: /machine/x}\n",
        "- op: remove\n  path: /machine/network/interfaces/0\n",
        "machine:\n  network:\n    interfaces:\n      - interface: eth0\n        $patch: delete\n",
        "machine:\n  network:\n    interfaces:\n      - interface: eth0\n        vlans:\n          - vlanId: 5\n            dhcp: true\n      - interface: eth1\n",
        "machine:\n  certSANs:\n    $patch: replace\n  kubelet: null\n",
        "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmtu: 9000\n",
        "a: &x [1, 2]\nb: *x\n<<: {c: |\n  d\n}\n",
    ];
    let documents = "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n$patch: delete";
    let several = format!(
        "{documents}{BORDER}machine: {{}}\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n"
    );
    plain.iter().map(|text| text.as_bytes().to_vec()).chain([several.into_bytes()]).collect()
}

fn run(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let (patch, target) = text.split_once(BORDER).unwrap_or((&text, CONFIG));
    let patches = match load_patches(patch) {
        Ok(patches) => patches,
        Err(error) => return Outcome::refused(&error.to_string()),
    };
    let patched = match apply(target, &patches) {
        Ok(patched) => patched,
        Err(error) => return Outcome::refused(&error.to_string()),
    };
    again(&patched);
    let verdict = match load(patched.as_bytes()) {
        Ok(_) => "a good configuration".to_owned(),
        Err(error) => error.0.first().map(|first| shape::of(&first.message)).unwrap_or_default(),
    };
    Outcome { accepted: true, shapes: vec![format!("applied:{verdict}")] }
}

/// What a patch made can be read again; and a patch of nothing, whose v1alpha1 document is made where there is none,
/// changes nothing when it is applied a second time.
fn again(patched: &str) {
    let nothing = load_patches("{}").expect("a patch of nothing");
    let once = match apply(patched, &nothing) {
        Ok(once) => once,
        Err(error @ PatchError::Target { .. }) => {
            panic!("what was patched can not be read: {error}\n{patched}")
        }
        // What was no configuration before the patch need not be one after it.
        Err(_) => return,
    };
    let twice =
        apply(&once, &nothing).unwrap_or_else(|error| panic!("a second patch of nothing: {error}\n{once}"));
    assert!(is_same(&once, &twice), "a patch of nothing changed it:\n{once}\n---- to\n{twice}");
}
