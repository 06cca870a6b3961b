use alloc::format;
use alloc::string::ToString;

use proptest::prelude::*;

use super::*;

fn partition() -> Vec<u8> {
    vec![0; usize::try_from(PARTITION_BYTES).unwrap()]
}

fn write(partition: &mut [u8], step: &Step<'_>) {
    for extent in step {
        put(partition, usize::try_from(extent.offset).unwrap(), &extent.bytes);
    }
}

fn with(values: &[(u32, &[u8])]) -> Meta {
    let mut meta = Meta::default();
    for (tag, value) in values {
        meta.set(*tag, value).unwrap();
    }
    meta
}

#[test]
fn a_blank_partition_is_empty_and_takes_values() {
    let mut disk = partition();
    let found = read(&mut disk.as_slice());
    assert_eq!(found.meta, Meta::default());
    assert_eq!(found.faults[0], Some(Error::Magic(0, 0x5A4B_3C2D)));
    let new = with(&[(tags::UPGRADE_FALLBACK, b"A"), (tags::USER_1, b"")]);
    let steps = found.change_to(&new);
    // Two blank copies agree in nothing but their fault: nothing is there to be mended.
    assert_eq!(steps.iter().map(|step| step[0].offset).collect::<Vec<_>>(), [0, COPY_BYTES]);
    for step in &steps {
        write(&mut disk, step);
    }
    let found = read(&mut disk.as_slice());
    assert_eq!((found.meta, found.faults), (new, [None, None]));
}

/// Field by field, from the table of the source and not through the writer.
#[test]
fn the_layout_is_that_of_the_reference() {
    let copy = with(&[(9, b"{}"), (7, b"registry.example.org/installer:1")]).copy();
    assert_eq!(copy.len(), 262_144);
    assert_eq!(&copy[..4], [0x5A, 0x4B, 0x3C, 0x2D]);
    assert_eq!(&copy[4..12], [0, 0, 0, 7, 0, 0, 0, 32]);
    assert_eq!(&copy[12..44], b"registry.example.org/installer:1");
    assert_eq!(&copy[44..54], [0, 0, 0, 9, 0, 0, 0, 2, b'{', b'}']);
    assert!(copy[54..262_108].iter().all(|byte| *byte == 0));
    assert_eq!(&copy[262_140..], [0xA5, 0xB4, 0xC3, 0xD2]);
    let mut unsealed = copy.clone();
    unsealed[262_108..262_140].fill(0);
    assert_eq!(&copy[262_108..262_140], Digest::sha256(&[&unsealed]).as_bytes());
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let mut meta = with(&[(12, b"kept")]);
    assert_eq!(meta.set(0, b"x").unwrap_err().to_string(), "adv: tag 0 ends the list, it holds no value");
    // 262104 bytes of records, 20 reserved, two heads, "kept".
    let most = 262_104 - 20 - 16 - 4;
    assert_eq!(meta.set(13, &vec![1; most + 3]).unwrap_err().to_string(), "adv: overflow 3 bytes");
    assert_eq!(meta, with(&[(12, b"kept")]));
    meta.set(13, &vec![1; most]).unwrap();
    assert_eq!(Meta::parse(&meta.copy()), Ok(meta.clone()));
    // Its own old value does not count against a new one.
    meta.set(13, b"short").unwrap();
    assert!(meta.remove(13) && !meta.remove(13));
}

#[test]
fn a_length_beyond_the_area_is_named() {
    let mut copy = Meta::default().copy();
    put(&mut copy, 4, &[0, 0, 0, 5, 0xFF, 0xFF, 0xFF, 0]);
    put(&mut copy, CHECKSUM, &[0; 32]);
    let checksum = Digest::sha256(&[&copy]);
    put(&mut copy, CHECKSUM, checksum.as_bytes());
    let error = Meta::parse(&copy).unwrap_err();
    assert_eq!(error.to_string(), "adv: value goes beyond the end of the buffer: tag 5, size 4294967040");
}

/// Cuts a chain of changes everywhere, with the step under way torn at any sector, and goes on from there with
/// another change that is cut as well: always the old or the new values.
#[test]
fn cuts_leave_the_old_or_the_new_values() {
    let sector = 512;
    let values: Vec<Meta> = (0..3u8).map(|n| with(&[(12, &[n; 700]), (13, &[n])])).collect();
    let sectors = [0, 1, 2, 3, COPY_LEN / sector - 1, COPY_LEN / sector];
    let mut whole = partition();
    for step in read(&mut whole.as_slice()).change_to(&values[0]) {
        write(&mut whole, &step);
    }
    let mut states = 0;
    let mut disks = vec![(whole, 0)];
    for next in 1..values.len() {
        let mut after = Vec::new();
        for (disk, old) in disks {
            let steps = read(&mut disk.as_slice()).change_to(&values[next]);
            for cut in 0..steps.len() {
                for torn in sectors {
                    let mut disk = disk.clone();
                    steps[..cut].iter().for_each(|step| write(&mut disk, step));
                    let part = steps[cut][0].bytes[..torn * sector].to_vec();
                    write(&mut disk, &vec![Extent::new(steps[cut][0].offset, part)]);
                    let found = read(&mut disk.as_slice());
                    let now = values.iter().position(|meta| *meta == found.meta);
                    assert!(now == Some(old) || now == Some(next), "step {cut}, {torn} sectors: {found:?}");
                    after.push((disk, now.unwrap()));
                    states += 1;
                }
            }
        }
        disks = after;
    }
    assert!(states > 150, "only {states} states");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_values_come_back(values in proptest::collection::btree_map(1u32.., proptest::collection::vec(any::<u8>(), 0..300), 0..20)) {
        let mut meta = Meta::default();
        for (tag, value) in &values {
            meta.set(*tag, value).unwrap();
        }
        prop_assert_eq!(Meta::parse(&meta.copy()), Ok(meta));
    }

    #[test]
    fn no_flipped_bit_is_taken(at in 0usize..COPY_LEN, bit in 0u8..8) {
        let mut copy = with(&[(12, b"value")]).copy();
        copy[at] ^= 1 << bit;
        prop_assert!(Meta::parse(&copy).is_err(), "{}", format!("byte {at}, bit {bit}"));
    }
}
