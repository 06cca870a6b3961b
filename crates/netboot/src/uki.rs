//! A UKI for one machine, for firmware that loads no iPXE: one EFI program of the bundle's stub, kernel and initramfs, with
//! the command line that the script would give them.
//!
//! Owns: reading the script as far as that needs, and its three variables.
//! Does not: sign. The line is another one for each machine; firmware that demands signatures gets a `billet.efi` of the
//! bundle.
//! Source: docs/formats/pxe.md; the UAPI group's UKI specification; for what iPXE passes to a kernel on UEFI its
//! src/image/efi_image.c.

use std::fs;
use std::io;
use std::path::Path;

use ondisk::kernel::COMMAND_LINE_BYTES;
use ondisk::pe::{Image, NewSection};

use crate::dhcp::Mac;
use crate::files::ARGUMENTS;

/// What its name ends with in TFTP and HTTP, behind the machine's address.
pub(crate) const NAME: &str = "billet.efi";
/// systemd's stub, which a UKI starts with.
pub(crate) const STUB: &str = "stub.efi";

/// What the script's variables are for one machine.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    /// Where the layers are.
    pub(crate) root: &'a str,
    pub(crate) mac: Mac,
    /// Where its config is; nothing, or an argument of the kernel's.
    pub(crate) arguments: &'a str,
}

/// What a script starts.
#[derive(Debug, PartialEq, Eq)]
struct Started<'s> {
    kernel: &'s str,
    words: Vec<&'s str>,
    initramfs: Vec<&'s str>,
}

/// The program, of what the bundle's script names.
///
/// # Errors
/// What cannot be read or is not understood, by the file's name.
pub(crate) fn assemble(bundle: &Path, script: &str, variables: &Variables<'_>) -> io::Result<Vec<u8>> {
    let read = |name: &str| {
        fs::read(bundle.join(name)).map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
    };
    let started = read_script(script)?;
    let line = command_line(&started.words, variables)?;
    check_length(line.len())?;
    let (stub, kernel) = (read(STUB)?, read(started.kernel)?);
    let initramfs = started.initramfs.iter().map(|name| read(name)).collect::<io::Result<Vec<_>>>()?.concat();
    let section = |name, content| NewSection { name, content };
    // The kernel last: it may take memory behind its own image.
    let sections =
        [section(".cmdline", line.as_bytes()), section(".initrd", &initramfs), section(".linux", &kernel)];
    let stub = Image::parse(&stub).and_then(|stub| stub.append(&sections));
    stub.map_err(|error| io::Error::other(format!("{STUB}: {error}")))
}

/// Refuses a script whose line with the kernel is too long for a machine. What only iPXE knows is not looked at.
///
/// # Errors
/// The line's length, and what to do.
pub(crate) fn check_script(script: &str, variables: &Variables<'_>) -> io::Result<()> {
    let Ok(started) = read_script(script) else { return Ok(()) };
    let line = filled(&started.words, variables);
    if line.contains("${") {
        return Ok(());
    }
    // On UEFI iPXE puts the kernel's name before its arguments, and the kernel takes it for one.
    check_length(started.kernel.len() + 1 + line.len())
}

/// The word of a script's line with the kernel that says where a machine's config is, as `netboot serve` does; init takes one.
pub(crate) fn own_config(script: &str) -> Option<&str> {
    let words = read_script(script).ok()?.words;
    words.into_iter().find(|word| word.starts_with("billet.config=") || word.starts_with("talos.config="))
}

/// The config's address stands last: of a machine that knows half of it nobody would hear.
fn check_length(bytes: usize) -> io::Result<()> {
    if bytes <= COMMAND_LINE_BYTES {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the kernel's command line would have {bytes} bytes and may have {COMMAND_LINE_BYTES}, since the kernel cuts off what is \
         behind: make the bundle with fewer or shorter kernel arguments"
    )))
}

fn read_script(script: &str) -> io::Result<Started<'_>> {
    let lines =
        |command: &'static str| script.lines().filter_map(move |line| line.trim().strip_prefix(command));
    let mut words = lines("kernel ").next().unwrap_or_default().split_ascii_whitespace();
    let kernel = words.next().ok_or_else(|| io::Error::other("the script has no line with a kernel"))?;
    let initramfs = lines("initrd ").filter_map(|line| line.split_ascii_whitespace().last()).collect();
    Ok(Started { kernel, words: words.collect(), initramfs })
}

