//! Everything that builds, runs, tests and measures Billet: one command, one module.
#![allow(clippy::print_stdout, reason = "a command line tool talks to its user")]
#![allow(dead_code)]
mod cache;
mod command;
mod inputs;
mod place;
mod step;
fn main() {}
