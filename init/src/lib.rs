//! PID 1.
//!
//! Owns: early boot, root assembly, supervision of machined, the end of the system.
//! Does not: parse the machine config, touch the kernel's own network (a root from the network comes by frames, past it),
//! or know services.
//! Order: [`sequences`]: boot, supervision, shutdown.
//! Fails by: one line in the kernel log, a wait of `panic=` seconds, a restart; never a kernel panic.
//!
//! The library runs on a [`kernel::Kernel`]: the real one ([`real`]) in the binary, a recording one in tests. It uses
//! no standard library, and the binary no libc.

#![cfg_attr(not(test), no_std)]
#![warn(missing_docs)]

extern crate alloc;

pub mod boot;
mod card;
pub mod cmdline;
pub mod corruption;
mod devices;
pub mod events;
pub mod failure;
pub mod finish;
pub mod kernel;
pub mod line;
pub mod modules;
pub mod opener;
pub mod real;
pub mod recorder;
pub mod runner;
pub mod sequences;
pub mod source;
pub mod supervise;
pub mod tasks;
pub mod unpack;
mod wait_status;
pub mod watchdog;

#[cfg(test)]
mod recording;
#[cfg(test)]
mod tests;

use boot::Boot;
use kernel::Kernel;
use sequences::{BOOT, CONTAINER_BOOT, CONTAINER_SHUTDOWN, SHUTDOWN, SUPERVISION};
use supervise::{Outcome, Supervisor};

/// The life of PID 1. Returns only when the kernel refused to end.
pub fn run(kernel: &mut dyn Kernel) {
    let (start, end) = match kernel.is_container() {
        true => (&CONTAINER_BOOT, &CONTAINER_SHUTDOWN),
        false => (&BOOT, &SHUTDOWN),
    };
    let mut boot = Boot::new(kernel);
    if runner::boot(&mut boot, start).is_err() {
        return;
    }
    let Boot { parameters, report, mut recorder, watchdog, .. } = boot;
    match Supervisor::new(kernel, &parameters, report, &mut recorder, watchdog).run(&SUPERVISION) {
        Outcome::Finish(action) => finish::finish(kernel, end, action, &mut recorder),
        Outcome::GaveUp => {}
    }
}
