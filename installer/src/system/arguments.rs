//! The kernel's command line of an installed node: the image's, changed by `machine.install.extraKernelArgs`.
//!
//! Fails by: [`Error`], naming the argument; of one that is too long the name alone, since its value may be a config.
//! Source: docs/users/kernel-parameters.md: a first `console=` of the user's replaces the image's.

use ondisk::kernel::COMMAND_LINE_BYTES;

use crate::Error;

/// What boot loaders and upgrades put behind an image's line: `billet.root=disk`, `billet.generation=000001`.
#[cfg(feature = "image")]
const ADDED_BYTES: usize = 64;

/// Refuses an image's line that leaves no room for what is added to it.
#[cfg(feature = "image")]
pub(crate) fn check_image_line(line: &str) -> Result<(), Error> {
    check_room(line, ADDED_BYTES)
}

/// Refuses a line that leaves no room for so many bytes more.
#[cfg(feature = "image")]
pub(crate) fn check_room(line: &str, added_bytes: usize) -> Result<(), Error> {
    check_length(line, COMMAND_LINE_BYTES - added_bytes)
}

/// Refuses a line that does not reach the kernel whole.
pub(crate) fn check_whole_line(line: &str) -> Result<(), Error> {
    check_length(line, COMMAND_LINE_BYTES)
}

fn check_length(line: &str, most_bytes: usize) -> Result<(), Error> {
    let bytes = line.len();
    if bytes <= most_bytes {
        return Ok(());
    }
    let longest = line.split_ascii_whitespace().max_by_key(|word| word.len()).unwrap_or_default();
    let name = longest.split_once('=').map_or(longest, |(name, _)| name);
    let shown: String = name.chars().take(64).collect();
    Err(Error::LongCommandLine {
        bytes,
        most_bytes,
        longest: format!("{shown} with {} bytes", longest.len()),
    })
}

/// Arguments of init that may have several values; of all others of its own a second value ends the boot.
const SEVERAL: [&str; 2] = ["environment", "network.interface.ignore"];

/// The image's line with the user's arguments behind it. `console=` arguments replace the image's, and so do those of
/// init (`billet.`, `talos.`); an argument that starts with `-` takes the image's arguments of that name away.
pub fn command_line(image: &str, extra: &[String]) -> Result<String, Error> {
    changed(image, extra, "machine.install.extraKernelArgs")
}

/// The same for an image: its flags and profiles say which.
#[cfg(feature = "image")]
pub(crate) fn command_line_of_image(image: &str, extra: &[String]) -> Result<String, Error> {
    changed(image, extra, "--extra-kernel-arg, or kernel-arguments of the profile")
}

/// `place`: where the arguments come from.
fn changed(image: &str, extra: &[String], place: &'static str) -> Result<String, Error> {
    for argument in extra {
        // `-a b` would take `a` away and leave it open what becomes of `b`.
        let is_one = !argument.starts_with('-') || !argument.contains(' ');
        if argument.chars().any(char::is_control) || argument.trim().is_empty() || !is_one {
            return Err(Error::KernelArgument { argument: argument.clone(), place });
        }
    }
    // Without arguments the line stays as it is, to the byte.
    if extra.is_empty() {
        check_whole_line(image)?;
        return Ok(image.to_owned());
    }
    let removed: Vec<&str> = extra
        .iter()
        .filter_map(|argument| argument.strip_prefix('-'))
        .chain(extra.iter().any(|argument| argument.starts_with("console=")).then_some("console"))
        .collect();
    // One argument may be several words.
    let words = extra.iter().flat_map(|argument| argument.split_ascii_whitespace());
    let replaced: Vec<String> = words.filter_map(init_name).collect();
    let gone = |word: &str| {
        removed.iter().any(|removed| *removed == name(word) || *removed == word)
            || init_name(word).is_some_and(|name| replaced.contains(&name))
    };
    let kept = image.split_ascii_whitespace().filter(|word| !gone(word));
    let added = extra.iter().map(String::as_str).filter(|argument| !argument.starts_with('-'));
    let line = kept.chain(added).collect::<Vec<_>>().join(" ");
    if let Some(word) = contradiction(&line) {
        return Err(Error::TwoValues { name: name(word).to_owned(), place });
    }
    check_whole_line(&line)?;
    Ok(line)
}

/// The first argument of init that has another value than it had before in the line: init starts nothing then.
pub(crate) fn contradiction(line: &str) -> Option<&str> {
    let mut known: Vec<(String, &str)> = Vec::new();
    line.split_ascii_whitespace().find(|word| {
        let Some(name) = init_name(word) else { return false };
        let value = word.split_once('=').map_or("", |(_, value)| value);
        // Several addresses of one root are mirrors.
        let mirrors = |earlier: &str| name == "root" && earlier.contains("://") && value.contains("://");
        let contradicts =
            known.iter().any(|(other, earlier)| *other == name && *earlier != value && !mirrors(earlier));
        known.push((name, value));
        contradicts
    })
}

fn name(argument: &str) -> &str {
    argument.split_once('=').map_or(argument, |(name, _)| name)
}

