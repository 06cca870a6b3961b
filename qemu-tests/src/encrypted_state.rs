//! A STATE that cryptsetup encrypted, in a disk image: what init finds on a node that was set up long ago.
//!
//! Owns: the partition behind META, its LUKS2 header by cryptsetup, an ext4 encrypted with the volume key, META's record.
//! Does not: need root or device mapper; cryptsetup formats a plain file, the data is encrypted here.
//! Source: docs/formats/luks2.md.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use aes::Aes256;
use aes::cipher::KeyInit as _;
use anyhow::{Context, Result, ensure};
use installer::device::{Disk, Part};
use installer::meta;
use ondisk::luks2::{self, Id};
use ondisk::meta::{PARTITION_BYTES, tags};
use xts_mode::{Xts128, get_tweak_default};

use crate::root::partition_offset;

/// As cryptsetup makes it.
const HEADER_BYTES: u64 = 16 << 20;
/// Room for a journal, and a mebibyte behind the file system.
const FILE_SYSTEM_BYTES: u64 = 32 << 20;
const DATA_BYTES: u64 = FILE_SYSTEM_BYTES + (1 << 20);
/// What the mebibyte behind the file system reads as, once the volume is open.
pub const MARK: u8 = 0x42;
/// Where one of its bytes is in the open volume.
pub const MARK_OFFSET_BYTES: u64 = DATA_BYTES - 1;
/// For XTS with AES-256.
const VOLUME_KEY: [u8; 64] = {
    let mut key = [0x5a; 64];
    // The halves must not be the same.
    key[0] = 1;
    key
};
const SECTOR_BYTES: usize = 512;

/// Derives fast: the least that cryptsetup makes.
pub const CHEAP: &[&str] =
    &["--pbkdf=argon2id", "--pbkdf-memory=1024", "--pbkdf-force-iterations=4", "--pbkdf-parallel=2"];

/// Derives with a gigabyte of memory and four lanes; with less on a host that has less than twice that free
/// ([`derivation_mib`] tells).
pub const DEAR: &[&str] =
    &["--pbkdf=argon2id", "--pbkdf-memory=1048576", "--pbkdf-force-iterations=4", "--pbkdf-parallel=4"];

/// Adds the partition to a disk image that has room for it. `kdf`: cryptsetup's words for the slot's derivation.
pub fn add(image: &Path, slot: u8, key: &str, kdf: &[&str]) -> Result<()> {
    let sectors = (HEADER_BYTES + DATA_BYTES) / 512;
    let new = format!("--new=0:0:+{sectors}");
    run(Command::new("sgdisk").args(["--move-second-header", &new, "--change-name=0:STATE"]).arg(image))?;
    let volume = format(image, slot, key, kdf)?;
    let what = || format!("copy STATE to {}", image.display());
    let disk = File::options().read(true).write(true).open(image).with_context(what)?;
    let bytes = std::fs::read(&volume).with_context(what)?;
    disk.write_all_at(&bytes, partition_offset(&disk, "STATE")?).with_context(what)?;
    std::fs::remove_file(&volume).with_context(what)
}

/// What deriving the slot's key takes of memory, in MiB.
pub fn derivation_mib(image: &Path, slot: u8) -> Result<u32> {
    let what = || format!("read STATE's header of {}", image.display());
    let start = partition_offset(&File::open(image).with_context(what)?, "STATE")?;
    let mut disk = Disk::open_shared(image).with_context(what)?;
    let found = luks2::read(&mut &mut Part::new(&mut disk, start, HEADER_BYTES)).with_context(what)?;
    let slot = found.header.metadata.keyslots.get(&Id(slot)).and_then(|slot| slot.kdf.as_ref());
    slot.and_then(|kdf| kdf.memory).map(|kib| kib.div_ceil(1 << 10)).with_context(what)
}

/// Sets META's record of STATE's encryption.
pub fn record(image: &Path, json: &str) -> Result<()> {
    with_meta(image, |part| {
        meta::update(part, |meta| meta.set(tags::STATE_ENCRYPTION, json.as_bytes())).map(drop)
    })
}

/// Notes that making STATE has begun, as a node does before it formats.
pub fn begin_format(image: &Path) -> Result<()> {
    let disk = File::open(image).with_context(|| format!("open {}", image.display()))?;
    let guid = crate::root::partition_guid(&disk, "STATE")?;
    with_meta(image, |part| meta::begin_format(part, &meta::FormatIntent::new("STATE", guid)))
}

/// Takes STATE away as who has the disk in hand does: its content, and what META knows of it. The partition stays.
pub fn delete(image: &Path) -> Result<()> {
    let what = || format!("delete STATE of {}", image.display());
    let disk = File::options().read(true).write(true).open(image).with_context(what)?;
    let start = partition_offset(&disk, "STATE")?;
    // EPHEMERAL is the partition behind it.
    let end = partition_offset(&disk, "EPHEMERAL")?;
    ensure!(start < end, "STATE of {} lies behind EPHEMERAL", image.display());
    let zeros = vec![0; 1 << 20];
    let mut at = start;
    while at < end {
        let count = (end - at).min(zeros.len() as u64);
        let zeros = zeros.get(..usize::try_from(count)?).unwrap_or_default();
        disk.write_all_at(zeros, at).with_context(what)?;
        at += count;
    }
    with_meta(image, |part| meta::end_reset(part, true))
}

