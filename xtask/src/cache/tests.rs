//! What the cache promises: made once, remade when damaged, never half there, one maker at a time.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Cache, Key, KeyBuilder};

fn key(text: &str) -> Key {
    KeyBuilder::new("test 1").part(text).finish()
}

fn fill(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir(directory.join("sub"))?;
    fs::write(directory.join("sub/data"), b"payload")?;
    std::os::unix::fs::symlink("sub/data", directory.join("link"))?;
    Ok(())
}

/// Opens the cache anew, so that nothing is trusted for having been seen, and asks for the entry.
fn makes(root: &Path) -> usize {
    let mut count = 0;
    let cache = Cache::open(root).unwrap();
    let entry = cache
        .entry("thing", &key("a"), |directory| {
            count += 1;
            fill(directory)
        })
        .unwrap();
    assert_eq!(fs::read(entry.join("sub/data")).unwrap(), b"payload");
    assert_eq!(fs::read(entry.join("link")).unwrap(), b"payload");
    count
}

#[test]
fn an_entry_is_made_once() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!([makes(root.path()), makes(root.path())], [1, 0]);
}

#[test]
fn every_kind_of_damage_is_found_and_repaired() {
    let damages: [fn(&Path); 6] = [
        |entry| fs::write(entry.join("sub/data"), b"pAyload").unwrap(),
        |entry| fs::write(entry.join("sub/data"), b"").unwrap(),
        |entry| fs::remove_file(entry.join("link")).unwrap(),
        |entry| fs::write(entry.join("added"), b"x").unwrap(),
        |entry| fs::remove_file(entry.join(super::CHECKSUMS)).unwrap(),
        |entry| {
            fs::remove_file(entry.join("link")).unwrap();
            std::os::unix::fs::symlink("elsewhere", entry.join("link")).unwrap();
        },
    ];
    for (number, damage) in damages.iter().enumerate() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(makes(root.path()), 1);
        damage(&root.path().join("thing").join(key("a").short()));
        assert_eq!(makes(root.path()), 1, "damage {number} went unseen");
        assert_eq!(makes(root.path()), 0);
    }
}

#[test]
fn a_failed_make_leaves_no_entry() {
    let root = tempfile::tempdir().unwrap();
    let cache = Cache::open(root.path()).unwrap();
    let error = cache.entry("thing", &key("a"), |directory| {
        fill(directory)?;
        anyhow::bail!("no space left")
    });
    assert!(format!("{:#}", error.unwrap_err()).ends_with("no space left"));
    assert!(!cache.has("thing", &key("a")));
    assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
    assert_eq!(makes(root.path()), 1);
}

#[test]
fn what_a_killed_run_left_behind_is_not_taken_for_an_entry() {
    let root = tempfile::tempdir().unwrap();
    let half = root.path().join("tmp/work-dead/entry");
    fs::create_dir_all(&half).unwrap();
    fill(&half).unwrap();
    assert_eq!(makes(root.path()), 1);
}

#[test]
fn concurrent_runs_make_an_entry_once() {
    let root = tempfile::tempdir().unwrap();
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let cache = Cache::open(root.path()).unwrap();
                let entry = cache.entry("thing", &key("a"), |directory| {
                    made.fetch_add(1, Ordering::SeqCst);
                    fill(directory)
                });
                assert_eq!(fs::read(entry.unwrap().join("link")).unwrap(), b"payload");
            });
        }
    });
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[test]
fn parts_of_a_key_do_not_run_together() {
    let one = KeyBuilder::new("r").part("ab").part("c").finish();
    let other = KeyBuilder::new("r").part("a").part("bc").finish();
    assert_ne!(one, other);
    assert_ne!(key("a"), key("b"));
}
