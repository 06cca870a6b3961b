//! Secure Boot on this node: what it puts on a disk must start there.
//!
//! Owns: whether the firmware checks what it starts; the UKI that is written: put together here, or, where it checks, the
//! one that the image's maker signed, as it is.
//! Does not: compare keys and parts (`installer::system`), write.
//! Order: asked before the first write of an installation or upgrade.
//! Fails by: a sentence that names the command with which images are signed.
//! Source: UEFI specification 2.10 §3.3 (`SecureBoot`), §32.4.1 (`db`); docs/users/secure-boot.md.

use std::path::Path;

use installer::system::{Distrust, SIGN_COMMAND, System, Trusted};
use ondisk::efi;
use runtime::Runtime;
use runtime::errors::chain;

const VARIABLES: &str = "sys/firmware/efi/efivars";

/// Whether the firmware starts signed files only. `root` is `/` on a node.
pub(crate) fn is_on(root: &Path) -> bool {
    variable(root, "SecureBoot", efi::GLOBAL).is_some_and(|value| value == [1])
}

/// Refuses arguments of the config where the command line is one that was signed.
pub(crate) fn check_arguments(root: &Path, arguments: &[String]) -> Result<(), String> {
    if arguments.is_empty() || !is_on(root) {
        return Ok(());
    }
    Err(format!(
        "machine.install.extraKernelArgs has {}, and with Secure Boot the command line is fixed when the image is made: \
         remove them from the config and make the image with them (`{SIGN_COMMAND} --extra-kernel-arg ARGUMENT`)",
        arguments.join(" ")
    ))
}

/// The UKI to write for a system that people call `name`. `arguments` are the config's; `own` is what a UKI gets that
/// is put together here.
pub(crate) fn uki(
    runtime: &Runtime,
    name: &str,
    system: &System,
    arguments: &[String],
    own: &[String],
) -> Result<Vec<u8>, String> {
    if !is_on(&runtime.root) {
        return system.uki(&[arguments, own].concat()).map_err(|error| chain(&error));
    }
    check_arguments(&runtime.root, arguments)?;
    let refused = |error: installer::Error| {
        format!(
            "this machine starts with Secure Boot and would not start {name} from its disk: {}",
            chain(&error)
        )
    };
    let uki = system.signed_uki().and_then(|uki| Ok(uki.ok_or(Distrust::NoUki)?)).map_err(refused)?;
    match variable(&runtime.root, "db", efi::SECURITY) {
        Some(db) => {
            let trusted = Trusted::parse(&db);
            trusted.check("UKI", uki).map_err(refused)?;
            trusted.check("boot loader", &system.boot.loader).map_err(refused)?;
        }
        None => runtime.journal.warn("Secure Boot: the firmware does not tell its db: keys are not compared"),
    }
    Ok(uki.to_vec())
}

/// Refuses to have a TPM approve a UKI that this machine's firmware would not start. Nothing is asked without Secure Boot:
/// then whoever writes to the disk decides what starts.
pub(crate) fn check_approved(root: &Path, uki: &[u8]) -> Result<(), String> {
    if !is_on(root) {
        return Ok(());
    }
    let refused = |why: String| {
        format!(
            "the TPM keys of the volumes are not given to this system: this machine starts with Secure Boot, and {why}"
        )
    };
    let db = variable(root, "db", efi::SECURITY);
    let db = db.ok_or_else(|| refused("its firmware does not tell which keys it trusts (db)".to_owned()))?;
    Trusted::parse(&db).check("UKI", uki).map_err(|error| refused(chain(&error)))
}

fn variable(root: &Path, name: &str, vendor: &str) -> Option<Vec<u8>> {
    let file = std::fs::read(root.join(VARIABLES).join(format!("{name}-{vendor}"))).ok()?;
    efi::read_variable_file(&file).map(|(_, value)| value.to_vec())
}

#[cfg(test)]
mod tests;
