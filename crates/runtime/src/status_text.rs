//! The text of a status has a limit.
//!
//! Owns: cutting it. It travels in a header; peers end the whole connection, with every other call on it, over headers that
//! are larger than they take (16 KiB, hyper's and tonic's default). Refusals repeat what a request said.

use http::{HeaderMap, HeaderValue};
use tonic::{Code, Status};

/// gRPC's name of the header.
const MESSAGE: &str = "grpc-message";
/// Bytes of the header's value, half of what peers take for all headers.
const MOST_BYTES: usize = 8 << 10;
/// Bytes that one byte of a text may take in a header: `%0A`.
const WORST: usize = 3;

/// Cuts the text of the status in these headers or trailers, if it is too long.
pub fn bound(headers: &mut HeaderMap) {
    if headers.get(MESSAGE).is_none_or(|value| value.len() <= MOST_BYTES) {
        return;
    }
    let text = Status::from_header_map(headers).map(|status| cut(status.message())).unwrap_or_default();
    let mut short = HeaderMap::new();
    // An error is a text that no header holds: the code tells by itself.
    let value =
        Status::new(Code::Unknown, text).add_header(&mut short).ok().and_then(|()| short.remove(MESSAGE));
    headers.insert(MESSAGE, value.unwrap_or_else(|| HeaderValue::from_static("")));
}

/// The beginning, and how much there was.
fn cut(text: &str) -> String {
    let note = format!("… ({} bytes)", text.len());
    let most = (MOST_BYTES / WORST).saturating_sub(note.len());
    let end = text.floor_char_boundary(most);
    format!("{}{note}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(text: &str) -> (usize, String) {
        let mut headers = HeaderMap::new();
        Status::invalid_argument(text).add_header(&mut headers).unwrap();
        bound(&mut headers);
        let status = Status::from_header_map(&headers).unwrap();
        assert_eq!(status.code(), Code::InvalidArgument);
        (headers.get(MESSAGE).map_or(0, HeaderValue::len), status.message().to_owned())
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_short_ones_are_not() {
        for text in ["", "short", &"a".repeat(MOST_BYTES), &"é\n".repeat(500)] {
            assert_eq!(bounded(text).1, text);
        }
        for text in ["a".repeat(1 << 20), "é".repeat(5000), format!("a{}", "\n€".repeat(9000))] {
            let (bytes, said) = bounded(&text);
            assert!(bytes <= MOST_BYTES, "{bytes}");
            let (begin, rest) = said.rsplit_once("… (").unwrap();
            assert!(text.starts_with(begin) && begin.len() > 2000, "{said}");
            assert_eq!(rest, format!("{} bytes)", text.len()));
        }
    }
}
