//! Addons: kernel arguments in a file of their own, beside a UKI whose command line is signed.
//!
//! Owns: the file, its name and place; what may be put there.
//! Does not: sign; load. systemd's stub has the firmware load each, which checks its signature under Secure Boot, and puts
//! the arguments behind those of the UKI. What the firmware refuses is passed over.
//! Source: systemd-stub(7), "COMPANION FILES"; the UAPI group's UKI specification, "UKI Components".

use ondisk::pe::{Image, NewSection, blank};
use ondisk::{Architecture, ReadAt, fat};

use crate::system::{check_whole_line, command_line, contradiction};
use crate::{Error, boot_volume};

/// How the stub knows them.
pub const SUFFIX: &str = ".addon.efi";
/// Where it looks for those of every UKI, on the volume that it was started from.
pub const DIRECTORY: &str = "loader/addons";
/// What upgrades put behind an image's line.
#[cfg(feature = "image")]
const ADDED_LATER: &str = "billet.generation=000000";
/// Longest one that is read: headers, a command line, signatures.
const MOST_BYTES: u32 = 1 << 20;
/// FAT32 takes longer names; these fit a line.
const LONGEST_NAME: usize = 100;

/// An addon with these arguments.
pub fn assemble(architecture: Architecture, arguments: &[String]) -> Result<Vec<u8>, Error> {
    let refused = |reason| Error::Addon { name: arguments.join(" "), reason };
    if arguments.is_empty() {
        return Err(refused("name at least one kernel argument with --extra-kernel-arg"));
    }
    if arguments.iter().any(|argument| argument.starts_with('-')) {
        return Err(refused(
            "an addon adds arguments and takes none of the image away: that is done when the image is made (`image \
             build --extra-kernel-arg`)",
        ));
    }
    let line = command_line("", arguments).map_err(|error| match error {
        Error::KernelArgument { .. } => {
            refused("an argument is empty or has a control character: correct it")
        }
        other => other,
    })?;
    let section = NewSection { name: ".cmdline", content: line.as_bytes() };
    Ok(Image::parse(&blank(architecture))?.append(&[section])?)
}

/// Refuses what the stub of a system for these machines would pass over. `name` is that of the file.
pub fn check(name: &str, addon: &[u8], architecture: Architecture) -> Result<(), Error> {
    let refused = |reason| Err(Error::Addon { name: name.to_owned(), reason });
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let known = name.to_ascii_lowercase().ends_with(SUFFIX) && name.len() > SUFFIX.len();
    if !known || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
        return refused(
            "an addon has a name of letters, digits, `-`, `_` and `.` that ends with .addon.efi, or it is not looked at: \
             rename it",
        );
    }
    if addon.len() > MOST_BYTES as usize {
        return refused(
            "it is longer than 1 MiB, which upgrades do not take: leave out what is no kernel argument",
        );
    }
    let program = Image::parse(addon).ok();
    let has = |section| program.as_ref().is_some_and(|program| program.section(section).is_some());
    if !has(".cmdline") {
        return refused(
            "it is no addon with kernel arguments: make one with `billetctl gen secureboot addon`",
        );
    }
    if has(".linux") {
        return refused(
            "it is a UKI and no addon: make images of it with `billetctl image build --kind uki`",
        );
    }
    if Architecture::of_program(addon) != Some(architecture) {
        return refused("it is for machines with other processors: make it with --arch of the image's");
    }
    Ok(())
}

/// Those of the volume that firmware starts a disk or medium from, by name. None where there is no such volume.
pub fn of_disk(disk: &mut impl ReadAt, disk_bytes: u64) -> Result<Vec<(String, Vec<u8>)>, Error> {
    boot_volume::open(disk, disk_bytes)?.map_or_else(|| Ok(Vec::new()), of_volume)
}

/// Those of a FAT32 volume; none where it is no such volume.
pub(crate) fn of_volume(volume: impl ReadAt) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut reader = match fat::Reader::open(volume) {
        Err(fat::Error::NotFat32) => return Ok(Vec::new()),
        reader => reader?,
    };
    let mut entries = match reader.list(DIRECTORY) {
        Err(fat::Error::NotFound(_)) => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.retain(|entry| !entry.is_dir && entry.name.to_ascii_lowercase().ends_with(SUFFIX));
    let read = |entry: fat::DirEntry| match reader.read(&format!("{DIRECTORY}/{}", entry.name), MOST_BYTES) {
        Err(fat::Error::TooLong(_)) => Err(Error::Addon {
            name: entry.name,
            reason: "it is longer than 1 MiB, which no addon is: take it off the EFI system partition",
        }),
        content => Ok((entry.name, content?)),
    };
    entries.into_iter().map(read).collect()
}

/// Refuses addons of an image with this command line, see [`check_beside`].
#[cfg(feature = "image")]
pub(crate) fn check_in_image(addons: &[(String, Vec<u8>)], command_line: &str) -> Result<(), Error> {
    check_behind(addons, format!("{command_line} {ADDED_LATER}"))
}

/// Refuses addons, by name, beside a UKI which would not start with them: an argument of init has another value in its
/// command line or in two of them, or the kernel would cut the line off. What is no addon nothing loads: it is passed over.
pub fn check_beside(addons: &[(String, Vec<u8>)], uki: &[u8]) -> Result<(), Error> {
    if addons.is_empty() {
        return Ok(());
    }
    check_behind(addons, line_of(&Image::parse(uki)?))
}

