//! The content of an image: which files, from where, and whether they are what a node may have.

pub(crate) mod agent;
pub(crate) mod base;
mod check;
pub(crate) mod elf;
pub(crate) mod initramfs;
pub(crate) mod kernel_layer;
mod libraries;
pub(crate) mod list;
pub(crate) mod paths;
#[cfg(test)]
mod tests;

/// os-release of the node's root.
pub(crate) fn os_release(version: &str) -> String {
    format!("NAME=\"Billet\"\nID=billet\nVERSION_ID={version}\nPRETTY_NAME=\"Billet {version}\"\n")
}

/// os-release of a UKI. Without version keys: the boot loader orders entries by file name alone, whichever version
/// they hold.
pub(crate) fn boot_entry() -> &'static str {
    "NAME=\"Billet\"\nID=billet\nPRETTY_NAME=\"Billet\"\n"
}
