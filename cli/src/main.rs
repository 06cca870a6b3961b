//! The program: everything is in the library, where its grammar can be tested without a process.

use std::process::ExitCode;

fn main() -> ExitCode {
    billetctl::run()
}
