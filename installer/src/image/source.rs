//! Where the parts of a system come from: a folder of parts, or an installer image.
//!
//! Owns: finding them all, each by its name, before anything is made of them.
//! Does not: change them; of an installer image the layers go to a folder of the caller's.
//! Source: docs/formats/installer-image.md, whose files a folder of parts has under the same names.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use oci::archive::Archive;
use oci::document::{Config, Manifest};
use oci::files::Files;
use oci::installer::{self as format, MINIMUM_FROM_LABEL, Walk};
use ondisk::Architecture;
use ondisk::manifest::RootManifest;
use ondisk::pe::Image;

use super::platform::Platform;
use crate::custom::Profile;
use crate::output::Output;
use crate::secure_boot::{self, Enrol, Enrolment, Signer};
use crate::system::{BootParts, System, command_line_of_image, names};
use crate::{Error, addon, custom, layer};

/// The oldest version that can install what is built here. It grows only when an image needs something of the node
/// that installs it which older versions do not have.
const MINIMUM_FROM: &str = "0.1.0";

/// How much of a layer is copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What a folder with an OCI layout has.
const LAYOUT: &str = "oci-layout";
/// The installer image in the folder of a build.
const BUILT: &str = "installer.oci.tar";

/// The arguments that lock a kernel down (kernel_lockdown(7)); a signed image has one of them, at least the first.
const LOCKED_DOWN: [&str; 2] = ["lockdown=integrity", "lockdown=confidentiality"];

/// A system with the files of its layers.
#[derive(Debug, Clone)]
pub struct Source {
    /// What boots, and which layers.
    pub system: System,
    /// The folder of the layer files.
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

    /// Reads a folder of parts or an installer image, also as a folder with an OCI layout; what has to be unpacked goes
    /// to `work`, which must be there.
    pub fn open(path: &Path, work: &Path) -> Result<Self, Error> {
        let status = fs::metadata(path).map_err(Error::read(path))?;
        let is_layout = path.join(LAYOUT).is_file();
        if status.is_dir() && !is_layout { Self::folder(path) } else { Self::image(path, work) }
    }

