//! Device mapper.
//!
//! Owns: the ioctl protocol of /dev/mapper/control: create, load, resume, status, remove, list.
//! Does not: know targets; a table line is text as `dmsetup` takes it. No udev handshake: nodes are the kernel's
//! `/dev/dm-<n>` (devtmpfs makes them).
//! Order: create → load (inactive table) → resume (live); remove needs that nobody holds the device.
//! Source: include/uapi/linux/dm-ioctl.h.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use linux_raw_sys::general::__NR_ioctl;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};

use crate::{Errno, Result, raw};

/// One line of a table: a run of 512-byte sectors and what stands behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// First sector.
    pub start_sectors: u64,
    /// How many.
    pub length_sectors: u64,
    /// `linear`, `verity`, `crypt`.
    pub kind: &'static str,
    /// Its parameters.
    pub parameters: String,
}

/// A mapped device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// Name of the mapping.
    pub name: String,
    /// Minor number: the node is `/dev/dm-<minor>`.
    pub minor: u32,
}

/// Size of struct dm_ioctl.
const HEADER: usize = 312;
/// Size of struct dm_target_spec.
const SPEC: usize = 40;
/// Room for answers.
const ANSWER: usize = 16 * 1024;

const DM_DEV_CREATE: u8 = 3;
const DM_DEV_REMOVE: u8 = 4;
const DM_DEV_SUSPEND: u8 = 6;
const DM_TABLE_LOAD: u8 = 9;
const DM_TABLE_STATUS: u8 = 12;
const DM_LIST_DEVICES: u8 = 2;

const DM_READONLY: u32 = 1;
const DM_BUFFER_FULL: u32 = 1 << 8;
/// The kernel wipes its copy of the parameters: keys of dm-crypt.
const DM_SECURE_DATA: u32 = 1 << 15;
const DM_DEFERRED_REMOVE: u32 = 1 << 17;

/// Opens the control device.
pub fn control() -> Result<OwnedFd> {
    rustix::fs::open("/dev/mapper/control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Creates a mapping with a table and makes it live. Undone if any step fails.
pub fn create<Fd: AsFd>(
    control: Fd,
    name: &str,
    uuid: &str,
    read_only: bool,
    table: &[Target],
) -> Result<Mapped> {
    let flags = DM_SECURE_DATA | if read_only { DM_READONLY } else { 0 };
    let answer = call(&control, DM_DEV_CREATE, request(name, uuid, flags, &[])?)?;
    let minor = minor(&answer);
    let activate = || {
        call(&control, DM_TABLE_LOAD, request(name, "", flags, table)?)?;
        // Without DM_SUSPEND_FLAG "suspend" means resume, which swaps the loaded table in.
        call(&control, DM_DEV_SUSPEND, request(name, "", flags, &[])?)
    };
    match activate() {
        Ok(_) => Ok(Mapped { name: name.to_string(), minor }),
        Err(errno) => {
            let _ = remove(&control, name, false);
            Err(errno)
        }
    }
}

/// Removes a mapping: `EBUSY` while it is in use, unless `deferred` lets the last user take it along.
pub fn remove<Fd: AsFd>(control: Fd, name: &str, deferred: bool) -> Result<()> {
    let flags = if deferred { DM_DEFERRED_REMOVE } else { 0 };
    call(control, DM_DEV_REMOVE, request(name, "", flags, &[])?).map(drop)
}

/// Status text of the first target: `V` or `C` for verity.
pub fn status<Fd: AsFd>(control: Fd, name: &str) -> Result<String> {
    let mut answer = request(name, "", 0, &[])?;
    answer.resize(ANSWER, 0);
    let answer = call(control, DM_TABLE_STATUS, answer)?;
    let at = usize::try_from(u32_at(&answer, 16)).map_err(|_| Errno::OVERFLOW)?;
    text_at(&answer, at + SPEC).map(ToString::to_string).ok_or(Errno::BADMSG)
}

/// All mappings.
pub fn list<Fd: AsFd>(control: Fd) -> Result<Vec<Mapped>> {
    let mut question = request("", "", 0, &[])?;
    question.resize(ANSWER, 0);
    let answer = call(control, DM_LIST_DEVICES, question)?;
    if u32_at(&answer, 28) & DM_BUFFER_FULL != 0 {
        return Err(Errno::OVERFLOW);
    }
    parse_list(&answer)
}

/// struct dm_name_list: dev u64 at 0, next u32 at 8 (bytes from this entry), name at 12.
fn parse_list(answer: &[u8]) -> Result<Vec<Mapped>> {
    let mut found = Vec::new();
    let mut at = usize::try_from(u32_at(answer, 16)).map_err(|_| Errno::OVERFLOW)?;
    loop {
        let dev = u64_at(answer, at);
        if dev == 0 {
            return Ok(found);
        }
        let name = text_at(answer, at + 12).ok_or(Errno::BADMSG)?;
        found.push(Mapped { name: name.to_string(), minor: minor_of(dev) });
        match u32_at(answer, at + 8) {
            0 => return Ok(found),
            next => at += usize::try_from(next).map_err(|_| Errno::OVERFLOW)?,
        }
    }
}

fn minor(answer: &[u8]) -> u32 {
    minor_of(u64_at(answer, 40))
}

/// The kernel's `huge_encode_dev`: minor bits 0–7 and 20–31.
fn minor_of(dev: u64) -> u32 {
    let low = u32::try_from(dev & 0xff).unwrap_or(0);
    let high = u32::try_from((dev >> 12) & 0x000f_ff00).unwrap_or(0);
    low | high
}

/// struct dm_ioctl: version at 0, data_size 12, data_start 16, target_count 20, flags 28, dev 40, name 48 (128
/// bytes), uuid 176 (129 bytes); then the targets.
fn request(name: &str, uuid: &str, flags: u32, table: &[Target]) -> Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER];
    put(&mut bytes, 0, &4_u32.to_ne_bytes());
    put(&mut bytes, 16, &to_u32(HEADER)?);
    put(&mut bytes, 20, &to_u32(table.len())?);
    put(&mut bytes, 28, &flags.to_ne_bytes());
    put_text(&mut bytes, 48, 128, name)?;
    put_text(&mut bytes, 176, 129, uuid)?;
    for target in table {
        push_target(&mut bytes, target)?;
    }
    // The answer needs the header at least.
    let size = to_u32(bytes.len())?;
    put(&mut bytes, 12, &size);
    Ok(bytes)
}

