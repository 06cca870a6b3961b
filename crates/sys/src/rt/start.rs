//! Entry point.
//!
//! Owns: `_start` and the argument vector.
//! Source: System V ABI for x86-64, "Process Initialization": at entry rsp points at argc, followed by argv, a null,
//! envp, a null and the auxiliary vector.

use core::ffi::{CStr, c_char};

unsafe extern "Rust" {
    /// Defined by [`program!`](crate::program).
    fn billet_main(arguments: Arguments) -> i32;
}

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {enter}",
    "ud2",
    enter = sym enter,
);

/// The program's arguments, the name first.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    count: usize,
    vector: *const *const c_char,
}

impl Arguments {
    /// One argument.
    pub fn get(&self, index: usize) -> Option<&'static CStr> {
        if index >= self.count {
            return None;
        }
        // SAFETY: 1. The kernel wrote `count` pointers there, and `index` is below it.
        let argument = unsafe { *self.vector.wrapping_add(index) };
        // SAFETY: 1. Each is a C string that stays where it is as long as the process lives.
        Some(unsafe { CStr::from_ptr(argument) })
    }
}

/// First Rust function of the process.
///
/// # Safety
/// `stack` is the stack pointer that the kernel started the process with.
unsafe extern "C" fn enter(stack: *mut usize) -> ! {
    // SAFETY: 1. The kernel put argc there.
    let count = unsafe { *stack };
    // SAFETY: 1. argv follows argc.
    let vector = unsafe { stack.add(1) };
    // SAFETY: 1. argv has `count` entries and a null; envp follows.
    let environment = unsafe { vector.add(count + 1) };
    // SAFETY:
    // 1. It is the environment the kernel made, with the auxiliary vector behind it.
    // 2. Nothing has used rustix before.
    unsafe { rustix::param::init(environment.cast()) };
    let arguments = Arguments { count, vector: vector.cast() };
    // Without handlers a fault ends as it would have: worth no failure of its own.
    let _ = super::fault::install();
    // SAFETY: 1. `program!` defines it with this signature.
    let status = unsafe { billet_main(arguments) };
    crate::process::exit(status)
}
