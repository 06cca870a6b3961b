//! What init reads of block devices: their bytes, and what the kernel says of them.

use ondisk::{ReadAt, ReadError};

use crate::kernel::Kernel;

/// A number in a file of /sys.
pub(crate) fn number(kernel: &mut dyn Kernel, path: &str) -> Option<u64> {
    let bytes = kernel.read(path, 4096).ok()?;
    core::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

/// A device as the formats read it.
pub(crate) struct Reader<'a> {
    pub(crate) kernel: &'a mut dyn Kernel,
    pub(crate) path: &'a str,
}

impl ReadAt for Reader<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        self.kernel.read_at(self.path, offset, buffer).map_err(|errno| ReadError {
            offset,
            length,
            errno: errno.raw_os_error(),
        })
    }
}
