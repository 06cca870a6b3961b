//! Changes against fsck.vfat and mtools, and cut anywhere.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use std::format;

use proptest::prelude::*;

use super::super::SLOT_BYTES;
use super::super::read::find;
use super::super::tests::{fsck, image, tool, volume};
use super::super::{Error, File, Reader};
use super::SPARE_SLOTS;
use crate::Step;
use crate::field::put;

const MIB: u64 = 1 << 20;

type Files = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Clone)]
enum Change {
    Add(String, Vec<u8>),
    Rename(String, String),
    Remove(String),
}

/// What an ESP of ours holds, with two systems in it.
fn esp() -> Files {
    let mut files = Files::new();
    files.insert("EFI/BOOT/BOOTX64.EFI".into(), vec![1; 90_000]);
    files.insert("EFI/Linux/billet-000001.efi".into(), vec![2; 70_000]);
    files.insert("EFI/Linux/billet-000002+3.efi".into(), vec![3; 33_333]);
    files.insert("loader/loader.conf".into(), b"timeout 0\n".to_vec());
    files
}

fn make(files: &Files) -> Vec<u8> {
    let files: Vec<File<'_>> = files.iter().map(|(path, content)| File { path, content }).collect();
    image(&volume(34 * MIB), &files)
}

/// The files of a volume, by walking it.
fn walk(image: &[u8]) -> Files {
    let mut reader = Reader::open(image).unwrap();
    let (mut files, mut directories) = (Files::new(), vec![String::new()]);
    while let Some(directory) = directories.pop() {
        for entry in reader.list(&directory).unwrap() {
            let path =
                if directory.is_empty() { entry.name.clone() } else { format!("{directory}/{}", entry.name) };
            if entry.is_dir {
                directories.push(path);
            } else {
                files.insert(path.clone(), reader.read(&path, u32::MAX).unwrap());
            }
        }
    }
    files
}

fn steps<'a>(image: &[u8], change: &'a Change) -> Result<Vec<Step<'a>>, Error> {
    let mut reader = Reader::open(image)?;
    match change {
        Change::Add(path, content) => reader.add(path, content),
        Change::Rename(path, to) => reader.rename(path, to),
        Change::Remove(path) => reader.remove(path),
    }
}

fn write(image: &mut [u8], step: &Step<'_>) {
    for extent in step {
        put(image, usize::try_from(extent.offset).unwrap(), &extent.bytes);
    }
}

fn apply(image: &mut [u8], change: &Change) {
    for step in steps(image, change).unwrap() {
        write(image, &step);
    }
    if let Change::Add(path, _) | Change::Rename(path, _) = change {
        let (dir, _) = Reader::open(&*image).unwrap().directory_of(path).unwrap();
        assert!(dir.slots() - dir.end() >= SPARE_SLOTS, "{change:?}: no room for firmware");
    }
}

/// Renames as EDK2's driver does: the old set is marked as deleted, the new one goes behind all others.
fn rename_like_firmware(image: &mut [u8], path: &str, to: &str) {
    let (mut dir, name) = Reader::open(&*image).unwrap().directory_of(path).unwrap();
    let old = find(&dir.entries(), name).unwrap().clone();
    let set = dir.new_set(to, old.cluster, old.bytes, Some(&old), to).unwrap();
    dir.mark_deleted(&old.slots);
    let end = dir.end();
    assert!(end + set.len() / SLOT_BYTES <= dir.slots(), "{path}: firmware would make the directory longer");
    put(&mut dir.bytes, end * SLOT_BYTES, &set);
    let all: Step<'_> =
        (0..dir.slots()).step_by(dir.slots_per_sector()).map(|slot| dir.sector_of(slot)).collect();
    write(image, &all);
}

