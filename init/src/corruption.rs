//! Corrupt blocks of verified layers.
//!
//! Owns: recognising dm-verity's device event and naming the layer it is about.
//! Does not: read blocks; the kernel refuses them with EIO and sends the event before that error is seen.
//! Source: drivers/md/dm-verity-target.c: `DM_VERITY_ERR_BLOCK_NR=<0 data, 1 metadata>,<block>`.

use core::fmt;

use handoff::LayerReport;
use sys::uevent::field;

/// A block whose hash is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corruption {
    /// Index of the layer in the report; `None` for a mapping that is not ours.
    pub layer: Option<usize>,
    /// A block of the hash tree instead of data.
    pub in_tree: bool,
    /// Block number, in 4096-byte blocks from the start of the layer.
    pub block: u64,
}

impl Corruption {
    /// Reads a device event; `None` if it is about anything else.
    pub fn from_event(event: &[u8], layers: &[LayerReport]) -> Option<Self> {
        let (kind, block) = field(event, "DM_VERITY_ERR_BLOCK_NR")?.split_once(',')?;
        let device = field(event, "DEVNAME")?;
        let layer = layers.iter().position(|l| l.device.strip_prefix("/dev/") == Some(device));
        Some(Self { layer, in_tree: kind == "1", block: block.parse().ok()? })
    }

    /// In words, with the layer's name.
    pub fn describe<'a>(&'a self, layers: &'a [LayerReport]) -> impl fmt::Display + 'a {
        let name = self.layer.and_then(|l| layers.get(l)).map_or("of an unknown mapping", |l| &l.name);
        Description { name, corruption: self }
    }
}

struct Description<'a> {
    name: &'a str,
    corruption: &'a Corruption,
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.corruption.in_tree { "hash" } else { "data" };
        write!(f, "layer {}: {kind} block {} is corrupt", self.name, self.corruption.block)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn layers() -> [LayerReport; 1] {
        [LayerReport {
            name: "base".into(),
            version: "1".into(),
            root_hash: String::new(),
            device: "/dev/dm-1".into(),
        }]
    }

    #[test]
    fn a_verity_event_names_layer_and_block() {
        let event = b"change@/devices/virtual/block/dm-1\0ACTION=change\0DEVNAME=dm-1\0DM_VERITY_ERR_BLOCK_NR=0,123\0";
        let found = Corruption::from_event(event, &layers()).unwrap();
        assert_eq!(found.describe(&layers()).to_string(), "layer base: data block 123 is corrupt");
    }

    #[test]
    fn other_events_and_other_devices_are_told_apart() {
        assert_eq!(Corruption::from_event(b"add@/x\0ACTION=add\0DEVNAME=dm-1\0", &layers()), None);
        let event = b"change@/x\0DEVNAME=dm-9\0DM_VERITY_ERR_BLOCK_NR=1,5\0";
        let found = Corruption::from_event(event, &layers()).unwrap();
        assert_eq!(
            found.describe(&layers()).to_string(),
            "layer of an unknown mapping: hash block 5 is corrupt"
        );
    }
}
