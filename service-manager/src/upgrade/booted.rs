//! Which boot entry this node was started from.
//!
//! Owns: the parameter that an upgrade writes into the UKI it makes, and what counts where that is not enough.
//! Does not: rely on EFI variables where the command line tells: firmware may lack them or keep old ones.
//! Order: the UKI that was started is the one whose command line names the generation that ours names; a UKI of the
//! first installation or of a disk image names none, nor does one that was signed for Secure Boot: of several such the
//! loader says which it started. A rollback gives a UKI another name but not another content.
//! Source: docs/formats/disk.md; systemd's Boot Loader Interface for the two variables.

use std::path::Path;

use installer::device::BlockDevice;
use installer::entries::Entry;
use installer::esp::Esp;
use ondisk::efi;
use ondisk::gpt::Table;
use ondisk::pe::Image;
use runtime::Runtime;
use runtime::store::{BOOTED_ENTRY, Fact, Spec};

/// The kernel parameter with the generation that a UKI was made for.
const PARAMETER: &str = "billet.generation=";
const EFI_VARIABLES: &str = "sys/firmware/efi/efivars";
/// Set when the loader counts the boots of an entry, and for every entry: its path, and its name.
const VARIABLES: [&str; 2] = ["LoaderBootCountPath", "LoaderEntrySelected"];

/// The argument that a UKI of this generation gets.
pub(super) fn argument(generation: u32) -> String {
    format!("{PARAMETER}{generation}")
}

/// The generation that a command line names.
pub(super) fn generation(command_line: &str) -> Option<u32> {
    command_line.split_ascii_whitespace().find_map(|word| word.strip_prefix(PARAMETER)?.parse().ok())
}

/// The generation that the running kernel's command line names.
pub(super) fn own_generation(root: &Path) -> Option<u32> {
    generation(&std::fs::read_to_string(root.join("proc/cmdline")).unwrap_or_default())
}

/// The generation that was started, without a look at the disk: what the command line names, else the loader.
pub(super) fn started_generation(root: &Path) -> Option<u32> {
    let loader = || Some(loaders_word(&root.join(EFI_VARIABLES))?.generation);
    own_generation(root).or_else(loader)
}

/// Publishes what the loader says that it started; nothing where it says nothing.
pub(super) fn publish(runtime: &Runtime) {
    let Some(entry) = loaders_word(&runtime.root.join(EFI_VARIABLES)) else { return };
    let fact = Fact::BootedEntry { booted_entry: entry.to_string() };
    let spec = Spec::Fact(Box::new(fact));
    if let Err(error) = runtime.store.put(BOOTED_ENTRY.writer, &BOOTED_ENTRY, "bootedentry", spec) {
        runtime.journal.warn(&error.to_string());
    }
}

/// The entry that was started. Reads the UKIs on the ESP.
pub(super) fn entry(disk: &mut dyn BlockDevice, table: &Table, root: &Path) -> Result<Entry, String> {
    let partition = table.by_name("EFI").ok_or("the system disk has no partition EFI, or several")?;
    let mut esp = Esp::new(disk, table.offset_bytes(partition), table.size_bytes(partition));
    let failed = |error: installer::Error| format!("read the EFI system partition: {error}");
    let mut known = Vec::new();
    for entry in esp.entries().map_err(failed)? {
        // A UKI that cannot be read is not the one that was started.
        let inside = esp.read(entry).ok().and_then(|uki| inside(&uki));
        if let Some(inside) = inside {
            known.push((entry, inside));
        }
    }
    choose(&known, own_generation(root), loaders_word(&root.join(EFI_VARIABLES)))
}

/// The generation that a UKI's command line names; `None` for what is no UKI.
fn inside(uki: &[u8]) -> Option<Option<u32>> {
    let image = Image::parse(uki).ok()?;
    let line = image.section(".cmdline")?;
    Some(generation(std::str::from_utf8(line).ok()?.trim_end_matches('\0')))
}

/// `known`: entries and the generations that their UKIs name.
fn choose(known: &[(Entry, Option<u32>)], own: Option<u32>, loader: Option<Entry>) -> Result<Entry, String> {
    let fits: Vec<Entry> =
        known.iter().filter(|(_, inside)| *inside == own).map(|(entry, _)| *entry).collect();
    let named = |entry: &Entry| loader.is_some_and(|loader| loader.generation == entry.generation);
    match fits.as_slice() {
        [only] => return Ok(*only),
        several => {
            if let Some(entry) = several.iter().copied().find(named) {
                return Ok(entry);
            }
        }
    }
    let names: Vec<String> = known.iter().map(|(entry, _)| entry.to_string()).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(format!("this node cannot tell which of the boot entries on its disk it was started from ({names})"))
}

