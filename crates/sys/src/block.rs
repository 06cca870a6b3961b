//! Block devices: loop devices, partitions.
//!
//! Owns: `LOOP_CONFIGURE`, `BLKPG`, `BLKRRPART`, `BLKZEROOUT`, `BLKDISCARD`, sizes, writes that nobody waits for.
//! Does not: find devices or read partition tables.
//! Source: loop(4), include/uapi/linux/{loop,blkpg,fs}.h.

use alloc::format;
use alloc::string::String;
use core::mem::MaybeUninit;

use linux_raw_sys::general::{__NR_ioctl, __NR_sync_file_range};
use linux_raw_sys::loop_device as lo;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};

use crate::{Errno, Result, raw};

/// `_IO(0x12, 105)`
const BLKPG: usize = 0x1269;
/// `_IO(0x12, 95)`
const BLKRRPART: usize = 0x125f;
/// `_IOR(0x12, 114, size_t)`
const BLKGETSIZE64: usize = 0x8008_1272;
/// `_IO(0x12, 104)`
const BLKSSZGET: usize = 0x1268;
/// `_IO(0x12, 119)`
const BLKDISCARD: usize = 0x1277;
/// `_IO(0x12, 127)`
const BLKZEROOUT: usize = 0x127f;
/// SYNC_FILE_RANGE_WRITE of include/uapi/linux/fs.h.
const SYNC_FILE_RANGE_WRITE: usize = 2;
const BLKPG_ADD_PARTITION: i32 = 1;
const BLKPG_RESIZE_PARTITION: i32 = 3;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// How often a free loop device may be taken by someone else before we get one.
const LOOP_ATTEMPTS: u32 = 16;

