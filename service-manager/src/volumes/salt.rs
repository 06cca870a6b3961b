//! The salt of keys that are locked to STATE: 32 random bytes in a file there, behind the bytes of each such key.
//!
//! Order: on STATE before it is used: a volume that is made with it opens at the next boot too.
//! Fails by: a sentence, which becomes the reason of each such key. A STATE that was wiped has another salt: its locked
//! keys open nothing any more, which is their purpose.
//! Source: docs/users/encryption.md (`encryption-salt.yaml`).

use ondisk::luks2::Secret;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

use super::handle::Volumes;
use super::state_files::State;

/// The file on STATE.
const FILE: &str = "encryption-salt.yaml";
const BYTES: usize = 32;
const NO_STATE: &str = "it is locked to STATE, which is not there";

/// The salt; one that is not there yet is made.
pub(super) fn of(volumes: &Volumes) -> Result<Secret, String> {
    let state = volumes.state().ok_or(NO_STATE)?;
    match state.read(FILE)? {
        Some(text) => parse(&text).ok_or_else(|| format!("{FILE} on STATE is damaged")),
        None => made(&state),
    }
}

/// The salt, if STATE has one.
pub(super) fn kept(volumes: &Volumes) -> Result<Secret, String> {
    let state = volumes.state().ok_or(NO_STATE)?;
    let text =
        state.read(FILE)?.ok_or("it is locked to STATE, and this one has no salt: it is another STATE")?;
    parse(&text).ok_or_else(|| format!("{FILE} on STATE is damaged"))
}

/// One that only stands for the real one, where a config is checked before there is a STATE.
pub(super) fn stand_in() -> Secret {
    Secret::new(vec![0; BYTES])
}

fn made(state: &State) -> Result<Secret, String> {
    let mut salt = Secret::new(vec![0; BYTES]);
    let count = getrandom(&mut salt[..], GetRandomFlags::empty());
    if count != Ok(BYTES) {
        return Err("there are no random numbers for the salt".to_owned());
    }
    state.write(FILE, &text(&salt))?;
    Ok(salt)
}

/// A list of numbers: what the reference makes of bytes.
fn text(salt: &Secret) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::from("diskSalt:\n"));
    for byte in salt.iter() {
        text.push_str(&format!("    - {byte}\n"));
    }
    text
}

fn parse(text: &str) -> Option<Secret> {
    let mut lines = text.lines().skip_while(|line| line.trim() != "diskSalt:").skip(1);
    let bytes = lines.by_ref().map_while(|line| line.trim().strip_prefix("- ")?.parse().ok());
    let salt = Secret::new(bytes.collect());
    (salt.len() == BYTES).then_some(salt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salt_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = crate::server::tests_node(dir.path().join("root")).volumes.clone();
        assert_eq!([of(&volumes).unwrap_err(), kept(&volumes).unwrap_err()], [NO_STATE, NO_STATE]);
        volumes.set_state(State::at(dir.path()));
        assert!(kept(&volumes).unwrap_err().ends_with("it is another STATE"), "opening makes none");
        let salt = of(&volumes).unwrap();
        assert_eq!(kept(&volumes), Ok(salt.clone()));
        assert_eq!((salt.len(), of(&volumes).unwrap()), (BYTES, salt));
        let kept = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!((kept.lines().next(), kept.lines().count()), (Some("diskSalt:"), 1 + BYTES));
        std::fs::write(dir.path().join(FILE), "diskSalt:\n    - 1\n    - 256\n").unwrap();
        assert!(of(&volumes).unwrap_err().ends_with("is damaged"));
    }
}
