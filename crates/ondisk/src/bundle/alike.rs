//! Serial numbers and UUIDs that tell nothing: what stands in firmware whose maker put none in.
//!
//! Owns: the list, and what counts as the same.
//! Source: SMBIOS reference specification 3.7, §7.2.1 (no UUID: all zeros, none yet: all ones; order of the first three
//! groups); the others as firmware of American Megatrends, Dell, Phoenix and of virtual machines has them, collected from
//! reports of `dmidecode` and `lshw` that people published.

/// Serial numbers in small letters, without what is no letter and no digit.
const SERIALS: [&str; 21] = [
    "baseboardserialnumber",
    "chassisserialnumber",
    "default",
    "defaultstring",
    "empty",
    "invalid",
    "na",
    "none",
    "notapplicable",
    "notavailable",
    "notpresent",
    "notspecified",
    "null",
    "oem",
    "serialnumber",
    "standard",
    "systemserialnumber",
    "tobefilled",
    "tobefilledbyoem",
    "undefined",
    "unknown",
];

/// Digits in a row, from 0 or 1, as far as somebody typed.
const DIGITS: [&str; 2] = ["01234567890123456789", "12345678901234567890"];

/// Shortest row of digits, and shortest repetition, that nobody gives to a machine of his own.
const LONG: usize = 7;

/// UUIDs in either order of bytes.
const UUIDS: [u128; 7] = [
    0x0300_0200_0400_0500_0006_0007_0008_0009,
    0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f,
    0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
    0x1234_5678_1234_5678_90ab_cdde_efaa_bbcc,
    0x1234_5678_1234_5678_1234_5678_1234_5678,
    // A service tag of blanks.
    0x4c4c_4544_0020_2010_8020_a0c0_4f20_2020,
    0xffff_ff00_ffff_ffff_ffff_ffff_ffff_ffff,
];

/// Whether many machines have this serial number.
pub(super) fn is_serial(text: &str) -> bool {
    let bare = || text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase);
    let mut rest = bare();
    let first = rest.next();
    let one = rest.all(|c| Some(c) == first);
    let length = bare().count();
    // Nothing but signs; zeros; one letter or digit over and over; a text of the list; digits in a row.
    first.is_none()
        || one && (first == Some('0') || length >= LONG)
        || SERIALS.iter().any(|serial| bare().eq(serial.chars()))
        || length >= LONG
            && DIGITS.iter().any(|digits| length <= digits.len() && bare().eq(digits.chars().take(length)))
}

/// Whether many machines have this UUID.
pub(super) fn is_uuid(uuid: [u8; 16]) -> bool {
    let [a, b, c, d, e, f, g, h, rest @ ..] = uuid;
    let [i, j, k, l, m, n, o, p] = rest;
    // Before version 2.6 of the specification the first three groups were in the other order.
    let turned = [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p];
    let listed = |uuid| UUIDS.contains(&u128::from_be_bytes(uuid));
    uuid.iter().all(|byte| *byte == a) || listed(uuid) || listed(turned)
}
