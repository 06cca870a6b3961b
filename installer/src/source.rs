//! A system with the files of its layers: what images are made of.
//!
//! Owns: what goes into images beside the system; that a signed UKI is of the parts that there are.
//! Does not: find or change the parts ([`crate::image`] opens and signs, [`crate::custom`] changes).
//! Source: docs/formats/installer-image.md, whose files [`Source::save`] writes under the same names.

use std::fs;
use std::path::{Path, PathBuf};

use crate::platform::Platform;
use crate::secure_boot::{Enrol, Enrolment};
use crate::system::System;
use crate::{Error, output};

/// The oldest version that can install what is built here. It grows only when an image needs something of the node
/// that installs it which older versions do not have.
pub(crate) const MINIMUM_FROM: &str = "0.1.0";

/// A system with the files of its layers.
#[derive(Debug, Clone)]
pub struct Source {
    /// What boots, and which layers.
    pub system: System,
    /// Where the layer files are.
    pub layers: PathBuf,
    /// The oldest version that can install it.
    pub minimum_from: String,
    /// billetctl as a static program. With it an image in Docker's form can be built on.
    pub program: Option<PathBuf>,
    /// Files with which the boot loader of a disk or ISO enrols a key, and what it does with them.
    pub enrolment: Option<(Enrolment, Enrol)>,
    /// Files of [`crate::addon`] for disks and ISOs, by name.
    pub addons: Vec<(String, Vec<u8>)>,
    /// There was a signed UKI, and it is not of what there is now.
    pub lost_signature: bool,
    /// What whoever made it should know, a sentence each.
    pub warnings: Vec<String>,
}

impl Source {
    /// A system of this build.
    #[must_use]
    pub fn new(system: System, layers: PathBuf) -> Self {
        let minimum_from = MINIMUM_FROM.to_owned();
        Self {
            system,
            layers,
            minimum_from,
            program: None,
            enrolment: None,
            addons: Vec::new(),
            lost_signature: false,
            warnings: Vec::new(),
        }
    }

    /// Platform and architecture, as files are called.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{}", self.platform().name, self.system.boot.architecture().name())
    }

    /// Where it runs: what the command line says.
    #[must_use]
    pub fn platform(&self) -> Platform {
        Platform::of(&self.system.boot.command_line)
    }

    /// The UKI, signed if the image is.
    pub fn uki(&self) -> Result<Vec<u8>, Error> {
        match self.system.signed_uki()? {
            Some(uki) => Ok(uki.to_vec()),
            None => self.system.uki(&[]),
        }
    }

    /// Whether UKI and boot loader are signed.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        !self.system.boot.signed_uki.is_empty()
    }

    /// The same with another system.
    pub(crate) fn with(self, system: System) -> Self {
        Self { system, ..self }.settled()
    }

    /// Without a signed UKI that is of other parts: whoever changes a system has to sign it again.
    pub(crate) fn settled(mut self) -> Self {
        // What has no kernel yet has no UKI either.
        if self.is_signed() && !matches!(self.system.signed_uki(), Ok(Some(_))) {
            self.system.boot.signed_uki = Vec::new();
            self.lost_signature = true;
        }
        self
    }

    /// Writes the parts as files, which [`Source::open`] reads; layer files are copied.
    pub fn save(&self, to: &Path) -> Result<(), Error> {
        let (boot, layers) = (to.join("boot"), to.join("layers"));
        for directory in [&boot, &layers] {
            fs::create_dir_all(directory).map_err(Error::write(directory))?;
        }
        for (name, content) in self.system.boot.all() {
            output::write_file(&boot.join(name), &[content])?;
        }
        for layer in &self.system.manifest.layers {
            let file = layers.join(layer.file_name());
            fs::copy(self.layers.join(layer.file_name()), &file).map_err(Error::write(&file))?;
        }
        output::write_file(&to.join("root.json"), &[self.system.manifest.to_json().as_bytes()])
    }
}
