//! Addons: kernel arguments in a file of their own, beside a UKI whose command line is signed.
//!
//! Owns: the file, its name and place; what may be put there.
//! Does not: sign; load. systemd's stub has the firmware load each, which checks its signature under Secure Boot, and puts
//! the arguments behind those of the UKI. What the firmware refuses is passed over.
//! Source: systemd-stub(7), "COMPANION FILES"; the UAPI group's UKI specification, "UKI Components".

use ondisk::Architecture;
use ondisk::pe::{Image, NewSection, blank};

use crate::Error;
use crate::system::command_line;
#[cfg(feature = "image")]
use crate::system::twice;

/// How the stub knows them.
pub const SUFFIX: &str = ".addon.efi";
/// Where it looks for those of every UKI, on the volume that it was started from.
pub const FOLDER: &str = "loader/addons";
/// What upgrades put behind an image's line.
#[cfg(feature = "image")]
const ADDED_LATER: &str = "billet.generation=";
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
    let line = command_line("", arguments)
        .map_err(|_| refused("an argument is empty or has a control character: correct it"))?;
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
    if Image::parse(addon)?.section(".cmdline").is_none() {
        return refused(
            "it is no addon with kernel arguments: make one with `billetctl gen secureboot addon`",
        );
    }
    if Image::parse(addon)?.section(".linux").is_some() {
        return refused(
            "it is a UKI and no addon: make images of it with `billetctl image build --kind uki`",
        );
    }
    if Architecture::of_program(addon) != Some(architecture) {
        return refused("it is for machines with other processors: make it with --arch of the image's");
    }
    Ok(())
}

/// Refuses addons beside a command line that has one of their arguments already, where init takes one value alone.
#[cfg(feature = "image")]
pub(crate) fn check_beside(addons: &[(String, Vec<u8>)], command_line: &str) -> Result<(), Error> {
    let mut line = format!("{command_line} {ADDED_LATER}");
    for (name, addon) in addons {
        let added = Image::parse(addon)?.section(".cmdline").unwrap_or_default();
        line = format!("{line} {}", String::from_utf8_lossy(added));
        if twice(&line).is_some() {
            let reason = "it has an argument of Billet's own (`billet.`, `talos.`) that the image, an upgrade or another addon \
                has too, and a second value ends every start: leave it away, and make the image with the value (`image \
                build --extra-kernel-arg`, `--platform`)";
            return Err(Error::Addon { name: name.clone(), reason });
        }
    }
    Ok(())
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
        check_beside(&fine, image).unwrap();
        for (addons, refused) in [
            (vec![addon("a", "billet.platform=aws")], "a"),
            (vec![addon("a", "billet.generation=3")], "a"),
            (vec![addon("a", "billet.watchdog=9"), addon("b", "talos.watchdog=0")], "b"),
        ] {
            let error = check_beside(&addons, image).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("the addon {refused:?}: it has an argument of Billet's own")),
                "{error}"
            );
        }
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
        let nothing = blank(own);
        assert!(error(check("site.addon.efi", &nothing, own)).contains("gen secureboot addon"));
        let kernel = NewSection { name: ".linux", content: b"kernel" };
        let uki = Image::parse(&addon).unwrap().append(&[kernel]).unwrap();
        assert!(error(check("site.addon.efi", &uki, own)).contains("it is a UKI"));
        assert!(check("site.addon.efi", b"noise", own).is_err());
        for (bad, wanted) in [
            (&[][..], "at least one"),
            (&["quiet", "-panic"], "takes none of the image away"),
            (&["a\nb"], "control character"),
            (&[" "], "is empty"),
        ] {
            let error = assemble(own, &words(bad)).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
