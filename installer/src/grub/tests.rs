//! Scripts and counts. That upgrades of a disk with GRUB survive every power cut is certified ([`crate::certify`]).

use super::*;
use crate::certify::payload;
use crate::entries::chosen;

#[test]
fn a_script_points_into_the_uki() {
    let uki = payload::uki("v1", &[2; 600], &[1; 1300]);
    let script = script(&uki).unwrap();
    let image = Image::parse(&uki).unwrap();
    let first =
        |name: &str| image.sections().iter().find(|section| section.name == name).unwrap().file_offset / 512;
    let (kernel, initramfs) = (first(".linux"), first(".initrd"));
    assert_eq!(
        script,
        format!("linux (uki){kernel}+3 'quiet' 'billet.root=disk'\ninitrd (uki){initramfs}+2\n")
    );
    let at = usize::try_from(kernel).unwrap() * 512;
    assert_eq!(uki[at..at + 1300], [1; 1300]);
    assert!(matches!(super::script(b"MZ"), Err(Error::Pe(_))));
}

#[test]
fn command_lines_reach_the_kernel_unchanged_or_not_at_all() {
    assert_eq!(arguments("a=$b; c").unwrap(), "'a=$b;' 'c' 'billet.root=disk'");
    assert_eq!(arguments("talos.root=disk").unwrap(), "'talos.root=disk'");
    assert_eq!(arguments("a -- b").unwrap(), "'a' 'billet.root=disk' '--' 'b'");
    // What is added may be too much.
    arguments(&"a".repeat(2047 - 17)).unwrap();
    assert!(arguments(&"a".repeat(2047 - 16)).unwrap_err().to_string().contains("may have 2047"));
    for bad in ["x=\"a b\"", "x='a'", "x=a\\b"] {
        assert!(matches!(arguments(bad), Err(Error::GrubArgument { .. })), "{bad}");
    }
}

#[test]
fn counts_are_added_to_names() {
    let entry = |name: &str| Entry::parse(name).unwrap();
    let mut block = Environment::empty_block();
    assert_eq!(Counted::read(&block), Counted::default());
    block[25..54].copy_from_slice(b"generation=000012\nstarts=2\n##");
    let counted = Counted::read(&block);
    assert_eq!(counted, Counted { generation: 12, starts: 2 });
    assert_eq!(counted.applied_to(entry("billet-000012+3.efi")), entry("billet-000012+1-2.efi"));
    assert_eq!(counted.applied_to(entry("billet-000013+3.efi")), entry("billet-000013+3.efi"));
    assert_eq!(counted.applied_to(entry("billet-000012.efi")), entry("billet-000012.efi"));
    let spent = Counted { starts: 3, ..counted }.applied_to(entry("billet-000012+3.efi"));
    assert!(spent.is_exhausted());
    assert_eq!(chosen(&[spent, entry("billet-000011.efi")]), Some(entry("billet-000011.efi")));
    assert_eq!(Counted::read(b"torn"), Counted::default());
}

#[test]
fn scripts_have_the_names_of_their_entries() {
    assert_eq!(script_path(12), "grub/000012.cfg");
    assert_eq!((script_generation("000012.CFG"), script_generation("grub.cfg")), (Some(12), None));
    assert_eq!((script_generation("+00012.cfg"), script_generation("grubenv")), (None, None));
}

/// What GRUB counts must fit into the first sector of its block.
#[test]
fn values_fit_into_one_sector() {
    assert!("generation=999999\nstarts=3\n".len() < grub::VALUES_BYTES);
    assert!(CONFIG.contains("save_env generation starts\n"));
}
