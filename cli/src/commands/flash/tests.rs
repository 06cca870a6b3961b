use super::*;
use serde_json::json;

fn stick() -> Disk {
    Disk {
        name: "sdb".into(),
        bytes: 16_000_000_000,
        sector_bytes: 512,
        model: "ACME Stick".into(),
        serial: "4C53".into(),
        is_removable: true,
        is_read_only: false,
        uses: Vec::new(),
        is_system: false,
        backing_file: None,
    }
}

#[test]
fn candidates_are_told_with_size_model_serial_and_what_speaks_against_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
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
