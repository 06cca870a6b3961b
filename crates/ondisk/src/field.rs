//! Checked access to fixed-width fields in a byte slice.
//!
//! Owns: the lower level of every format module: a field that lies outside the slice reads as `None` and is
//! not written. Endianness is in the name.

/// `width` bytes at `offset`.
pub(crate) fn bytes(from: &[u8], offset: usize, width: usize) -> Option<&[u8]> {
    from.get(offset..offset.checked_add(width)?)
}

/// A fixed array at `offset`.
pub(crate) fn array<const N: usize>(from: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes(from, offset, N)?.try_into().ok()
}

pub(crate) fn u8_at(from: &[u8], offset: usize) -> Option<u8> {
    from.get(offset).copied()
}

pub(crate) fn le16(from: &[u8], offset: usize) -> Option<u16> {
    array(from, offset).map(u16::from_le_bytes)
}

pub(crate) fn le32(from: &[u8], offset: usize) -> Option<u32> {
    array(from, offset).map(u32::from_le_bytes)
}

pub(crate) fn le64(from: &[u8], offset: usize) -> Option<u64> {
    array(from, offset).map(u64::from_le_bytes)
}

pub(crate) fn be16(from: &[u8], offset: usize) -> Option<u16> {
    array(from, offset).map(u16::from_be_bytes)
}

pub(crate) fn be32(from: &[u8], offset: usize) -> Option<u32> {
    array(from, offset).map(u32::from_be_bytes)
}

pub(crate) fn be64(from: &[u8], offset: usize) -> Option<u64> {
    array(from, offset).map(u64::from_be_bytes)
}

/// Writes `value` at `offset`; a field outside the slice is left out.
pub(crate) fn put(into: &mut [u8], offset: usize, value: &[u8]) {
    if let Some(field) = offset.checked_add(value.len()).and_then(|end| into.get_mut(offset..end)) {
        field.copy_from_slice(value);
    }
}

/// `value` rounded up to a multiple of `step`; `None` on overflow or a step of zero.
pub(crate) fn round_up(value: u64, step: u64) -> Option<u64> {
    value.checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_outside_the_slice_is_none() {
        assert_eq!(le32(&[1, 2, 3], 0), None);
        assert_eq!(le16(&[1, 2, 3], usize::MAX), None);
        assert_eq!(le16(&[1, 2, 3], 1), Some(0x0302));
        assert_eq!(round_up(1, 0), None);
    }

    #[test]
    fn put_never_writes_past_the_end() {
        let mut bytes = [0u8; 4];
        put(&mut bytes, 3, &[1, 2]);
        put(&mut bytes, usize::MAX, &[1, 2]);
        assert_eq!(bytes, [0; 4]);
        put(&mut bytes, 2, &[1, 2]);
        assert_eq!(bytes, [0, 0, 1, 2]);
    }
}
