//! The kernel's command line of an installed node: the image's, changed by `machine.install.extraKernelArgs`.
//!
//! Source: spec/machine-facts.md §4.1: a first `console=` of the user's replaces the image's.

use crate::Error;

/// The image's line with the user's arguments behind it. `console=` arguments replace the image's; an argument that
/// starts with `-` takes the image's arguments of that name away.
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
    let gone = |word: &str| {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        removed.iter().any(|removed| *removed == name || *removed == word)
    };
    // Without arguments the line stays as it is, to the byte.
    if extra.is_empty() {
        return Ok(image.to_owned());
    }
    let kept = image.split_ascii_whitespace().filter(|word| !gone(word));
    let added = extra.iter().map(String::as_str).filter(|argument| !argument.starts_with('-'));
    Ok(kept.chain(added).collect::<Vec<_>>().join(" "))
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

    #[test]
    fn what_would_break_the_line_is_refused() {
        for bad in ["", " ", "a\nb", "a\0"] {
            let error = command_line("x", &[bad.to_owned()]).unwrap_err();
            assert!(matches!(error, Error::KernelArgument { .. }), "{bad:?}");
        }
    }
}
