//! `MetaWrite` and `MetaDelete`: values of META that clients may set.
//!
//! Owns: which values a client without the role of an administrator may change.
//! Order: answered once the value is on the disk.

use std::ops::RangeInclusive;

use api::proto::machine as proto;
use api::roles::{Role, RoleSet};
use tonic::Status;

use crate::meta::{KEYS, MetaError};
use crate::node::Node;

/// What `os:meta:writer` may change: the network of a metal machine, the code of its config's address, values of users. The
/// others stage upgrades, choose what starts and say how STATE is opened.
const OF_WRITERS: RangeInclusive<u32> = 10..=14;

pub(super) async fn write(
    node: &Node,
    roles: &RoleSet,
    request: &proto::MetaWriteRequest,
) -> Result<proto::MetaWriteResponse, Status> {
    check(roles, request.key)?;
    node.meta.set(request.key, &request.value).await.map_err(status)?;
    Ok(proto::MetaWriteResponse { messages: vec![proto::MetaWrite { metadata: None }] })
}

pub(super) async fn delete(
    node: &Node,
    roles: &RoleSet,
    request: &proto::MetaDeleteRequest,
) -> Result<proto::MetaDeleteResponse, Status> {
    check(roles, request.key)?;
    if !node.meta.delete(request.key).await.map_err(status)? {
        return Err(Status::not_found(format!("META has no key {:#04x}", request.key)));
    }
    Ok(proto::MetaDeleteResponse { messages: vec![proto::MetaDelete { metadata: None }] })
}

pub(super) fn check(roles: &RoleSet, key: u32) -> Result<(), Status> {
    if !KEYS.contains(&key) {
        return Err(Status::invalid_argument(format!("META key {key} is out of range: keys are 1 to 255")));
    }
    if roles.contains(Role::Admin) || OF_WRITERS.contains(&key) {
        return Ok(());
    }
    let (first, last) = (OF_WRITERS.start(), OF_WRITERS.end());
    Err(Status::permission_denied(format!(
        "not authorized: META key {key} needs os:admin; with {roles} a client changes keys {first} to {last}"
    )))
}

fn status(error: MetaError) -> Status {
    match error {
        MetaError::Value(_) => Status::invalid_argument(error.to_string()),
        _ => Status::internal(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn writers_change_their_own_keys_and_administrators_all() {
        for key in 0..=256 {
            let code = |role| check(&RoleSet::one(role), key).map_err(|status| status.code());
            let is_key = KEYS.contains(&key);
            let all = if is_key { Ok(()) } else { Err(Code::InvalidArgument) };
            assert_eq!(code(Role::Admin), all, "{key}");
            let own = if is_key && !(10..=14).contains(&key) { Err(Code::PermissionDenied) } else { all };
            assert_eq!(code(Role::MetaWriter), own, "{key}");
        }
        let status = check(&RoleSet::one(Role::MetaWriter), 7).unwrap_err();
        assert_eq!(
            status.message(),
            "not authorized: META key 7 needs os:admin; with os:meta:writer a client changes keys 10 to 14"
        );
    }
}
