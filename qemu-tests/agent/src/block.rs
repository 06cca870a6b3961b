//! Corruption of single bytes, past every cache.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

pub(crate) fn flip_byte(path: &str, offset: u64, mask: u8) -> Result<Value, String> {
    if mask == 0 {
        return Err("a mask of 0 changes nothing".into());
    }
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| format!("open {path} for writing: {error}"))?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).map_err(|error| format!("read {path} at {offset}: {error}"))?;
    let before = byte[0];
    byte[0] ^= mask;
    file.write_all_at(&byte, offset).map_err(|error| format!("write {path} at {offset}: {error}"))?;
    file.sync_all().map_err(|error| format!("flush {path}: {error}"))?;
    Ok(json!({ "before": before, "after": byte[0] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_byte_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, [1, 2, 3]).unwrap();
        flip_byte(path.to_str().unwrap(), 1, 0x80).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [1, 0x82, 3]);
        assert!(flip_byte(path.to_str().unwrap(), 1, 0).is_err());
        assert!(flip_byte(path.to_str().unwrap(), 9, 1).is_err());
    }
}
