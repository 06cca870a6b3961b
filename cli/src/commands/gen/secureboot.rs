//! `gen secureboot`: what enrols a key in firmware, and files signed with it.
//!
//! Owns: the flags and the files' names; `installer::secure_boot` signs.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use installer::addon;
use installer::image::Architecture;
use installer::secure_boot::{Enrolment, Signer, Time, sign};

use super::files;
use crate::global::Global;
use crate::output;

/// Where talosctl puts such files.
const DIRECTORY: &str = "_out";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// PK.auth, KEK.auth and db.auth, which make firmware trust a key
    Database(DatabaseFlags),
    /// Sign a file that firmware starts: a UKI, a boot loader, an addon
    Sign(SignFlags),
    /// Kernel arguments in a signed file of their own, for `image build --addon`
    Addon(AddonFlags),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    /// The key's certificate, PEM
    #[arg(
        long,
        alias = "sign-certificate",
        default_value = "_out/uki-signing-cert.pem",
        value_name = "FILE"
    )]
    signing_certificate: PathBuf,
    /// The key, PEM: RSA of 2048 bits is what all firmware knows
    #[arg(long, alias = "sign-key", default_value = "_out/uki-signing-key.pem", value_name = "FILE")]
    signing_key: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseFlags {
    #[command(flatten)]
    key: Key,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SignFlags {
    #[command(flatten)]
    key: Key,
    /// The file; it is replaced by the signed one, or stays with --output FILE
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddonFlags {
    #[command(flatten)]
    key: Key,
    /// A kernel argument that is put behind those of the UKI
    #[arg(long, value_name = "ARGUMENT", required = true)]
    extra_kernel_arg: Vec<String>,
    /// Machines that it is for
    #[arg(long, value_name = "ARCHITECTURE", default_value = "amd64", value_parser = ["amd64", "arm64"])]
    arch: String,
    /// Replace an existing file
    #[arg(short, long)]
    force: bool,
    /// The file to write, NAME.addon.efi
    file: PathBuf,
}

pub(super) fn run(global: &Global, command: &Command) -> Result<()> {
    match command {
        Command::Database(flags) => database(global, flags),
        Command::Sign(flags) => sign_file(global, flags),
        Command::Addon(flags) => addon(flags),
    }
}

impl Key {
    fn read(&self) -> Result<Signer> {
        Ok(Signer::read(&self.signing_key, &self.signing_certificate)?)
    }
}

fn database(global: &Global, flags: &DatabaseFlags) -> Result<()> {
    let directory = PathBuf::from(global.output_word.as_deref().unwrap_or(DIRECTORY));
    let paths = ["PK.auth", "KEK.auth", "db.auth"].map(|name| directory.join(name));
    files::check_free(paths.iter().map(PathBuf::as_path), flags.force)?;
    let signer = flags.key.read()?;
    let owner = owner(signer.certificate());
    let Enrolment { pk, kek, db } = Enrolment::new(&signer, owner, now()?)?;
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    for (path, content) in paths.iter().zip([pk, kek, db]) {
        fs::write(path, content).with_context(|| format!("write {}", path.display()))?;
        output::print(format!("created {}\n", path.display()))?;
    }
    Ok(())
}

fn sign_file(global: &Global, flags: &SignFlags) -> Result<()> {
    let path = &flags.file;
    let content = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let signed = sign(&content, &flags.key.read()?).with_context(|| path.display().to_string())?;
    let to = global.output_word.as_ref().map_or_else(|| path.clone(), PathBuf::from);
    // The file is whole at any time: the new one is written beside it.
    let mut beside = to.clone().into_os_string();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    fs::write(&beside, signed).with_context(|| format!("write {}", beside.display()))?;
    fs::rename(&beside, &to).with_context(|| format!("write {}", to.display()))?;
    Ok(output::print(format!("signed {}\n", to.display()))?)
}

fn addon(flags: &AddonFlags) -> Result<()> {
    let path = flags.file.as_path();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let architecture = Architecture::named(&flags.arch).unwrap_or(Architecture::OWN);
    let plain = addon::assemble(architecture, &flags.extra_kernel_arg)?;
    addon::check(&name, &plain, architecture)?;
    files::check_free([path], flags.force)?;
    let signed = sign(&plain, &flags.key.read()?)?;
    fs::write(path, signed).with_context(|| format!("write {}", path.display()))?;
    Ok(output::print(format!("created {}\n", path.display()))?)
}

/// A GUID of the certificate's own: the same key is listed once.
fn owner(certificate: &[u8]) -> [u8; 16] {
    let mut guid = [0_u8; 16];
    for (at, byte) in certificate.iter().enumerate() {
        if let Some(place) = guid.get_mut(at % 16) {
            *place = place.rotate_left(3) ^ byte;
        }
    }
    guid
}

/// Firmware takes a variable only if it is newer than the one it has.
fn now() -> Result<Time> {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let small = |value: i8| u8::try_from(value);
    ensure!(now.year() >= 2000, "the clock of this machine says {}: set it first", now.year());
    Ok(Time {
        year: u16::try_from(now.year())?,
        month: small(now.month())?,
        day: small(now.day())?,
        hour: small(now.hour())?,
        minute: small(now.minute())?,
        second: small(now.second())?,
    })
}
