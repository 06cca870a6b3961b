//! META's record of how STATE is encrypted, kept in step with the config.
//!
//! Order: the record says how STATE is to be opened before STATE is so: it is written before STATE is made, and before a
//! config with other keys is on STATE. A record that is ahead of the slots opens all the same: one key stays.
//! Does not: hold what the volume's slots hold; `status` remembers that.
//! Fails by: a sentence with META's device.
//! Source: docs/formats/meta.md (tag 9).

use ondisk::meta::tags;
use unlock::Record;

use crate::node::Node;

/// What META says; `None`: STATE is not encrypted.
pub(super) fn read(node: &Node) -> Result<Option<Record>, String> {
    let bytes = node.meta.get(tags::STATE_ENCRYPTION).map(zeroize::Zeroizing::new);
    bytes.map_or(Ok(None), |bytes| Record::read(&bytes)).map_err(|error| error.to_string())
}

/// Makes META say it; without one that STATE is not encrypted. Durable when this returns. Blocks.
pub(super) fn keep(node: &Node, wanted: Option<&Record>) -> Result<(), String> {
    let kept = node.meta.get(tags::STATE_ENCRYPTION).map(zeroize::Zeroizing::new);
    let value = wanted.map(Record::write);
    if kept == value {
        return Ok(());
    }
    let done = match value {
        Some(value) => node.meta.set_now(tags::STATE_ENCRYPTION, &value),
        None => node.meta.delete_now(tags::STATE_ENCRYPTION).map(drop),
    };
    done.map_err(|error| format!("keep how STATE is encrypted: {error}"))
}

#[cfg(test)]
mod tests {
    use unlock::{Kind, RecordKey};

    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        assert!(read(&node).unwrap().is_none());
        let mut record = Record::default();
        record.keys = vec![RecordKey::new(0, Kind::NodeId)];
        keep(&node, Some(&record)).unwrap();
        assert!(read(&node).unwrap() == Some(record));
        keep(&node, None).unwrap();
        assert!(read(&node).unwrap().is_none());
        node.meta.set_now(tags::STATE_ENCRYPTION, b"[]").unwrap();
        assert!(read(&node).err().unwrap().contains("not a JSON object"));
    }
}
