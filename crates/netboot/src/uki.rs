//! A UKI for one machine, for firmware that loads no iPXE: one EFI program of the bundle's stub, kernel and initramfs, with
//! the command line that the script would give them.
//!
//! Owns: reading the script as far as that needs, and its three variables. What all UKIs share is kept once ([`Ukis`]),
//! and none is ever in memory as a whole.
//! Does not: sign. The line is another one for each machine; firmware that demands signatures gets a `billet.efi` of the
//! bundle.
//! Source: docs/formats/pxe.md; the UAPI group's UKI specification; for what iPXE passes to a kernel on UEFI its
//! src/image/efi_image.c.

mod joined;
mod parts;
mod script;

use std::io;
use std::path::Path;

use ondisk::kernel::COMMAND_LINE_BYTES;

use crate::mac::Mac;
pub(crate) use parts::{Plan, STUB, Ukis};
use script::read_script;

/// What a script puts behind the kernel's arguments; empty when nothing set it.
pub(crate) const ARGUMENTS: &str = "${billet-args}";
/// What its name ends with in TFTP and HTTP, behind the machine's address.
pub(crate) const NAME: &str = "billet.efi";

/// What the script's variables are for one machine.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    /// Where the layers are.
    pub(crate) root: &'a str,
    pub(crate) mac: Mac,
    /// Where its config is; nothing, or an argument of the kernel's.
    pub(crate) arguments: &'a str,
}

impl Ukis {
    /// The program of what the bundle's script names, of which nothing is made yet.
    ///
    /// # Errors
    /// What cannot be read or is not understood, by the file's name.
    pub(crate) fn of_script(
        &self,
        bundle: &Path,
        script: &str,
        variables: &Variables<'_>,
    ) -> io::Result<Plan> {
        let started = read_script(script)?;
        let line = command_line(&started.words, variables)?;
        check_length(line.len())?;
        self.plan(bundle, &started, line)
    }
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
    use std::fs;
    use std::io::Read as _;

    use ondisk::pe::{Image, NewSection};

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
        let directory = tempfile::tempdir().unwrap();
        let config = variables("billet.config=http://10.0.0.1:8080/config?mac=52-54-00-12-34-56");
        let with = |word: &str| SCRIPT.replace("console=ttyS0", word);
        let bytes = |script: &str| command_line(&read_script(script).unwrap().words, &config).unwrap().len();
        let room = COMMAND_LINE_BYTES - bytes(&with("k")) + 1;
        let long = |bytes: usize| with(&"k".repeat(bytes));
        let made = |bytes: usize| {
            Ukis::default().of_script(directory.path(), &long(bytes), &config).unwrap_err().to_string()
        };
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
        let directory = tempfile::tempdir().unwrap();
        for name in [STUB, "vmlinuz"] {
            fs::write(directory.path().join(name), "no program").unwrap();
        }
        let error = Ukis::default().of_script(directory.path(), SCRIPT, &variables("")).unwrap_err();
        assert!(error.to_string().starts_with("initramfs: "), "{error}");
        fs::write(directory.path().join("initramfs"), "i").unwrap();
        let error = Ukis::default().of_script(directory.path(), SCRIPT, &variables("")).unwrap_err();
        assert!(error.to_string().starts_with("stub.efi: "), "{error}");
    }

    const STUB_BYTES: &[u8] = include_bytes!("../../ondisk/testdata/stub.efi");

    /// A bundle with this much of kernel and initramfs.
    fn bundle() -> (tempfile::TempDir, Vec<u8>, Vec<u8>) {
        let directory = tempfile::tempdir().unwrap();
        let (initramfs, kernel) = (vec![0xa7; 700_001], vec![0x5b; 300_003]);
        for (name, bytes) in [(STUB, STUB_BYTES), ("initramfs", &initramfs), ("vmlinuz", &kernel)] {
            fs::write(directory.path().join(name), bytes).unwrap();
        }
        (directory, initramfs, kernel)
    }

    fn whole(plan: Plan) -> Vec<u8> {
        let mut bytes = Vec::new();
        plan.make().unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_sent_is_the_stub_with_its_sections_and_a_right_checksum() {
        let (directory, initramfs, kernel) = bundle();
        let variables = variables("");
        let plan = Ukis::default().of_script(directory.path(), SCRIPT, &variables).unwrap();
        let length = plan.length();
        let line = command_line(&read_script(SCRIPT).unwrap().words, &variables).unwrap();
        let section = |name, content| NewSection { name, content };
        let expected = Image::parse(STUB_BYTES).unwrap().append(&[
            section(".cmdline", line.as_bytes()),
            section(".initrd", &initramfs),
            section(".linux", &kernel),
        ]);
        let sent = whole(plan);
        assert!(sent == expected.unwrap());
        assert_eq!(sent.len() as u64, length);
        assert!(Image::parse(&sent).unwrap().checksum_is_right());
    }

    /// The bytes that each machine's own UKI takes while it is sent.
    const OWN_BYTES: u64 = 713;

    #[test]
    fn a_hundred_machines_share_all_but_headers_and_line() {
        let (directory, ..) = bundle();
        let ukis = Ukis::default();
        let made: Vec<_> = (0..100)
            .map(|number| {
                let variables = Variables { mac: Mac([2, 0, 0, 0, 0, number]), ..variables("") };
                ukis.of_script(directory.path(), SCRIPT, &variables).unwrap().make().unwrap()
            })
            .collect();
        let (now, most) = ukis.own_bytes();
        assert_eq!((ukis.reads(), now, most), (1, 100 * OWN_BYTES, 100 * OWN_BYTES));
        drop(made);
        assert_eq!(ukis.own_bytes(), (0, 100 * OWN_BYTES));
    }

    #[test]
    fn a_bundle_that_was_made_anew_is_read_anew() {
        let (directory, ..) = bundle();
        let ukis = Ukis::default();
        let plan = || ukis.of_script(directory.path(), SCRIPT, &variables("")).unwrap();
        let before = plan();
        // As a build does it: another file of the same name.
        fs::write(directory.path().join("new"), vec![0x11; 300_003]).unwrap();
        fs::rename(directory.path().join("new"), directory.path().join("vmlinuz")).unwrap();
        let linux = |file: Vec<u8>| Image::parse(&file).unwrap().section(".linux").unwrap()[0];
        assert_eq!((linux(whole(before)), linux(whole(plan())), ukis.reads()), (0x5b, 0x11, 2));
    }
}
