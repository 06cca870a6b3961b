//! The flags with which images are made for Secure Boot.
//!
//! Owns: what they may be combined with; what is not made of an image that is signed already.
//! Does not: sign; `installer::secure_boot` does.

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use installer::image::Source;
use installer::secure_boot::{Enrol, Enrolment, Signer};
use std::fs;
use std::path::{Path, PathBuf};

use super::form::Form;

#[derive(Debug, clap::Args)]
pub(crate) struct Signing {
    /// Sign UKI and boot loader for Secure Boot with this key, PEM
    #[arg(long, alias = "signing-key", value_name = "FILE", requires = "sign_certificate")]
    sign_key: Option<PathBuf>,
    /// Its certificate, PEM
    #[arg(long, alias = "signing-certificate", value_name = "FILE", requires = "sign_key")]
    sign_certificate: Option<PathBuf>,
    /// Put PK.auth, KEK.auth and db.auth of this directory on disk and ISO, for the boot loader to enrol
    #[arg(long, value_name = "DIRECTORY", requires = "sign_key")]
    enrol_keys: Option<PathBuf>,
    /// What the boot loader does with them in setup mode
    #[arg(long, value_enum, value_name = "HOW", default_value = "if-safe", requires = "enrol_keys")]
    enrol: How,
}

/// As loader.conf has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum How {
    /// Offer them in its menu
    Manual,
    /// Enrol them in a virtual machine, offer them elsewhere
    IfSafe,
    /// Enrol them everywhere; some machines do not start with foreign keys alone
    Force,
    /// Nothing
    Off,
}

impl Signing {
    /// Signs the source for these forms, as the flags want it; `from` is what people call it.
    /// `work`: where layers are made.
    pub(super) fn apply(&self, source: &mut Source, forms: &[Form], from: &str, work: &Path) -> Result<()> {
        let (Some(key), Some(certificate)) = (&self.sign_key, &self.sign_certificate) else {
            tell_of_lost_signature(source, from);
            if source.is_signed() {
                let advice = "make it of the image as it was before it was signed";
                check_covered(forms, &format!("{from} is signed"), advice)?;
            }
            return check_addons(source);
        };
        check_covered(forms, "--sign-key", "make it without --sign-key")?;
        if !forms.iter().any(|form| form.is_signed()) {
            bail!(
                "--sign-key signs UKI and boot loader, and nothing that is made has them: add uki, iso or disk"
            );
        }
        if self.enrol_keys.is_some() && !forms.iter().any(|form| form.is_disk() || *form == Form::Iso) {
            bail!("--enrol-keys is for disks and ISOs, and neither is made");
        }
        let signer = Signer::read(key, certificate)?;
        let keys =
            self.enrol_keys.as_ref().map(|directory| Enrolment::read(directory, &signer)).transpose()?;
        source.enrolment = keys.map(|keys| (keys, self.enrol.into()));
        let work = forms.iter().any(|form| form.has_layers()).then_some(work);
        Ok(source.sign(&signer, work)?)
    }
}

/// Refuses a form that would hold a signed image without its signature. `cause`: by what it is signed; `advice`: how to have the
/// form all the same.
fn check_covered(forms: &[Form], cause: &str, advice: &str) -> Result<()> {
    if forms.contains(&Form::Pxe) {
        bail!(
            "{cause}: a directory for iPXE (pxe) has kernel and initramfs as files of their own, which no signature of yours \
             covers, so firmware with Secure Boot would not start it: {advice}, and for such machines --kind iso or disk; a UKI \
             (--kind uki), which firmware may load from the network, finds its layers on a disk or medium only"
        );
    }
    Ok(())
}

/// Reads addons for these forms.
pub(super) fn addons(paths: &[PathBuf], forms: &[Form]) -> Result<Vec<(String, Vec<u8>)>> {
    if !paths.is_empty() && !forms.iter().any(|form| form.is_disk() || *form == Form::Iso) {
        bail!("--addon is for disks and ISOs, and neither is made");
    }
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if found.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            bail!("--addon: two files are called {name}: rename one");
        }
        found.push((name, fs::read(path).with_context(|| format!("read {}", path.display()))?));
    }
    Ok(found)
}

/// An image that is signed starts on machines that would pass an unsigned addon over, without a word.
fn check_addons(source: &Source) -> Result<()> {
    if let Some(name) = source.unsigned_addon()? {
        bail!(
            "the image is signed and the addon {name} is not, so machines with Secure Boot would pass it over: sign it with \
             `billetctl gen secureboot sign {name}`"
        );
    }
    Ok(())
}

/// Says that a signed image was changed and is not signed any more.
pub(super) fn tell_of_lost_signature(source: &Source, from: &str) {
    if source.lost_signature {
        eprintln!(
            "the signed UKI of {from} is not of what is in the image now and is left out: machines with Secure Boot refuse \
             what is made, until it is signed with --sign-key and --sign-certificate of `image build`"
        );
    }
}

impl From<How> for Enrol {
    fn from(how: How) -> Self {
        match how {
            How::Manual => Self::Manual,
            How::IfSafe => Self::IfSafe,
            How::Force => Self::Force,
            How::Off => Self::Off,
        }
    }
}
