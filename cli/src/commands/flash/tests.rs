use super::*;
use serde_json::json;

fn stick() -> Disk {
    Disk {
        name: "sdb".into(),
        bytes: 16_000_000_000,
        sector_bytes: 512,
        model: "ACME Stick".into(),
        serial: "4C53".into(),
        has_twin: false,
        is_removable: true,
        is_read_only: false,
        uses: Vec::new(),
        is_system: false,
        zeroes_at_once: true,
        backing_file: None,
    }
}

#[test]
fn candidates_are_told_with_size_model_serial_and_what_speaks_against_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let image = Image::open_as_is(&path).unwrap();
    let mounted = Disk { name: "sdc".into(), uses: vec!["sdc1 is mounted at /media".into()], ..stick() };
    let small = Disk { name: "sdd".into(), bytes: 4096, ..stick() };
    let table = candidates(&image, &[stick(), mounted, small]);
    let text = table.to_string();
    let lines: Vec<_> = text.lines().collect();
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
    assert_eq!(words(0), ["DEVICE", "SIZE", "MODEL", "SERIAL", "NOTE"]);
    assert_eq!(words(1), ["/dev/sdb", "16", "GB", "ACME", "Stick", "4C53"]);
    assert!(lines[2].starts_with("/dev/sdc") && lines[2].contains("sdc1 is mounted at /media"), "{text}");
    assert!(lines[3].starts_with("/dev/sdd") && lines[3].contains("choose a larger disk"), "{text}");
    let first = json!({
        "device": "/dev/sdb", "size": 16_000_000_000_u64, "model": "ACME Stick", "serial": "4C53", "note": ""
    });
    assert_eq!(table.to_value()[0], first);
}

#[test]
fn zeros_that_take_their_time_are_told_before() {
    let directory = tempfile::tempdir().unwrap();
    let (raw, packed) = (directory.path().join("image"), directory.path().join("packed"));
    std::fs::write(&raw, vec![1; 1 << 20]).unwrap();
    std::fs::File::options().write(true).open(&raw).unwrap().set_len(9_000_000).unwrap();
    // A zstd frame of one block of 64 zeros (RFC 8878 §3.1.1): one segment, its length, a block of a repeated byte.
    std::fs::write(&packed, [0x28, 0xb5, 0x2f, 0xfd, 0x20, 64, 3, 2, 0, 0]).unwrap();
    let slow = Target::Disk(Disk { zeroes_at_once: false, ..stick() });
    let wanted = "are written too, which takes its time: this disk makes none by itself\n";
    for (path, which) in [(&raw, "zeros   8.0 MB of them "), (&packed, "zeros   those that count ")] {
        let image = Image::open_as_is(path).unwrap();
        let text = plan(&image, &slow, false);
        assert!(text.contains(&format!("{which}{wanted}")), "{text}");
        assert!(!plan(&image, &Target::Disk(stick()), false).contains("zeros"));
        let file = Target::File { path: path.clone(), bytes: Some(1) };
        assert!(!plan(&image, &file, false).contains("zeros"));
    }
}
