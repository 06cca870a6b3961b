//! `image add-config` and `image list-config`: configs of single machines in one image.
//!
//! Owns: the flags, judging a config before it is added.
//! Does not: know the bundle; `installer::bundle` and `ondisk::bundle` do.
//! Fails by: what is wrong with the image, the key or the config; the image is as it was then.

use crate::{
    args::Global,
    commands::machine_config,
    output::{self, Cell, Table},
};
use anyhow::{Context as _, Result, anyhow, bail};
use installer::bundle::{self, NotASelector, Selector, SigningKey};
use installer::device::Disk;
use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

/// What packed images begin with, and how they are unpacked.
const PACKED: [(&[u8], &str); 3] = [
    (&[0x28, 0xb5, 0x2f, 0xfd], "it is packed: unpack it first (unzstd), add configs, then flash it"),
    (
        b"QFI\xfb",
        "it is a qcow2 image: add configs to the raw disk (`image build --kind disk`), then convert that",
    ),
    (
        b"KDMV",
        "it is a VMDK image: add configs to the raw disk (`image build --kind disk`), then convert that",
    ),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// Disk image or ISO image, or a disk or stick that holds one
    image: PathBuf,
    /// The machine config
    config: PathBuf,
    /// The private half of the image's key for configs, PEM: `gen config-key` makes both
    #[arg(long, value_name = "FILE")]
    signing_key: PathBuf,
    /// The machine has a network card with this address
    #[arg(long, value_name = "MAC", value_delimiter = ',')]
    mac: Vec<String>,
    /// The machine has this serial number (SMBIOS)
    #[arg(long, value_name = "TEXT")]
    serial: Vec<String>,
    /// The machine has this UUID (SMBIOS)
    #[arg(long, value_name = "UUID", value_delimiter = ',')]
    uuid: Vec<String>,
    /// Not supported yet: SHA-256 of the endorsement key of the machine's TPM
    #[arg(long, value_name = "DIGEST", hide = true)]
    tpm_ek: Vec<String>,
    /// Take the place of the entries that are for this machine now
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Disk image or ISO image, or a disk or stick that holds one
    image: PathBuf,
    /// Check with this public key, PEM, instead of the one that the image says it has
    #[arg(long, value_name = "FILE")]
    config_key: Option<PathBuf>,
}

pub(super) fn add(flags: &Add) -> Result<()> {
    let selectors = flags.selectors()?;
    let key = signing_key(&flags.signing_key)?;
    let text = judged(&flags.config)?;
    let mut disk = opened(&flags.image)?;
    let added = bundle::add(&mut disk, &key, &selectors, text.as_bytes(), flags.replace);
    let count = added.with_context(|| flags.image.display().to_string())?;
    let names: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    let configs = if count == 1 { "1 config".to_owned() } else { format!("{count} configs") };
    eprintln!(
        "{}: {} for {}; {configs} in all",
        flags.image.display(),
        flags.config.display(),
        names.join(", ")
    );
    Ok(())
}

impl Add {
    fn selectors(&self) -> Result<Vec<Selector>> {
        if !self.tpm_ek.is_empty() {
            bail!(
                "--tpm-ek is not supported yet: no node reads its TPM's endorsement key; name the machine by --mac, --serial \
                 or --uuid"
            );
        }
        type Read = fn(&str) -> Result<Selector, NotASelector>;
        let kinds: [(&str, &[String], Read); 3] = [
            ("--mac", &self.mac, Selector::mac),
            ("--serial", &self.serial, Selector::serial),
            ("--uuid", &self.uuid, Selector::uuid),
        ];
        let mut selectors = Vec::new();
        for (flag, texts, read) in kinds {
            for text in texts {
                selectors.push(read(text).map_err(|error| anyhow!("{flag}: {error}"))?);
            }
        }
        Ok(selectors)
    }
}

fn signing_key(path: &Path) -> Result<SigningKey> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let text = config::Secret::new(text);
    let blocks = api::pki::blocks(text.expose_secret());
    let blocks = blocks.map_err(|reason| anyhow!("{}: {reason}", path.display()))?;
    let block = blocks.iter().find(|block| block.label.ends_with("PRIVATE KEY"));
    let block = block.with_context(|| format!("{} has no PEM block PRIVATE KEY", path.display()))?;
    SigningKey::from_pkcs8(&block.der).with_context(|| path.display().to_string())
}

/// The config as it is, once it is known to be one that a node takes.
fn judged(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let text = machine_config::read_file(&name)?;
    let loaded = config::load(text.as_bytes()).with_context(|| format!("{name} is not valid"))?;
    let more = loaded.validate(config::Mode::Metal).with_context(|| format!("{name} is not valid"))?;
    for warning in loaded.warnings.iter().chain(&more) {
        eprintln!("{warning}");
    }
    Ok(text)
}

fn opened(path: &Path) -> Result<Disk> {
    let mut head = Vec::new();
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    file.take(4).read_to_end(&mut head).with_context(|| format!("read {}", path.display()))?;
    if let Some((_, advice)) = PACKED.iter().find(|(magic, _)| head == *magic) {
        bail!("{}: {advice}", path.display());
    }
    Ok(Disk::open(path)?)
}

pub(super) fn list(flags: &List, global: &Global) -> Result<()> {
    let key = match &flags.config_key {
        Some(path) => {
            let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            Some(bundle::public_key_from_pem(&text).with_context(|| path.display().to_string())?)
        }
        None => None,
    };
    let listed = bundle::list(&mut opened(&flags.image)?, key.as_ref());
    let (own, entries) = listed.with_context(|| flags.image.display().to_string())?;
    eprintln!("configs signed with key {}", bundle::name_of(&own));
    let mut table = Table::new(&[("ENTRY", "entry"), ("MACHINE", "machine"), ("SIZE", "size")]);
    for (number, entry) in (1_u64..).zip(entries) {
        let size = entry.bytes.map_or_else(|| "sealed".to_owned(), |bytes| bytes.to_string());
        table.push(vec![
            Cell::new(number.to_string(), number),
            entry.selectors.join(", ").into(),
            size.into(),
        ]);
    }
    output::print_table(&table, global.output)
}