fn expect(files: &mut Files, change: &Change) {
    match change {
        Change::Add(path, content) => {
            files.insert(path.clone(), content.clone());
        }
        Change::Rename(path, to) => {
            let content = files.remove(path).unwrap();
            let directory =
                path.rsplit_once('/').map_or(String::new(), |(directory, _)| format!("{directory}/"));
            files.insert(directory + to, content);
        }
        Change::Remove(path) => {
            files.remove(path).unwrap();
        }
    }
}

fn upgrade() -> Vec<Change> {
    vec![
        Change::Remove("EFI/Linux/billet-000001.efi".into()),
        Change::Add("EFI/Linux/billet-000003+3.efi".into(), vec![4; 80_000]),
        Change::Rename("EFI/Linux/billet-000003+3.efi".into(), "billet-000003+2-1.efi".into()),
        Change::Rename("EFI/Linux/billet-000003+2-1.efi".into(), "billet-000003.efi".into()),
        Change::Add("EFI/Linux/EMPTY".into(), vec![]),
        Change::Rename("EFI/Linux/EMPTY".into(), "empty".into()),
        Change::Remove("EFI/Linux/empty".into()),
    ]
}

#[test]
fn an_upgrade_leaves_a_volume_that_fsck_and_mtools_like() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let (mut files, mut disk) = (esp(), make(&esp()));
    for change in upgrade() {
        apply(&mut disk, &change);
        expect(&mut files, &change);
        assert_eq!(walk(&disk), files, "{change:?}");
        std::fs::write(&path, &disk).unwrap();
        fsck(&path);
    }
    let out = dir.path().join("out");
    let source = "::EFI/Linux/billet-000003.efi";
    tool("mcopy", &["-n", "-i", path.to_str().unwrap(), source, out.to_str().unwrap()]);
    assert!(std::fs::read(out).unwrap() == [4; 80_000]);
}

/// Firmware appends with every start on trial and never uses the holes that it leaves.
#[test]
fn firmware_always_finds_room_behind_the_last_entry() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let mut disk = make(&esp());
    let name = |number: u32, rest: &str| format!("billet-{number:06}{rest}.efi");
    let directory = |name: String| format!("EFI/Linux/{name}");
    let mut running = 1;
    apply(&mut disk, &Change::Remove(directory(name(2, "+3"))));
    for number in 3..60 {
        apply(&mut disk, &Change::Add(directory(name(number, "+3")), vec![4; 3000]));
        for (before, after) in [("+3", "+2-1"), ("+2-1", "+1-2"), ("+1-2", "+0-3")] {
            rename_like_firmware(&mut disk, &directory(name(number, before)), &name(number, after));
        }
        // Every third one is kept; of the others the next upgrade takes the place.
        let gone = if number % 3 == 0 {
            apply(&mut disk, &Change::Rename(directory(name(number, "+0-3")), name(number, "")));
            directory(name(core::mem::replace(&mut running, number), ""))
        } else {
            directory(name(number, "+0-3"))
        };
        apply(&mut disk, &Change::Remove(gone));
    }
    let names: Vec<String> = walk(&disk).into_keys().collect();
    assert_eq!(names, ["EFI/BOOT/BOOTX64.EFI", "EFI/Linux/billet-000057.efi", "loader/loader.conf"]);
    std::fs::write(&path, &disk).unwrap();
    fsck(&path);
}

/// Behind the end mark lies a whole set, as a driver that does not write zeros leaves it: it never becomes a file.
#[test]
fn what_lies_behind_the_end_stays_there() {
    let mut disk = make(&esp());
    let (dir, _) = Reader::open(disk.as_slice()).unwrap().directory_of("EFI/Linux/x").unwrap();
    let ghost = dir.new_set("a ghost.efi", 0x0FFF_0000, 7, None, "").unwrap();
    let per_sector = dir.slots_per_sector();
    let behind = dir.end().next_multiple_of(per_sector);
    put(&mut disk, usize::try_from(dir.sector_of(behind).offset).unwrap(), &ghost);
    let mut files = esp();
    assert_eq!(walk(&disk), files);
    for n in 0..9 {
        let change = Change::Add(format!("EFI/Linux/{n}"), vec![n; 10]);
        apply(&mut disk, &change);
        expect(&mut files, &change);
        assert_eq!(walk(&disk), files);
    }
}

