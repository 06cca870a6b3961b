//! The finish line of `cargo xtask bench boot` for systems that do not print one themselves.
//!
//! Owns: one line in the kernel log as soon as a TCP port accepts connections: `bench: ADDRESS open`.
//! Does not: exist in any image of Billet; only the systems that Billet is compared with carry it.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// Long enough to cost nothing beside what is measured, short enough to be lost in it.
const INTERVAL: Duration = Duration::from_millis(5);

fn main() -> std::process::ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: bench-probe ADDRESS:PORT");
        return std::process::ExitCode::FAILURE;
    };
    // The system under test may open its port at any time; whoever runs it has the deadline.
    while TcpStream::connect(&address).is_err() {
        std::thread::sleep(INTERVAL);
    }
    match log(&format!("bench: {address} open\n")) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-probe: write to /dev/kmsg: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// One write is one record of the kernel log.
fn log(line: &str) -> std::io::Result<()> {
    std::fs::OpenOptions::new().write(true).open("/dev/kmsg")?.write_all(line.as_bytes())
}
