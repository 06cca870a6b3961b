//! The PID 1 binary: no standard library, no libc.
//!
//! Owns: nothing but the choice between PID 1 and its helper processes.

#![no_std]
#![no_main]

use init::kernel::Helper;
use init::real::RealKernel;
use sys::rt::Arguments;

sys::program!(main);

/// The kernel hands unknown command line words to PID 1 as arguments: only a helper, never PID 1, looks at them.
fn main(arguments: Arguments) -> i32 {
    let mut kernel = RealKernel::new();
    if !kernel.is_init() {
        return match arguments.get(1) {
            Some(job) if job == Helper::UNMOUNT => init::finish::unmount_everything(&mut kernel),
            Some(job) if job == Helper::OPEN => open(&mut kernel, arguments),
            _ => 2,
        };
    }
    init::run(&mut kernel);
    sys::rt::panic::wait_and_restart()
}

/// The paths are those that PID 1 gave.
fn open(kernel: &mut RealKernel, arguments: Arguments) -> i32 {
    let path = |index| arguments.get(index).and_then(|path| path.to_str().ok());
    match (path(2), path(3)) {
        (Some(meta), Some(device)) => init::opener::open_state(kernel, meta, device),
        _ => 2,
    }
}