fn command_line(words: &[&str], variables: &Variables<'_>) -> io::Result<String> {
    // A UKI has its initramfs in itself.
    let words: Vec<&str> = words.iter().filter(|word| !word.starts_with("initrd=")).copied().collect();
    let line = filled(&words, variables);
    if let Some(at) = line.find("${") {
        let unknown = line.get(at..).unwrap_or_default().split(' ').next().unwrap_or_default();
        return Err(io::Error::other(format!(
            "the script's line with the kernel has {unknown}, which only iPXE knows: add ipxe.efi to the bundle"
        )));
    }
    Ok(line)
}

/// The words with what is known in the place of variables.
fn filled(words: &[&str], variables: &Variables<'_>) -> String {
    let line = words
        .join(" ")
        .replace("${billet-root}", variables.root)
        .replace("${mac:hexhyp}", &variables.mac.dashed())
        .replace(ARGUMENTS, variables.arguments);
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "#!ipxe\nisset ${billet-root} || set billet-root ${cwduri}layers\n\
        kernel vmlinuz initrd=initramfs console=ttyS0 billet.root=${billet-root} BOOTIF=01-${mac:hexhyp} ${billet-args}\n\
        initrd initramfs\nboot\n";

    fn variables(arguments: &str) -> Variables<'_> {
        Variables {
            root: "http://10.0.0.1:8080/layers",
            mac: Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
            arguments,
        }
    }

    #[test]
    fn the_line_is_that_of_the_script() {
        let started = read_script(SCRIPT).unwrap();
        assert_eq!((started.kernel, started.initramfs.as_slice()), ("vmlinuz", ["initramfs"].as_slice()));
        let line = "console=ttyS0 billet.root=http://10.0.0.1:8080/layers BOOTIF=01-52-54-00-12-34-56";
        assert_eq!(command_line(&started.words, &variables("")).unwrap(), line);
        let own = format!("{line} billet.config=http://x");
        assert_eq!(command_line(&started.words, &variables("billet.config=http://x")).unwrap(), own);
    }

    #[test]
    fn what_only_ipxe_can_know_is_told() {
        let script = SCRIPT.replace("console=ttyS0", "console=${where} quiet");
        let error = command_line(&read_script(&script).unwrap().words, &variables("")).unwrap_err();
        assert!(error.to_string().contains("has ${where}, which only iPXE knows"), "{error}");
        let error = read_script("#!ipxe\nchain other\n").unwrap_err();
        assert!(error.to_string().contains("no line with a kernel"), "{error}");
    }

    #[test]
    fn a_line_that_the_kernel_would_cut_off_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let config = variables("billet.config=http://10.0.0.1:8080/config?mac=52-54-00-12-34-56");
        let with = |word: &str| SCRIPT.replace("console=ttyS0", word);
        let bytes = |script: &str| command_line(&read_script(script).unwrap().words, &config).unwrap().len();
        let room = COMMAND_LINE_BYTES - bytes(&with("k")) + 1;
        let long = |bytes: usize| with(&"k".repeat(bytes));
        let made = |bytes: usize| assemble(folder.path(), &long(bytes), &config).unwrap_err().to_string();
        // Nothing of it is there, which is told only of what fits.
        assert!(made(room).starts_with("stub.efi: "), "{}", made(room));
        let said = "the kernel's command line would have 2048 bytes and may have 2047, ";
        assert!(made(room + 1).starts_with(said), "{}", made(room + 1));

        // iPXE has two words more, which the kernel sees.
        let room = room - "vmlinuz initrd=initramfs ".len();
        check_script(&long(room), &config).unwrap();
        let told = check_script(&long(room + 1), &config).unwrap_err().to_string();
        assert!(told.starts_with(said), "{told}");
        check_script(&long(room + 1), &variables("")).unwrap();
        // What only iPXE knows may be of any length.
        check_script(&with(&format!("{} ${{where}}", "k".repeat(2047))), &config).unwrap();
        check_script("#!ipxe\nchain other\n", &config).unwrap();
    }

    #[test]
    fn a_file_that_lacks_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for name in [STUB, "vmlinuz"] {
            fs::write(folder.path().join(name), "no program").unwrap();
        }
        let error = assemble(folder.path(), SCRIPT, &variables("")).unwrap_err();
        assert!(error.to_string().starts_with("initramfs: "), "{error}");
        fs::write(folder.path().join("initramfs"), "i").unwrap();
        let error = assemble(folder.path(), SCRIPT, &variables("")).unwrap_err();
        assert!(error.to_string().starts_with("stub.efi: "), "{error}");
    }
}
