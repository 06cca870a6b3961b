//! The file of age, version 1, with X25519 recipients: header, MAC, payload in chunks.
//!
//! Owns: writing it. Does not: read or decrypt it: that takes the operator's secret key, which no node has.
//! Order: a random file key; a stanza a recipient, which wraps it; the MAC over these; the payload under a key from both.
//! Source: age-encryption.org/v1 (C2SP, age.md); RFC 7748, RFC 5869, RFC 8439.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Columns of an armored file.
const COLUMNS: usize = 64;

/// The file as text, as `age -a` writes it.
#[must_use]
pub fn armored(file: &[u8]) -> String {
    let text = STANDARD.encode(file);
    let mut armored = String::from("-----BEGIN AGE ENCRYPTED FILE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(COLUMNS));
        armored.push_str(line);
        armored.push('\n');
        rest = behind;
    }
    armored.push_str("-----END AGE ENCRYPTED FILE-----\n");
    armored
}

#[cfg(feature = "seal")]
pub use sealing::{SealError, seal};

#[cfg(feature = "seal")]
mod sealing {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
    use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
    use ring::rand::{SecureRandom, SystemRandom};
    use ring::{hkdf, hmac};
    use zeroize::Zeroizing;

    use crate::Recipient;

    /// First line of a file.
    const VERSION: &str = "age-encryption.org/v1\n";
    const STANZA: &str = "age-encryption.org/v1/X25519";
    const FILE_KEY_BYTES: usize = 16;
    const NONCE_BYTES: usize = 16;
    const KEY_BYTES: usize = 32;
    /// Of text in a chunk; the last one may be shorter, and is empty for an empty text alone.
    const CHUNK_BYTES: usize = 64 << 10;

    type Key = Zeroizing<[u8; KEY_BYTES]>;

    /// Why there is no file.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum SealError {
        /// Nobody could open it.
        #[error("there is no recipient")]
        Nobody,
        /// A point of small order, whose shared secret everybody knows.
        #[error("{0} is no key that anything can be encrypted to")]
        Recipient(Recipient),
        /// The kernel has none.
        #[error("there are no random numbers")]
        Random,
    }

    /// Encrypts a text, which is in memory whole, so that each of the recipients alone can read it.
    pub fn seal(text: &[u8], recipients: &[Recipient]) -> Result<Vec<u8>, SealError> {
        if recipients.is_empty() {
            return Err(SealError::Nobody);
        }
        let random = SystemRandom::new();
        let mut file_key = Zeroizing::new([0; FILE_KEY_BYTES]);
        random.fill(file_key.as_mut_slice()).map_err(|_| SealError::Random)?;
        let mut header = String::from(VERSION);
        for recipient in recipients {
            header.push_str(&stanza(&random, &file_key, *recipient)?);
        }
        header.push_str("---");
        let mac_key = derive(file_key.as_slice(), &[], "header");
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, mac_key.as_slice()), header.as_bytes());
        let mut nonce = [0; NONCE_BYTES];
        random.fill(&mut nonce).map_err(|_| SealError::Random)?;
        let payload_key = derive(file_key.as_slice(), &nonce, "payload");
        let payload = payload(&payload_key, text);
        let mac = STANDARD_NO_PAD.encode(mac.as_ref());
        Ok([header.as_bytes(), b" ", mac.as_bytes(), b"\n", &nonce, &payload].concat())
    }

    /// The file key, wrapped for one recipient.
    fn stanza(
        random: &SystemRandom,
        file_key: &[u8; FILE_KEY_BYTES],
        recipient: Recipient,
    ) -> Result<String, SealError> {
        let ephemeral = EphemeralPrivateKey::generate(&X25519, random).map_err(|_| SealError::Random)?;
        let share = ephemeral.compute_public_key().map_err(|_| SealError::Random)?;
        let salt = [share.as_ref(), recipient.bytes()].concat();
        let theirs = UnparsedPublicKey::new(&X25519, recipient.bytes());
        // Refuses a shared secret of zeros, as the format demands.
        let wrap_key = agree_ephemeral(ephemeral, &theirs, |secret| derive(secret, &salt, STANZA))
            .map_err(|_| SealError::Recipient(recipient))?;
        // A key for this once: its nonce may be zero.
        let wrapped = encrypt(&wrap_key, [0; NONCE_LEN], file_key);
        let share = STANDARD_NO_PAD.encode(share.as_ref());
        Ok(format!("-> X25519 {share}\n{}\n", STANDARD_NO_PAD.encode(wrapped)))
    }

    /// HKDF-SHA-256, to a key.
    fn derive(secret: &[u8], salt: &[u8], info: &str) -> Key {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
        extracted
            .expand(&[info.as_bytes()], hkdf::HKDF_SHA256)
            .and_then(|expanded| expanded.fill(key.as_mut_slice()))
            .expect("invariant: a digest's length is never too much to ask for");
        key
    }

    /// The chunks. A nonce is the chunk's number, eleven bytes with the highest first, and whether it is the last one.
    fn payload(key: &[u8; KEY_BYTES], text: &[u8]) -> Vec<u8> {
        let count = text.len().div_ceil(CHUNK_BYTES).max(1);
        let mut chunks = text.chunks(CHUNK_BYTES);
        let mut payload = Vec::with_capacity(text.len() + count * CHACHA20_POLY1305.tag_len());
        for number in 0..count {
            let mut nonce = [0; NONCE_LEN];
            nonce[3..11].copy_from_slice(&(number as u64).to_be_bytes());
            nonce[11] = u8::from(number + 1 == count);
            payload.extend(encrypt(key, nonce, chunks.next().unwrap_or_default()));
        }
        payload
    }

    fn encrypt(key: &[u8; KEY_BYTES], nonce: [u8; NONCE_LEN], text: &[u8]) -> Vec<u8> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("invariant: ChaCha20 takes 32 bytes");
        // Long enough from the start: the text is not left behind by a move.
        let mut bytes = Vec::with_capacity(text.len() + CHACHA20_POLY1305.tag_len());
        bytes.extend_from_slice(text);
        LessSafeKey::new(key)
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes)
            .expect("invariant: a chunk is far below the cipher's limit");
        bytes
    }
}

