//! Taking secrets out of text.
//!
//! Owns: PEM private keys, base64 of PEM (as a machine config has it), bootstrap and machine tokens, and values under
//! keys that name a secret. Works on lines; what is no text is kept.
//! Does not: replace care in choosing what to collect; this is the second net.

/// What stands instead.
const REMOVED: &str = "(removed)";
/// Base64 of `-----BEGIN`.
const PEM_BASE64: &str = "LS0tLS1CRUdJTi";
/// Keys whose value is a secret, in YAML, JSON and logs.
const SECRET_KEYS: [&str; 12] = [
    "token",
    "secret",
    "key",
    "password",
    "passphrase",
    "secretboxencryptionsecret",
    "aescbcencryptionsecret",
    "bootstraptoken",
    "privatekey",
    "presharedkey",
    "auth",
    "identitytoken",
];

/// `content` without secrets.
pub(super) fn scrubbed(content: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(content) else { return content.to_vec() };
    let (mut out, mut in_key) = (String::with_capacity(text.len()), false);
    for line in text.split_inclusive('\n') {
        let is_begin = line.contains("-----BEGIN") && line.contains("PRIVATE KEY-----");
        let is_end = line.contains("-----END") && line.contains("PRIVATE KEY-----");
        if is_begin && !in_key {
            out.push_str(REMOVED);
            out.push('\n');
        }
        in_key = (in_key || is_begin) && !is_end;
        if !(in_key || is_begin || is_end) {
            out.push_str(&line_without(line));
        }
    }
    out.into_bytes()
}

fn line_without(line: &str) -> String {
    if let Some(at) = secret_value(line) {
        return format!("{}{REMOVED}\n", &line[..at]);
    }
    let mut out = String::with_capacity(line.len());
    let mut word = String::new();
    for c in line.chars() {
        if c.is_ascii_alphanumeric() || "+/=._-".contains(c) {
            word.push(c);
            continue;
        }
        out.push_str(harmless(&word));
        word.clear();
        out.push(c);
    }
    out.push_str(harmless(&word));
    out
}

/// Where the value begins if the line is `key: value` with a key that names a secret.
fn secret_value(line: &str) -> Option<usize> {
    let (before, value) = line.split_once(": ")?;
    let key = before.trim_start().trim_start_matches("- ").trim_matches('"').to_lowercase();
    let is_secret = SECRET_KEYS.contains(&key.as_str()) && !value.trim().is_empty();
    is_secret.then_some(before.len() + 2)
}

fn harmless(word: &str) -> &str {
    if word.contains(PEM_BASE64) || is_token(word) { REMOVED } else { word }
}

/// `abcdef.0123456789abcdef`: six and sixteen lower-case letters or digits, as Kubernetes and the machine have them.
fn is_token(word: &str) -> bool {
    let is_part = |part: &str, length| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    };
    word.split_once('.').is_some_and(|(id, secret)| is_part(id, 6) && is_part(secret, 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub(text: &str) -> String {
        String::from_utf8(scrubbed(text.as_bytes())).unwrap()
    }

    #[test]
    fn secrets_are_taken_out() {
        for (text, expected) in [
            (
                "a\n-----BEGIN ED25519 PRIVATE KEY-----\nMC4C\n-----END ED25519 PRIVATE KEY-----\nb\n",
                "a\n(removed)\nb\n",
            ),
            ("-----BEGIN PRIVATE KEY-----\nMC4C", "(removed)\n"),
            ("  crt: LS0tLS1CRUdJTiBDRVJU\n", "  crt: (removed)\n"),
            ("join with abcdef.0123456789abcdef now\n", "join with (removed) now\n"),
            ("    token: xyz\n", "    token: (removed)\n"),
            ("    - password: a b c\n", "    - password: (removed)\n"),
            ("\"key\": \"abc\",\n", "\"key\": (removed)\n"),
        ] {
            assert_eq!(scrub(text), expected);
        }
    }

    #[test]
    fn what_is_none_stays() {
        for text in [
            "kernel: [    0.000000] Linux version 6.18.1 (a@b)\n",
            "10.0.0.1 kube-system/coredns-abc.def:12\n",
            "token:\n  nested: yes\n",
            "keyboard: present\n",
            "ends without newline",
            "-----BEGIN CERTIFICATE-----\nMC4C\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(scrub(text), text);
        }
        assert_eq!(scrubbed(b"\xff\xfe"), b"\xff\xfe");
    }
}