fn with_meta(
    image: &Path,
    change: impl FnOnce(&mut Part<'_, Disk>) -> Result<(), installer::Error>,
) -> Result<()> {
    let what = || format!("change META of {}", image.display());
    let start = partition_offset(&File::open(image).with_context(what)?, "META")?;
    let mut disk = Disk::open_shared(image).with_context(what)?;
    change(&mut Part::new(&mut disk, start, PARTITION_BYTES)).with_context(what)
}

/// The partition's bytes, in a file beside the image.
fn format(image: &Path, slot: u8, key: &str, kdf: &[&str]) -> Result<PathBuf> {
    let beside = |ending: &str| image.with_extension(ending);
    let (volume, key_file, volume_key) = (beside("volume"), beside("key"), beside("volume-key"));
    let what = || format!("make {}", volume.display());
    std::fs::write(&key_file, key).with_context(what)?;
    std::fs::write(&volume_key, VOLUME_KEY).with_context(what)?;
    let file = File::create(&volume).with_context(what)?;
    file.set_len(HEADER_BYTES + DATA_BYTES).with_context(what)?;
    let named = |name: &str, path: &Path| format!("{name}={}", path.display());
    run(Command::new("cryptsetup")
        .env("PATH", tool_path())
        .args(["luksFormat", "--batch-mode", "--type=luks2", "--key-size=512", "--sector-size=512"])
        .args([format!("--key-slot={slot}"), named("--key-file", &key_file)])
        .args([named("--volume-key-file", &volume_key)])
        .args(kdf)
        .arg(&volume))?;
    file.write_all_at(&encrypted(&data(&beside("ext4"))?)?, HEADER_BYTES).with_context(what)?;
    for left in [key_file, volume_key] {
        std::fs::remove_file(left).with_context(what)?;
    }
    Ok(volume)
}

/// The volume's content before it is encrypted.
fn data(file: &Path) -> Result<Vec<u8>> {
    let what = || format!("make {}", file.display());
    File::create(file).with_context(what)?.set_len(FILE_SYSTEM_BYTES).with_context(what)?;
    run(Command::new("mke2fs")
        .env("PATH", tool_path())
        .args(["-q", "-F", "-t", "ext4", "-L", "STATE"])
        .arg(file))?;
    let mut data = std::fs::read(file).with_context(what)?;
    std::fs::remove_file(file).with_context(what)?;
    data.resize(usize::try_from(DATA_BYTES).with_context(what)?, MARK);
    Ok(data)
}

/// As dm-crypt has it on the disk: `aes-xts-plain64`, sectors counted from the data's start.
fn encrypted(data: &[u8]) -> Result<Vec<u8>> {
    let (first, second) = VOLUME_KEY.split_at(VOLUME_KEY.len() / 2);
    let cipher = |key| Aes256::new_from_slice(key).map_err(|_| anyhow::anyhow!("a key of the wrong length"));
    let mut data = data.to_vec();
    Xts128::new(cipher(first)?, cipher(second)?).encrypt_area(&mut data, SECTOR_BYTES, 0, get_tweak_default);
    Ok(data)
}

/// Where distributions keep the tools of administrators.
fn tool_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn run(command: &mut Command) -> Result<()> {
    let what = || format!("run {}; packages: cryptsetup-bin, e2fsprogs, gdisk", command_name(command));
    let name = what();
    let output = command.output().with_context(|| name.clone())?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn command_name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use ondisk::luks2;

    use super::*;

    /// What is made here is what our own code opens and decrypts.
    #[test]
    fn cryptsetups_header_gives_the_volume_key() {
        let dir = tempfile::tempdir().unwrap();
        let volume = format(&dir.path().join("disk.img"), 1, "secret", CHEAP).unwrap();
        let bytes = std::fs::read(&volume).unwrap();
        let mut device = bytes.as_slice();
        let header = luks2::read(&mut device).unwrap().header;
        let unlocked = header.unlock(&mut device, b"secret", None).unwrap();
        assert_eq!((unlocked.slot, unlocked.key.as_slice()), (luks2::Id(1), &VOLUME_KEY[..]));
        assert_eq!((unlocked.mapping.offset, unlocked.mapping.sector_size), (HEADER_BYTES, 512));
        let (first, second) = VOLUME_KEY.split_at(32);
        let cipher = |key| Aes256::new_from_slice(key).unwrap();
        let mut data = bytes[usize::try_from(HEADER_BYTES).unwrap()..].to_vec();
        Xts128::new(cipher(first), cipher(second)).decrypt_area(
            &mut data,
            SECTOR_BYTES,
            0,
            get_tweak_default,
        );
        let found = ondisk::probe::probe(&data).unwrap();
        assert_eq!((found.kind, found.label.as_str()), (ondisk::probe::Kind::Ext4, "STATE"));
        assert_eq!(data[usize::try_from(MARK_OFFSET_BYTES).unwrap()], MARK);
    }

    #[test]
    fn the_partition_is_behind_meta_which_has_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        run(Command::new("sgdisk").args(["--new=1:2048:+2048", "--change-name=1:META"]).arg(&image)).unwrap();
        add(&image, 1, "secret", CHEAP).unwrap();
        record(&image, "{}").unwrap();
        begin_format(&image).unwrap();
        let disk = File::open(&image).unwrap();
        let start = partition_offset(&disk, "STATE").unwrap();
        let meta = ondisk::meta::read(
            &mut &std::fs::read(&image).unwrap()[1 << 20..usize::try_from(start).unwrap()],
        )
        .meta;
        assert_eq!(meta.get(tags::STATE_ENCRYPTION), Some(&b"{}"[..]));
        // init reads the notes by itself.
        let guid = crate::root::partition_guid(&disk, "STATE").unwrap();
        assert!(ondisk::meta::intents::is_half_made(&meta, "STATE", guid));
        let mut device = &std::fs::read(&image).unwrap()[usize::try_from(start).unwrap()..];
        assert!(luks2::read(&mut device).is_ok());
    }
}
