//! The kernel module index: which files to load, in which order, for a name or a device's alias.
//!
//! Owns: modules.dep, modules.alias, modules.softdep and modules.builtin in the text form that depmod writes.
//! Does not: load modules, read directories, follow modprobe.d.
//! Order: hard dependencies, soft dependencies named `pre`, the module, soft dependencies named `post`.
//! Fails by: saying that nothing has the name; a soft dependency that does not exist is left out, one that is an
//! alias stands for all modules that have it.
//! Source: man modules.dep(5), depmod(8), modprobe.d(5); kmod's libkmod for the treatment of `-` and `_`.

mod alias;
mod glob;
mod machine;
mod modinfo;
mod order;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use alias::AliasTable;
pub use glob::alias_matches;
pub use machine::{MACHINE_BYTES, Machine, machine};
pub use modinfo::{Builder, Texts, modinfo};

/// The text of the index files; one that does not exist is the empty string.
#[derive(Debug, Clone, Copy, Default)]
pub struct Index<'a> {
    /// modules.dep.
    pub dep: &'a str,
    /// modules.alias.
    pub alias: &'a str,
    /// modules.softdep.
    pub softdep: &'a str,
    /// modules.builtin.
    pub builtin: &'a str,
}

/// One module file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module<'a> {
    /// Its path below the directory of the release, `kernel/fs/ext4/ext4.ko`.
    pub path: &'a str,
}

/// Nothing in the index has this name or alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound(pub String);

impl<'a> Module<'a> {
    /// The file's name without directory and `.ko` endings; `-` and `_` are as in the file's name.
    #[must_use]
    pub fn name(self) -> &'a str {
        stem(self.path)
    }
}

/// `kernel/fs/ext4/ext4.ko.xz` to `ext4`.
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split_once(".ko").map_or(file, |(name, _)| name)
}

/// Whether two module names are the same: `-` and `_` are one letter.
#[must_use]
pub fn same_name(a: &str, b: &str) -> bool {
    let fold = |byte: u8| if byte == b'-' { b'_' } else { byte };
    a.len() == b.len() && a.bytes().map(fold).eq(b.bytes().map(fold))
}

/// Lines that hold something; `#` starts a comment.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim_ascii).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

impl<'a> Index<'a> {
    /// The module of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Module<'a>> {
        self.entry(name).map(|(path, _)| Module { path })
    }

    /// Whether the kernel has the module built in.
    #[must_use]
    pub fn is_builtin(&self, name: &str) -> bool {
        lines(self.builtin).any(|path| same_name(stem(path), name))
    }

    /// Names of the modules whose alias patterns match, in the order of the index.
    ///
    /// Walks the whole text; for more than a few look-ups use an [`AliasTable`].
    pub fn aliases(&self, alias: &str) -> impl Iterator<Item = &'a str> {
        alias::entries(self.alias).filter(move |entry| alias_matches(entry.pattern, alias)).map(|e| e.module)
    }

    /// What to load for a module's name or an alias, dependencies first; empty when it is built in.
    pub fn load_order(&self, request: &str) -> Result<Vec<Module<'a>>, NotFound> {
        if let Some(module) = self.find(request) {
            return Ok(self.with_dependencies([module]));
        }
        // An alias goes before a built-in module of the same name, as with modprobe: `crc32` is both.
        let named: Vec<&str> = self.aliases(request).collect();
        if named.is_empty() && !self.is_builtin(request) {
            return Err(NotFound(request.into()));
        }
        Ok(self.with_dependencies(named.iter().filter_map(|name| self.find(name))))
    }

    /// The wanted modules and all that they need, each once, in the order in which they can be loaded.
    pub fn with_dependencies(&self, wanted: impl IntoIterator<Item = Module<'a>>) -> Vec<Module<'a>> {
        let mut walk = order::Walk::new(self);
        wanted.into_iter().for_each(|module| walk.add(module));
        walk.finish()
    }

    /// The line of modules.dep for this name: path and dependencies.
    fn entry(&self, name: &str) -> Option<(&'a str, &'a str)> {
        self.entries().find(|(path, _)| same_name(stem(path), name))
    }

    /// The lines of modules.dep: path and dependencies.
    fn entries(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        lines(self.dep).filter_map(|line| line.split_once(':'))
    }

    /// Names after `pre:` or `post:` in the lines of modules.softdep for this module.
    fn soft(&self, name: &str, when: When) -> impl Iterator<Item = &'a str> {
        let mut section = None;
        lines(self.softdep)
            .filter_map(|line| line.strip_prefix("softdep ")?.trim_ascii_start().split_once(' '))
            .filter(move |(module, _)| same_name(module, name))
            .flat_map(|(_, rest)| rest.split_ascii_whitespace())
            .filter(move |word| {
                match *word {
                    "pre:" => section = Some(When::Pre),
                    "post:" => section = Some(When::Post),
                    _ => return section == Some(when),
                }
                false
            })
    }
}

/// Before or after the module itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Pre,
    Post,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "module {}: not in the index", self.0)
    }
}

impl core::error::Error for NotFound {}

#[cfg(test)]
mod tests;
