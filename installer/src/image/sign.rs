//! Signing a system for Secure Boot, before a form of it is made.
//!
//! Owns: what is signed; that the kernel of a signed image is locked down.
//! Does not: make signatures ([`crate::secure_boot`] does).
//! Source: kernel_lockdown(7).

use std::path::Path;

use ondisk::pe::Image;

use crate::custom::Profile;
use crate::secure_boot::{self, Signer};
use crate::source::Source;
use crate::system::command_line_of_image;
use crate::{Error, addon, custom};

/// The arguments that lock a kernel down (kernel_lockdown(7)); a signed image has one of them, at least the first.
const LOCKED_DOWN: [&str; 2] = ["lockdown=integrity", "lockdown=confidentiality"];

impl Source {
    /// Signs what firmware starts: UKI, boot loader, addons. The last step before a form is made. The kernel of a signed
    /// image is locked down: without that, root could load what no one signed. `work`: where a layer with that command line
    /// goes; `None` if no form has layers.
    pub fn sign(&mut self, signer: &Signer, work: Option<&Path>) -> Result<(), Error> {
        self.lock_kernel_down(work)?;
        // Nothing is signed that nothing would load.
        for (name, addon) in &self.addons {
            addon::check(name, addon, self.system.boot.architecture())?;
        }
        self.system.boot.signed_uki = secure_boot::sign(&self.uki()?, signer)?;
        self.system.boot.loader = secure_boot::sign(&self.system.boot.loader, signer)?;
        for (_, addon) in &mut self.addons {
            *addon = secure_boot::sign(addon, signer)?;
        }
        self.lost_signature = false;
        Ok(())
    }

    /// Debian's kernel locks itself down when it sees Secure Boot; other kernels do what their command line says.
    /// In a layer too: a medium installs the UKI that it makes of the parts in its layers, and compares it with the signed one.
    fn lock_kernel_down(&mut self, work: Option<&Path>) -> Result<(), Error> {
        let line = &self.system.boot.command_line;
        if line.split_ascii_whitespace().any(|word| LOCKED_DOWN.contains(&word)) {
            return Ok(());
        }
        let argument = vec![LOCKED_DOWN[0].to_owned()];
        if let Some(work) = work {
            let profile = Profile { kernel_arguments: argument, ..Profile::default() };
            *self = custom::customise(self, &profile, work, &mut crate::silent)?;
        } else {
            self.system.boot.command_line = command_line_of_image(line, &argument)?;
        }
        // What was signed before is of another command line.
        self.system.boot.signed_uki = Vec::new();
        Ok(())
    }

    /// An addon without a signature in a signed image: firmware with Secure Boot would pass it over.
    pub fn unsigned_addon(&self) -> Result<Option<&str>, Error> {
        for (name, addon) in self.addons.iter().filter(|_| self.is_signed()) {
            addon::check(name, addon, self.system.boot.architecture())?;
            if !Image::parse(addon)?.is_signed() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}
