//! `image add-config` and `image list-config`: configs of single machines in one image.
//!
//! Owns: the flags, judging a config before it is added.
//! Does not: know the bundle; `installer::bundle` and `ondisk::bundle` do.
//! Fails by: what is wrong with the image, the key or the config; the image is as it was then.

use crate::{
    commands::machine_config,
    global::Global,
    output::{self, Cell, Table},
};
use anyhow::{Context as _, Result, anyhow, bail};
use installer::boot_volume;
use installer::bundle::{self, Added, DeviceKey, New, NotASelector, Replaced, Selector, SigningKey};
use installer::device::{BlockDevice as _, Disk};
use installer::image::Platform;
use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

/// What packed images begin with, and how they are unpacked.
const PACKED: [(&[u8], &str); 4] = [
    (&[0x28, 0xb5, 0x2f, 0xfd], "it is packed: unpack it first (unzstd), add configs, then flash it"),
    (&[0x1f, 0x8b], "it is packed: unpack it first (gunzip; tar -xzf), add configs, then flash it"),
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
    /// The machine's TPM has this key: the file that a node shows (`get tpmkeys`), or the key's SHA-256
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    tpm_key: Vec<String>,
    /// Encrypt the config, so that only the TPM with the file of `--tpm-key` opens it
    #[arg(long)]
    seal: bool,
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
    let (selectors, device) = flags.machine()?;
    let key = signing_key(&flags.signing_key)?;
    check_packing(&flags.image)?;
    let mut disk = Disk::open(&flags.image)?;
    let text = checked(&flags.config, platform(&mut disk, &flags.image)?)?;
    let new = New {
        selectors: &selectors,
        config: text.as_bytes(),
        seal_for: device.as_ref(),
        replace: flags.replace,
    };
    let added = bundle::add(&mut disk, &key, &new);
    let Added { count, replaced } = added.with_context(|| flags.image.display().to_string())?;
    let names: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    let configs = if count == 1 { "1 config".to_owned() } else { format!("{count} configs") };
    let sealed = if device.is_some() { ", sealed" } else { "" };
    eprintln!(
        "{}: {} for {}{sealed}; {configs} in all",
        flags.image.display(),
        flags.config.display(),
        names.join(", ")
    );
    if flags.replace && replaced.is_empty() {
        eprintln!("nothing was replaced: no config was for this machine");
    }
    for entry in &replaced {
        eprintln!("{}", told(entry));
    }
    Ok(())
}

/// What went with an entry that was replaced.
fn told(entry: &Replaced) -> String {
    let lost = match entry.lost.as_slice() {
        [] => String::new(),
        lost => format!(
            "; no config is left for {}: to keep them, add the config again with these too",
            lost.join(", ")
        ),
    };
    format!("replaced entry {} ({}){lost}", entry.number, entry.selectors.join(", "))
}

impl Add {
    /// What tells the machine from others, and the key that its config is sealed for.
    fn machine(&self) -> Result<(Vec<Selector>, Option<DeviceKey>)> {
        let keys = self.tpm_key.iter().map(|word| TpmKey::read(word)).collect::<Result<Vec<_>>>()?;
        let mut selectors = self.named()?;
        selectors.extend(keys.iter().map(TpmKey::selector));
        let device = match (self.seal, keys.as_slice()) {
            (false, _) => None,
            (true, [TpmKey::Known(key)]) => Some(key.clone()),
            (true, [TpmKey::Named(_)]) => bail!(
                "--seal needs the key itself, and --tpm-key has its SHA-256 alone: give the file that the node shows \
                 (`billetctl get tpmkeys -o yaml > device.pub`)"
            ),
            (true, []) => bail!(
                "--seal needs the key of the machine's TPM: add --tpm-key FILE, which the node shows (`billetctl get \
                 tpmkeys -o yaml > device.pub`)"
            ),
            (true, _) => bail!("--seal takes one --tpm-key: a sealed config opens on one machine alone"),
        };
        Ok((selectors, device))
    }

    fn named(&self) -> Result<Vec<Selector>> {
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

/// What `--tpm-key` was given.
enum TpmKey {
    /// The key.
    Known(DeviceKey),
    /// What names it.
    Named(Selector),
}

impl TpmKey {
    fn read(word: &str) -> Result<Self> {
        if let Ok(selector) = Selector::tpm_key(word) {
            return Ok(Self::Named(selector));
        }
        let file = fs::read(word).with_context(|| {
            format!("--tpm-key: {word:?} is neither 64 hex digits nor a file that can be read")
        })?;
        DeviceKey::from_file(&file).map(Self::Known).map_err(|error| anyhow!("--tpm-key: {word}: {error}"))
    }

    fn selector(&self) -> Selector {
        match self {
            Self::Known(key) => Selector::of_tpm(key.digest()),
            Self::Named(selector) => selector.clone(),
        }
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

/// The config as it is, once it is known to be one that a node on this platform takes.
pub(super) fn checked(path: &Path, platform: Platform) -> Result<String> {
    let name = path.display().to_string();
    let text = machine_config::read_file(&name)?;
    let loaded = config::load(text.as_bytes()).with_context(|| format!("{name} is not valid"))?;
    let more = loaded
        .validate(config::Mode::of_platform(platform.name))
        .with_context(|| format!("{name} is not valid"))?;
    for warning in loaded.warnings.iter().chain(&more) {
        eprintln!("{name}: {warning}");
    }
    Ok(text)
}

/// Where the nodes of an image run.
fn platform(disk: &mut Disk, path: &Path) -> Result<Platform> {
    let bytes = disk.bytes();
    let line = boot_volume::command_line(disk, bytes).with_context(|| path.display().to_string())?;
    Ok(Platform::of(&line.unwrap_or_default()))
}

/// Refuses images whose files lie elsewhere than on the disk that they are of.
fn check_packing(path: &Path) -> Result<()> {
    let mut head = Vec::new();
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    file.take(4).read_to_end(&mut head).with_context(|| format!("read {}", path.display()))?;
    if let Some((_, advice)) = PACKED.iter().find(|(magic, _)| head.starts_with(magic)) {
        bail!("{}: {advice}", path.display());
    }
    Ok(())
}

pub(super) fn list(flags: &List, global: &Global) -> Result<()> {
    let key = match &flags.config_key {
        Some(path) => {
            let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            Some(bundle::public_key_from_pem(&text).with_context(|| path.display().to_string())?)
        }
        None => None,
    };
    check_packing(&flags.image)?;
    let listed = bundle::list(&mut Disk::open_to_read(&flags.image)?, key.as_ref());
    let (own, entries) = listed.with_context(|| flags.image.display().to_string())?;
    eprintln!("configs signed with key {}", bundle::name_of(&own));
    let columns = [("ENTRY", "entry"), ("MACHINE", "machine"), ("SIZE", "size"), ("SEALED FOR", "sealedFor")];
    let mut table = Table::new(&columns);
    for (number, entry) in (1_u64..).zip(entries) {
        table.push(vec![
            Cell::new(number.to_string(), number),
            entry.selectors.join(", ").into(),
            entry.bytes.to_string().into(),
            entry.sealed_for.map_or_else(|| "-".to_owned(), |key| format!("TPM key {key}")).into(),
        ]);
    }
    output::print_table(&table, global.output)
}