#[cfg(test)]
#[cfg(feature = "seal")]
mod tests {
    use std::io::Write as _;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::{Recipient, RecoveryKey};

    /// A pair of age's own making: the file with the secret key, and the public one.
    fn pair(dir: &Path, name: &str) -> (PathBuf, Recipient) {
        let file = dir.join(name);
        let made = Command::new("age-keygen").arg("-o").arg(&file).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let public = Command::new("age-keygen").arg("-y").arg(&file).output().unwrap();
        (file, String::from_utf8(public.stdout).unwrap().trim().parse().unwrap())
    }

    fn decrypt(identity: &Path, file: &[u8]) -> Result<Vec<u8>, String> {
        let mut child = Command::new("age")
            .arg("-d")
            .arg("-i")
            .arg(identity)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // It writes while it reads.
        let output = std::thread::scope(|scope| {
            // It may have refused the header before it read all.
            scope.spawn(move || drop(input.write_all(file)));
            child.wait_with_output().unwrap()
        });
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into())
        }
    }

    #[test]
    fn age_itself_reads_what_was_sealed() {
        let dir = tempfile::tempdir().unwrap();
        let (first, own) = pair(dir.path(), "first");
        let (second, other) = pair(dir.path(), "second");
        let (stranger, _) = pair(dir.path(), "stranger");
        let text = RecoveryKey::new(&[7; 32]).unwrap().text();
        let file = seal(text.as_bytes(), &[own]).unwrap();
        assert_eq!(decrypt(&first, &file).unwrap(), text.as_bytes());
        assert_eq!(decrypt(&first, armored(&file).as_bytes()).unwrap(), text.as_bytes());
        assert!(decrypt(&second, &file).unwrap_err().contains("no identity matched"));
        let both = seal(text.as_bytes(), &[own, other]).unwrap();
        for identity in [&first, &second] {
            assert_eq!(decrypt(identity, armored(&both).as_bytes()).unwrap(), text.as_bytes());
        }
        assert!(decrypt(&stranger, &both).is_err());
        // Every part of it is authenticated.
        for at in [30, 100, file.len() - 70, file.len() - 1] {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(decrypt(&first, &damaged).is_err(), "byte {at}");
        }
        // Not twice the same.
        assert_ne!(seal(b"x", &[own]).unwrap(), seal(b"x", &[own]).unwrap());
    }

    #[test]
    fn lengths_of_all_kinds_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (identity, own) = pair(dir.path(), "identity");
        for length in [0, 1, 47, 48, 49, 64 << 10, (64 << 10) + 1, 128 << 10, 200_000] {
            let text: Vec<u8> = (0..length).map(|byte| (byte % 251) as u8).collect();
            assert!(
                decrypt(&identity, armored(&seal(&text, &[own]).unwrap()).as_bytes()).unwrap() == text,
                "{length}"
            );
        }
        let file = seal(&vec![0x41; 128 << 10], &[own]).unwrap();
        assert!(decrypt(&identity, &file[..file.len() - (64 << 10) - 16]).is_err(), "a chunk is missing");
    }

    #[test]
    fn nobody_and_a_point_of_small_order_are_refused() {
        assert_eq!(seal(b"x", &[]), Err(SealError::Nobody));
        let zero = crate::bech32::encode("age", &[0; 32]).parse::<Recipient>().unwrap();
        assert_eq!(seal(b"x", &[zero]), Err(SealError::Recipient(zero)));
    }
}