/// Makes a read-only loop device over part of a file and returns its number and an open descriptor.
///
/// The device goes away when its last user does (autoclear): keep the descriptor until it is in use. A size of zero
/// means up to the end of the file.
pub fn attach_loop<Fd: AsFd>(file: Fd, offset: u64, size_bytes: u64) -> Result<(u32, OwnedFd)> {
    let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let config = loop_config(file.as_fd().as_raw_fd(), offset, size_bytes);
    for _ in 0..LOOP_ATTEMPTS {
        let number = free_loop(&control)?;
        let device = rustix::fs::open(loop_path(number), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: 1. LOOP_CONFIGURE reads one loop_config, which lives over the call.
        let done = unsafe {
            let arguments =
                [raw::fd(device.as_raw_fd()), lo::LOOP_CONFIGURE as usize, raw::read(&config), 0, 0, 0];
            raw::syscall(__NR_ioctl, arguments)
        };
        match done {
            Err(Errno::BUSY) => {}
            other => return other.map(|_| (number, device)),
        }
    }
    Err(Errno::BUSY)
}

/// `/dev/loop<n>`
pub fn loop_path(number: u32) -> String {
    format!("/dev/loop{number}")
}

fn free_loop(control: &OwnedFd) -> Result<u32> {
    // SAFETY: 1. LOOP_CTL_GET_FREE takes no argument.
    let number = unsafe {
        let arguments = [raw::fd(control.as_raw_fd()), lo::LOOP_CTL_GET_FREE as usize, 0, 0, 0, 0];
        raw::syscall(__NR_ioctl, arguments)
    }?;
    u32::try_from(number).map_err(|_| Errno::OVERFLOW)
}

fn loop_config(file: i32, offset: u64, size_bytes: u64) -> lo::loop_config {
    // SAFETY: 1. loop_config is integers and arrays of them: all zero is a value of it, and its "nothing set".
    let mut config: lo::loop_config = unsafe { MaybeUninit::zeroed().assume_init() };
    config.fd = file.unsigned_abs();
    config.block_size = 0;
    config.info.lo_offset = offset;
    config.info.lo_sizelimit = size_bytes;
    config.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
    config
}

/// struct blkpg_partition, 152 bytes.
#[repr(C)]
struct BlkpgPartition {
    start: i64,
    length: i64,
    number: i32,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// struct blkpg_ioctl_arg.
#[repr(C)]
struct BlkpgArgument {
    operation: i32,
    flags: i32,
    data_len: i32,
    data: *const BlkpgPartition,
}

/// Tells the kernel about a partition; start and length are in bytes. `EBUSY` if it has one in that place.
pub fn add_partition<Fd: AsFd>(disk: Fd, number: u32, start_bytes: u64, length_bytes: u64) -> Result<()> {
    change_partition(disk, BLKPG_ADD_PARTITION, number, start_bytes, length_bytes)
}

/// Tells the kernel that a partition, in use or not, has another length now; start and length are in bytes. `EINVAL`
/// if it begins elsewhere, `ENXIO` if the kernel does not know it.
pub fn resize_partition<Fd: AsFd>(disk: Fd, number: u32, start_bytes: u64, length_bytes: u64) -> Result<()> {
    change_partition(disk, BLKPG_RESIZE_PARTITION, number, start_bytes, length_bytes)
}

fn change_partition<Fd: AsFd>(
    disk: Fd,
    operation: i32,
    number: u32,
    start_bytes: u64,
    length_bytes: u64,
) -> Result<()> {
    let partition = BlkpgPartition {
        start: i64::try_from(start_bytes).map_err(|_| Errno::OVERFLOW)?,
        length: i64::try_from(length_bytes).map_err(|_| Errno::OVERFLOW)?,
        number: i32::try_from(number).map_err(|_| Errno::OVERFLOW)?,
        device_name: [0; 64],
        volume_name: [0; 64],
    };
    let argument = BlkpgArgument {
        operation,
        flags: 0,
        data_len: i32::try_from(size_of::<BlkpgPartition>()).map_err(|_| Errno::OVERFLOW)?,
        data: &raw const partition,
    };
    let fd = disk.as_fd().as_raw_fd();
    // SAFETY: 1. BLKPG reads the argument and the partition behind its pointer; both live over the call.
    unsafe { raw::syscall(__NR_ioctl, [raw::fd(fd), BLKPG, raw::read(&argument), 0, 0, 0]) }.map(drop)
}

/// Has the kernel read a disk's partition table anew and forget what it knew. `EBUSY` while a partition is in use.
pub fn reread_partitions<Fd: AsFd>(disk: Fd) -> Result<()> {
    let fd = disk.as_fd().as_raw_fd();
    // SAFETY: 1. BLKRRPART takes no argument.
    unsafe { raw::syscall(__NR_ioctl, [raw::fd(fd), BLKRRPART, 0, 0, 0, 0]) }.map(drop)
}

/// Size of a block device in bytes.
pub fn size_bytes<Fd: AsFd>(device: Fd) -> Result<u64> {
    let mut size = 0_u64;
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: 1. BLKGETSIZE64 writes one u64, which lives over the call.
    unsafe { raw::syscall(__NR_ioctl, [raw::fd(fd), BLKGETSIZE64, raw::write(&mut size), 0, 0, 0]) }?;
    Ok(size)
}

/// Size of a block device's logical sectors in bytes: what it writes whole or not at all.
pub fn sector_bytes<Fd: AsFd>(device: Fd) -> Result<u32> {
    let mut size = 0_i32;
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: 1. BLKSSZGET writes one int, which lives over the call.
    unsafe { raw::syscall(__NR_ioctl, [raw::fd(fd), BLKSSZGET, raw::write(&mut size), 0, 0, 0]) }?;
    u32::try_from(size).map_err(|_| Errno::OVERFLOW)
}

/// Makes a range of a block device read as zeros, by the fastest way that the device has. Start and length are in
/// bytes and whole sectors; else `EINVAL`. Durable after a flush.
pub fn zero_out<Fd: AsFd>(device: Fd, start_bytes: u64, length_bytes: u64) -> Result<()> {
    let range = [start_bytes, length_bytes];
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: 1. BLKZEROOUT reads two u64, which live over the call.
    unsafe { raw::syscall(__NR_ioctl, [raw::fd(fd), BLKZEROOUT, raw::read(&range), 0, 0, 0]) }.map(drop)
}

/// Tells a block device that a range is of no use to anybody any more; what it reads as afterwards is the device's choice.
/// Start and length are in bytes and whole sectors; else `EINVAL`. `EOPNOTSUPP` from a device that cannot.
pub fn discard<Fd: AsFd>(device: Fd, start_bytes: u64, length_bytes: u64) -> Result<()> {
    let range = [start_bytes, length_bytes];
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: 1. BLKDISCARD reads two u64, which live over the call.
    unsafe { raw::syscall(__NR_ioctl, [raw::fd(fd), BLKDISCARD, raw::read(&range), 0, 0, 0]) }.map(drop)
}

/// Opens a block device for writing, with others.
pub fn open_writable(path: &str) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Writes all of it and has the kernel [begin to bring it to the medium](begin_to_bring).
pub fn write_soon<Fd: AsFd>(device: Fd, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let at = offset + u64::try_from(done).map_err(|_| Errno::OVERFLOW)?;
        done += rustix::io::retry_on_intr(|| rustix::io::pwrite(&device, rest, at))?;
    }
    begin_to_bring(device, offset, bytes.len())
}

/// Has the kernel begin to bring what was written of a range to the medium, without a wait for the end of that. A page
/// that is on its way at this moment is left out: what was written to it meanwhile needs another call.
///
/// `int sync_file_range(int fd, off_t offset, off_t nbytes, unsigned int flags)`: sync_file_range(2).
pub fn begin_to_bring<Fd: AsFd>(device: Fd, offset: u64, length_bytes: usize) -> Result<()> {
    let arguments = [
        raw::fd(device.as_fd().as_raw_fd()),
        usize::try_from(offset).map_err(|_| Errno::OVERFLOW)?,
        length_bytes,
        SYNC_FILE_RANGE_WRITE,
        0,
        0,
    ];
    // SAFETY: 1. sync_file_range takes numbers alone and touches no memory of this process.
    unsafe { raw::syscall(__NR_sync_file_range, arguments) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<BlkpgPartition>(), 152);
        assert_eq!(size_of::<BlkpgArgument>(), 24);
        assert_eq!(size_of::<lo::loop_config>(), 304);
    }

    #[test]
    fn loops_are_read_only_and_clear_themselves() {
        let config = loop_config(5, 4096, 8192);
        assert_eq!((config.fd, config.info.lo_offset, config.info.lo_sizelimit), (5, 4096, 8192));
        assert_eq!(config.info.lo_flags, 5);
    }

    #[test]
    fn what_is_written_soon_is_there_for_readers() {
        let path = std::env::temp_dir().join(format!("billet-sys-{}-slot", std::process::id()));
        std::fs::write(&path, [0; 8192]).unwrap();
        let path = path.to_str().unwrap();
        write_soon(open_writable(path).unwrap(), 4000, b"slot").unwrap();
        let mut found = [0; 6];
        crate::fs::read_at(path, 3999, &mut found).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(&found, b"\0slot\0");
    }

    #[test]
    fn a_plain_file_is_no_disk() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(size_bytes(&file), Err(Errno::NOTTY));
        assert_eq!(add_partition(&file, 1, 0, 512), Err(Errno::NOTTY));
        assert_eq!(resize_partition(&file, 1, 0, 512), Err(Errno::NOTTY));
        assert_eq!(reread_partitions(&file), Err(Errno::NOTTY));
        assert_eq!(sector_bytes(&file), Err(Errno::NOTTY));
        assert_eq!(zero_out(&file, 0, 512), Err(Errno::NOTTY));
        assert_eq!(discard(&file, 0, 512), Err(Errno::NOTTY));
    }
}
