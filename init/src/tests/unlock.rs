//! What becomes of an encrypted STATE: whatever it is, the node comes up.

use handoff::{RefusedKey, ToMachined, UnlockReport};
use ondisk::gpt::Guid;
use ondisk::meta::{intents, tags};
use sys::Errno;

use super::world::{
    NODE_KEY, PARTITIONS, RECORD, VOLUME_KEY, encrypted, machine, root, short_life, with_disk, with_meta,
    with_partitions,
};
use crate::kernel::End;
use crate::recording::Recording;

/// Boots, and gives what machined hears.
fn report(kernel: Recording) -> (Recording, Option<UnlockReport>) {
    let mut kernel = short_life(kernel);
    crate::run(&mut kernel);
    assert_eq!(kernel.errors(), Vec::<&str>::new());
    assert_eq!(kernel.ends.first(), Some(&End::PowerOff));
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    let report = start.report.unlock.clone().map(|report| *report);
    (kernel, report)
}

/// The only line about STATE, without what precedes the reason.
fn locked(kernel: Recording) -> String {
    let (kernel, report) = report(kernel);
    let report = report.unwrap();
    assert!(report.opened.is_none() && kernel.mapped_with.is_none(), "{report:?}");
    let said: Vec<&str> = kernel.warnings().into_iter().filter(|text| text.starts_with("STATE")).collect();
    let [line] = said.as_slice() else { panic!("{said:?}") };
    let place = if report.device.is_empty() { "STATE" } else { "STATE on /dev/vda5" };
    line.strip_prefix(place).and_then(|rest| rest.strip_prefix(" is locked: ")).unwrap().to_string()
}

