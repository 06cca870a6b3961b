use ondisk::{Extent, gpt, meta};

use super::*;

const MIB: u64 = 1 << 20;

fn read(device: &mut impl ReadAt, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xFF; length];
    device.read_at(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn memory_keeps_what_was_written_and_clones_do_not_share_changes() {
    let mut disk = Memory::new(MIB, 512);
    disk.write_at(4090, &[1; 20]).unwrap();
    let mut clone = disk.clone();
    clone.write_at(4096, &[2; 4]).unwrap();
    assert_eq!(read(&mut disk, 4088, 24), [&[0; 2][..], &[1; 20], &[0; 2]].concat());
    assert_eq!(read(&mut clone, 4095, 6), [1, 2, 2, 2, 2, 1]);
    assert!(disk.write_at(MIB - 1, &[0; 2]).is_err());
}

#[test]
fn zeroing_takes_exactly_the_range() {
    for (start, length) in
        [(0, 20_000), (1, 10), (4096, 4096), (4000, 200), (5000, 9000), (8192, 0), (100, 3996)]
    {
        let mut disk = Memory::new(MIB, 512);
        disk.write_at(0, &[7; 20_000]).unwrap();
        disk.zero(start, length).unwrap();
        let bytes = read(&mut disk, 0, 20_000);
        for (at, byte) in (0..).zip(bytes) {
            let inside = (start..start + length).contains(&at);
            assert_eq!(byte == 0, inside, "byte {at} after zeroing {length} from {start}");
        }
    }
}

#[test]
fn a_part_cannot_be_left() {
    let mut disk = Memory::new(MIB, 512);
    let mut part = Part::new(&mut disk, 4096, 8192);
    assert_eq!((part.bytes(), part.sector_bytes()), (8192, 512));
    part.write_at(8000, &[1; 192]).unwrap();
    for (offset, length) in [(8000, 193), (8192, 1), (u64::MAX, 1)] {
        let error = part.write_at(offset, &vec![1; length]).unwrap_err();
        assert_eq!(error.to_string(), format!("write {length} bytes at {offset} of a partition"));
        assert!(
            part.zero(offset, length as u64).is_err() && part.read_at(offset, &mut vec![0; length]).is_err()
        );
    }
    assert_eq!(read(&mut disk, 12_095, 3), [0, 1, 1]);
}

#[test]
fn the_states_of_two_writes_are_all_there() {
    let mut recorder = Recorder::new(Memory::new(MIB, 512));
    recorder.write_at(0, &[1; 1024]).unwrap();
    recorder.write_at(4096, &[2; 512]).unwrap();
    recorder.flush().unwrap();
    recorder.acknowledge("both");
    let (recording, _) = recorder.finish();
    let mut seen = Vec::new();
    let count = recording.each_state(&|range| range.start < 512, |mut state| {
        let bytes = [0, 512, 4096].map(|at| read(&mut state.disk, at, 1)[0]);
        seen.push((state.cut, bytes, state.promises.len()));
    });
    let cut = |before, damage: &[(usize, u64)]| Cut {
        before,
        damage: damage.iter().map(|(write, sectors)| Damage { write: *write, sectors: *sectors }).collect(),
    };
    let expected = vec![
        (cut(0, &[]), [0, 0, 0], 0),
        (cut(1, &[]), [1, 1, 0], 0),
        (cut(1, &[(0, 0)]), [0, 0, 0], 0),
        (cut(1, &[(0, 1)]), [1, 0, 0], 0),
        (cut(2, &[]), [1, 1, 2], 0),
        (cut(2, &[(0, 0)]), [0, 0, 2], 0),
        (cut(2, &[(0, 1)]), [1, 0, 2], 0),
        (cut(2, &[(0, 0), (1, 0)]), [0, 0, 0], 0),
        (cut(2, &[(0, 1), (1, 0)]), [1, 0, 0], 0),
        (cut(2, &[(1, 0)]), [1, 1, 0], 0),
        (cut(3, &[]), [1, 1, 2], 0),
        (cut(4, &[]), [1, 1, 2], 1),
    ];
    assert_eq!(seen, expected);
    assert_eq!(count, expected.len());
}

/// Two changes of META, the first one with its mending: what was promised last or what comes next in every state, and
/// red without any of the flushes that something is written after.
#[test]
fn changes_of_meta_survive_every_cut_and_need_each_flush() {
    let values = ["old", "new", "newer"].map(|text| {
        let mut meta = meta::Meta::default();
        meta.set(meta::tags::USER_1, text.as_bytes()).unwrap();
        meta
    });
    let mut disk = Memory::new(MIB, 512);
    let steps = meta::read(&mut disk).change_to(&values[0]);
    apply(&mut disk, 0, &steps).unwrap();
    // An earlier cut left the second copy torn.
    disk.write_at(meta::COPY_BYTES + 100, &[9]).unwrap();
    let mut recorder = Recorder::new(disk);
    for new in &values[1..] {
        let steps = meta::read(&mut recorder).change_to(new);
        apply(&mut recorder, 0, &steps).unwrap();
        recorder.acknowledge("changed");
    }
    let (recording, _) = recorder.finish();
    let bad = |recording: &Recording| {
        let mut bad = 0;
        recording.each_state(&|_| true, |mut state| {
            let allowed = values.iter().skip(state.promises.len()).take(2);
            let found = meta::read(&mut state.disk).meta;
            bad += usize::from(!allowed.into_iter().any(|meta| *meta == found));
        });
        bad
    };
    assert_eq!(bad(&recording), 0);
    let needed: Vec<bool> = (0..5).map(|flush| bad(&recording.without_flush(flush).unwrap()) > 0).collect();
    assert_eq!(needed, [true, true, true, true, false]);
    assert!(recording.without_flush(5).is_none());
}

/// The table of a grown disk: backup first, then the primary.
#[test]
fn a_table_that_grows_survives_every_cut() {
    let geometry = |bytes| gpt::Geometry::new(512, bytes).unwrap();
    let request = gpt::Request {
        name: "EPHEMERAL".into(),
        type_guid: gpt::types::LINUX,
        guid: gpt::Guid::from_seed(b"x"),
        attributes: 0,
        size: gpt::Size::Bytes(8 * MIB),
    };
    let old = gpt::lay_out(geometry(32 * MIB), gpt::Guid::from_seed(b"disk"), &[request]).unwrap();
    let mut disk = Memory::new(64 * MIB, 512);
    apply(&mut disk, 0, &[old.extents().unwrap()]).unwrap();
    let larger = geometry(64 * MIB);
    let mut new = gpt::read(&mut disk, larger).unwrap().table.on(larger).unwrap();
    assert!(new.grow(1).unwrap() > 0);
    let steps: Vec<Step<'_>> =
        new.extents().unwrap().into_iter().map(|extent: Extent<'_>| vec![extent]).collect();
    let mut recorder = Recorder::new(disk);
    apply(&mut recorder, 0, &steps).unwrap();
    recorder.acknowledge("grown");
    let (recording, _) = recorder.finish();
    let states = recording.each_state(&|_| true, |mut state| {
        let found =
            gpt::read(&mut state.disk, larger).unwrap_or_else(|e| panic!("{:?}: {e}", state.cut)).table;
        let is_old = found.partitions == old.partitions && state.promises.is_empty();
        assert!(is_old || found == new, "{:?}", state.cut);
    });
    assert!(states > 60, "{states}");
}

#[test]
fn an_image_is_changed_by_one_program_at_a_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = |disk: Result<Disk, DeviceError>| crate::error::in_full(&disk.unwrap_err());
    let name = file.path().display();
    let writer = Disk::open(file.path()).unwrap();
    assert_eq!(
        refused(Disk::open(file.path())),
        format!("open {name}: another program is changing or reading it: try again when that has ended")
    );
    assert_eq!(
        refused(Disk::open_to_read(file.path())),
        format!("open {name}: another program is changing it: try again when that has ended")
    );
    drop(writer);
    let readers = [(); 2].map(|()| Disk::open_to_read(file.path()).unwrap());
    assert!(refused(Disk::open(file.path())).contains("or reading it"));
    drop(readers);
    Disk::open(file.path()).unwrap();
}
