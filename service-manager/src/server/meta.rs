//! `MetaWrite` and `MetaDelete`: values of META that clients may set.
//!
//! Order: answered once the value is on the disk.

use api::proto::machine as proto;
use tonic::Status;

use crate::meta::{KEYS, MetaError};
use crate::node::Node;

pub(super) async fn write(
    node: &Node,
    request: &proto::MetaWriteRequest,
) -> Result<proto::MetaWriteResponse, Status> {
    check(request.key)?;
    node.meta.set(request.key, &request.value).await.map_err(status)?;
    Ok(proto::MetaWriteResponse { messages: vec![proto::MetaWrite { metadata: None }] })
}

pub(super) async fn delete(
    node: &Node,
    request: &proto::MetaDeleteRequest,
) -> Result<proto::MetaDeleteResponse, Status> {
    check(request.key)?;
    if !node.meta.delete(request.key).await.map_err(status)? {
        return Err(Status::not_found(format!("META has no key {:#04x}", request.key)));
    }
    Ok(proto::MetaDeleteResponse { messages: vec![proto::MetaDelete { metadata: None }] })
}

fn check(key: u32) -> Result<(), Status> {
    if KEYS.contains(&key) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("META key {key} is out of range: keys are 1 to 255")))
}

fn status(error: MetaError) -> Status {
    match error {
        MetaError::Value(_) => Status::invalid_argument(error.to_string()),
        _ => Status::internal(error.to_string()),
    }
}
