use proptest::prelude::*;

use super::*;

fn disk() -> Properties {
    Properties {
        system_disk: Some(false),
        dev_path: "/dev/nvme0n1".into(),
        size: 100 << 30,
        sector_size: 512,
        model: "QEMU NVMe Ctrl".into(),
        serial: "deadbeef".into(),
        wwid: "nvme.1b36-6465".into(),
        transport: "nvme".into(),
        symlinks: vec!["/dev/disk/by-id/a".into(), "/dev/disk/by-path/pci-0000:00:1f.2-ata-1".into()],
        ..Properties::default()
    }
}

fn is(text: &str) -> bool {
    let expression = Expression::read(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    expression.matches(&disk()).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

/// Examples of the public guides, and each operator on both sides.
#[test]
fn a_disk_is_meant_or_not() {
    for (text, expected) in [
        ("disk.transport == 'nvme'", true),
        ("disk.transport == \"nvme\" && !system_disk", true),
        ("disk.transport == 'scsi' && disk.size < 2u * TiB", false),
        ("disk.serial.startsWith('deadbeef') && !disk.cdrom", true),
        ("'/dev/disk/by-path/pci-0000:00:1f.2-ata-1' in disk.symlinks", true),
        ("disk.size >= 120u * GB && disk.size <= 1u * TB", false),
        ("disk.size > 10u * GiB", true),
        ("disk.size == 100u*GiB", true),
        ("disk.size != 107374182400u", false),
        ("disk.size == 0x1900000000u", true),
        ("disk.size / GiB == 100u && disk.size % 7u < 7u && disk.size - 1u + 1u == disk.size", true),
        ("disk.sector_size in [512u, 4096u]", true),
        ("disk.transport in ['sata', 'virtio']", false),
        ("disk.transport in []", false),
        ("glob('QEMU*Ctrl', disk.model)", true),
        ("glob('QEMU', disk.model)", false),
        ("disk.model.endsWith(\"Ctrl\") && disk.wwid.contains('1b36')", true),
        ("!disk.rotational == true", true),
        ("!(disk.rotational || disk.readonly)", true),
        ("false && true || true", true),
        ("true || false && false", true),
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 7 - 2 - 1 == 4 && -3 < 2", true),
        ("disk.serial < 'e'", true),
        ("disk.model == 'it\\'s \\u0051\\t'", false),
        ("disk.transport == 'nvme' // the fast ones\n  && !system_disk", true),
    ] {
        assert_eq!(is(text), expected, "{text}");
    }
}

#[test]
fn a_fault_says_where_and_what_to_write() {
    for (text, expected) in [
        ("", "at its end: a value is missing"),
        (
            "disk.size > 10",
            "character 11, at `> 10`: `>` does not fit a number with `u` and a number without `u`: sizes are numbers with `u`, as in 10u * GiB",
        ),
        ("disk.transport = 'nvme'", "character 16, at `= 'nvme'`: a single `=` compares nothing: write `==`"),
        (
            "disk.size >= 10GiB",
            "character 14, at `10GiB`: letters follow the number: write `10u * GiB`, or `10u`",
        ),
        (
            "disk.size > 1.5 * GiB",
            "character 13, at `1.5 * GiB`: a number with a fraction fits no property of a disk: write a whole one",
        ),
        (
            "disk.name == 'a'",
            "character 6, at `name == 'a'`: a disk has no `name`; it has dev_path, size, pretty_size, io_size, sector_size, readonly, cdrom, rotational, model, serial, modalias, wwid, uuid, bus_path, sub_system, transport, secondary_disks, symlinks",
        ),
        ("!cdrom", "character 2, at `cdrom`: write `disk.cdrom`"),
        ("!disk.system_disk", "character 2, at `disk.system_disk`: write `system_disk`, without `disk.`"),
        (
            "drive.size > 1u",
            "character 1, at `drive.size > 1u`: `drive` is not known here: disk.…, system_disk, true, false, MiB, GB, …",
        ),
        ("disk", "character 1, at `disk`: a property of the disk is missing: disk.size"),
        ("disk.model", "character 1, at `disk.model`: the expression must be true or false, this is a text"),
        (
            "disk.model.matches('a+')",
            "character 12, at `matches('a+')`: regular expressions are not known here: glob(pattern, text)",
        ),
        (
            "disk.symlinks.exists(s, s == 'a')",
            "character 15, at `exists(s, s == '`: `exists` is not known here: write `\"text\" in list`",
        ),
        (
            "size(disk.model) > 3",
            "character 1, at `size(disk.model)`: the function `size` is not known here; there is glob(pattern, text)",
        ),
        ("glob('a')", "character 1, at `glob('a')`: it is written glob(pattern, text)"),
        (
            "glob('a', disk.size)",
            "character 11, at `disk.size)`: a text is needed here, this is a number with `u`",
        ),
        (
            "disk.cdrom ? true : false",
            "character 12, at `? true : false`: `?:` is not known here: write it with && and ||",
        ),
        ("disk.cdrom & true", "character 12, at `& true`: write `&&`"),
        (
            "disk.cdrom true",
            "character 12, at `true`: the expression was at its end: `&&` or `||` is missing",
        ),
        ("(disk.cdrom", "at its end: `)` is missing before this"),
        ("disk.cdrom)", "character 11, at `)`: it closes nothing"),
        ("disk.model == 'a", "character 15, at `'a`: the text has no end: ' is missing"),
        (
            "disk.model == r'a'",
            "character 15, at `r'a'`: a text with `r` before it is not known here: write it in plain quotes",
        ),
        (
            "disk.model == '\\d'",
            "character 16, at `\\d'`: behind `\\` one of \\ ' \" n r t is needed, or u with four hexadecimal digits",
        ),
        (
            "disk.size in ['a', 1]",
            "character 20, at `1]`: the list begins with another type, this is a number without `u`",
        ),
        (
            "disk.symlinks == ['a']",
            "character 15, at `== ['a']`: `==` does not fit a list of texts and a list of texts",
        ),
        ("!disk.model", "character 1, at `!disk.model`: `!` needs true or false behind it, this is a text"),
        ("99999999999999999999u > 1u", "character 1, at `9999999999999999`: the number is too large"),
        ("disk.model == 'ü' && §", "character 22, at `§`: '§' is no part of an expression"),
    ] {
        assert_eq!(
            Expression::read(text).map_err(|fault| fault.to_string()).err().as_deref(),
            Some(expected),
            "{text}"
        );
    }
}

#[test]
fn an_error_is_no_matter_where_the_other_side_decides() {
    let unknown = Properties { system_disk: None, ..disk() };
    let of =
        |text: &str| Expression::read(text).unwrap().matches(&unknown).map_err(|fault| fault.to_string());
    let error =
        "character 1, at `system_disk`: which disk is the system's is not known before an installation";
    assert_eq!(of("system_disk"), Err(error.to_owned()));
    for (text, expected) in [
        ("system_disk && false", Some(false)),
        ("false && system_disk", Some(false)),
        ("system_disk || true", Some(true)),
        ("true || system_disk", Some(true)),
        ("system_disk && true", None),
        ("true && system_disk", None),
        ("disk.size * EiB > 1u", None),
        ("disk.size / 0u == 1u", None),
        ("disk.size - 200u * GiB > 0u", None),
    ] {
        assert_eq!(of(text).ok(), expected, "{text}");
    }
}

#[test]
fn depth_and_length_have_an_end() {
    for text in ["(".repeat(2000), "!".repeat(2000), "1+".repeat(1000), "-".repeat(2000), "[".repeat(2000)] {
        let fault = Expression::read(&text).unwrap_err();
        assert!(fault.why.contains("more than 200 parts"), "{fault}");
    }
    assert!(Expression::read(&" ".repeat(MOST_BYTES + 1)).unwrap_err().why.contains("longer than"));
    assert!(Expression::read(&format!("{}true", "true && ".repeat(60))).is_ok());
}

/// A bool that an expression of `&&`, `||`, `!` and brackets must come to.
fn logic() -> impl Strategy<Value = (String, bool)> {
    let leaf = any::<bool>().prop_map(|truth| (truth.to_string(), truth));
    leaf.prop_recursive(5, 40, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|(text, truth)| (format!("!({text})"), !truth)),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| (format!("({}) && ({})", a.0, b.0), a.1 && b.1)),
            (inner.clone(), inner).prop_map(|(a, b)| (format!("({})||({})", a.0, b.0), a.1 || b.1)),
        ]
    })
}