/// As the blessing of a boot: the shorter name goes where the longer one was.
#[test]
fn a_blessing_writes_one_sector() {
    let disk = make(&esp());
    let change = Change::Rename("EFI/Linux/billet-000002+3.efi".into(), "billet-000002.efi".into());
    let steps = steps(&disk, &change).unwrap();
    assert_eq!((steps.len(), steps[0].len(), steps[0][0].bytes.len()), (1, 1, 512));
}

/// A volume that mkfs.vfat made and mtools filled, with sets across sectors, as firmware leaves them.
#[test]
fn volumes_of_others_are_changed_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let arg = path.to_str().unwrap();
    std::fs::File::create(&path).unwrap().set_len(40 * MIB).unwrap();
    tool("mkfs.vfat", &["-F", "32", "-s", "1", arg]);
    tool("mmd", &["-i", arg, "::EFI", "::EFI/Linux"]);
    let mut files = Files::new();
    for n in 0..20 {
        let name = format!("EFI/Linux/a name that takes slots {n}.efi");
        let source = dir.path().join("source");
        std::fs::write(&source, vec![n; 1000]).unwrap();
        tool("mcopy", &["-i", arg, source.to_str().unwrap(), &format!("::{name}")]);
        files.insert(name, vec![n; 1000]);
    }
    let mut disk = std::fs::read(&path).unwrap();
    let mut straddling = 0;
    for n in 0..20 {
        let old = format!("EFI/Linux/a name that takes slots {n}.efi");
        let change = Change::Rename(old, format!("a name that takes slots +{n}+2.efi"));
        straddling += usize::from(steps(&disk, &change).unwrap().len() > 1);
        apply(&mut disk, &change);
        expect(&mut files, &change);
        assert_eq!(walk(&disk), files);
        std::fs::write(&path, &disk).unwrap();
        fsck(&path);
    }
    assert!(straddling > 0, "no set lay in two sectors");
}

/// The directory grows over sectors and clusters, and the free count is unknown rather than wrong.
#[test]
fn a_directory_grows_and_a_full_volume_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let (mut files, mut disk) = (esp(), make(&esp()));
    for n in 0..40 {
        let change = Change::Add(format!("EFI/Linux/{n}-{}", "x".repeat(n * 4)), vec![7; n]);
        apply(&mut disk, &change);
        expect(&mut files, &change);
    }
    assert_eq!(walk(&disk), files);
    std::fs::write(&path, &disk).unwrap();
    fsck(&path);
    let much = Change::Add("loader/much".into(), vec![0; 40 << 20]);
    assert!(matches!(steps(&disk, &much), Err(Error::Full(room)) if room < 34 << 20));
}

#[test]
fn impossible_changes_are_refused() {
    let disk = make(&esp());
    let refused = |change: Change| steps(&disk, &change).unwrap_err();
    let conf = || "loader/loader.conf".to_string();
    assert_eq!(
        refused(Change::Add("LOADER/Loader.Conf".into(), vec![])),
        Error::Conflict("LOADER/Loader.Conf".into())
    );
    assert_eq!(refused(Change::Add("none/x".into(), vec![])), Error::NotFound("none".into()));
    assert_eq!(refused(Change::Add("loader/a:b".into(), vec![])), Error::Path("loader/a:b".into()));
    assert_eq!(
        refused(Change::Add("loader/loader.conf/x".into(), vec![])),
        Error::WrongKind("loader/loader.conf".into())
    );
    assert_eq!(refused(Change::Remove("loader".into())), Error::WrongKind("loader".into()));
    assert_eq!(refused(Change::Remove("loader/none".into())), Error::NotFound("loader/none".into()));
    assert_eq!(refused(Change::Rename(conf(), String::new())), Error::Path(String::new()));
    let taken = Change::Rename("EFI/Linux/billet-000001.efi".into(), "BILLET-000002+3.EFI".into());
    assert_eq!(refused(taken), Error::Conflict("BILLET-000002+3.EFI".into()));
}

