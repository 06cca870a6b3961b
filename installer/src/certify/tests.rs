//! The quick operations of the certificate, and that it finds what is wrong. All of it: `cargo xtask certify`.

use std::io::Cursor;

use super::*;
use crate::device::{BlockDevice as _, apply};
use crate::upgrade::Slot;

fn scope() -> Scope {
    Scope { seeds: 1..2, loader: b"the loader".to_vec() }
}

#[test]
fn no_state_of_the_quick_operations_is_bad_and_every_flush_has_its_reason() {
    let scope = scope();
    const QUICK: [&str; 7] =
        ["upgrade", "bless", "rollback", "bios upgrade", "bios bless", "bios rollback", "grow"];
    let quick = |job: &Job| QUICK.contains(&job.operation);
    let jobs: Vec<Job> = jobs(&scope).into_iter().filter(quick).collect();
    let outcomes = certify(&jobs, &scope, &|_| {}).unwrap();
    let report = Report::new(&outcomes, scope.seeds);
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert!(report.states > 4000, "{report}");
}

#[test]
fn no_state_of_changed_key_slots_is_bad() {
    let scope = scope();
    const ENCRYPTED: [&str; 3] = ["add key", "key rotation", "header repair"];
    let jobs: Vec<Job> = jobs(&scope).into_iter().filter(|job| ENCRYPTED.contains(&job.operation)).collect();
    let outcomes = certify(&jobs, &scope, &|_| {}).unwrap();
    let report = Report::new(&outcomes, scope.seeds);
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert!(report.states > 300, "{report}");
}

/// For those who have no xtask built: `cargo test -p installer --lib -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute: `cargo xtask certify` does the same"]
fn no_state_is_bad_and_every_flush_has_its_reason() {
    let scope = scope();
    let outcomes = certify(&jobs(&scope), &scope, &|_| {}).unwrap();
    let report = Report::new(&outcomes, scope.seeds);
    eprintln!("{report}");
    assert_eq!(report.faults(), Vec::<String>::new());
}

/// The UKI's name before its content, the slot after both: what the installer never does.
#[test]
fn an_upgrade_in_the_wrong_order_is_found() {
    let variant = Variant::new(512, 1, b"the loader");
    let (old, new) = (variant.system("v1"), variant.system("v2"));
    let node = Node::installed(variant, &old).unwrap();
    let rule = Rule::from_to(("v1", Slot::A), ("v2", Slot::B));
    let case = Case::record(&node.disk, areas(&node.disk).unwrap(), &[&old, &new], rule, |disk| {
        let efi = node.range("EFI")?;
        let steps = {
            let part = crate::device::Part::new(&mut *disk, efi.start, efi.end - efi.start);
            ondisk::fat::Reader::open(part)?.add("EFI/Linux/billet-000002+3.efi", &new.uki)?
        };
        for step in steps.into_iter().rev() {
            apply(disk, efi.start, &[step])?;
        }
        disk.write_at(node.range("ROOT-B")?.start, &new.layer)?;
        disk.flush()?;
        Ok(())
    });
    let case = case.unwrap();
    let bad = case.first_bad(&mut Verdicts::new(&case)).unwrap();
    assert!(bad.why.starts_with("it starts nothing"), "{bad:?}");
    assert!(bad.cut.starts_with("the power goes before event"), "{bad:?}");
}

#[test]
fn a_write_to_what_must_be_left_alone_is_found() {
    let variant = Variant::new(4096, 2, b"the loader");
    let old = variant.system("v1");
    let node = Node::installed(variant, &old).unwrap();
    let state = node.range("STATE").unwrap();
    let rule = Rule::always("v1", Slot::A).keeping([state.clone()]);
    let case = Case::record(&node.disk, areas(&node.disk).unwrap(), &[&old], rule, |disk| {
        Ok(disk.write_at(state.end - 1, b"x")?)
    });
    let case = case.unwrap();
    let bad = case.first_bad(&mut Verdicts::new(&case)).unwrap();
    assert!(bad.why.ends_with("changed, in STATE"), "{bad:?}");
}

/// A promise before the flush is the oldest mistake.
#[test]
fn a_promise_that_comes_too_early_is_found() {
    let variant = Variant::new(512, 3, b"the loader");
    let (old, new) = (variant.system("v1"), variant.system("v2"));
    let node = Node::installed(variant, &old).unwrap();
    let rule = Rule::from_to(("v1", Slot::A), ("v2", Slot::B));
    let case = Case::record(&node.disk, areas(&node.disk).unwrap(), &[&old, &new], rule, |disk| {
        disk.acknowledge("upgrade");
        let mut source = |_: &_| Ok(Box::new(Cursor::new(new.layer.clone())) as Box<dyn std::io::Read>);
        node.on(disk).upgrade(node.running, new.new_system(), &mut source, &mut crate::silent)?;
        Ok(())
    });
    let case = case.unwrap();
    let bad = case.first_bad(&mut Verdicts::new(&case)).unwrap();
    assert_eq!(bad.why, "it starts v1 in ROOT-A by billet-000001.efi");
}
