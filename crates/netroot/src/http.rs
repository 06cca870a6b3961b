//! The head of an HTTP/1.1 answer, and what it means for a download.
//!
//! Owns: the request's text, status and headers of the answer, and the decision: these bytes, from there, elsewhere, no.
//! Does not: send or wait.
//! Source: RFC 9112 §3 to §6; RFC 9110 §14.4 (`Content-Range`), §15.4 (redirects).

use alloc::format;
use alloc::string::{String, ToString};

use crate::url::Url;

/// Longest head: far above what servers send.
pub(crate) const MOST_HEAD_BYTES: usize = 16 << 10;

/// A request for a file from an offset on.
pub(crate) fn request(url: &Url, offset: u64) -> String {
    let range = if offset == 0 { String::new() } else { format!("Range: bytes={offset}-\r\n") };
    let (path, host) = (&url.path, url.authority());
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: billet\r\nAccept-Encoding: identity\r\n{range}\
         Connection: close\r\n\r\n"
    )
}

/// Characters of a server's words in a line of ours.
const MOST_SHOWN: usize = 120;

/// A server's words as a line says them: their beginning, and nothing that acts on a terminal.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MOST_SHOWN).collect()
}

/// What follows from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The file's bytes follow, from this offset on.
    Bytes(u64),
    /// Look there.
    Elsewhere(String),
    /// This server will not do: a clause that says why.
    Refused(String),
    /// Another time, perhaps.
    Later(String),
}

/// Where the head ends in what came so far: behind the empty line.
pub(crate) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Judges a head, for a file of `wanted` bytes of which those from `offset` on were asked for.
pub(crate) fn judge(head: &[u8], offset: u64, wanted: u64) -> Verdict {
    let Some(head) = Head::parse(head) else {
        return Verdict::Refused("the answer is not HTTP".to_string());
    };
    match head.status {
        200 | 206 if head.header("transfer-encoding").is_some() => {
            Verdict::Refused("it sends in chunks, without a length; serve the files as they are".to_string())
        }
        200 => whole(&head, wanted),
        206 => part(&head, offset, wanted),
        301 | 302 | 303 | 307 | 308 => match head.header("location") {
            Some(to) => Verdict::Elsewhere(to.to_string()),
            None => Verdict::Refused(format!("{} without Location", head.line())),
        },
        408 | 429 | 500..=599 => Verdict::Later(head.line()),
        _ => Verdict::Refused(head.line()),
    }
}

fn whole(head: &Head<'_>, wanted: u64) -> Verdict {
    match head.header("content-length").map(str::parse::<u64>) {
        Some(Ok(length)) if length == wanted => Verdict::Bytes(0),
        Some(Ok(length)) => wrong_length(length, wanted),
        Some(Err(_)) => Verdict::Refused("its Content-Length is no number".to_string()),
        None => Verdict::Refused("it gives no Content-Length".to_string()),
    }
}

/// `Content-Range: bytes 7-9/10`
fn part(head: &Head<'_>, offset: u64, wanted: u64) -> Verdict {
    let range = head.header("content-range").and_then(|value| value.strip_prefix("bytes "));
    let parts = range.and_then(|range| {
        let (span, length) = range.split_once('/')?;
        let (first, last) = span.split_once('-')?;
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?, length.parse::<u64>().ok()?))
    });
    match parts {
        Some((_, _, length)) if length != wanted => wrong_length(length, wanted),
        Some((first, last, length)) if first == offset && last.checked_add(1) == Some(length) => {
            Verdict::Bytes(offset)
        }
        _ => Verdict::Refused("it answers with another range than was asked for".to_string()),
    }
}

fn wrong_length(length: u64, wanted: u64) -> Verdict {
    Verdict::Refused(format!("it has {length} bytes, the root manifest says {wanted}"))
}

struct Head<'a> {
    status: u16,
    reason: &'a str,
    headers: &'a str,
}

impl<'a> Head<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = core::str::from_utf8(bytes).ok()?;
        let (first, headers) = text.split_once("\r\n")?;
        let mut words = first.splitn(3, ' ');
        let version = words.next()?;
        let status = words.next()?.parse().ok()?;
        version.starts_with("HTTP/1.").then_some(Self {
            status,
            reason: words.next().unwrap_or_default(),
            headers,
        })
    }

    fn header(&self, name: &str) -> Option<&'a str> {
        let mut fields = self.headers.split("\r\n").filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn line(&self) -> String {
        format!("it answers {} {}", self.status, shown(self.reason)).trim_end().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(head: &str, offset: u64) -> Verdict {
        judge(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), offset, 100)
    }

    fn refused(head: &str) -> String {
        let Verdict::Refused(reason) = verdict(head, 0) else { panic!("{head}") };
        reason
    }

    #[test]
    fn files_come_whole_or_from_the_offset_on() {
        assert_eq!(verdict("200 OK\r\ncontent-LENGTH:  100 ", 0), Verdict::Bytes(0));
        // A server without ranges begins at the beginning.
        assert_eq!(verdict("200 OK\r\nContent-Length: 100", 40), Verdict::Bytes(0));
        assert_eq!(verdict("206 Part\r\nContent-Range: bytes 40-99/100", 40), Verdict::Bytes(40));
    }

    #[test]
    fn what_is_not_the_file_is_refused_by_name() {
        assert_eq!(refused("200 OK\r\nContent-Length: 99"), "it has 99 bytes, the root manifest says 100");
        assert_eq!(refused("404 Not Found"), "it answers 404 Not Found");
        assert_eq!(refused("416"), "it answers 416");
        assert!(refused("200 OK").contains("no Content-Length"));
        assert!(refused("200 OK\r\nTransfer-Encoding: chunked").contains("chunks"));
        assert!(refused("206 P\r\nContent-Range: bytes 0-98/100").contains("another range"));
        assert!(
            refused("206 P\r\nContent-Range: bytes 1-18446744073709551615/100").contains("another range")
        );
        assert!(refused("302 Found").contains("without Location"));
        assert_eq!(verdict("503 Busy", 0), Verdict::Later("it answers 503 Busy".into()));
        assert_eq!(verdict("301 Moved\r\nLocation: /x", 0), Verdict::Elsewhere("/x".into()));
        assert!(matches!(judge(b"SSH-2.0-x\r\n\r\n", 0, 1), Verdict::Refused(_)));
    }

    #[test]
    fn a_servers_words_are_short_and_plain() {
        let long = format!("404 No\u{1b}[2J\nway {}", "x".repeat(2000));
        let said = refused(&long);
        assert!(said.starts_with("it answers 404 No[2Jway xxx") && said.len() < 150, "{said:?}");
    }

    #[test]
    fn requests_ask_for_the_rest() {
        let url = Url::parse("http://boot:8080/a").unwrap();
        let text = request(&url, 7);
        assert!(text.starts_with("GET /a HTTP/1.1\r\nHost: boot:8080\r\n"));
        assert!(text.contains("\r\nRange: bytes=7-\r\n") && text.ends_with("\r\n\r\n"));
        assert!(!request(&url, 0).contains("Range"));
    }
}