/// What systemd-boot says that it started.
fn loaders_word(variables: &Path) -> Option<Entry> {
    VARIABLES.iter().find_map(|name| {
        let file = std::fs::read(variables.join(format!("{name}-{}", efi::LOADER))).ok()?;
        let (_, value) = efi::read_variable_file(&file)?;
        let text = efi::read_text(value)?;
        let name = text.rsplit(['/', '\\']).next()?;
        Entry::parse(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry::parse(name).unwrap()
    }

    #[test]
    fn the_uki_with_our_generation_is_ours() {
        let known = [(entry("billet-000009.efi"), Some(7)), (entry("billet-000008+2-1.efi"), Some(8))];
        assert_eq!(choose(&known, Some(8), None).unwrap(), known[1].0);
        assert_eq!(choose(&known, Some(7), None).unwrap(), known[0].0);
        // A stale variable does not count where the content tells.
        assert_eq!(choose(&known, Some(7), Some(known[1].0)).unwrap(), known[0].0);
        let first = [(entry("billet-000001.efi"), None), known[1]];
        assert_eq!(choose(&first, None, None).unwrap(), first[0].0);
    }

    #[test]
    fn the_loaders_word_decides_between_equals_only() {
        let twins = [(entry("billet-000001.efi"), None), (entry("billet-000002.efi"), None)];
        assert!(choose(&twins, None, None).unwrap_err().contains("billet-000001.efi, billet-000002.efi"));
        assert_eq!(choose(&twins, None, Some(entry("billet-000002+3.efi"))).unwrap(), twins[1].0);
        assert!(choose(&twins, Some(5), Some(twins[0].0)).is_err());
        assert!(choose(&[], None, None).unwrap_err().contains("(none)"));
    }

    /// Under Secure Boot no UKI names a generation: the loader's word counts, before and after the trial.
    #[test]
    fn of_signed_ukis_the_loader_says_which_was_started() {
        let old = (entry("billet-000001.efi"), None);
        for (name, word) in [
            ("billet-000002+2-1.efi", "billet-000002+2-1.efi"),
            // Blessed in this boot: the loader knew the name before.
            ("billet-000002.efi", "billet-000002+2-1.efi"),
            ("billet-000002.efi", "billet-000002.efi"),
        ] {
            let known = [old, (entry(name), None)];
            assert_eq!(choose(&known, None, Some(entry(word))).unwrap(), known[1].0, "{name}");
            assert_eq!(choose(&known, None, Some(old.0)).unwrap(), old.0, "after a fallback");
        }
        // A node that Secure Boot was turned on for: only one of its UKIs names none.
        let mixed = [(entry("billet-000003.efi"), Some(3)), (entry("billet-000004+2-1.efi"), None)];
        assert_eq!(choose(&mixed, None, None).unwrap(), mixed[1].0);
    }

    fn write_word(root: &Path, name: &str, text: &str) {
        let directory = root.join(EFI_VARIABLES);
        std::fs::create_dir_all(&directory).unwrap();
        let value: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        let path = directory.join(format!("{name}-{}", efi::LOADER));
        std::fs::write(path, efi::variable_file(6, &value)).unwrap();
    }

    #[test]
    fn the_command_line_comes_before_the_loaders_word() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let line = |text: &str| std::fs::write(root.path().join("proc/cmdline"), text).unwrap();
        line("quiet");
        assert_eq!(started_generation(root.path()), None);
        write_word(root.path(), "LoaderEntrySelected", "billet-000002+2-1.efi");
        assert_eq!(started_generation(root.path()), Some(2));
        line("quiet billet.generation=7");
        assert_eq!(started_generation(root.path()), Some(7));
    }

    #[test]
    fn variables_and_parameters_are_read() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(loaders_word(directory.path()), None);
        let text = "\\EFI\\Linux\\billet-000008+2-1.efi\0";
        let value: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let path = directory.path().join(format!("LoaderBootCountPath-{}", efi::LOADER));
        std::fs::write(path, efi::variable_file(6, &value)).unwrap();
        assert_eq!(loaders_word(directory.path()), Some(entry("billet-000008+2-1.efi")));
        assert_eq!(generation(&format!("quiet {} x", argument(12))), Some(12));
        assert_eq!((generation("billet.generation=x"), generation("")), (None, None));
    }
}
