//! Upgrade, blessing and rollback on a recorded disk, judged by [`crate::model`] in every state that a power cut can
//! leave.

use std::collections::HashMap;

use ondisk::fat;
use ondisk::gpt::{self, ALIGNMENT_BYTES, Geometry, Guid, Request, Size, types};
use ondisk::manifest::Layer;

use super::*;
use crate::device::{Memory, Recorder, Recording, apply};
use crate::model::{System, boot, place, system};
use crate::silent;

const MIB: u64 = 1 << 20;

/// A disk with `old` in slot A, as the installer leaves it.
fn installed(old: &System) -> (Memory, Table) {
    let request = |name: &str, bytes| Request {
        name: name.into(),
        type_guid: types::LINUX,
        guid: Guid::from_seed(name.as_bytes()),
        attributes: 0,
        size: Size::Bytes(bytes),
    };
    let requests = [
        request("EFI", 34 * MIB),
        request("ROOT-A", 2 * MIB),
        request("ROOT-B", 2 * MIB),
        request("META", MIB),
    ];
    let bytes = 40 * MIB + 2 * ALIGNMENT_BYTES;
    let table =
        gpt::lay_out(Geometry::new(512, bytes).unwrap(), Guid::from_seed(b"disk"), &requests).unwrap();
    let mut disk = Memory::new(bytes, 512);
    let volume = fat::Volume { label: "EFI", volume_id: 1, sector_bytes: 512, bytes: 34 * MIB };
    let files = [
        fat::File { path: "EFI/BOOT/BOOTX64.EFI", content: b"systemd-boot" },
        fat::File { path: "EFI/Linux/billet-000001.efi", content: &old.uki },
    ];
    apply(&mut disk, 0, &[table.extents().unwrap()]).unwrap();
    let efi = table.offset_bytes(table.by_name("EFI").unwrap());
    apply(&mut disk, efi, &[fat::format(&volume, &files).unwrap()]).unwrap();
    let (start, length) = place(&table, "ROOT-A");
    let mut slot = Part::new(&mut disk, start, length);
    slot::write(
        &mut slot,
        &old.manifest,
        &mut |_| Ok(Box::new(std::io::Cursor::new(old.layer.clone()))),
        &mut silent,
    )
    .unwrap();
    (disk, table)
}

fn upgrade(recorder: &mut Recorder, table: &Table, running: Running, new: &System) -> Result<Entry, Error> {
    let system = NewSystem { uki: &new.uki, manifest: &new.manifest };
    let mut source =
        |_: &Layer| Ok(Box::new(std::io::Cursor::new(new.layer.clone())) as Box<dyn std::io::Read>);
    Installed { disk: recorder, table: table.clone() }.upgrade(running, system, &mut source, &mut silent)
}

/// States in which the disk starts nothing, or after a promise something else than promised.
fn bad(recording: &Recording, before: &str, after: &str) -> (usize, usize) {
    let (mut bad, mut verdicts) = (0, HashMap::new());
    let count = recording.each_state(&|range| range.start < 35 * MIB, |mut state| {
        let started = boot(&mut state.disk, &mut verdicts).map(|(version, ..)| version);
        let good = started.as_deref() == Ok(after)
            || (state.promises.is_empty() && started.as_deref() == Ok(before));
        bad += usize::from(!good);
    });
    (bad, count)
}

/// What a change does to a disk, and the disk after it.
fn record(disk: &Memory, change: impl FnOnce(&mut Recorder)) -> (Recording, Memory) {
    let mut recorder = Recorder::new(disk.clone());
    change(&mut recorder);
    recorder.finish()
}

#[test]
fn upgrade_bless_and_rollback_survive_every_cut() {
    let (old, new) = (system("v1"), system("v2"));
    let (disk, table) = installed(&old);
    let start = |disk: &Memory| boot(&mut disk.clone(), &mut HashMap::new()).unwrap();
    let (version, slot, entry) = start(&disk);
    assert_eq!((version.as_str(), slot), ("v1", Slot::A));

    let (recording, disk) = record(&disk, |recorder| {
        upgrade(recorder, &table, Running { slot, entry }, &new).unwrap();
    });
    let (bad_states, states) = bad(&recording, "v1", "v2");
    assert_eq!(bad_states, 0, "of {states}");
    assert!(states > 500, "{states}");
    let (version, slot, entry) = start(&disk);
    assert_eq!((version.as_str(), slot, entry.to_string().as_str()), ("v2", Slot::B, "billet-000002+3.efi"));

    let (recording, disk) = record(&disk, |recorder| {
        Installed { disk: recorder, table: table.clone() }.bless(entry).unwrap();
    });
    assert_eq!(bad(&recording, "v2", "v2").0, 0);
    let (_, _, entry) = start(&disk);
    assert_eq!(entry.to_string(), "billet-000002.efi");

    let (recording, disk) = record(&disk, |recorder| {
        Installed { disk: recorder, table: table.clone() }.roll_back(entry).unwrap();
    });
    assert_eq!(bad(&recording, "v2", "v1").0, 0);
    let (version, slot, entry) = start(&disk);
    assert_eq!((version.as_str(), slot, entry.to_string().as_str()), ("v1", Slot::A, "billet-000003.efi"));

    // The same version again, from A: it is tried too, and the slot that runs stays as it is.
    let (recording, disk) = record(&disk, |recorder| {
        upgrade(recorder, &table, Running { slot, entry }, &system("v1")).unwrap();
    });
    assert_eq!(bad(&recording, "v1", "v1").0, 0);
    assert_eq!(start(&disk).2.to_string(), "billet-000004+3.efi");
}

