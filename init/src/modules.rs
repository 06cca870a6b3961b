//! Kernel modules of the initramfs.
//!
//! Owns: the index of `/lib/modules/<release>`, loading by name or alias with dependencies, unpacking what the kernel
//! cannot unpack itself.
//! Does not: decide which ones (`tasks::modules` does).
//! Fails by: [`Failure`] naming the module file; callers make a warning of it, since the step that needs the module
//! fails by itself and says what it lacks.
//! Source: modules.dep(5); finit_module(2), `MODULE_INIT_COMPRESSED_FILE`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use ondisk::kmod::{AliasTable, Index};
use sys::Errno;

use crate::failure::Failure;
use crate::kernel::Kernel;
use crate::unpack;

/// Largest index file: Debian's full modules.alias is 1.5 MB.
const MAX_INDEX_BYTES: usize = 8 << 20;

/// Largest module file; the largest ones of Debian are below 10 MB.
pub(crate) const MAX_MODULE_BYTES: usize = 64 << 20;

/// The index and what was loaded through it.
#[derive(Debug, Default)]
pub struct Modules {
    directory: String,
    dep: String,
    alias: String,
    softdep: String,
    builtin: String,
    /// Paths that need no second attempt.
    done: Vec<String>,
}

impl Modules {
    /// Reads the index for a kernel release. Only `modules.dep` must exist.
    pub fn read(kernel: &mut dyn Kernel, release: &str) -> Result<Self, Failure> {
        let directory = format!("/lib/modules/{release}");
        let mut file = |name: &str| -> Result<String, Failure> {
            let path = format!("{directory}/{name}");
            let bytes =
                kernel.read(&path, MAX_INDEX_BYTES).map_err(Failure::at("read module index", &path))?;
            String::from_utf8(bytes).map_err(|_| Failure::reason("read module index", &path, "is not text"))
        };
        Ok(Self {
            dep: file("modules.dep")?,
            alias: file("modules.alias").unwrap_or_default(),
            softdep: file("modules.softdep").unwrap_or_default(),
            builtin: file("modules.builtin").unwrap_or_default(),
            directory,
            done: Vec::new(),
        })
    }

    fn index(&self) -> Index<'_> {
        Index { dep: &self.dep, alias: &self.alias, softdep: &self.softdep, builtin: &self.builtin }
    }

    /// Whether the index knows a module of that name or the kernel has it built in.
    pub fn knows(&self, name: &str) -> bool {
        self.index().find(name).is_some() || self.index().is_builtin(name)
    }

    /// Loads a module by name with all it needs.
    pub fn load(&mut self, kernel: &mut dyn Kernel, name: &str) -> Result<(), Failure> {
        let order = self.index().load_order(name).map_err(|_| {
            Failure::reason("load module", name, format!("{}/modules.dep does not list it", self.directory))
        })?;
        let paths: Vec<String> = order.iter().map(|m| m.path.to_string()).collect();
        self.load_all(kernel, paths)
    }

    /// Loads whatever drives devices with these aliases; returns how many module files that were.
    pub fn load_for(&mut self, kernel: &mut dyn Kernel, aliases: &[String]) -> Result<usize, Failure> {
        let table = AliasTable::new(&self.alias);
        let index = self.index();
        let wanted = aliases.iter().flat_map(|a| table.matches(a)).filter_map(|name| index.find(name));
        let paths: Vec<String> = index.with_dependencies(wanted).iter().map(|m| m.path.to_string()).collect();
        let before = self.done.len();
        self.load_all(kernel, paths)?;
        Ok(self.done.len() - before)
    }

    /// Tries them all and returns the first failure.
    fn load_all(&mut self, kernel: &mut dyn Kernel, paths: Vec<String>) -> Result<(), Failure> {
        let mut first = Ok(());
        for path in paths {
            if self.done.contains(&path) {
                continue;
            }
            let loaded = load_file(kernel, &format!("{}/{path}", self.directory));
            self.done.push(path);
            first = first.and(loaded);
        }
        first
    }
}

fn load_file(kernel: &mut dyn Kernel, path: &str) -> Result<(), Failure> {
    let packing = unpack::Packing::of(path);
    match kernel.load_module(path, packing.is_some()) {
        Ok(()) | Err(Errno::EXIST) => return Ok(()),
        // No such device: the driver looked and found none, as CPU-specific ones do.
        Err(Errno::NODEV) => return Ok(()),
        Err(errno) if packing.is_none() || errno == Errno::NOENT => {
            return Err(Failure::errno("load module", path, errno));
        }
        Err(_) => {}
    }
    // The kernel knows one packing at most; the other ones are unpacked here.
    let packed = kernel.read(path, MAX_MODULE_BYTES).map_err(Failure::at("read module", path))?;
    let image = unpack::unpack(packing.unwrap_or(unpack::Packing::Xz), &packed, MAX_MODULE_BYTES)
        .map_err(|reason| Failure::reason("unpack module", path, reason))?;
    match kernel.load_module_image(&image) {
        Ok(()) | Err(Errno::EXIST | Errno::NODEV) => Ok(()),
        Err(errno) => Err(Failure::errno("load unpacked module", path, errno)),
    }
}
