//! The kernel's command line of an installed node: the image's, changed by `machine.install.extraKernelArgs`.
//!
//! Fails by: [`Error`], naming the argument; of one that is too long the name alone, since its value may be a config.
//! Source: spec/machine-facts.md §4.1: a first `console=` of the user's replaces the image's.

use crate::Error;

/// COMMAND_LINE_SIZE of the kernel, on x86 and 64-bit ARM 2048, without the zero at its end. What is behind is cut off.
const MOST_BYTES: usize = 2047;

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
    check_length(line, MOST_BYTES - added_bytes)
}

/// Refuses a line that does not reach the kernel whole.
pub(crate) fn check_whole_line(line: &str) -> Result<(), Error> {
    check_length(line, MOST_BYTES)
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

/// Arguments of init that may stand there several times; of all others of its own a second one ends the boot.
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
        if argument.chars().any(char::is_control) || argument.trim().is_empty() {
            return Err(Error::KernelArgument { argument: argument.clone(), place });
        }
    }
    let removed: Vec<&str> = extra
        .iter()
        .filter_map(|argument| argument.strip_prefix('-'))
        .chain(extra.iter().any(|argument| argument.starts_with("console=")).then_some("console"))
        .collect();
    let replaced: Vec<&str> = extra.iter().filter_map(|argument| init_name(argument)).collect();
    let gone = |word: &str| {
        removed.iter().any(|removed| *removed == name(word) || *removed == word)
            || init_name(word).is_some_and(|name| replaced.contains(&name))
    };
    // Without arguments the line stays as it is, to the byte.
    if extra.is_empty() {
        check_whole_line(image)?;
        return Ok(image.to_owned());
    }
    let kept = image.split_ascii_whitespace().filter(|word| !gone(word));
    let added = extra.iter().map(String::as_str).filter(|argument| !argument.starts_with('-'));
    let line = kept.chain(added).collect::<Vec<_>>().join(" ");
    check_whole_line(&line)?;
    Ok(line)
}

/// The first argument of init that stands in the line twice.
#[cfg(feature = "image")]
pub(crate) fn twice(line: &str) -> Option<&str> {
    let mut known = Vec::new();
    line.split_ascii_whitespace().find(|word| {
        let Some(name) = init_name(word) else { return false };
        let again = known.contains(&name);
        known.push(name);
        again
    })
}

fn name(argument: &str) -> &str {
    argument.split_once('=').map_or(argument, |(name, _)| name)
}

/// The name without prefix of an argument of init that stands there once.
fn init_name(argument: &str) -> Option<&str> {
    let name = name(argument);
    let name = name.strip_prefix("billet.").or_else(|| name.strip_prefix("talos."))?;
    (!SEVERAL.contains(&name)).then_some(name)
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
        assert_eq!(twice("quiet talos.platform=a quiet billet.watchdog=1"), None);
        assert_eq!(twice("talos.platform=a billet.platform=b"), Some("billet.platform=b"));
        let both = "talos.environment=A=1 talos.environment=B=2";
        assert_eq!(changed("talos.environment=A=1", "talos.environment=B=2"), both);
        assert_eq!(twice(both), None);
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