/// struct dm_target_spec: start u64, length u64, status i32, next u32 (bytes to the next spec), kind 16 bytes; then
/// the parameters, a C string, padded to 8.
fn push_target(bytes: &mut Vec<u8>, target: &Target) -> Result<()> {
    let start = bytes.len();
    bytes.resize(start + SPEC, 0);
    put(bytes, start, &target.start_sectors.to_ne_bytes());
    put(bytes, start + 8, &target.length_sectors.to_ne_bytes());
    put_text(bytes, start + 24, 16, target.kind)?;
    bytes.extend_from_slice(target.parameters.as_bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let next = to_u32(bytes.len() - start)?;
    put(bytes, start + 20, &next);
    Ok(())
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn put_text(bytes: &mut [u8], at: usize, room: usize, text: &str) -> Result<()> {
    if text.len() >= room || text.as_bytes().contains(&0) {
        return Err(Errno::NAMETOOLONG);
    }
    put(bytes, at, text.as_bytes());
    Ok(())
}

fn to_u32(value: usize) -> Result<[u8; 4]> {
    u32::try_from(value).map(u32::to_ne_bytes).map_err(|_| Errno::OVERFLOW)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn text_at(bytes: &[u8], at: usize) -> Option<&str> {
    let text = bytes.get(at..)?;
    let end = text.iter().position(|&b| b == 0)?;
    core::str::from_utf8(&text[..end]).ok()
}

fn call<Fd: AsFd>(control: Fd, command: u8, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let size = to_u32(bytes.len())?;
    put(&mut bytes, 12, &size);
    // _IOWR(0xfd, command, struct dm_ioctl)
    let number = 3 << 30 | HEADER << 16 | 0xfd << 8 | usize::from(command);
    let fd = control.as_fd().as_raw_fd();
    // SAFETY:
    // 1. `bytes` begins with a struct dm_ioctl whose data_size is its length: the kernel reads and writes no further.
    // 2. The kernel copies byte by byte, so no alignment is required.
    unsafe { raw::syscall(__NR_ioctl, [raw::fd(fd), number, raw::write(bytes.as_mut_slice()), 0, 0, 0]) }?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verity() -> Target {
        Target { start_sectors: 0, length_sectors: 16, kind: "verity", parameters: "1 7:0 7:0".into() }
    }

    #[test]
    fn a_request_has_the_kernels_layout() {
        let bytes = request("billet-base", "u", DM_READONLY, &[verity(), verity()]).unwrap();
        assert_eq!(u32_at(&bytes, 0), 4);
        assert_eq!(u32_at(&bytes, 12), u32::try_from(bytes.len()).unwrap());
        assert_eq!(u32_at(&bytes, 16), 312);
        assert_eq!(u32_at(&bytes, 20), 2);
        assert_eq!(u32_at(&bytes, 28), 1);
        assert_eq!(text_at(&bytes, 48), Some("billet-base"));
        assert_eq!(text_at(&bytes, 176), Some("u"));
        let next = usize::try_from(u32_at(&bytes, HEADER + 20)).unwrap();
        assert_eq!(next, (SPEC + 10).next_multiple_of(8));
        assert_eq!(text_at(&bytes, HEADER + next + 24), Some("verity"));
        assert_eq!(text_at(&bytes, HEADER + next + SPEC), Some("1 7:0 7:0"));
    }

    #[test]
    fn names_that_do_not_fit_are_refused() {
        assert_eq!(request(&"x".repeat(128), "", 0, &[]), Err(Errno::NAMETOOLONG));
        assert_eq!(request("a\0b", "", 0, &[]), Err(Errno::NAMETOOLONG));
    }

    #[test]
    fn lists_are_walked() {
        let mut answer = request("", "", 0, &[]).unwrap();
        assert_eq!(parse_list(&[answer.clone(), vec![0; 16]].concat()), Ok(vec![]));
        for (dev, next, name) in [(0xfd00_u64, 16_u32, b"one\0"), (0xfd01, 0, b"two\0")] {
            answer.extend_from_slice(&dev.to_ne_bytes());
            answer.extend_from_slice(&next.to_ne_bytes());
            answer.extend_from_slice(name);
            answer.resize(answer.len().next_multiple_of(8), 0);
        }
        let found = parse_list(&answer).unwrap();
        assert_eq!(found[0], Mapped { name: "one".into(), minor: 0 });
        assert_eq!(found[1], Mapped { name: "two".into(), minor: 1 });
    }

    #[test]
    fn minors_above_255_survive() {
        assert_eq!(minor_of(0x10_fd00), 256);
        assert_eq!(minor_of(0xfd07), 7);
    }
}
