//! Random numbers for keys.

/// Random bytes; a kernel that has none ends the process: no volume is made of zeros.
pub(super) fn random(bytes: &mut [u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())
            .expect("invariant: the kernel has random numbers long before a disk is found");
        rest = rest.get_mut(count..).unwrap_or_default();
    }
}