/// Pieces of expressions, so that many random ones get far.
const PIECES: [&str; 32] = [
    "disk",
    ".",
    "size",
    "model",
    "symlinks",
    "system_disk",
    "true",
    "false",
    "&&",
    "||",
    "!",
    "==",
    "!=",
    "<",
    ">=",
    "in",
    "(",
    ")",
    "[",
    "]",
    ",",
    "10u",
    "3",
    "-",
    "*",
    "/",
    "GiB",
    "'a'",
    "\"*\"",
    "glob",
    "startsWith",
    " ",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,80}") {
        if let Ok(expression) = Expression::read(&text) {
            let _ = expression.matches(&disk());
        }
    }

    #[test]
    fn any_order_of_pieces_is_read_or_refused(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40)) {
        let text = pieces.concat();
        match Expression::read(&text) {
            Ok(expression) => drop(expression.matches(&disk())),
            Err(fault) => prop_assert!(fault.character <= text.chars().count() + 1 && !fault.why.is_empty()),
        }
    }

    #[test]
    fn logic_is_logic((text, truth) in logic()) {
        prop_assert_eq!(Expression::read(&text).unwrap().matches(&disk()), Ok(truth));
    }

    #[test]
    fn numbers_compare_as_numbers(left in any::<u64>(), right in any::<u64>()) {
        for (sign, expected) in [("<", left < right), ("<=", left <= right), (">", left > right), ("==", left == right)] {
            prop_assert_eq!(Expression::read(&format!("{left}u {sign} {right}u")).unwrap().matches(&disk()), Ok(expected));
        }
    }

    #[test]
    fn a_pattern_made_of_a_text_covers_it(text in "[a-c*]{0,12}", starts in prop::collection::vec(0..12_usize, 0..4)) {
        let mut pattern: Vec<char> = text.chars().collect();
        for start in starts {
            let start = start.min(pattern.len());
            pattern.splice(start..pattern.len().min(start + 2), ['*']);
        }
        let pattern: String = pattern.into_iter().collect();
        prop_assert!(is(&format!("glob('{pattern}', '{text}')")), "{} {}", pattern, text);
    }

    #[test]
    fn without_a_star_a_pattern_is_the_text(pattern in "[a-b?]{0,4}", text in "[a-b?]{0,4}") {
        prop_assert_eq!(is(&format!("glob('{pattern}', '{text}')")), pattern == text);
    }
}

