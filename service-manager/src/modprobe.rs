//! `modprobe`, a name of machined's binary: what the kernel starts when a part of it is missing.
//!
//! Owns: which arguments mean what: `modprobe [-q] [--] NAME`, where the name is a module's or an alias.
//! Does not: pass parameters, unload, read modprobe.d, or take a module from anywhere but the image.
//! Order: dependencies first, by the image's index.
//! Fails by: exit status 1. A name that the image does not have is usual, and is said only without `-q`; a module that the
//! kernel refuses is a line in the kernel's log.
//! Source: modprobe(8); kernel/module/kmod.c for the arguments.

use std::process::ExitCode;

use config::cmdline::CommandLine;
use ondisk::printable;

use crate::modules::{Missing, Modules};

/// Before a line of the kernel's log: what is worth knowing, and what is wrong.
const INFORMATION: &str = "<6>";
const WARNING: &str = "<4>";
/// Longer than any name that the kernel asks for (`MODULE_NAME_LEN`, 56 on 64 bits).
const LONGEST_NAME: usize = 255;
const USAGE: &str = "usage: modprobe [-q] [--] NAME";

/// What the arguments say.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    quiet: bool,
    name: String,
}

impl Request {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut quiet, mut options, mut names) = (false, true, Vec::new());
        for argument in arguments {
            match argument.as_str() {
                "--" if options => options = false,
                "-q" | "--quiet" if options => quiet = true,
                other if options && other.starts_with('-') => {
                    return Err(format!("{}: this option is not known; {USAGE}", printable::line(other)));
                }
                _ => names.push(argument),
            }
        }
        let Ok([name]) = <[String; 1]>::try_from(names) else {
            return Err(format!("one module at a time, without parameters; {USAGE}"));
        };
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(format!("a name has 1 to {LONGEST_NAME} bytes; {USAGE}"));
        }
        Ok(Self { quiet, name })
    }
}

/// Loads what the arguments behind the program's name ask for.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let request = match Request::parse(arguments) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("modprobe: {error}");
            return ExitCode::FAILURE;
        }
    };
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if CommandLine::parse(&line).node().keep_module_signatures {
        sys::module::keep_signatures();
    }
    let shown = printable::line(&request.name);
    match Modules::read().load(&request.name) {
        Ok(loaded) if loaded.is_empty() => ExitCode::SUCCESS,
        Ok(loaded) => {
            log(INFORMATION, &format!("modprobe: loaded {} for {shown}", loaded.join(", ")));
            ExitCode::SUCCESS
        }
        Err(Missing::NotInImage) => {
            if !request.quiet {
                eprintln!("modprobe: {shown}: the image has no such module");
            }
            ExitCode::FAILURE
        }
        Err(Missing::Refused(error)) => {
            log(WARNING, &format!("modprobe: {shown}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Started by the kernel, it has no other place for its words.
fn log(level: &str, text: &str) {
    let record = format!("{level}{text}");
    let written = sys::console::open_kmsg().and_then(|kmsg| sys::console::write_record(kmsg, &record));
    if written.is_err() {
        eprintln!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Request, String> {
        Request::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn the_kernels_arguments_are_understood() {
        let request = |quiet, name: &str| Ok(Request { quiet, name: name.to_owned() });
        assert_eq!(parse(&["-q", "--", "net-pf-16-proto-12"]), request(true, "net-pf-16-proto-12"));
        assert_eq!(parse(&["--quiet", "vxlan"]), request(true, "vxlan"));
        assert_eq!(parse(&["ip_tables"]), request(false, "ip_tables"));
        assert_eq!(parse(&["--", "-q"]), request(false, "-q"), "a name that a container chose is no option");
    }

    #[test]
    fn options_parameters_and_other_names_are_refused() {
        let long = "m".repeat(LONGEST_NAME + 1);
        for (words, reason) in [
            (&["-r", "vxlan"][..], "-r: this option is not known"),
            (&["-C", "/tmp/own.conf", "vxlan"], "-C: this option"),
            (&["--dirname=/tmp", "vxlan"], "--dirname=/tmp: this option"),
            (&["dummy", "numdummies=9"], "one module at a time, without parameters"),
            (&[], "one module at a time"),
            (&[""], "a name has 1 to 255 bytes"),
            (&[long.as_str()], "a name has 1 to 255 bytes"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.starts_with(reason) && error.ends_with(USAGE), "{words:?}: {error}");
        }
    }
}
