//! A swtpm process of this test.
//!
//! Owns: the process, ended by its own id; its directory; the connection; the record of what went over the bus.
//! Does not: know which test uses which of its faults.
//! Source: swtpm(8): a data channel of raw commands and answers.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sys::Errno;
use tempfile::TempDir;
use tpm::{Code, Transport};

/// For the process to open its socket, and for each answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// Handles of hierarchies.
const OWNER: u32 = 0x4000_0001;
const ENDORSEMENT: u32 = 0x4000_000b;
const LOCKOUT: u32 = 0x4000_000a;
const PASSWORD: u32 = 0x4000_0009;

const CLEAR: u32 = 0x126;
const HIERARCHY_CHANGE_AUTH: u32 = 0x129;

pub(crate) struct Emulator {
    directory: TempDir,
    process: Child,
    stream: UnixStream,
    /// Commands and answers.
    pub(crate) traffic: Vec<Vec<u8>>,
}

impl Emulator {
    /// A new TPM.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (process, stream) = run(&directory);
        Self { directory, process, stream, traffic: Vec::new() }
    }

    /// Off and on again: registers are empty, the rest stays.
    pub(crate) fn restart(&mut self) {
        self.stop();
        (self.process, self.stream) = run(&self.directory);
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    /// As the firmware's menu does it.
    pub(crate) fn clear(&mut self) {
        assert_eq!(self.administer(CLEAR, LOCKOUT, b"", b""), Code(0));
    }

    /// Gives the owner a password.
    pub(crate) fn own(&mut self, password: &[u8]) {
        assert_eq!(self.administer(HIERARCHY_CHANGE_AUTH, OWNER, b"", &sized(password)), Code(0));
    }

    /// Gives the TPM's own identity a password.
    pub(crate) fn endorse(&mut self, password: &[u8]) {
        assert_eq!(self.administer(HIERARCHY_CHANGE_AUTH, ENDORSEMENT, b"", &sized(password)), Code(0));
    }

    /// Locks it by a wrong password, and returns what it says then.
    pub(crate) fn lock(&mut self) -> Code {
        assert_eq!(self.administer(HIERARCHY_CHANGE_AUTH, LOCKOUT, b"", &sized(b"right")), Code(0));
        assert_ne!(self.administer(CLEAR, LOCKOUT, b"wrong", b""), Code(0));
        self.administer(CLEAR, LOCKOUT, b"wrong", b"")
    }

    fn administer(&mut self, command: u32, handle: u32, password: &[u8], parameters: &[u8]) -> Code {
        let session = [&PASSWORD.to_be_bytes()[..], &sized(b""), &[1], &sized(password)].concat();
        let length = u32::try_from(session.len()).unwrap().to_be_bytes();
        let body = [&handle.to_be_bytes()[..], &length, &session, parameters].concat();
        let length = u32::try_from(body.len() + 10).unwrap().to_be_bytes();
        let frame = [&[0x80, 0x02][..], &length, &command.to_be_bytes(), &body].concat();
        let answer = self.exchange(&frame).unwrap();
        Code(u32::from_be_bytes(answer[6..10].try_into().unwrap()))
    }
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

fn run(directory: &TempDir) -> (Child, UnixStream) {
    let (data, control) = (directory.path().join("data"), directory.path().join("control"));
    let _ = std::fs::remove_file(&data);
    let mut process = Command::new("swtpm")
        .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
        .arg("--tpmstate")
        .arg(format!("dir={}", directory.path().display()))
        .arg("--server")
        .arg(format!("type=unixio,path={}", data.display()))
        .arg("--ctrl")
        .arg(format!("type=unixio,path={}", control.display()))
        .stdout(Stdio::null())
        .spawn()
        .expect("run swtpm; install it with: apt-get install swtpm");
    let end = Instant::now() + DEADLINE;
    let stream = loop {
        if let Ok(stream) = UnixStream::connect(&data) {
            break stream;
        }
        assert!(process.try_wait().unwrap().is_none() && Instant::now() < end, "swtpm opened no socket");
        std::thread::sleep(Duration::from_millis(5));
    };
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    (process, stream)
}

impl Transport for Emulator {
    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, Errno> {
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        self.traffic.push(command.to_vec());
        self.stream.write_all(command).map_err(failed)?;
        let mut answer = vec![0; 4096];
        let count = self.stream.read(&mut answer).map_err(failed)?;
        answer.truncate(count);
        self.traffic.push(answer.clone());
        if count == 0 { Err(Errno::PIPE) } else { Ok(answer) }
    }

    fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