fn card() -> LinkProperties {
    LinkProperties {
        hardware_addr: "02:00:00:00:00:02".into(),
        permanent_addr: "02:00:00:00:00:01".into(),
        driver: "virtio_net".into(),
        bus_path: "0000:00:03.0".into(),
        pci_id: "1AF4:1000".into(),
        kind: String::new(),
        alt_names: vec!["enp0s3".into()],
    }
}

#[test]
fn a_link_is_meant_by_its_properties() {
    let is = |text: &str| {
        LinkExpression::read(text).unwrap_or_else(|fault| panic!("{text}: {fault}")).matches(&card()).unwrap()
    };
    for text in [
        "mac(link.permanent_addr) == '02:00:00:00:00:01'",
        "mac(link.hardware_addr).startsWith('02:') && link.kind == ''",
        "glob('0000:00:*', link.bus_path)",
        "link.driver == 'virtio_net' && link.pciid == '1AF4:1000'",
        "'enp0s3' in link.alt_names",
    ] {
        assert!(is(text), "{text}");
    }
    assert!(!is("link.driver == 'e1000e'"));
}

#[test]
fn what_a_link_has_not_is_said() {
    for (text, why) in [
        (
            "link.size > 1u",
            "a link has no `size`; it has hardware_addr, permanent_addr, driver, bus_path, pciid, kind, alt_names",
        ),
        ("disk.size > 1u", "`disk` is not known here: link.…, true, false"),
        ("system_disk", "`system_disk` is not known here: link.…"),
        ("driver == 'a'", "write `link.driver`"),
        (
            "link.permanent_addr == '02:00:00:00:00:01'",
            "write mac(link.permanent_addr) == \"02:00:00:00:00:01\"",
        ),
        ("mac(link.driver) == 'a'", "a hardware address is needed here, this is a text"),
        ("link.driver", "the expression must be true or false, this is a text"),
    ] {
        let fault = LinkExpression::read(text).unwrap_err().to_string();
        assert!(fault.contains(why), "{text}: {fault}");
    }
    let fault = Expression::read("link.driver == 'a'").unwrap_err().to_string();
    assert!(fault.contains("`link` is not known here: disk.…, system_disk"), "{fault}");
}
