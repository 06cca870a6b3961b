//! What an upgrade refuses. That it survives every power cut is certified: [`crate::certify`].

use std::io::{Cursor, Read};

use ondisk::manifest::Layer;
use ondisk::pe::{Image, NewSection, blank};
use ondisk::{Architecture, fat};

use super::*;
use crate::addon;
use crate::certify::{Judge, Node, System, Variant};
use crate::device::Recorder;
use crate::silent;

pub(super) const VARIANT: Variant<'static> = Variant::new(512, 1, b"the loader");

pub(super) fn upgrade<D: BlockDevice>(
    recorder: &mut D,
    table: &Table,
    running: Running,
    new: &System,
) -> Result<Entry, Error> {
    let mut source = |_: &Layer| Ok(Box::new(Cursor::new(new.layer.clone())) as Box<dyn Read>);
    let mut installed = Installed { disk: recorder, table: table.clone() };
    installed.upgrade(running, new.new_system(), &mut source, &mut silent)
}

#[test]
fn what_cannot_be_upgraded_is_refused_before_anything_is_written() {
    let (old, new) = (VARIANT.system("v1"), VARIANT.system("v2"));
    let Node { disk, table, running } = Node::installed(VARIANT, &old).unwrap();
    let Running { slot, entry } = running;
    let refuse = |change: &mut dyn FnMut(&mut Recorder) -> Error| {
        let mut recorder = Recorder::new(disk.clone());
        let error = change(&mut recorder).to_string();
        assert!(recorder.finish().0.events.is_empty(), "{error}");
        error
    };
    let trial = Entry { trial: Some(crate::entries::Trial { left: 2, done: 1 }), ..entry };
    let error = refuse(&mut |r| upgrade(r, &table, Running { slot, entry: trial }, &new).unwrap_err());
    assert_eq!(error, "billet-000001+2-1.efi is still on trial: wait until it is kept, or roll back");
    let mut large = VARIANT.system("v3");
    large.manifest.layers[0].offset = 2 << 20;
    let error = refuse(&mut |r| upgrade(r, &table, Running { slot, entry }, &large).unwrap_err());
    assert!(error.ends_with("a slot has 1048576"), "{error}");
    let error = refuse(&mut |r| Installed { disk: r, table: table.clone() }.roll_back(entry).unwrap_err());
    assert_eq!(error, "there is no other system on this disk to roll back to");
    let bare = Table { partitions: Vec::new(), ..table.clone() };
    let error = refuse(&mut |r| upgrade(r, &bare, Running { slot, entry }, &new).unwrap_err());
    assert!(error.starts_with("the disk has no partition EFI"), "{error}");
}

/// The stub puts both lines together, and init starts nothing with two values.
#[test]
fn a_system_that_contradicts_an_addon_of_the_disk_is_refused_before_anything_is_written() {
    let old = VARIANT.system("v1");
    let addon = addon::assemble(Architecture::OWN, &["billet.watchdog=9".to_owned()]).unwrap();
    let mut files = VARIANT.loader_files().to_vec();
    files.push(fat::File { path: "loader/addons/site.addon.efi", content: &addon });
    let Node { disk, table, running } = Node::fresh_with(VARIANT, &old, &files).unwrap();
    let attempt = |line: &'static str| {
        let blank = blank(Architecture::OWN);
        let section = NewSection { name: ".cmdline", content: line.as_bytes() };
        let uki = Image::parse(&blank).unwrap().append(&[section]).unwrap();
        let new = System { uki, ..VARIANT.system("v2") };
        let mut recorder = Recorder::new(disk.clone());
        let done = upgrade(&mut recorder, &table, running, &new);
        (done.map_err(|error| error.to_string()), recorder.finish().0.events.is_empty())
    };
    let (error, nothing_was_written) = attempt("quiet billet.watchdog=30 billet.generation=2");
    let error = error.unwrap_err();
    assert!(error.starts_with("the addon \"site.addon.efi\": an argument of Billet's own"), "{error}");
    assert!(nothing_was_written);
    let (done, nothing_was_written) = attempt("quiet billet.watchdog=9 billet.generation=2");
    assert!(done.is_ok() && !nothing_was_written, "{done:?}");
}

#[test]
fn a_layer_of_the_wrong_length_or_content_never_gets_an_entry() {
    let (old, mut new) = (VARIANT.system("v1"), VARIANT.system("v2"));
    let Node { disk, table, running } = Node::installed(VARIANT, &old).unwrap();
    let inactive = running.slot.other().partition();
    let mut attempt = |layer: Vec<u8>| {
        new.layer = layer;
        let mut recorder = Recorder::new(disk.clone());
        let error = upgrade(&mut recorder, &table, running, &new).unwrap_err().to_string();
        let mut after = recorder.finish().1;
        let started = Judge::new(&[&old]).start(&mut after).unwrap();
        assert_eq!(started.version, "v1");
        // Nor does a start take the slot for a whole one, whoever's layers these are.
        let mut installed = Installed { disk: &mut after, table: table.clone() };
        assert!(!slot::is_known(&mut installed.part(inactive).unwrap(), &new.manifest));
        error
    };
    let whole = VARIANT.system("v2").layer;
    let mut flipped = whole.clone();
    flipped[5000] ^= 1;
    let reads_back = "layer base reads back differently from what its root hash stands for";
    assert!(attempt(flipped).starts_with(reads_back));
    let wrong_length = "layer base is not as long as the manifest says";
    assert_eq!(attempt([&whole[..], b"x"].concat()), wrong_length);
    assert_eq!(attempt(whole[..whole.len() - 4096].to_vec()), wrong_length);
}
