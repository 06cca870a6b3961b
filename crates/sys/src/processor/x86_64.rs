//! What is said in a processor's own words: x86-64. `aarch64.rs` has the same functions.
//!
//! Owns: the instruction that calls the kernel, the first instructions of a program and of a thread, copying and filling
//! memory.
//! Does not: know any system call but those of a thread's beginning and end.
//! Source: syscall(2), "Architecture calling conventions"; System V ABI for x86-64, "Process Initialization": at entry rsp
//! points at argc, followed by argv, a null, envp, a null and the auxiliary vector.

use core::arch::asm;

#[cfg(all(feature = "rt", not(feature = "std"), not(test)))]
core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {enter}",
    "ud2",
    enter = sym crate::rt::start::enter,
);

/// Calls the kernel: its bare answer.
///
/// # Safety
/// The arguments must be what the numbered call requires.
pub(crate) unsafe fn call_kernel(number: u32, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY:
    // 1. The instruction clobbers rcx and r11 and returns in rax: all three are declared.
    // 2. It leaves the user stack alone (`nostack`).
    // 3. Memory reached through the arguments is the caller's obligation; without `nomem`, the compiler assumes that
    //    any memory may change.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as usize as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
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
    // 2. rsp is a multiple of 16 before the call of `entry`, as the ABI has it; no thread pointer is set, and code
    //    without the standard library uses none.
    // 3. The old thread's stack is left alone.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const __NR_exit,
            inlateout("rax") __NR_clone as usize as isize => result,
            in("rdi") flags as usize,
            in("rsi") stack,
            in("rdx") id,
            in("r10") id,
            in("r8") 0,
            in("r12") entry,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
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
}

/// Copies from the last byte on.
///
/// # Safety
/// Both must be valid for `len` bytes, and `to` must not end inside of what is copied.
#[cfg(any(test, all(feature = "rt", not(feature = "std"))))]
pub(crate) unsafe fn copy_down(to: *mut u8, from: *const u8, len: usize) {
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
}

/// Makes every byte this one.
///
/// # Safety
/// The target must be valid for `len` bytes.
#[cfg(any(test, all(feature = "rt", not(feature = "std"))))]
pub(crate) unsafe fn fill(to: *mut u8, byte: u8, len: usize) {
    let pattern = u64::from(byte) * 0x0101_0101_0101_0101;
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
}
