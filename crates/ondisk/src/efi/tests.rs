use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;

use super::*;

fn entry() -> BootEntry {
    BootEntry {
        active: true,
        description: "Billet".to_string(),
        partition: 1,
        first_lba: 2048,
        sectors: 1_048_576,
        guid: Guid::parse("4C9B3D5A-0102-0304-0506-0708090A0B0C").unwrap(),
        path: "\\EFI\\BOOT\\BOOTX64.EFI".to_string(),
    }
}

/// Field by field from the specification's tables, not through the writer.
#[test]
fn the_layout_is_that_of_the_specification() {
    let option = entry().encode();
    let file: Vec<u8> = "\\EFI\\BOOT\\BOOTX64.EFI\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut expected = vec![1, 0, 0, 0, 94, 0];
    expected.extend(b"B\0i\0l\0l\0e\0t\0\0\0");
    expected.extend([4, 1, 42, 0, 1, 0, 0, 0]);
    expected.extend([0, 8, 0, 0, 0, 0, 0, 0]);
    expected.extend([0, 0, 16, 0, 0, 0, 0, 0]);
    expected.extend([0x5A, 0x3D, 0x9B, 0x4C, 2, 1, 4, 3, 5, 6, 7, 8, 9, 10, 11, 12]);
    expected.extend([2, 2, 4, 4, 48, 0]);
    assert_eq!(file.len(), 44);
    expected.extend(file);
    expected.extend([0x7F, 0xFF, 4, 0]);
    assert_eq!(option, expected);
    assert_eq!(BootEntry::decode(&option), Some(entry()));
}

#[test]
fn data_behind_the_path_does_not_matter_and_other_paths_are_not_ours() {
    let mut option = entry().encode();
    option.extend(b"arguments");
    assert_eq!(BootEntry::decode(&option), Some(entry()));
    // The firmware's own shell: a path of another kind.
    option[20] = 3;
    assert_eq!(BootEntry::decode(&option), None);
}

#[test]
fn orders_and_files_of_variables() {
    assert_eq!(write_order(&[1, 0x000A]), [1, 0, 10, 0]);
    assert_eq!(read_order(&[1, 0, 10, 0, 7]), [1, 10]);
    assert_eq!(variable_file(NON_VOLATILE, &[9]), [7, 0, 0, 0, 9]);
    assert_eq!(read_variable_file(&[7, 0, 0, 0, 9]), Some((7, &[9][..])));
    assert_eq!(read_variable_file(&[7, 0]), None);
    assert_eq!(read_text(b"a\0b\0\0\0").as_deref(), Some("ab"));
    assert_eq!(read_text(b"a\0b\0"), None);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(option in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = BootEntry::decode(&option);
        let _ = read_order(&option);
        let _ = read_text(&option);
    }

    #[test]
    fn a_damaged_entry_does_not_panic(at in 0usize..114, value: u8) {
        let mut option = entry().encode();
        option[at] = value;
        let _ = BootEntry::decode(&option);
    }
}