/// Without a flush that something depends on there is a state that starts nothing.
#[test]
fn the_flushes_of_an_upgrade_are_needed_but_for_that_of_the_slot() {
    let (old, new) = (system("v1"), system("v2"));
    let (disk, table) = installed(&old);
    let (_, slot, entry) = boot(&mut disk.clone(), &mut HashMap::new()).unwrap();
    let (recording, _) = record(&disk, |recorder| {
        upgrade(recorder, &table, Running { slot, entry }, &new).unwrap();
    });
    let needed: Vec<bool> = (0..)
        .map_while(|flush| recording.without_flush(flush))
        .map(|without| bad(&without, "v1", "v2").0 > 0)
        .collect();
    // The slot's, that of the UKI's content, that of its name. The second would do for the slot too; its own is kept
    // so that what is read back to be proved is what the medium has.
    assert_eq!(needed, [false, true, true]);
}

#[test]
fn what_cannot_be_upgraded_is_refused_before_anything_is_written() {
    let (old, new) = (system("v1"), system("v2"));
    let (disk, table) = installed(&old);
    let (_, slot, entry) = boot(&mut disk.clone(), &mut HashMap::new()).unwrap();
    let refuse = |change: &mut dyn FnMut(&mut Recorder) -> Error| {
        let mut recorder = Recorder::new(disk.clone());
        let error = change(&mut recorder).to_string();
        assert!(recorder.finish().0.events.is_empty(), "{error}");
        error
    };
    let trial = Entry { trial: Some(crate::entries::Trial { left: 2, done: 1 }), ..entry };
    let error = refuse(&mut |r| upgrade(r, &table, Running { slot, entry: trial }, &new).unwrap_err());
    assert_eq!(error, "billet-000001+2-1.efi is still on trial: wait until it is kept, or roll back");
    let mut large = system("v3");
    large.manifest.layers[0].offset = 2 * MIB;
    let error = refuse(&mut |r| upgrade(r, &table, Running { slot, entry }, &large).unwrap_err());
    assert!(error.ends_with("a slot has 2097152"), "{error}");
    let error = refuse(&mut |r| Installed { disk: r, table: table.clone() }.roll_back(entry).unwrap_err());
    assert_eq!(error, "there is no other system on this disk to roll back to");
    let bare = Table { partitions: Vec::new(), ..table.clone() };
    let error = refuse(&mut |r| upgrade(r, &bare, Running { slot, entry }, &new).unwrap_err());
    assert!(error.starts_with("the disk has no partition EFI"), "{error}");
}

#[test]
fn a_layer_of_the_wrong_length_or_content_never_gets_an_entry() {
    let (old, mut new) = (system("v1"), system("v2"));
    let (disk, table) = installed(&old);
    let (_, slot, entry) = boot(&mut disk.clone(), &mut HashMap::new()).unwrap();
    let mut attempt = |layer: Vec<u8>| {
        new.layer = layer;
        let mut recorder = Recorder::new(disk.clone());
        let error = upgrade(&mut recorder, &table, Running { slot, entry }, &new).unwrap_err().to_string();
        let (started, ..) = boot(&mut recorder.finish().1, &mut HashMap::new()).unwrap();
        assert_eq!(started, "v1");
        error
    };
    let whole = system("v2").layer;
    let mut flipped = whole.clone();
    flipped[5000] ^= 1;
    let reads_back = "layer base reads back differently from what its root hash stands for";
    assert_eq!(attempt(flipped), reads_back);
    let wrong_length = "layer base is not as long as the manifest says";
    assert_eq!(attempt([&whole[..], b"x"].concat()), wrong_length);
    assert_eq!(attempt(whole[..whole.len() - 4096].to_vec()), wrong_length);
}
