//! Requests as far as they are read without a node.
//!
//! Owns: which calls have such a part, so that a fuzzer reaches it; the calls go through the same functions.
//! Does not: serve: no call comes here.
//! Fails by: the status that the call would have.

use api::proto::cosi::resource as cosi;
use api::proto::machine as proto;
use api::proto::resource as first;
use api::roles::{Role, RoleSet};
use prost::Message;
use runtime::store::Bookmark;
use tonic::Status;

use super::selection::Selection;
use super::{capture, client_configuration, cosi_watch, generate, images, meta, query, reset};

/// The calls, by what they are called here.
pub const CALLS: [&str; 10] = [
    "cosi/Get",
    "cosi/List",
    "cosi/Watch",
    "resource/Get",
    "machine/PacketCapture",
    "machine/Reset",
    "machine/MetaWrite",
    "machine/GenerateConfiguration",
    "machine/GenerateClientConfiguration",
    "machine/ImagePull",
];

/// Reads a request of a call, by its place in [`CALLS`], as somebody with this role. What cannot be decoded is refused as
/// the server refuses it.
///
/// # Errors
/// The status that the caller would get.
pub fn read(call: usize, message: &[u8], role: Role) -> Result<(), Status> {
    let admin = role == Role::Admin;
    match CALLS.get(call).copied().unwrap_or_default() {
        "cosi/Get" => {
            let request: cosi::GetRequest = decoded(message)?;
            let kind = query::exact(&request.r#type, &request.namespace, admin)?;
            Err(query::not_found(kind, &request.namespace, &request.id))
        }
        "cosi/List" => {
            let request: cosi::ListRequest = decoded(message)?;
            query::exact(&request.r#type, &request.namespace, admin)?;
            let options = request.options.unwrap_or_default();
            Selection::new(&options.label_query, options.id_query.as_ref()).map(drop)
        }
        "cosi/Watch" => {
            let request: cosi::WatchRequest = decoded(message)?;
            let kind = query::exact(&request.r#type, &request.namespace, admin)?;
            let bookmark = request.options.as_ref().and_then(|options| options.start_from_bookmark.clone());
            cosi_watch::Request::new(kind, request)?;
            let bookmark = bookmark.as_deref().map(Bookmark::from_bytes).transpose();
            bookmark.map(drop).map_err(|error| Status::failed_precondition(error.to_string()))
        }
        "resource/Get" => {
            let request: first::GetRequest = decoded(message)?;
            let kind = query::readable(&request.r#type, &request.namespace, admin)?;
            Err(query::not_found(kind, &request.namespace, &request.id))
        }
        "machine/PacketCapture" => {
            let request: proto::PacketCaptureRequest = decoded(message)?;
            capture::filter(&request.bpf_filter).map(drop)
        }
        "machine/Reset" => reset::wanted(&decoded(message)?).map(drop),
        "machine/MetaWrite" => {
            let request: proto::MetaWriteRequest = decoded(message)?;
            meta::check(&RoleSet::one(role), request.key)
        }
        "machine/GenerateConfiguration" => generate::check(&decoded(message)?),
        "machine/GenerateClientConfiguration" => client_configuration::check(&decoded(message)?),
        _ => {
            let request: proto::ImagePullRequest = decoded(message)?;
            images::reference(&request.reference).map(drop)
        }
    }
}

/// As tonic does it, with its words.
fn decoded<M: Message + Default>(message: &[u8]) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::internal(error.to_string()))
}
