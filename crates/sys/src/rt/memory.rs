//! Memory functions that compiled code calls by name.
//!
//! Owns: memcpy, memmove, memset, memcmp, bcmp, strlen, and the unwinder's two names.
//! Does not: use plain loops where the compiler would recognise the function and turn the body into a call to itself;
//! string instructions, eight bytes at a time, do the work.

use core::arch::asm;

/// `void *memcpy(void *to, const void *from, size_t len)`
///
/// # Safety
/// Both must be valid for `len` bytes and not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY:
    // 1. len / 8 words and then len % 8 bytes are exactly the `len` bytes the caller vouches for.
    // 2. The direction flag is clear by the ABI.
    unsafe {
        asm!(
            "rep movsq",
            "mov rcx, {rest}",
            "rep movsb",
            rest = in(reg) len % 8,
            inout("rcx") len / 8 => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// `void *memmove(void *to, const void *from, size_t len)`
///
/// # Safety
/// Both must be valid for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: 1. Copying upwards is right when the target does not begin inside the source.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY:
    // 1. Downwards, from the last byte: the bytes that the end of the target overlaps are read first.
    // 2. First len % 8 single bytes at the end, then words, whose addresses are the last byte's minus seven.
    // 3. The direction flag is set back before the block ends.
    unsafe {
        asm!(
            "std",
            "rep movsb",
            "mov rcx, {words}",
            "sub rdi, 7",
            "sub rsi, 7",
            "rep movsq",
            "cld",
            words = in(reg) len / 8,
            inout("rcx") len % 8 => _,
            inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _,
            options(nostack),
        );
    }
    to
}

/// `void *memset(void *to, int byte, size_t len)`
///
/// # Safety
/// The target must be valid for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    let pattern = u64::from(byte.to_le_bytes()[0]) * 0x0101_0101_0101_0101;
    // SAFETY: 1. len / 8 words and then len % 8 bytes are exactly the `len` bytes the caller vouches for.
    unsafe {
        asm!(
            "rep stosq",
            "mov rcx, {rest}",
            "rep stosb",
            rest = in(reg) len % 8,
            inout("rcx") len / 8 => _,
            inout("rdi") to => _,
            in("rax") pattern,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// `int memcmp(const void *a, const void *b, size_t len)`
///
/// # Safety
/// Both must be valid for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    let mut at = 0;
    while at + 8 <= len {
        // SAFETY: 1. Eight bytes from `at` are within the `len` the caller vouches for; no alignment is assumed.
        let x = unsafe { a.add(at).cast::<u64>().read_unaligned() };
        // SAFETY: 1. As above.
        let y = unsafe { b.add(at).cast::<u64>().read_unaligned() };
        if x != y {
            return if x.swap_bytes() < y.swap_bytes() { -1 } else { 1 };
        }
        at += 8;
    }
    while at < len {
        // SAFETY: 1. `at` is below `len`. Volatile, so that this loop stays a loop.
        let x = unsafe { a.add(at).read_volatile() };
        // SAFETY: 1. As above.
        let y = unsafe { b.add(at).read_volatile() };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
        at += 1;
    }
    0
}

/// `int bcmp(const void *a, const void *b, size_t len)`
///
/// # Safety
/// Both must be valid for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: 1. Same obligations.
    unsafe { memcmp(a, b, len) }
}

/// `size_t strlen(const char *text)`
///
/// # Safety
/// The text must end in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: 1. Every byte up to and with the zero is readable. Volatile, so that this loop stays a loop.
    while unsafe { text.add(len).read_volatile() } != 0 {
        len += 1;
    }
    len
}

/// Named by the unwind tables of the compiled `core` and `alloc`; with `panic = "abort"` nothing ever calls it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`].
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    crate::process::exit(134)
}
