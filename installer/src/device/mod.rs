//! What the installer writes to: a disk, a partition, an image file, or a recording of one.
//!
//! Owns: [`BlockDevice`], the only way to a disk of a node, and [`apply`], which puts the steps of a change on it.
//! Does not: choose what is written.
//! Order: a step is on the device before the next one begins; [`apply`] flushes after each.
//! Fails by: [`DeviceError`], which names the operation, its place and the device.

#[cfg(feature = "image")]
mod direct;
mod disk;
mod memory;
mod record;

use std::io;

use ondisk::{ReadAt, Step};

#[cfg(feature = "image")]
pub use direct::{Buffer, Direct};
pub use disk::Disk;
pub use memory::Memory;
pub use record::{Cut, Damage, Event, Recorder, Recording, State, Tears};

/// A disk or a part of one.
pub trait BlockDevice: ReadAt {
    /// Writes all of `bytes` at `offset`. On the medium for sure only after [`BlockDevice::flush`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Makes `length` bytes from `offset` read as zeros.
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError>;

    /// Gives up what `length` bytes from `offset` hold; what they read as afterwards is the device's choice. `false`: it
    /// cannot, and they stay as they are.
    fn discard(&mut self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let _ = (offset, length);
        Ok(false)
    }

    /// Whether it makes zeros without writing them, so that any length takes the same moment. Known for sure once
    /// something was made zeros.
    fn zeroes_at_once(&self) -> bool {
        true
    }

    /// Whether it is a file, for which its file system may have no room.
    fn is_file(&self) -> bool {
        false
    }

    /// Whether it was pulled out.
    fn is_gone(&self) -> bool {
        false
    }

    /// Returns once everything written before is on the medium.
    fn flush(&mut self) -> Result<(), DeviceError>;

    /// Says that a promise was made to somebody: from here on a power cut must not undo it.
    fn acknowledge(&mut self, promise: &str) {
        let _ = promise;
    }

    /// Length in bytes.
    fn bytes(&self) -> u64;

    /// Length of a sector in bytes, which is written whole or not at all.
    fn sector_bytes(&self) -> u32;
}

/// An operation on a device that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}{device}", place(*offset, *length))]
pub struct DeviceError {
    /// `open`, `write`, `zero`, `discard` or `flush`.
    pub operation: &'static str,
    /// The device's path.
    pub device: String,
    /// Where it started, in bytes.
    pub offset: u64,
    /// How long it was, in bytes.
    pub length: u64,
    /// Why.
    pub source: io::Error,
}

/// Opening concerns no bytes.
fn place(offset: u64, length: u64) -> String {
    if length == 0 { String::new() } else { format!("{length} bytes at {offset} of ") }
}

/// Puts a change on a device, `base` bytes from its start: every step is durable before the next one begins.
pub fn apply(device: &mut dyn BlockDevice, base: u64, steps: &[Step<'_>]) -> Result<(), DeviceError> {
    for step in steps {
        for extent in step {
            device.write_at(base.saturating_add(extent.offset), &extent.bytes)?;
        }
        device.flush()?;
    }
    Ok(())
}

/// A partition as a device of its own: nothing outside of it can be written.
#[derive(Debug)]
pub struct Part<'d, D: ?Sized> {
    device: &'d mut D,
    start: u64,
    length: u64,
}

impl<'d, D: BlockDevice + ?Sized> Part<'d, D> {
    /// `length` bytes of `device` from `start`.
    pub fn new(device: &'d mut D, start: u64, length: u64) -> Self {
        let length = length.min(device.bytes().saturating_sub(start));
        Self { device, start, length }
    }

    /// Where the bytes lie on the whole device, if they lie within the part.
    fn place(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then_some(self.start.checked_add(offset)?)
    }

    fn outside(operation: &'static str, offset: u64, length: u64) -> DeviceError {
        let source = io::Error::from(io::ErrorKind::UnexpectedEof);
        DeviceError { operation, device: "a partition".into(), offset, length, source }
    }
}

impl<D: BlockDevice + ?Sized> ReadAt for Part<'_, D> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ondisk::ReadError> {
        let end = ondisk::ReadError { offset, length: buffer.len(), errno: 0 };
        let place = self.place(offset, buffer.len() as u64).ok_or(end)?;
        self.device.read_at(place, buffer)
    }
}

impl<D: BlockDevice + ?Sized> BlockDevice for Part<'_, D> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let length = bytes.len() as u64;
        let place = self.place(offset, length).ok_or_else(|| Self::outside("write", offset, length))?;
        self.device.write_at(place, bytes)
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let place = self.place(offset, length).ok_or_else(|| Self::outside("zero", offset, length))?;
        self.device.zero(place, length)
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let place = self.place(offset, length).ok_or_else(|| Self::outside("discard", offset, length))?;
        self.device.discard(place, length)
    }

    fn zeroes_at_once(&self) -> bool {
        self.device.zeroes_at_once()
    }

    fn is_file(&self) -> bool {
        self.device.is_file()
    }

    fn is_gone(&self) -> bool {
        self.device.is_gone()
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn acknowledge(&mut self, promise: &str) {
        self.device.acknowledge(promise);
    }

    fn bytes(&self) -> u64 {
        self.length
    }

    fn sector_bytes(&self) -> u32 {
        self.device.sector_bytes()
    }
}

#[cfg(test)]
mod tests;
