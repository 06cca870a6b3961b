//! META's record of how STATE is encrypted, kept in step with the config.
//!
//! Order: the record says how STATE is to be opened before STATE is so: it is written before STATE is made, and before a
//! config with other keys is on STATE. A record that is ahead of the slots opens all the same: one key stays.
//! Does not: hold what the volume's slots hold; `status` remembers that.
//! Fails by: a sentence with META's device.
//! Source: docs/formats/meta.md (tag 9).

use ondisk::meta::tags;
use unlock::Record;

use super::handle::Volumes;

/// What META says; `None`: STATE is not encrypted.
pub(super) fn read(volumes: &Volumes) -> Result<Option<Record>, String> {
    let bytes = volumes.meta.get(tags::STATE_ENCRYPTION).map(zeroize::Zeroizing::new);
    bytes.map_or(Ok(None), |bytes| Record::read(&bytes)).map_err(|error| error.to_string())
}

/// Makes META say it; without one that STATE is not encrypted. Durable when this returns. Blocks.
pub(super) fn keep(volumes: &Volumes, wanted: Option<&Record>) -> Result<(), String> {
    let kept = volumes.meta.get(tags::STATE_ENCRYPTION).map(zeroize::Zeroizing::new);
    let value = wanted.map(Record::write);
    if kept == value {
        return Ok(());
    }
    let done = match value {
        Some(value) => volumes.meta.set_now(tags::STATE_ENCRYPTION, &value),
        None => volumes.meta.delete_now(tags::STATE_ENCRYPTION).map(drop),
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
        let volumes = crate::server::tests_node(dir.path().to_owned()).volumes.clone();
        assert!(read(&volumes).unwrap().is_none());
        let mut record = Record::default();
        record.keys = vec![RecordKey::new(0, Kind::NodeId)];
        keep(&volumes, Some(&record)).unwrap();
        assert!(read(&volumes).unwrap() == Some(record));
        keep(&volumes, None).unwrap();
        assert!(read(&volumes).unwrap().is_none());
        volumes.meta.set_now(tags::STATE_ENCRYPTION, b"[]").unwrap();
        assert!(read(&volumes).err().unwrap().contains("not a JSON object"));
    }
}