/// Two files on one chain, one of them further in: fsck's affair.
#[test]
fn crossing_chains_are_refused() {
    let mut disk = make(&esp());
    let reader = Reader::open(disk.as_slice()).unwrap();
    let fat = usize::try_from(reader.fat_offset).unwrap();
    let last =
        (2..).take_while(|cluster| disk[fat + cluster * 4..fat + cluster * 4 + 4] != [0; 4]).last().unwrap();
    put(&mut disk, fat + last * 4, &3_u32.to_le_bytes());
    let change = Change::Add("loader/x".into(), vec![1]);
    assert!(matches!(steps(&disk, &change), Err(Error::BadChain(_))));
}

/// Writes some sectors of a step: those whose number `keep` has a bit for.
fn write_some(image: &mut [u8], step: &Step<'_>, mut keep: impl FnMut() -> bool) {
    for extent in step {
        let start = usize::try_from(extent.offset).unwrap();
        for (n, sector) in extent.bytes.chunks(512).enumerate() {
            if keep() {
                put(image, start + n * 512, sector);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A chain of changes, each cut in any step with any of its sectors written; the rest goes on from there.
    #[test]
    fn cuts_leave_each_file_whole_under_its_old_or_new_name(seed in any::<u64>()) {
        let mut bits = seed | 1;
        let mut random = move |below: u64| {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            bits % below
        };
        let mut disk = make(&esp());
        let mut files = esp();
        for n in 0..12_u8 {
            let paths: Vec<String> = files.keys().cloned().collect();
            let length = usize::try_from(random(40_000)).unwrap();
            let any = paths[usize::try_from(random(paths.len() as u64)).unwrap()].clone();
            let new = format!("{n}-{}", "n".repeat(usize::try_from(random(60)).unwrap()));
            let change = match random(3) {
                0 => Change::Add(format!("EFI/Linux/{new}"), vec![n; length]),
                1 => Change::Rename(any, new),
                _ if paths.len() > 3 => Change::Remove(any),
                _ => Change::Add(format!("loader/{new}"), vec![n; length]),
            };
            let mut after = files.clone();
            expect(&mut after, &change);
            let steps = steps(&disk, &change).unwrap();
            let cut = usize::try_from(random(steps.len() as u64 + 1)).unwrap();
            steps[..cut].iter().for_each(|step| write(&mut disk, step));
            if let Some(step) = steps.get(cut) {
                write_some(&mut disk, step, || random(2) == 0);
            }
            let found = walk(&disk);
            // A renaming that takes two sectors may leave both names.
            let mut both = after.clone();
            both.extend(files.clone());
            let allowed = found == files || found == after || matches!(change, Change::Rename(..)) && found == both;
            prop_assert!(allowed, "{change:?} cut in step {cut} of {}", steps.len());
            files = found;
            if files == both && files != after {
                apply(&mut disk, &change);
                files = walk(&disk);
                prop_assert!(files == after, "{change:?} again");
            }
        }
        // What was cut off does not fill the volume up: all but what the files need is free again.
        let used: u64 = files.values().map(|content| (content.len() as u64).next_multiple_of(512)).sum();
        let rest = vec![9; usize::try_from(33 * MIB - used - 100 * 512).unwrap()];
        apply(&mut disk, &Change::Add("rest".into(), rest));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume");
        std::fs::write(&path, &disk).unwrap();
        let verdict = tool("fsck.vfat", &["-n", "-V", path.to_str().unwrap()]);
        prop_assert!(!verdict.contains("eclaimed"), "{verdict}");
    }
}