    /// `root.json`, `boot/` and `layers/`, there or in a folder `billet`.
    fn folder(path: &Path) -> Result<Self, Error> {
        let inner = path.join("billet");
        let folder = if inner.join("root.json").is_file() { inner } else { path.to_owned() };
        let missing = |part: String| Error::MissingPart { from: folder.display().to_string(), part };
        let built = folder.join(BUILT);
        if !folder.join("boot").is_dir() && built.is_file() {
            return Err(Error::BuildFolder { folder, image: built });
        }
        let manifest = folder.join("root.json");
        if !manifest.is_file() {
            return Err(missing("root.json".into()));
        }
        let manifest = RootManifest::parse(&fs::read(&manifest).map_err(Error::read(&manifest))?)?;
        let boot = BootParts::by_name(|name| {
            let path = folder.join("boot").join(name);
            match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing(format!("boot/{name}"))),
                other => other.map_err(Error::read(&path)),
            }
        })?;
        let layers = folder.join("layers");
        for layer in &manifest.layers {
            if !layers.join(layer.file_name()).is_file() {
                return Err(missing(format!("layers/{} (layer {})", layer.file_name(), layer.name)));
            }
            layer::check(layer, &layers)?;
        }
        Ok(Self::new(System { manifest, boot }, layers).settled())
    }

    fn image(path: &Path, work: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let missing = |part: String| Error::MissingPart { from: name.clone(), part };
        let archive = Archive::open(path)?;
        let (document, config) = image_of(&archive)?;
        let label = |label: &str| config.config.labels.get(label).cloned();
        if label(format::FORMAT_LABEL).as_deref() != Some(format::FORMAT) {
            return Err(missing(format!(
                "label {}={}: it is no installer image",
                format::FORMAT_LABEL,
                format::FORMAT
            )));
        }
        let open = |number: usize| match document.layers.get(number) {
            Some(layer) => archive.blob(layer).map(Some).map_err(io::Error::other),
            None => Ok(None),
        };
        let own = format::own_layers(&config);
        // An image that says nothing of machines is one for those like this.
        let architecture = Architecture::named(&config.architecture).unwrap_or(Architecture::OWN);
        let files = Files::new(Box::new(open));
        let mut walk = Walk::new(files, architecture, document.layers.len(), own);
        let read = |source| Error::Read { path: path.to_owned(), source };
        let manifest = RootManifest::parse(&walk.manifest().map_err(read)?)?;
        let mut parts = walk.boot().map_err(read)?;
        let boot = BootParts::by_name(|part| match parts.remove(part) {
            None if part == names::KERNEL => Err(Error::NoKernel { system: name.clone() }),
            found => found.ok_or_else(|| missing(format!("billet/boot/{part}"))),
        })?;
        let mut outputs = Vec::new();
        for layer in &manifest.layers {
            let bytes = walk.layer(&layer.file_name()).map_err(read)?;
            let to = work.join(layer.file_name());
            let mut output = Output::create(&to)?;
            let copied = copy(&mut walk, path, &mut output.file, &to)?;
            if copied != bytes || bytes != layer.total_bytes() {
                let reason = "its length is not that of the layer".into();
                return Err(Error::WrongLayer { path: to, reason });
            }
            outputs.push((output, to));
        }
        // Every blob's digest counts, also of what is passed over; before that no layer has its name.
        walk.finish().map_err(read)?;
        for (output, to) in outputs {
            output.keep(&to)?;
        }
        let minimum_from = label(MINIMUM_FROM_LABEL).unwrap_or_else(|| MINIMUM_FROM.to_owned());
        let brings_kernel = walk.brings_kernel();
        let system = System { manifest, boot };
        let source = Self { minimum_from, ..Self::new(system, work.to_owned()) };
        source.system.check_kernel()?;
        if brings_kernel { custom::settle_kernel(source) } else { Ok(source.settled()) }
    }

    /// The UKI, signed if the image is.
    pub fn uki(&self) -> Result<Vec<u8>, Error> {
        match self.system.signed_uki()? {
            Some(uki) => Ok(uki.to_vec()),
            None => self.system.uki(&[]),
        }
    }

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

    /// Whether UKI and boot loader are signed.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        !self.system.boot.signed_uki.is_empty()
    }

    /// An addon of a signed image that nobody signed: firmware with Secure Boot would pass it over.
    pub fn unsigned_addon(&self) -> Result<Option<&str>, Error> {
        for (name, addon) in self.addons.iter().filter(|_| self.is_signed()) {
            addon::check(name, addon, self.system.boot.architecture())?;
            if !Image::parse(addon)?.is_signed() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// The same with another system.
    pub(crate) fn with(self, system: System) -> Self {
        Self { system, ..self }.settled()
    }

    /// Without a signed UKI that is of other parts: whoever changes a system has to sign it again.
    fn settled(mut self) -> Self {
        // What has no kernel yet has no UKI either.
        if self.is_signed() && !matches!(self.system.signed_uki(), Ok(Some(_))) {
            self.system.boot.signed_uki = Vec::new();
            self.lost_signature = true;
        }
        self
    }

    /// Writes a folder of parts, which [`Source::open`] reads; layer files are copied.
    pub fn save(&self, folder: &Path) -> Result<(), Error> {
        let (boot, layers) = (folder.join("boot"), folder.join("layers"));
        for folder in [&boot, &layers] {
            fs::create_dir_all(folder).map_err(Error::write(folder))?;
        }
        for (name, content) in self.system.boot.all() {
            crate::output::write_file(&boot.join(name), &[content])?;
        }
        for layer in &self.system.manifest.layers {
            let to = layers.join(layer.file_name());
            fs::copy(self.layers.join(layer.file_name()), &to).map_err(Error::write(&to))?;
        }
        crate::output::write_file(&folder.join("root.json"), &[self.system.manifest.to_json().as_bytes()])
    }
}

/// Copies to a file; an error is of the one that it came from.
fn copy(from: &mut impl Read, path: &Path, file: &mut File, to: &Path) -> Result<u64, Error> {
    let (mut done_bytes, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    loop {
        let count = from.read(&mut chunk).map_err(Error::read(path))?;
        if count == 0 {
            return Ok(done_bytes);
        }
        file.write_all(chunk.get(..count).unwrap_or_default()).map_err(Error::write(to))?;
        done_bytes += count as u64;
    }
}

/// The image for machines like this one, else the one for others: what is made of it runs nowhere here.
fn image_of(archive: &Archive) -> Result<(Manifest, Config), Error> {
    let others = Architecture::ALL.into_iter().filter(|one| *one != Architecture::OWN);
    match archive.image(Architecture::OWN.name()) {
        Ok(found) => Ok(found),
        Err(error) => others.into_iter().find_map(|one| archive.image(one.name()).ok()).ok_or(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_of_the_file_that_is_written() {
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let (from, to) = (Path::new("image.tar"), Path::new("out/layer"));
        let error = copy(&mut &[1; 5000][..], from, &mut full, to).unwrap_err();
        assert_eq!(error.to_string(), "write out/layer");
        let mut folder = File::open(".").unwrap();
        let error = copy(&mut folder, from, &mut full, to).unwrap_err();
        assert_eq!(error.to_string(), "read image.tar");
    }
}
