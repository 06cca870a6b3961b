//! What the files of an intact node look like, and what may differ on one whose root was damaged.

use std::path::Path;
use std::sync::OnceLock;

use anyhow::Result;
use qemu_tests::TestNode;
use qemu_tests::agent::Fingerprints;
use qemu_tests::artifacts::build;
use qemu_tests::root::{Root, partition_offset};

/// The error number of a read that dm-verity refused.
const EIO: i32 = 5;

/// Every file of the test image, read once on a node that nothing was done to.
pub(crate) fn intact() -> &'static Fingerprints {
    static INTACT: OnceLock<Fingerprints> = OnceLock::new();
    INTACT.get_or_init(|| {
        let node = TestNode::boot("flips-reference").unwrap();
        let found = node.agent().unwrap().fingerprints("/").unwrap();
        assert!(found.files.len() > 100 && found.errors.is_empty(), "a strange reference: {found:?}");
        found
    })
}

/// Asserts that every file is intact or refused with EIO, itself or by a directory above; answers how many of each.
pub(crate) fn compare(intact: &Fingerprints, found: &Fingerprints) -> (usize, usize) {
    assert!(found.errors.values().all(|&errno| errno == EIO), "another error than EIO: {:?}", found.errors);
    let (mut same, mut refused) = (0, 0);
    for (path, print) in &intact.files {
        match found.files.get(path) {
            Some(read) if read == print => same += 1,
            Some(read) => panic!("corrupt bytes were delivered: {path} is {print} and was read as {read}"),
            None => {
                let above =
                    Path::new(path).ancestors().any(|p| found.errors.contains_key(&p.display().to_string()));
                assert!(above, "{path} is gone without an error");
                refused += 1;
            }
        }
    }
    for path in found.files.keys() {
        assert!(intact.files.contains_key(path), "{path} came out of nowhere");
    }
    (same, refused)
}

/// Where the middle of the kernel layer's data lies on the built disk: modules that no VM loads.
pub(crate) fn middle_of_kernel_layer() -> Result<u64> {
    let slot = partition_offset(&std::fs::File::open(&build().test.disk)?, "ROOT-A")?;
    let manifest = Root::built_manifest()?;
    let kernel = manifest.kernel().expect("the test image has a kernel layer");
    Ok(slot + kernel.offset + kernel.data_bytes / 2)
}