fn check_behind(addons: &[(String, Vec<u8>)], mut line: String) -> Result<(), Error> {
    for (name, addon) in addons {
        let Ok(addon) = Image::parse(addon) else { continue };
        let refused = |reason| Err(Error::Addon { name: name.clone(), reason });
        line = format!("{line} {}", line_of(&addon));
        if contradiction(&line).is_some() {
            return refused(
                "an argument of Billet's own (`billet.`, `talos.`) has another value in it than in the command line of the \
                 system or in another addon, and with two values a machine does not start: leave it out of one of them",
            );
        }
        if check_whole_line(&line).is_err() {
            return refused(
                "with it the command line is longer than the 2047 bytes that the kernel takes: shorten kernel arguments or \
                 leave some out",
            );
        }
    }
    Ok(())
}

fn line_of(program: &Image<'_>) -> String {
    let line = program.section(".cmdline").unwrap_or_default();
    String::from_utf8_lossy(line).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_second_value_for_init_is_refused() {
        let addon = |name: &str, word: &str| {
            (name.to_owned(), assemble(Architecture::OWN, &words(&["quiet", word])).unwrap())
        };
        let image = "quiet talos.platform=metal";
        let fine = [addon("a", "billet.watchdog=9"), addon("b", "talos.environment=A=1")];
        check_in_image(&fine, image).unwrap();
        // A value that is there already.
        check_in_image(&[addon("a", "billet.platform=metal")], image).unwrap();
        for (addons, refused) in [
            (vec![addon("a", "billet.platform=aws")], "a"),
            (vec![addon("a", "billet.generation=3")], "a"),
            (vec![addon("a", "billet.watchdog=9"), addon("b", "talos.watchdog=0")], "b"),
        ] {
            let error = check_in_image(&addons, image).unwrap_err().to_string();
            let start = format!("the addon {refused:?}: an argument of Billet's own");
            assert!(error.starts_with(&start), "{error}");
        }
        let long = |bytes| [addon("a", "quiet"), addon("b", &"x".repeat(bytes))];
        let left = 2047 - "quiet talos.platform=metal billet.generation=000000 quiet quiet quiet ".len();
        check_in_image(&long(left), image).unwrap();
        let error = check_in_image(&long(left + 1), image).unwrap_err().to_string();
        assert!(error.starts_with("the addon \"b\": with it the command line is longer"), "{error}");
    }

    #[test]
    fn a_system_that_would_not_start_with_the_addons_there_is_refused() {
        let own = Architecture::OWN;
        let section = NewSection { name: ".cmdline", content: b"quiet billet.watchdog=30\0" };
        let blank = blank(own);
        let uki = Image::parse(&blank).unwrap().append(&[section]).unwrap();
        let with = |word: &str| [("a.addon.efi".to_owned(), assemble(own, &words(&[word])).unwrap())];
        check_beside(&with("billet.watchdog=30"), &uki).unwrap();
        check_beside(&[("b.addon.efi".to_owned(), b"noise".to_vec())], &uki).unwrap();
        let error = check_beside(&with("talos.watchdog=9"), &uki).unwrap_err().to_string();
        assert!(error.starts_with("the addon \"a.addon.efi\": an argument"), "{error}");
    }

    #[test]
    fn arguments_become_a_file_and_what_no_stub_takes_is_refused() {
        let own = Architecture::OWN;
        let addon = assemble(own, &words(&["quiet", "panic=0"])).unwrap();
        assert_eq!(Image::parse(&addon).unwrap().section(".cmdline"), Some(&b"quiet panic=0"[..]));
        check("site.addon.efi", &addon, own).unwrap();
        let error = |result: Result<(), Error>| result.unwrap_err().to_string();
        for name in ["site.efi", ".addon.efi", "a b.addon.efi", "a/b.addon.efi", "ä.addon.efi"] {
            assert!(error(check(name, &addon, own)).contains("rename it"), "{name}");
        }
        let long = format!("{}.addon.efi", "a".repeat(LONGEST_NAME));
        assert!(error(check(&long, &addon, own)).contains("rename it"));
        let other = Architecture::ALL.into_iter().find(|one| *one != own).unwrap();
        assert!(error(check("site.addon.efi", &addon, other)).contains("other processors"));
        let more = vec![0; MOST_BYTES as usize];
        let more = NewSection { name: ".ucode", content: &more };
        let large = Image::parse(&addon).unwrap().append(&[more]).unwrap();
        assert!(error(check("site.addon.efi", &large, own)).contains("longer than 1 MiB"));
        let nothing = blank(own);
        assert!(error(check("site.addon.efi", &nothing, own)).contains("gen secureboot addon"));
        let kernel = NewSection { name: ".linux", content: b"kernel" };
        let uki = Image::parse(&addon).unwrap().append(&[kernel]).unwrap();
        assert!(error(check("site.addon.efi", &uki, own)).contains("it is a UKI"));
        assert!(error(check("site.addon.efi", b"noise", own)).contains("no addon with kernel arguments"));
        for (bad, wanted) in [
            (&[][..], "at least one"),
            (&["quiet", "-panic"], "takes none of the image away"),
            (&["a\nb"], "control character"),
            (&[" "], "is empty"),
            (&["billet.watchdog=9", "talos.watchdog=30"], "watchdog"),
        ] {
            let error = assemble(own, &words(bad)).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
