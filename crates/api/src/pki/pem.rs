//! PEM text, strict about structure and lenient about labels.
//!
//! Owns: splitting text into labelled blocks, and writing them. Does not: look inside.
//! The usual readers do not know the label `ED25519 PRIVATE KEY`, with which every Talos key is written.
//! Source: RFC 7468; docs/users/pki.md.

use super::PkiError;
use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

/// Base64 characters on a line.
const LINE_CHARS: usize = 64;

/// One labelled block. It may be a key, hence no `Debug`.
pub struct Block {
    /// The words after `BEGIN`.
    pub label: String,
    /// The decoded bytes.
    pub der: Zeroizing<Vec<u8>>,
}

/// All blocks of `text`; text between blocks is ignored, a block without its end is not.
///
/// # Errors
/// A sentence about the structure, without the content.
pub fn blocks(text: &str) -> Result<Vec<Block>, &'static str> {
    let mut found = Vec::new();
    let mut open: Option<(String, Zeroizing<String>)> = None;
    for line in text.lines().map(str::trim) {
        if let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|l| l.strip_suffix("-----")) {
            open = Some((label.to_owned(), Zeroizing::new(String::new())));
        } else if let Some(label) = line.strip_prefix("-----END ").and_then(|l| l.strip_suffix("-----")) {
            let (begun, body) =
                open.take().filter(|(begun, _)| begun == label).ok_or("END without its BEGIN")?;
            let der = STANDARD.decode(body.as_bytes()).map_err(|_| "the block is not base64")?;
            found.push(Block { label: begun, der: Zeroizing::new(der) });
        } else if let Some((_, body)) = &mut open {
            body.push_str(line);
        }
    }
    if open.is_some() { Err("the block has no END line") } else { Ok(found) }
}

/// The text of one block.
pub(super) fn encode(label: &str, der: &[u8]) -> Zeroizing<String> {
    let body = Zeroizing::new(STANDARD.encode(der));
    let mut text = Zeroizing::new(String::with_capacity(body.len() + body.len() / LINE_CHARS + 80));
    text.push_str(&format!("-----BEGIN {label}-----\n"));
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE_CHARS));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

/// The certificates in `text`, at least one.
///
/// # Errors
/// [`PkiError::Pem`] naming `what`.
pub fn certificates(what: &'static str, text: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let found: Vec<_> = blocks(text)
        .map_err(|reason| PkiError::Pem { what, reason })?
        .into_iter()
        .filter(|b| b.label == "CERTIFICATE")
        .map(|b| CertificateDer::from(b.der.to_vec()))
        .collect();
    if found.is_empty() {
        Err(PkiError::Pem { what, reason: "there is no CERTIFICATE block" })
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_survive_a_round_trip() {
        for length in [0, 1, 47, 48, 49, 200] {
            let text = encode("ED25519 PRIVATE KEY", &vec![7; length]);
            let back = blocks(&text).unwrap();
            assert_eq!(
                (back.len(), back[0].label.as_str(), back[0].der.len()),
                (1, "ED25519 PRIVATE KEY", length)
            );
        }
    }

    #[test]
    fn broken_structure_is_refused() {
        let error = |text: &str| blocks(text).err();
        assert_eq!(error("-----BEGIN A-----\nAA==\n"), Some("the block has no END line"));
        assert_eq!(error("-----BEGIN A-----\nAA==\n-----END B-----\n"), Some("END without its BEGIN"));
        assert_eq!(error("-----BEGIN A-----\n?\n-----END A-----\n"), Some("the block is not base64"));
        assert_eq!(error("no block at all"), None);
    }
}
