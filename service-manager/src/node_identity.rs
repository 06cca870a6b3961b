//! The node's identity: 32 bytes in base 62 that outlive restarts.
//!
//! Order: STATE's file before anything else; without a file it is made from what the firmware calls the machine, so that
//! a node without STATE keeps it too; without that it is random. What was made is kept on STATE as soon as there is one.
//! Fails by: a line in the log; the identity then lasts as long as the machine runs.
//! Source: docs/users/network.md for the name that is made of it; the form is that of v1.13.

use std::sync::Arc;

use ondisk::Digest;
use runtime::Runtime;
use runtime::store::{IDENTITY, Identity, RuntimeSpec, Spec};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::watch;

use crate::volumes::State;

/// The file on STATE.
const FILE: &str = "node-identity.yaml";
const BYTES: usize = 32;
/// What firmware says that was never told who it is.
const NOBODY: [&str; 3] =
    ["", "03000200-0400-0500-0006-000700080009", "00000000-0000-0000-0000-000000000000"];

/// Publishes the identity once STATE can be there, that is with the first config.
pub(crate) async fn publish(runtime: Arc<Runtime>, states: watch::Receiver<Option<State>>) {
    let mut config = runtime.config.subscribe();
    if config.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let state = states.borrow().clone();
    let id = match state {
        Some(state) => kept(&runtime, &state),
        None => made(&runtime),
    };
    let spec = Spec::Runtime(RuntimeSpec::Identity(Identity { node_id: id }));
    if let Err(error) = runtime.store.put(IDENTITY.writer, &IDENTITY, "local", spec) {
        runtime.journal.warn(&error.to_string());
    }
}

fn kept(runtime: &Runtime, state: &State) -> String {
    match state.read(FILE) {
        Ok(Some(text)) => {
            let id = text.lines().find_map(|line| line.strip_prefix("nodeId:")).unwrap_or_default().trim();
            if !id.is_empty() {
                return id.to_owned();
            }
            runtime.journal.warn(&format!("{FILE} on STATE names no nodeId: writing it anew"));
        }
        Ok(None) => {}
        Err(error) => {
            runtime.journal.warn(&format!("read the node's identity: {error}"));
            return made(runtime);
        }
    }
    let id = made(runtime);
    if let Err(error) = state.write(FILE, &format!("nodeId: {id}\n")) {
        runtime.journal.warn(&format!("keep the node's identity on STATE: {error}"));
    }
    id
}

/// From the machine's own identifier, else random.
fn made(runtime: &Runtime) -> String {
    let uuid = std::fs::read_to_string(runtime.path("/sys/class/dmi/id/product_uuid")).unwrap_or_default();
    let uuid = uuid.trim().to_ascii_lowercase();
    if NOBODY.contains(&uuid.as_str()) {
        return base62(&random());
    }
    base62(Digest::sha256(&[b"billet node identity\n", uuid.as_bytes()]).as_bytes())
}

fn random() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    // Blocks until the kernel has entropy, which it has long before there is a config.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes
}

/// The number that the bytes are, largest digit first.
fn base62(bytes: &[u8]) -> String {
    in_base(bytes, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
}

fn in_base(bytes: &[u8], digits: &[u8]) -> String {
    let base = u32::try_from(digits.len()).unwrap_or(u32::MAX);
    let mut number = bytes.to_vec();
    let mut text = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut rest = 0;
        for byte in &mut number {
            let part = rest << 8 | u32::from(*byte);
            *byte = u8::try_from(part / base).unwrap_or(u8::MAX);
            rest = part % base;
        }
        text.push(char::from(digits[usize::try_from(rest).unwrap_or(0)]));
    }
    text.iter().rev().collect()
}

/// The name of a node that nobody named (docs/users/network.md): of the first eight bytes of the identity's
/// SHA-256 in base 36, what stands at 1 to 3 and at 4 to 6.
pub(crate) fn stable_hostname(id: &str) -> String {
    let digest = Digest::sha256(&[id.as_bytes()]);
    let text = in_base(&digest.as_bytes()[..8], b"0123456789abcdefghijklmnopqrstuvwxyz");
    // Eight bytes give at least seven digits but once in millions.
    let text = format!("{text:0>7}");
    format!("talos-{}-{}", &text[1..4], &text[4..7])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_kept_once_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().join("root"));
        let state = State::at(dir.path());
        let first = kept(&runtime, &state);
        assert_eq!(kept(&runtime, &state), first);
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(text, format!("nodeId: {first}\n"));
        std::fs::write(dir.path().join(FILE), "nodeId: given\n").unwrap();
        assert_eq!(kept(&runtime, &state), "given");
        std::fs::write(dir.path().join(FILE), "nonsense\n").unwrap();
        assert_ne!(kept(&runtime, &state), "given");
    }

    #[test]
    fn the_machine_s_identifier_makes_the_same_one_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        assert_ne!(made(&runtime), made(&runtime), "without an identifier it is random");
        let directory = dir.path().join("sys/class/dmi/id");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("product_uuid"), "4c4c4544-0000-1000-8000-AAAAAAAAAAAA\n").unwrap();
        assert_eq!(made(&runtime), made(&runtime));
        assert!((42..=43).contains(&made(&runtime).len()));
        std::fs::write(directory.join("product_uuid"), format!("{}\n", NOBODY[1])).unwrap();
        assert_ne!(made(&runtime), made(&runtime), "many boards share this one");
    }

    #[test]
    fn numbers_in_other_bases() {
        assert_eq!(in_base(&[0, 255], b"0123456789abcdef"), "ff");
        assert_eq!(base62(&[1, 0]), "48");
        let name = stable_hostname("abc");
        let parts: Vec<&str> = name.split('-').collect();
        assert_eq!((parts[0], parts[1].len(), parts[2].len()), ("talos", 3, 3));
        assert_eq!(stable_hostname("abc"), name);
    }
}