fn static_key(slot: u8, passphrase: &str) -> String {
    format!(r#"{{"EncryptionKeys":[{{"KeyStatic":{{"KeyData":"{passphrase}"}},"KeySlot":{slot}}}]}}"#)
}

#[test]
fn the_machines_key_opens_it_and_the_other_has_a_reason() {
    let (kernel, report) = report(encrypted(RECORD));
    let report = report.unwrap();
    let opened = report.opened.unwrap();
    assert_eq!(
        (opened.path.as_str(), opened.slot, opened.kind.as_str()),
        ("/dev/mapper/luks2-STATE", 1, "nodeID")
    );
    assert_eq!((report.volume.as_str(), report.device.as_str()), ("STATE", "/dev/vda5"));
    let why = "it needs the network, machined tries it".to_string();
    assert_eq!(report.refused, [RefusedKey { slot: 0, kind: "kms".into(), why }]);
    assert_eq!(report.problem, None);
    let lines: Vec<&str> = kernel.logs.iter().map(|(_, text)| text.as_str()).collect();
    assert!(lines.contains(&"STATE on /dev/vda5 opened by the nodeID key in slot 1 in 0 ms"), "{lines:?}");
    assert_eq!(kernel.mapped_with.as_deref(), Some(&VOLUME_KEY[..]));
    let modules: Vec<&str> =
        ["aesni-intel", "ecb", "xts", "dm-crypt"].into_iter().filter(|name| loaded(&kernel, name)).collect();
    assert_eq!(modules.len(), 4, "{modules:?}");
}

fn loaded(kernel: &Recording, name: &str) -> bool {
    kernel.calls.contains(&format!("load module /lib/modules/6.12.0-test/kernel/{name}.ko"))
}

/// A slot of the TPM's is tried last; in init the header's token decides, and here there is none.
#[test]
fn a_key_of_the_tpm_has_its_reason_from_init() {
    let record = r#"{"EncryptionKeys":[{"KeyTPM":{},"KeySlot":0}]}"#;
    assert_eq!(locked(encrypted(record)), "tpm key for slot 0: its slot has no sealed key");
    let record = r#"{"EncryptionKeys":[{"KeyTPM":{},"KeySlot":0},{"KeyNodeID":{},"KeySlot":1}]}"#;
    let (kernel, report) = report(encrypted(record));
    assert_eq!(report.unwrap().opened.unwrap().kind, "nodeID");
    assert!(!kernel.calls.iter().any(|call| call.starts_with("ask tpm")), "nobody waits for it");
}

#[test]
fn no_key_is_ever_said() {
    for record in [RECORD.to_string(), static_key(2, "passphrase"), static_key(2, "a wrong one")] {
        let (kernel, _) = report(encrypted(&record));
        let said = format!("{:?}{:?}{:?}", kernel.calls, kernel.logs, kernel.sent);
        for secret in [NODE_KEY, "passphrase\"", "a wrong one"] {
            assert!(!said.contains(secret), "{secret}");
        }
    }
}

#[test]
fn without_a_record_nothing_is_done_and_no_module_loaded() {
    let plain = with_disk(machine("billet.root=disk"), "vda", 1, &root().1);
    let half = with_meta(plain.clone(), tags::USER_1, b"x");
    let empty = encrypted("");
    let absent = with_disk(machine("billet.root=disk"), "vda", 1, &root().1);
    let absent = with_meta(absent, tags::STATE_ENCRYPTION, RECORD.as_bytes());
    for kernel in [plain, half, empty, absent] {
        let (kernel, report) = report(kernel);
        assert_eq!(report, None);
        assert!(!kernel.calls.iter().any(|call| call.contains("Open {") || call.contains("STATE")));
        assert!(!loaded(&kernel, "dm-crypt"));
    }
}

#[test]
fn the_uuid_in_meta_counts_before_the_firmwares() {
    let other = with_meta(encrypted(RECORD), tags::UUID_OVERRIDE, b"bc94b891-0df9-47d8-a7d3-c7c199d66b0e");
    let refused = "kms key for slot 0: it needs the network, machined tries it; nodeID key for slot 1: the passphrase \
                   is not its own";
    assert_eq!(locked(other), refused);
    let own = NODE_KEY.trim_end_matches("STATE").as_bytes();
    let (_, report) = report(with_meta(encrypted(RECORD), tags::UUID_OVERRIDE, own));
    assert!(report.unwrap().opened.is_some());
}

#[test]
fn keys_that_do_not_open_it_have_reasons() {
    assert_eq!(
        locked(encrypted(&static_key(1, "wrong"))),
        "static key for slot 1: the passphrase is not its own"
    );
    assert_eq!(locked(encrypted(&static_key(9, "x"))), "static key for slot 9: there is no such key slot");
    let unknown = r#"{"EncryptionKeys":[{"KeyFido":{},"KeySlot":4}]}"#;
    assert_eq!(locked(encrypted(unknown)), "KeyFido key for slot 4: KeyFido is not known here");
    assert_eq!(locked(encrypted(r#"{"EncryptionKeys":[]}"#)), "there is no key to try");
    let mut nameless = encrypted(RECORD);
    nameless.files.remove("/sys/firmware/dmi/tables/DMI");
    assert!(locked(nameless).ends_with("nodeID key for slot 1: machine UUID is not populated"));
}

#[test]
fn a_record_that_is_none_is_named() {
    assert_eq!(locked(encrypted("[")), "META's record of STATE's encryption: not a JSON object");
    let text = locked(encrypted(r#"{"EncryptionProvider":"zfs"}"#));
    assert_eq!(text, "META's record of STATE's encryption: unknown encryption kind zfs");
}

#[test]
fn what_is_half_made_or_about_to_go_is_left_alone() {
    let guid = Guid::from_seed(&[1, 5]);
    let half = format!(r#"[{{"partition":"STATE","guid":"{guid}"}}]"#);
    let half = with_meta(encrypted(RECORD), intents::FORMAT_TAG, half.as_bytes());
    assert_eq!(locked(half), "META says that making it was cut off, machined makes it again");
    let wiped = with_meta(encrypted(RECORD), intents::RESET_TAG, b"{}");
    assert_eq!(locked(wiped), "META says that a reset of it has begun, machined goes on with that");
    let other = with_meta(encrypted(RECORD), intents::RESET_TAG, br#"{"partitions":["EPHEMERAL"]}"#);
    assert!(report(other).1.unwrap().opened.is_some());
}

#[test]
fn two_partitions_of_that_name_are_both_left_alone() {
    let mut kernel = encrypted(RECORD);
    let two = [&PARTITIONS[..], &["STATE"]].concat();
    let meta = kernel.files["/dev/vda4"].clone();
    kernel = with_partitions(kernel, "vda", 1, &root().1, &two).file("/dev/vda4", meta);
    assert_eq!(locked(kernel), "/dev/vda has 2 partitions of that name; remove the wrong ones");
}

#[test]
fn a_damaged_copy_of_the_header_is_told_and_the_other_opens_it() {
    let mut kernel = encrypted(RECORD);
    kernel.files.get_mut("/dev/vda5").unwrap()[5000] ^= 1;
    let (kernel, report) = report(kernel);
    let report = report.unwrap();
    assert!(report.opened.is_some());
    let problem = "the first copy of its header is damaged (checksum does not match), the other one counts";
    assert_eq!(report.problem.as_deref(), Some(problem));
    assert!(kernel.warnings().iter().any(|text| text.ends_with(problem)), "{:?}", kernel.warnings());
}

#[test]
fn a_volume_that_is_none() {
    assert_eq!(locked(encrypted(RECORD).file("/dev/vda5", vec![0; 4 << 20])), "no LUKS2 header");
    let short = encrypted(RECORD).file("/sys/class/block/vda5/size", "2048\n");
    let text = locked(short);
    assert!(
        text.ends_with("/dev/vda5 with its 1048576 bytes does not hold the data that its header states"),
        "{text}"
    );
}

#[test]
fn memory_that_a_key_derivation_does_not_get() {
    let (_, enough) = report(encrypted(&static_key(2, "passphrase")));
    assert!(enough.unwrap().opened.is_some());
    let little = encrypted(&static_key(2, "passphrase")).file("/proc/meminfo", "MemAvailable:  255 kB\n");
    assert_eq!(
        locked(little),
        "static key for slot 2: key derivation needs 1 MiB of memory, which are not free"
    );
}

#[test]
fn a_kernel_without_dm_crypt() {
    let mut kernel = encrypted(RECORD);
    kernel.always_fail.push(("map volume", Errno::INVAL));
    let text = locked(kernel);
    let wanted = "map /dev/vda5 as luks2-STATE: EINVAL (not valid, or not what it is said to be); dm-crypt or its \
                  cipher may be missing in the kernel and in the initramfs";
    assert!(text.ends_with(wanted), "{text}");
}

#[test]
fn a_helper_that_hangs_is_killed_at_its_deadline() {
    let mut kernel = encrypted(RECORD);
    kernel.helper_hangs = true;
    let mut kernel = short_life(kernel);
    // The scenario's events are for machined: here nothing happens.
    let events = std::mem::take(&mut kernel.events);
    kernel.always_fail.push(("start machined", Errno::NOEXEC));
    let before = kernel.now;
    crate::run(&mut kernel);
    drop(events);
    let text = "STATE on /dev/vda5 is locked: ask the helper that opens /dev/vda5: not done after 120 s";
    assert!(kernel.warnings().contains(&text), "{:?}", kernel.warnings());
    assert!(kernel.now - before >= 120_000_000_000);
    let place = |wanted: &str| kernel.calls.iter().position(|call| call.starts_with(wanted)).unwrap();
    assert!(place("kill 900 Kill") < place("reap 900"));
    assert!(place("reap 900") < place("unmap volume luks2-STATE"));
    assert!(place("unmap volume") < place("switch root"));
    assert!(
        kernel.calls.iter().filter(|call| call.starts_with("feed watchdog")).count() > 5,
        "it is fed meanwhile"
    );
}

#[test]
fn a_helper_that_ends_without_an_answer() {
    let mut kernel = encrypted(RECORD);
    kernel.always_fail.push(("answer", Errno::PIPE));
    let text = "ask the helper that opens /dev/vda5: it ended without an answer: exit status 1";
    assert_eq!(locked(kernel), text);
    let mut kernel = encrypted(RECORD);
    kernel.always_fail.push(("start helper Open", Errno::NOMEM));
    assert!(locked(kernel).starts_with("start the helper that opens /dev/vda5: ENOMEM"));
}

#[test]
fn a_meta_that_cannot_be_read_is_said() {
    let mut kernel = encrypted(RECORD);
    kernel.always_fail.push(("read 262144 bytes of /dev/vda4", Errno::IO));
    let (kernel, report) = report(kernel);
    assert_eq!(report, None);
    let said = kernel.warnings();
    assert!(said.iter().any(|text| text.ends_with("whether STATE is encrypted is not known")), "{said:?}");
}
