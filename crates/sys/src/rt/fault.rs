//! Processor faults of PID 1: a wild pointer or a full stack would end it, and with it the kernel.
//!
//! Owns: handlers for the fault signals, on a stack of their own, that end like a panic: one line, a wait, a restart.
//! Does not: go on; what faulted cannot be trusted.
//! Source: rt_sigaction(2), sigaltstack(2); x86-64 refuses handlers without a restorer, arm64 takes one.

use linux_raw_sys::general as nr;
use rustix::mm::{MapFlags, ProtFlags};

use super::panic;
use crate::{Result, raw};

/// SIGILL, SIGBUS, SIGFPE, SIGSEGV.
const FAULTS: [i32; 4] = [4, 7, 8, 11];

/// Room for the handler and for the largest register state (AMX: 11 KiB; arm64 with SVE: less).
const STACK_BYTES: usize = 64 * 1024;

const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;

/// The kernel's struct sigaction.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// struct sigaltstack.
#[repr(C)]
struct Stack {
    base: usize,
    flags: i32,
    size: usize,
}

/// Installs the handlers.
pub(super) fn install() -> Result<()> {
    use_own_stack()?;
    let handler: extern "C" fn(i32, *const usize) -> ! = on_fault;
    let address = handler as usize;
    // The handler never returns, so what it would return through is never called.
    let flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK;
    let action = Action { handler: address, flags, restorer: address, mask: 0 };
    for signal in FAULTS {
        // SAFETY:
        // 1. `action` is a kernel sigaction that lives over the call; the old one may be null.
        // 2. The handler takes what SA_SIGINFO handlers get and uses only its own stack and system calls.
        unsafe {
            let arguments = [raw::fd(signal), raw::read(&action), 0, size_of::<u64>(), 0, 0];
            raw::syscall(nr::__NR_rt_sigaction, arguments)
        }?;
    }
    Ok(())
}

/// A full stack leaves no room for a handler.
fn use_own_stack() -> Result<()> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: 1. A new private mapping at an address of the kernel's choice overlaps nothing.
    let base = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), STACK_BYTES, protection, MapFlags::PRIVATE)
    }?;
    let stack = Stack { base: base as usize, flags: 0, size: STACK_BYTES };
    // SAFETY: 1. The mapping stays for ever and nothing else uses it; the old stack's place may be null.
    unsafe { raw::syscall(nr::__NR_sigaltstack, [raw::read(&stack), 0, 0, 0, 0, 0]) }.map(drop)
}

extern "C" fn on_fault(signal: i32, details: *const usize) -> ! {
    // SAFETY: 1. `details` is a siginfo_t of 128 bytes, whose bytes 16 to 23 hold the address for these signals.
    let address = unsafe { details.wrapping_add(2).read() };
    panic::end_with(format_args!("signal {signal} at address {address:#x}"))
}
