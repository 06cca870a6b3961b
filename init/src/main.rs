//! The PID 1 binary: no standard library, no libc.
//!
//! Owns: nothing but the choice between PID 1 and its helper process.

#![no_std]
#![no_main]

use init::kernel::Helper;
use init::real::RealKernel;
use sys::rt::Arguments;

sys::program!(main);

/// The kernel hands unknown command line words to PID 1 as arguments: only the helper, never PID 1, looks at them.
fn main(arguments: Arguments) -> i32 {
    let mut kernel = RealKernel::new();
    if !kernel.is_init() {
        return match arguments.get(1) {
            Some(job) if job == Helper::Unmount.argument() => init::finish::unmount_everything(&mut kernel),
            _ => 2,
        };
    }
    init::run(&mut kernel);
    sys::rt::panic::wait_and_restart()
}
