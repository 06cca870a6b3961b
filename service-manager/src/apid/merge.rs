//! The merge rules of `nodes`: how one node's answer becomes part of the answer of many.
//!
//! Works on bytes: a unary answer is `{1: [element]}` with exactly one element, and field 1 of an element and of
//! every stream message is `common.Metadata`.
//! Source: docs/users/endpoint.md.

use api::proto::common::Metadata;
use api::proto::google::rpc;
use prost::Message;
use prost::encoding::{decode_varint, encode_varint};
use tonic::Status;

use super::frames::go_text;

/// Field 1, length-delimited.
const FIELD_1: u8 = 0x0a;

/// The element of a unary answer with the target's name in it.
pub(crate) fn unary(answer: &[u8], target: &str) -> Result<Vec<u8>, String> {
    let mut rest = answer;
    match rest.split_first() {
        None => return Err("unexpected EOF".to_owned()),
        Some((&FIELD_1, after)) => rest = after,
        Some((other, _)) => return Err(format!("unexpected message format: {other}")),
    }
    let length = decode_varint(&mut rest).map_err(|e| e.to_string())?;
    let length = usize::try_from(length).map_err(|e| e.to_string())?;
    if length != rest.len() {
        return Err(format!("{} bytes after the only element", rest.len().abs_diff(length)));
    }
    Ok(element(&stream(rest, target)))
}

/// A stream message with the target's name in it.
pub(crate) fn stream(message: &[u8], target: &str) -> Vec<u8> {
    let metadata = Metadata { hostname: target.to_owned(), ..Default::default() };
    let mut joined = message.to_vec();
    push_field(&mut joined, &metadata.encode_to_vec());
    joined
}

/// An element that says why a node did not answer.
pub(crate) fn unary_error(status: &Status, target: &str) -> Vec<u8> {
    element(&stream_error(status, target))
}

/// A stream message that says so.
pub(crate) fn stream_error(status: &Status, target: &str) -> Vec<u8> {
    let detail =
        rpc::Status { code: status.code().into(), message: status.message().to_owned(), details: Vec::new() };
    let metadata = Metadata { hostname: target.to_owned(), error: go_text(status), status: Some(detail) };
    let mut message = Vec::new();
    push_field(&mut message, &metadata.encode_to_vec());
    message
}

fn element(content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_field(&mut bytes, content);
    bytes
}

fn push_field(to: &mut Vec<u8>, content: &[u8]) {
    to.push(FIELD_1);
    encode_varint(u64::try_from(content.len()).unwrap_or(u64::MAX), to);
    to.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use api::proto::common::Data;
    use api::proto::machine::{Hostname, HostnameResponse, Reboot, RebootResponse};

    use super::*;

    #[test]
    fn a_name_is_added_and_nothing_is_lost() {
        let answer = HostnameResponse { messages: vec![Hostname { metadata: None, hostname: "n1".into() }] };
        let merged = unary(&answer.encode_to_vec(), "10.0.0.5").unwrap();
        let decoded = HostnameResponse::decode(merged.as_slice()).unwrap();
        assert_eq!(decoded.messages.len(), 1);
        assert_eq!(decoded.messages[0].hostname, "n1");
        assert_eq!(decoded.messages[0].metadata.as_ref().unwrap().hostname, "10.0.0.5");
    }

    #[test]
    fn answers_of_several_nodes_are_laid_end_to_end() {
        let empty = RebootResponse { messages: vec![Reboot::default()] };
        let mut all = unary(&empty.encode_to_vec(), "a").unwrap();
        all.extend(unary_error(&Status::unavailable("no route"), "b"));
        let decoded = RebootResponse::decode(all.as_slice()).unwrap();
        let metadata: Vec<_> = decoded.messages.iter().map(|m| m.metadata.clone().unwrap()).collect();
        assert_eq!((metadata[0].hostname.as_str(), metadata[0].error.as_str()), ("a", ""));
        assert_eq!(metadata[1].error, "rpc error: code = Unavailable desc = no route");
        assert_eq!(metadata[1].status.as_ref().unwrap().code, 14);
    }

    #[test]
    fn answers_that_break_the_rule_are_errors() {
        assert_eq!(unary(&[], "a").unwrap_err(), "unexpected EOF");
        assert_eq!(unary(&[0x12, 0], "a").unwrap_err(), "unexpected message format: 18");
        assert!(unary(&[0x0a, 0, 0x0a, 0], "a").is_err());
    }

    #[test]
    fn stream_messages_keep_an_error_of_their_own() {
        let data = Data {
            metadata: Some(Metadata { error: "cut".into(), ..Default::default() }),
            bytes: b"x".to_vec(),
        };
        let merged = Data::decode(stream(&data.encode_to_vec(), "n").as_slice()).unwrap();
        let metadata = merged.metadata.unwrap();
        assert_eq!((metadata.hostname.as_str(), metadata.error.as_str()), ("n", "cut"));
    }
}
