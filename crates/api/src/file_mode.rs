//! File modes as they go over the wire.
//!
//! The API carries Go's `os.FileMode`, whose type bits differ from `st_mode`.
//! Owns: both conversions and the text form. Source: crates/api/proto/machine/machine.proto (FileInfo); Go's io/fs package.

/// Go's type and special bits.
pub mod go {
    /// Directory.
    pub const DIR: u32 = 1 << 31;
    /// Symbolic link.
    pub const SYMLINK: u32 = 1 << 27;
    /// Device.
    pub const DEVICE: u32 = 1 << 26;
    /// Named pipe.
    pub const FIFO: u32 = 1 << 25;
    /// Unix socket.
    pub const SOCKET: u32 = 1 << 24;
    /// Set user id.
    pub const SETUID: u32 = 1 << 23;
    /// Set group id.
    pub const SETGID: u32 = 1 << 22;
    /// Character device, together with [`DEVICE`].
    pub const CHAR_DEVICE: u32 = 1 << 21;
    /// Sticky.
    pub const STICKY: u32 = 1 << 20;
    /// Something else.
    pub const IRREGULAR: u32 = 1 << 19;
}

/// `S_IFMT` and its values, from uapi/linux/stat.h.
const TYPES: [(u32, u32); 7] = [
    (0o140_000, go::SOCKET),
    (0o120_000, go::SYMLINK),
    (0o100_000, 0),
    (0o060_000, go::DEVICE),
    (0o040_000, go::DIR),
    (0o020_000, go::DEVICE | go::CHAR_DEVICE),
    (0o010_000, go::FIFO),
];
const SPECIALS: [(u32, u32); 3] = [(0o4000, go::SETUID), (0o2000, go::SETGID), (0o1000, go::STICKY)];
const TYPE_MASK: u32 = 0o170_000;
const GO_TYPE_MASK: u32 =
    go::DIR | go::SYMLINK | go::DEVICE | go::FIFO | go::SOCKET | go::CHAR_DEVICE | go::IRREGULAR;

/// `st_mode` to the wire.
pub fn from_st_mode(mode: u32) -> u32 {
    let kind = TYPES.iter().find(|(st, _)| *st == mode & TYPE_MASK).map_or(go::IRREGULAR, |(_, go)| *go);
    let specials = SPECIALS.iter().filter(|(st, _)| mode & st != 0).fold(0, |acc, (_, go)| acc | go);
    kind | specials | (mode & 0o777)
}

/// The wire to `st_mode`; an irregular file has no type there.
pub fn to_st_mode(mode: u32) -> u32 {
    let kind = TYPES.iter().find(|(_, go)| *go == mode & GO_TYPE_MASK).map_or(0, |(st, _)| *st);
    let specials = SPECIALS.iter().filter(|(_, go)| mode & go != 0).fold(0, |acc, (st, _)| acc | st);
    kind | specials | (mode & 0o777)
}

/// The text that Go prints: letters for the bits that are set (or `-` if none), then permissions: `drwxr-xr-x`,
/// `Lrwxrwxrwx`, `Dcrw-------`, `dtrwxrwxrwx`.
pub fn text(mode: u32) -> String {
    /// From bit 31 down.
    const LETTERS: &[u8; 13] = b"dalTLDpSugct?";
    let mut out: String = (0_u32..)
        .zip(LETTERS)
        .filter(|(i, _)| mode & (1 << (31 - i)) != 0)
        .map(|(_, c)| char::from(*c))
        .collect();
    if out.is_empty() {
        out.push('-');
    }
    out.extend(
        (0_u32..).zip("rwxrwxrwx".chars()).map(|(i, c)| if mode & (1 << (8 - i)) != 0 { c } else { '-' }),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_for_every_type_and_special_bit() {
        for (st, _) in TYPES {
            for special in [0, 0o1000, 0o2000, 0o4000, 0o7000] {
                let mode = st | special | 0o754;
                assert_eq!(to_st_mode(from_st_mode(mode)), mode, "{mode:o}");
            }
        }
        assert_eq!(from_st_mode(0o040_755), 0x8000_01ed);
        assert_eq!(from_st_mode(0), go::IRREGULAR);
    }

    #[test]
    fn texts() {
        for (st, expected) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o120_777, "Lrwxrwxrwx"),
            (0o020_600, "Dcrw-------"),
            (0o060_660, "Drw-rw----"),
            (0o041_777, "dtrwxrwxrwx"),
            (0o104_755, "urwxr-xr-x"),
            (0o010_644, "prw-r--r--"),
            (0o140_755, "Srwxr-xr-x"),
        ] {
            assert_eq!(text(from_st_mode(st)), expected);
        }
    }
}
