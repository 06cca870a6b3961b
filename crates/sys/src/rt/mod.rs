//! What a program without libc needs.
//!
//! Owns: entry point ([`start`]), allocator ([`heap`]), memory functions, names of libc, handlers for panics and
//! processor faults.
//! Does not: exist beside std: a program has one or the other.
//! Order: the kernel jumps to `_start` → auxiliary vector for rustix → the function named in [`program!`].

mod fault;
pub mod heap;
mod libc;
mod memory;
pub mod panic;
pub mod start;

pub use start::Arguments;

/// Names the program's main function: `fn main(arguments: sys::rt::Arguments) -> i32`. Its result is the exit status.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[unsafe(no_mangle)]
        extern "Rust" fn billet_main(arguments: $crate::rt::Arguments) -> i32 {
            let main: fn($crate::rt::Arguments) -> i32 = $main;
            main(arguments)
        }
    };
}