/// The name, without prefix, of an argument of init that takes one value. `-` and `_` are one letter, as in the kernel.
fn init_name(argument: &str) -> Option<String> {
    let name = name(argument);
    let name = name.strip_prefix("billet.").or_else(|| name.strip_prefix("talos."))?.replace('-', "_");
    (!SEVERAL.contains(&name.as_str())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(extra: &[&str]) -> String {
        let extra: Vec<String> = extra.iter().map(|word| (*word).to_owned()).collect();
        command_line("console=ttyS0 panic=10 pti=on gpt", &extra).unwrap()
    }

    #[test]
    fn arguments_are_added_replaced_and_removed() {
        assert_eq!(line(&[]), "console=ttyS0 panic=10 pti=on gpt");
        assert_eq!(line(&["quiet"]), "console=ttyS0 panic=10 pti=on gpt quiet");
        let consoles = ["console=tty0", "console=ttyS1,115200n8"];
        assert_eq!(line(&consoles), "panic=10 pti=on gpt console=tty0 console=ttyS1,115200n8");
        assert_eq!(line(&["-panic", "-gpt", "panic=0"]), "console=ttyS0 pti=on panic=0");
        assert_eq!(line(&["-panic=9"]), "console=ttyS0 panic=10 pti=on gpt");
    }

    /// A second value would end every boot of what is installed.
    #[test]
    fn arguments_of_init_replace_the_image_s() {
        let changed = |image: &str, extra: &str| command_line(image, &[extra.to_owned()]).unwrap();
        assert_eq!(changed("talos.platform=metal quiet", "talos.platform=aws"), "quiet talos.platform=aws");
        assert_eq!(changed("talos.platform=metal", "billet.platform=gcp"), "billet.platform=gcp");
        assert_eq!(
            changed("billet.watchdog=60 a.watchdog=1", "talos.watchdog=0"),
            "a.watchdog=1 talos.watchdog=0"
        );
        let both = "talos.environment=A=1 talos.environment=B=2";
        assert_eq!(changed("talos.environment=A=1", "talos.environment=B=2"), both);
    }

    /// One word of several, in one argument or in several arguments.
    #[test]
    fn words_of_one_argument_count_one_by_one() {
        let changed = |extra: &[&str]| {
            let extra: Vec<String> = extra.iter().map(|word| (*word).to_owned()).collect();
            command_line("talos.platform=metal gpt", &extra)
        };
        assert_eq!(changed(&["quiet talos.platform=aws"]).unwrap(), "gpt quiet talos.platform=aws");
        let twice = ["billet.watchdog=9", "talos.watchdog=9"];
        assert_eq!(changed(&twice).unwrap(), "talos.platform=metal gpt billet.watchdog=9 talos.watchdog=9");
        for two in
            [&["billet.watchdog=9", "quiet", "talos.watchdog=30"][..], &["a billet.slot=1 billet.slot=2"]]
        {
            let error = changed(two).unwrap_err().to_string();
            assert!(error.contains("has two values") && error.contains("extraKernelArgs"), "{error}");
        }
        assert!(matches!(changed(&["-gpt quiet"]), Err(Error::KernelArgument { .. })));
    }

    #[test]
    fn what_init_would_not_start_with_is_known() {
        for fine in [
            "quiet talos.platform=a quiet billet.watchdog=1",
            "talos.platform=a billet.platform=a",
            "talos.environment=A=1 talos.environment=B=2 talos.network.interface.ignore=a billet.network.interface.ignore=b",
            "billet.root=http://a/ talos.root=https://b/ ip=dhcp ip=dhcp",
        ] {
            assert_eq!(contradiction(fine), None, "{fine}");
        }
        for (line, word) in [
            ("talos.platform=a billet.platform=b", "billet.platform=b"),
            ("billet.root=disk billet.root=http://a/", "billet.root=http://a/"),
            ("talos.logging.kernel=a talos.config_early=x billet.config-early=y", "billet.config-early=y"),
        ] {
            assert_eq!(contradiction(line), Some(word), "{line}");
        }
    }

    #[test]
    fn what_would_break_the_line_is_refused() {
        for bad in ["", " ", "a\nb", "a\0"] {
            let error = command_line("x", &[bad.to_owned()]).unwrap_err();
            assert!(matches!(error, Error::KernelArgument { .. }), "{bad:?}");
        }
    }

    #[test]
    fn what_the_kernel_would_cut_off_is_refused() {
        let inline = |bytes: usize| format!("billet.config.inline={}", "k".repeat(bytes - 21));
        let image = "console=ttyS0";
        let most = 2047 - image.len() - 1;
        assert_eq!(command_line(image, &[inline(most)]).unwrap().len(), 2047);
        let error = command_line(image, &[inline(most + 1)]).unwrap_err().to_string();
        assert!(error.contains("has 2048 bytes") && error.contains("may have 2047"), "{error}");
        assert!(error.contains("the longest is billet.config.inline with 2034 bytes"), "{error}");
        assert!(!error.contains("kkk"), "{error}");
        assert!(command_line(&inline(2048), &[]).is_err());
        // A node that upgrades adds its generation to the image's.
        check_image_line(&inline(1983)).unwrap();
        assert!(check_image_line(&inline(1984)).is_err());
    }
}
