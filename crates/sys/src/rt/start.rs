//! Entry point.
//!
//! Owns: what `_start` ([`processor`](crate::processor)) calls, and the argument vector.
//! Source: execve(2): at entry the stack pointer points at argc, followed by argv, a null, envp, a null and the auxiliary
//! vector, on every processor.

use core::ffi::{CStr, c_char};

unsafe extern "Rust" {
    /// Defined by [`program!`](crate::program).
    fn billet_main(arguments: Arguments) -> i32;
}

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
pub(crate) unsafe extern "C" fn enter(stack: *mut usize) -> ! {
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
