//! The content of an image: which files, from where, and whether they are what a node may have.

pub(crate) mod base;
mod check;
pub(crate) mod elf;
pub(crate) mod files;
mod libraries;
mod list;
#[cfg(test)]
mod tests;
