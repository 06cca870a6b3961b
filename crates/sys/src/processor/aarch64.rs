//! What is said in a processor's own words: 64-bit ARM. `x86_64.rs` has the same functions.
//!
//! Owns: the instruction that calls the kernel, the first instructions of a program and of a thread, copying and filling
//! memory.
//! Does not: know any system call but those of a thread's beginning and end.
//! Source: syscall(2), "Architecture calling conventions"; clone(2), "C library/kernel differences" (the order of its
//! arguments); Procedure Call Standard for the Arm 64-bit Architecture.

use core::arch::asm;

#[cfg(all(feature = "rt", not(feature = "std"), not(test)))]
core::arch::global_asm!(
    ".globl _start",
    ".type _start, %function",
    "_start:",
    "mov x29, xzr",
    "mov x30, xzr",
    "mov x0, sp",
    "bl {enter}",
    "brk #1",
    enter = sym crate::rt::start::enter,
);

/// Calls the kernel: its bare answer.
///
/// # Safety
/// The arguments must be what the numbered call requires.
pub(crate) unsafe fn call_kernel(number: u32, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY:
    // 1. The kernel answers in x0 and leaves all other registers and the flags as they are.
    // 2. The instruction leaves the user stack alone (`nostack`).
    // 3. Memory reached through the arguments is the caller's obligation; without `nomem`, the compiler assumes that
    //    any memory may change.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number as usize,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack, preserves_flags),
        );
    }
    result
}

/// clone(2) for a thread that calls `entry(argument)` on the stack that ends at `stack` and ends: the bare answer. The
/// kernel keeps the thread's number at `id` and makes it zero in the end.
///
/// # Safety
/// The stack must end at a multiple of 16, be the thread's alone and live until `id` is zero again, as must what the
/// argument points to. `flags` must be those of a thread that shares all of this one's memory and sets no thread pointer.
#[cfg(any(test, not(feature = "std")))]
pub(crate) unsafe fn clone_thread(
    flags: u32,
    stack: usize,
    entry: extern "C" fn(*const ()),
    argument: *const (),
    id: *const core::sync::atomic::AtomicU32,
) -> isize {
    use linux_raw_sys::general::{__NR_clone, __NR_exit};

    let result: isize;
    // SAFETY:
    // 1. Two threads come back from the call. The old one finds a value above zero (or an error) and goes on with
    //    its registers as declared; the new one finds zero, touches only its own stack, and never leaves the block.
    // 2. sp is a multiple of 16 before the call of `entry`, as the ABI has it; no thread pointer is set, and code
    //    without the standard library uses none.
    // 3. The old thread's stack is left alone.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x10",
            "blr x9",
            "mov x0, xzr",
            "mov x8, {exit}",
            "svc #0",
            "brk #1",
            "2:",
            exit = const __NR_exit,
            in("x8") __NR_clone as usize,
            inlateout("x0") flags as usize => result,
            in("x1") stack,
            in("x2") id,
            in("x3") 0,
            in("x4") id,
            in("x9") entry,
            in("x10") argument,
            options(nostack),
        );
    }
    result
}

/// Copies from the first byte on.
///
/// # Safety
/// Both must be valid for `len` bytes, and `to` must not begin inside of what is copied.
#[cfg(any(test, all(feature = "rt", not(feature = "std"))))]
pub(crate) unsafe fn copy_up(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: 1. len / 16 pairs of words and then len % 16 bytes are exactly the `len` bytes the caller vouches for.
    unsafe {
        asm!(
            "cbz {pairs}, 3f",
            "2:",
            "ldp {a}, {b}, [{from}], #16",
            "stp {a}, {b}, [{to}], #16",
            "subs {pairs}, {pairs}, #1",
            "b.ne 2b",
            "3:",
            "cbz {rest}, 5f",
            "4:",
            "ldrb {a:w}, [{from}], #1",
            "strb {a:w}, [{to}], #1",
            "subs {rest}, {rest}, #1",
            "b.ne 4b",
            "5:",
            pairs = inout(reg) len / 16 => _,
            rest = inout(reg) len % 16 => _,
            to = inout(reg) to => _,
            from = inout(reg) from => _,
            a = out(reg) _,
            b = out(reg) _,
            options(nostack),
        );
    }
}

/// Copies from the last byte on.
///
/// # Safety
/// Both must be valid for `len` bytes, and `to` must not end inside of what is copied.
#[cfg(any(test, all(feature = "rt", not(feature = "std"))))]
pub(crate) unsafe fn copy_down(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY:
    // 1. Downwards, from behind the last byte: the bytes that the end of the target overlaps are read first.
    // 2. len % 16 bytes and then len / 16 pairs of words are exactly the `len` bytes the caller vouches for.
    unsafe {
        asm!(
            "cbz {rest}, 3f",
            "2:",
            "ldrb {a:w}, [{from}, #-1]!",
            "strb {a:w}, [{to}, #-1]!",
            "subs {rest}, {rest}, #1",
            "b.ne 2b",
            "3:",
            "cbz {pairs}, 5f",
            "4:",
            "ldp {a}, {b}, [{from}, #-16]!",
            "stp {a}, {b}, [{to}, #-16]!",
            "subs {pairs}, {pairs}, #1",
            "b.ne 4b",
            "5:",
            pairs = inout(reg) len / 16 => _,
            rest = inout(reg) len % 16 => _,
            to = inout(reg) to.wrapping_add(len) => _,
            from = inout(reg) from.wrapping_add(len) => _,
            a = out(reg) _,
            b = out(reg) _,
            options(nostack),
        );
    }
}

/// Makes every byte this one.
///
/// # Safety
/// The target must be valid for `len` bytes.
#[cfg(any(test, all(feature = "rt", not(feature = "std"))))]
pub(crate) unsafe fn fill(to: *mut u8, byte: u8, len: usize) {
    let pattern = u64::from(byte) * 0x0101_0101_0101_0101;
    // SAFETY: 1. len / 16 pairs of words and then len % 16 bytes are exactly the `len` bytes the caller vouches for.
    unsafe {
        asm!(
            "cbz {pairs}, 3f",
            "2:",
            "stp {pattern}, {pattern}, [{to}], #16",
            "subs {pairs}, {pairs}, #1",
            "b.ne 2b",
            "3:",
            "cbz {rest}, 5f",
            "4:",
            "strb {pattern:w}, [{to}], #1",
            "subs {rest}, {rest}, #1",
            "b.ne 4b",
            "5:",
            pairs = inout(reg) len / 16 => _,
            rest = inout(reg) len % 16 => _,
            to = inout(reg) to => _,
            pattern = in(reg) pattern,
            options(nostack),
        );
    }
}
