//! `flash` and `image build` as a process, on files.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod parts;

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
    process::{Command, Output},
};

use parts::parts;

const MIB: usize = 1 << 20;

fn billetctl(home: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_billetctl"));
    command.env("HOME", home).env_remove("XDG_STATE_HOME").current_dir(home).args(words);
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

/// What it printed; it has to succeed.
fn done(home: &Path, words: &[&str]) -> String {
    let output = billetctl(home, words);
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A master boot record with one partition from the first MiB on, and zeros behind it up to there.
fn boot_record(partition_bytes: usize) -> Vec<u8> {
    let mut head = vec![0; MIB];
    head[450] = 0x83;
    head[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    head[458..462].copy_from_slice(&u32::try_from(partition_bytes / 512).unwrap().to_le_bytes());
    head[510..512].copy_from_slice(&[0x55, 0xaa]);
    head
}

#[test]
fn an_image_is_flashed_to_a_file() {
    let home = tempfile::tempdir().unwrap();
    let (image, target) = (home.path().join("disk.raw"), home.path().join("target"));
    let file = File::create(&image).unwrap();
    file.set_len(64 * MIB as u64).unwrap();
    file.write_all_at(&boot_record(63 * MIB), 0).unwrap();
    file.write_all_at(&vec![7; 3 * MIB], 20 * MIB as u64 + 4096).unwrap();
    let done = billetctl(home.path(), &["flash", "disk.raw", "target"]);
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    for part in ["image   disk.raw:", "no GUID partition table", "target  target: a new file", "verify 100 %"]
    {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(fs::read(&image).unwrap() == fs::read(&target).unwrap());

    // What is there is not overwritten without a word, nor by something that is longer.
    let again = billetctl(home.path(), &["flash", "disk.raw", "target"]);
    assert!(!again.status.success() && text(&again.stderr).contains("add --yes"), "{}", text(&again.stderr));
    fs::write(home.path().join("small"), "small").unwrap();
    let small = billetctl(home.path(), &["flash", "disk.raw", "small", "--yes"]);
    assert!(text(&small.stderr).contains("choose a larger disk"), "{}", text(&small.stderr));
    let yes = billetctl(home.path(), &["flash", "disk.raw", "target", "--yes"]);
    assert!(yes.status.success(), "{}", text(&yes.stderr));
    let itself = billetctl(home.path(), &["flash", "disk.raw", "./disk.raw", "--yes", "--force"]);
    assert!(text(&itself.stderr).contains("it is the image itself"), "{}", text(&itself.stderr));
    let left: Vec<_> = fs::read_dir(home.path().join(".local/state/billetctl")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_cannot_be_flashed_is_said() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("disk.qcow2"), b"QFI\xfb and more").unwrap();
    let mut disk = boot_record(MIB);
    disk.resize(2 * MIB, 1);
    fs::write(home.path().join("disk.raw"), &disk).unwrap();
    fs::write(home.path().join("cut.raw"), &disk[..MIB + 512]).unwrap();
    fs::write(home.path().join("noise"), [7; 1000]).unwrap();
    fs::write(home.path().join("billet.efi"), include_bytes!("../../crates/ondisk/testdata/stub.efi"))
        .unwrap();
    for (words, wanted) in [
        (&["flash", "disk.qcow2", "target"][..], "qemu-img convert -O raw"),
        (&["flash", "none.raw", "target"], "read the image none.raw"),
        (&["flash", "noise", "target", "--yes"], "has neither a partition table nor an ISO 9660 volume"),
        (&["flash", "billet.efi", "target", "--yes"], "billet.efi is one EFI program"),
        (
            &["flash", "cut.raw", "target", "--yes"],
            "reaches to byte 2097152, and it has 1049088 bytes; fetch or build",
        ),
        (&["flash", "cut.raw", "target", "--yes", "--force"], "is cut off"),
        (&["flash", "disk.raw", "none/target"], "there is no directory none: make it first"),
        (&["flash", "disk.raw", "/dev/sdzz"], "there is no such disk"),
        (&["flash", "disk.raw", "/dev/null"], "neither a disk nor a file"),
        (&["image", "build", "--from", "disk.raw"], "error: "),
        (&["image", "build", "--from", ".", "--kind", "iso"], "has no root.json"),
        (&["image", "build", "--from", ".", "--sector-size", "520"], "512 or 4096"),
        (&["image", "build", "--from", ".", "--platform", "amazon"], "use one of akamai, aws, azure"),
    ] {
        let output = billetctl(home.path(), words);
        assert!(
            !output.status.success() && text(&output.stderr).contains(wanted),
            "{}",
            text(&output.stderr)
        );
    }
    let listed = billetctl(home.path(), &["flash", "disk.raw", "-o", "json"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert!(!home.path().join("target").exists());
    let as_is = billetctl(home.path(), &["flash", "noise", "target", "--as-is"]);
    assert!(as_is.status.success(), "{}", text(&as_is.stderr));
    assert!(fs::read(home.path().join("target")).unwrap().starts_with(&[7; 1000]));
}

/// Nothing is lost for the note of the progress: that none can be kept is said before the first write.
#[test]
fn a_home_that_cannot_be_written_is_no_reason_to_stop() {
    let home = tempfile::tempdir().unwrap();
    let mut disk = boot_record(MIB);
    disk.resize(2 * MIB, 1);
    fs::write(home.path().join("disk.raw"), &disk).unwrap();
    let flash = |directory: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_billetctl"));
        command.env_remove("XDG_STATE_HOME").env_remove("HOME").current_dir(home.path());
        command.envs(directory.map(|directory| ("HOME", home.path().join(directory))));
        command.args(["flash", "disk.raw", "target", "--yes"]);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success() && said.contains("written and read back"), "{said}");
        assert!(fs::read(home.path().join("target")).unwrap() == disk);
        said
    };
    let warning = "warning: an attempt that is interrupted will begin anew: ";
    // Whoever runs this, root too: a file is no directory.
    let said = flash(Some("disk.raw"));
    assert!(said.contains(warning) && said.contains("keep the note"), "{said}");
    let said = flash(None);
    assert!(said.contains(warning) && said.contains("neither XDG_STATE_HOME nor HOME"), "{said}");
    let said = flash(Some("home"));
    assert!(!said.contains("warning"), "{said}");
}

/// A zstd frame of blocks of 128 KiB that are not packed, or that are zeros (RFC 8878 §3.1.1): a window of 128 KiB, the
/// length, and the checksum if there is one.
fn frame(content: &[u8], zero_blocks: usize, checksum: Option<u32>) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let descriptor = 0xc0 | if checksum.is_some() { 4 } else { 0 };
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, descriptor, 0x38];
    frame.extend(((content.len() + zero_blocks * BLOCK) as u64).to_le_bytes());
    let blocks: Vec<_> = content.chunks(BLOCK).map(Some).chain((0..zero_blocks).map(|_| None)).collect();
    let last = blocks.len() - 1;
    for (index, block) in blocks.iter().enumerate() {
        let (kind, length) = block.map_or((1, BLOCK), |block| (0, block.len()));
        let header = u32::try_from(length << 3 | kind << 1 | usize::from(index == last)).unwrap();
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(block.unwrap_or(&[0]));
    }
    frame.extend(checksum.map(u32::to_le_bytes).into_iter().flatten());
    frame
}

#[test]
fn a_packed_image_that_is_not_whole_leaves_no_file() {
    let home = tempfile::tempdir().unwrap();
    let disk = boot_record(15 * MIB);
    let whole = frame(&disk, 120, None);
    // That a checksum is wrong shows when all is unpacked.
    let (cut, damaged) = (&whole[..whole.len() - 4], frame(&disk, 120, Some(1)));
    for (content, wanted) in
        [(cut, "packed.zst is cut off"), (&damaged, "packed.zst cannot be unpacked: it is damaged")]
    {
        fs::write(home.path().join("packed.zst"), content).unwrap();
        for words in [&["flash", "packed.zst", "target"][..], &["flash", "packed.zst", "target", "--as-is"]] {
            let output = billetctl(home.path(), words);
            let said = text(&output.stderr);
            assert!(!output.status.success() && said.contains(wanted) && said.contains("fetch"), "{said}");
            assert!(!home.path().join("target").exists(), "{said}");
        }
    }
    fs::write(home.path().join("target"), vec![3; 20 * MIB]).unwrap();
    let output = billetctl(home.path(), &["flash", "packed.zst", "target", "--yes"]);
    assert!(!output.status.success() && home.path().join("target").exists(), "it was there before");
    fs::write(home.path().join("packed.zst"), &whole).unwrap();
    let output = billetctl(home.path(), &["flash", "packed.zst", "new"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = fs::read(home.path().join("new")).unwrap();
    assert!(
        found.len() == 16 * MIB && found.starts_with(&disk) && found[MIB..].iter().all(|byte| *byte == 0)
    );
}

#[test]
fn ctrl_c_says_how_it_goes_on_and_so_it_does() {
    let home = tempfile::tempdir().unwrap();
    // More than lies between two notes, then 8 GB of zeros, which are unpacked and not written.
    let (noted, zero_blocks) = (80 * MIB, 65_536);
    let mut start = boot_record(noted);
    start.extend((0..noted).map(|at| u8::try_from(at % 251).unwrap() | 1));
    fs::write(home.path().join("long.zst"), frame(&start, zero_blocks, None)).unwrap();
    let words = ["flash", "long.zst", "target", "--yes"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_billetctl"));
    command.env("HOME", home.path()).env_remove("XDG_STATE_HOME").current_dir(home.path());
    command.args(words).stderr(std::process::Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
    let began = lines.find(|line| line.starts_with("write 10 %"));
    let pid = running.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let rest: Vec<_> = lines.collect();
    assert!(began.is_some(), "{rest:?}");
    assert_eq!(running.wait().unwrap().code(), Some(130));
    assert_eq!(rest.last().map(String::as_str), Some("interrupted: the same command goes on where it was"));
    let target = home.path().join("target");
    let mut record = [1; 512];
    File::open(&target).unwrap().read_exact_at(&mut record, 0).unwrap();
    assert_eq!(record, [0; 512], "it starts something");
    let again = billetctl(home.path(), &words);
    let said = text(&again.stderr);
    // What is written in one go ends with the piece in which 64 MiB are reached.
    let kept = said.rsplit_once("written and read back, ").map(|(_, kept)| kept.trim_end());
    let kept = kept.and_then(|kept| kept.strip_suffix(" MB were there from an earlier attempt"));
    let kept: u64 = kept.and_then(|kept| kept.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert!(again.status.success() && (64..85).contains(&kept), "{said}");
    let file = File::open(&target).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (start.len() + zero_blocks * (128 << 10)) as u64);
    let mut found = vec![0; start.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == start);
    // The rest is a hole.
    let allocated = file.metadata().unwrap().blocks() * 512;
    assert!(allocated < (start.len() + 4 * MIB) as u64, "{allocated}");
}

/// What a host's program says; a program that is missing fails the test by name.
fn tool(home: &Path, name: &str, words: &[&str]) -> String {
    let mut command = Command::new(name);
    command
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .current_dir(home)
        .args(words);
    let output = command.output().unwrap_or_else(|e| panic!("this test needs the host tool {name}: {e}"));
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{name} {words:?}: {said}");
    said
}

fn built(home: &Path, words: &[&str]) -> String {
    let output = billetctl(home, &[&["image", "build", "--from", "parts"], words].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// What `image build` does not make of the parts, and why.
fn not_built(home: &Path, words: &[&str], wanted: &str) {
    let output =
        billetctl(home, &[&["image", "build", "--from", "parts", "--output", "none"], words].concat());
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains(wanted), "{words:?}: {wanted:?} is not in {said}");
    let made: Vec<_> = fs::read_dir(home.join("none")).into_iter().flatten().collect();
    assert!(made.is_empty(), "{words:?}: {made:?}");
}

#[test]
fn qemu_img_reads_the_disk_in_every_form() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    parts(home);
    built(home, &["--kind", "disk,qcow2,vhd,vmdk", "--output", "out"]);
    for (name, format) in [("qcow2", "qcow2"), ("vhd", "vpc"), ("vmdk", "vmdk")] {
        let file = format!("out/metal-amd64.{name}");
        // A fixed VHD has nothing but a footer, behind which nobody looks unasked; nor is there anything to check.
        let info = tool(home, "qemu-img", &["info", "--output=json", "-f", format, &file]);
        assert!(info.contains(&format!("\"format\": \"{format}\"")), "{info}");
        if format != "vpc" {
            let checked = tool(home, "qemu-img", &["check", "-f", format, &file]);
            assert!(checked.contains("No errors were found on the image."), "{checked}");
        }
        let words = ["compare", "-f", "raw", "-F", format, "out/metal-amd64.raw", &file];
        let same = tool(home, "qemu-img", &words);
        assert!(same.contains("Images are identical."), "{same}");
    }
    // Azure's: whole mebibytes and a footer.
    let length = |file: &str| fs::metadata(home.join(file)).unwrap().len();
    assert_eq!(length("out/metal-amd64.vhd"), length("out/metal-amd64.raw") + 512);
    assert_eq!(length("out/metal-amd64.raw") % (1 << 20), 0);
    built(home, &["--kind", "qcow2", "--output", "again"]);
    tool(home, "cmp", &["out/metal-amd64.qcow2", "again/metal-amd64.qcow2"]);
}

#[test]
fn kernel_initramfs_and_command_line_are_the_ukis() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    parts(home);
    let said =
        built(home, &["--kind", "kernel,initramfs,cmdline,uki", "--platform", "aws", "--output", "out"]);
    assert!(said.contains("nothing that is made has layers"), "{said}");
    let line = fs::read_to_string(home.join("out/cmdline-aws-amd64")).unwrap();
    assert_eq!(line, "panic=10 talos.platform=aws");
    for (section, part) in
        [(".linux", "kernel-amd64"), (".initrd", "initramfs-aws-amd64"), (".cmdline", "cmdline-aws-amd64")]
    {
        let dump = format!("{section}=section");
        tool(home, "objcopy", &["-O", "binary", "--dump-section", &dump, "out/aws-amd64-uki.efi", "rest"]);
        let section = fs::read(home.join("section")).unwrap();
        let part = fs::read(home.join("out").join(part)).unwrap();
        assert!(!part.is_empty() && section.starts_with(&part), "{dump}");
        assert!(section[part.len()..].iter().all(|byte| *byte == 0), "{dump}");
    }
}

/// One of each packing; that a packed disk is the disk, the tests of the installer's forms look at.
#[test]
fn a_platform_has_its_name_its_argument_and_its_packing() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    parts(home);
    for (platform, packed) in
        [("akamai", "raw.gz"), ("aws", "tar.gz"), ("hcloud", "raw.zst"), ("vmware", "vmdk")]
    {
        built(home, &["--platform", platform, "--output", "out"]);
        let file = home.join(format!("out/{platform}-amd64.{packed}"));
        assert!(fs::metadata(&file).unwrap().len() > 4096, "{}", file.display());
    }
    for (platform, unpack) in [
        ("azure", "tar -xzSf out/azure-amd64.vhd.tar.gz; qemu-img convert -f vpc disk.vhd disk.raw"),
        ("oracle", "qemu-img convert out/oracle-amd64.qcow2 disk.raw"),
        ("packet", "mv out/packet-amd64.raw disk.raw"),
    ] {
        built(home, &["--platform", platform, "--output", "out"]);
        tool(home, "bash", &["-ec", &format!("{unpack}; sgdisk --verify disk.raw")]);
        // The UKI that the disk starts names it.
        let word = format!("talos.platform={platform}");
        let told = tool(home, "bash", &["-ec", &format!("head -c 512M disk.raw | grep -c -a -F {word}")]);
        assert_ne!(told.trim(), "0", "{platform}");
        fs::remove_file(home.join("disk.raw")).unwrap();
    }
    // An image says itself where it runs.
    built(home, &["--kind", "installer", "--platform", "gcp", "--output", "."]);
    for output in ["one", "two"] {
        let words = ["image", "build", "--from", "installer-amd64.tar", "--output", output];
        let made = billetctl(home, &words);
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    tool(home, "cmp", &["one/gcp-amd64.tar.gz", "two/gcp-amd64.tar.gz"]);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    parts(home);
    let long = format!("billet.config.inline={}", "k".repeat(2000));
    for (words, wanted) in [
        (&["--sector-size", "4096", "--kind", "iso,disk"][..], "an ISO (iso) is for CD drives"),
        (&["--sector-size", "4096", "--kind", "disk,vhd"], "(vhd) have sectors of 512 bytes"),
        (&["--sector-size", "4096", "--platform", "azure"], "(vhd) have sectors of 512 bytes"),
        (&["--sector-size", "4096", "--kind", "vmdk"], "(vmdk) have sectors of 512 bytes"),
        (&["--sector-size", "4096", "--kind", "kernel"], "--sector-size is for disks"),
        (&["--billetctl", "parts", "--kind", "iso"], "--billetctl is for --kind docker"),
        (&["--platform", "container"], "a container is no machine"),
        (&["--kind", "ova"], "vmdk"),
        (&["--extra-kernel-arg", "talos.platform=aws"], "use --platform NAME"),
        (&["--platform", "aws", "--extra-kernel-arg", "-talos.platform"], "use --platform NAME"),
        (
            &["--kind", "cmdline", "--extra-kernel-arg", &long],
            "the longest is billet.config.inline with 2021 bytes",
        ),
    ] {
        not_built(home, words, wanted);
    }
}

/// SHA-256 of the TPM key in crates/tpm/testdata.
const DIGEST: &str = "2fc70451b880dd8406fceee29f4a2e5d737344915ab4a25feee46e941321f5f8";

/// `device.pub` as `tpm2_createek -G ecc -u` writes it, and the beginning of an RSA key as `rsa.pub`.
fn device_keys(home: &Path) {
    let vectors = include_str!("../../crates/tpm/testdata/duplicate.txt");
    let hex = vectors.lines().find_map(|line| line.strip_prefix("device ")).unwrap();
    let area: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let sized = [&u16::try_from(area.len()).unwrap().to_be_bytes()[..], &area].concat();
    fs::write(home.join("device.pub"), sized).unwrap();
    fs::write(home.join("rsa.pub"), [&[0, 1], &area[2..]].concat()).unwrap();
}

/// Whoever adds at the same time is refused or waits for nobody: what was said to be added is there.
#[test]
fn configs_that_are_added_at_once_are_not_lost() {
    let home = tempfile::tempdir().unwrap();
    let ok = |words: &[&str]| done(home.path(), words);
    parts(home.path());
    ok(&["gen", "config-key", "--name", "devices"]);
    ok(&["gen", "config", "demo", "https://10.0.0.1:6443", "-t", "worker", "-o", "worker.yaml"]);
    ok(&["image", "build", "--from", "parts", "--kind", "disk", "--config-key", "devices.pub"]);
    let serials: Vec<String> = (1..=8).map(|number| format!("A-{number}")).collect();
    let words = |serial| {
        let key = ["--signing-key", "devices.key", "--serial", serial];
        [&["image", "add-config", "metal-amd64.raw", "worker.yaml"][..], &key].concat()
    };
    let added: Vec<&String> = std::thread::scope(|scope| {
        let all: Vec<_> = serials
            .iter()
            .map(|serial| (serial, scope.spawn(|| billetctl(home.path(), &words(serial)))))
            .collect();
        let ended = all.into_iter().filter_map(|(serial, adding)| {
            let output = adding.join().unwrap();
            let said = text(&output.stderr);
            assert!(output.status.success() || said.contains("try again when that has ended"), "{said}");
            output.status.success().then_some(serial)
        });
        ended.collect()
    });
    assert!(!added.is_empty());
    let listed = ok(&["image", "list-config", "metal-amd64.raw"]);
    for serial in &serials {
        assert_eq!(
            listed.contains(&format!("serial {serial} ")),
            added.contains(&serial),
            "{serial}: {listed}"
        );
    }
}

#[test]
fn one_image_has_a_config_for_each_machine() {
    let home = tempfile::tempdir().unwrap();
    let ok = |words: &[&str]| done(home.path(), words);
    let refused = |words: &[&str], wanted: &str| {
        let output = billetctl(home.path(), words);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(wanted), "{words:?}: {wanted:?} is not in {said}");
    };
    // Warnings of the config come first.
    let said = |words: &[&str]| text(&billetctl(home.path(), words).stderr);
    parts(home.path());
    device_keys(home.path());
    let made = ok(&["gen", "config-key", "--name", "devices"]);
    let key = made.trim_end().strip_prefix("created devices.key (keep it) and devices.pub: key ").unwrap();
    ok(&["gen", "config-key", "--name", "others"]);
    refused(&["gen", "config-key", "--name", "devices"], "already exists");
    ok(&["gen", "config", "demo", "https://10.0.0.1:6443", "-t", "worker", "-o", "worker.yaml"]);
    ok(&["image", "build", "--from", "parts", "--kind", "iso", "--output", "plain"]);
    refused(
        &[
            "image",
            "add-config",
            "plain/metal-amd64.iso",
            "worker.yaml",
            "--signing-key",
            "devices.key",
            "--serial",
            "A-1",
        ],
        "made without a key for configs",
    );
    ok(&["image", "build", "--from", "parts", "--kind", "iso,disk", "--config-key", "devices.pub"]);
    for image in ["metal-amd64.iso", "metal-amd64.raw"] {
        let add = |more: &[&'static str]| {
            [&["image", "add-config", image, "worker.yaml", "--signing-key", "devices.key"][..], more]
                .concat()
        };
        let before = fs::metadata(home.path().join(image)).unwrap().len();
        ok(&add(&["--mac", "52:54:00:00:00:01,52:54:00:00:00:02"]));
        ok(&add(&["--serial", "A-17", "--uuid", "4c4c4544-0039-3510-8059-b7c04f333231"]));
        let uuid = "UUID 4c4c4544-0039-3510-8059-b7c04f333231";
        let taken = format!(
            "error: {image}: serial A-17 has a config already, entry 2 (serial A-17, {uuid}): `--replace` puts the new \
             config in its place; nothing was changed\n"
        );
        assert!(said(&add(&["--serial", "A-17"])).ends_with(&taken));
        let replaced = format!(
            "{image}: worker.yaml for serial A-17; 2 configs in all\nreplaced entry 2 (serial A-17, {uuid}); no config is \
             left for {uuid}: to keep them, add the config again with these too\n"
        );
        assert!(said(&add(&["--serial", "A-17", "--replace"])).ends_with(&replaced));
        let listed = ok(&["image", "list-config", image, "--config-key", "devices.pub"]);
        assert!(listed.contains("MAC 52:54:00:00:00:01, MAC 52:54:00:00:00:02"), "{listed}");
        assert!(listed.contains("serial A-17") && !listed.contains("UUID"), "{listed}");
        assert_eq!(
            fs::metadata(home.path().join(image)).unwrap().len(),
            before,
            "the image is as long as it was"
        );
        refused(
            &["image", "list-config", image, "--config-key", "others.pub"],
            &format!("this image takes configs of key {key}, and the public key is key"),
        );
        refused(&add(&[]), "name the machine");
        refused(&add(&["--mac", "525400000001"]), "--mac: \"525400000001\" is no MAC address");
        refused(&add(&["--serial", "Default string"]), "many machines have the same");
        refused(&add(&["--uuid", "03000200-0400-0500-0006-000700080009"]), "many machines have the same");
        refused(&add(&["--tpm-key", "ab"]), "neither 64 hex digits nor a file");
        refused(&add(&["--tpm-key", "worker.yaml"]), "worker.yaml: it is no endorsement key of a TPM");
        refused(&add(&["--tpm-key", "rsa.pub"]), "rsa.pub: it is an RSA key");
        refused(&add(&["--serial", "B", "--seal"]), "--seal needs the key of the machine's TPM");
        refused(&add(&["--tpm-key", DIGEST, "--seal"]), "--seal needs the key itself");
        refused(&add(&["--tpm-key", "device.pub", "--tpm-key", DIGEST, "--seal"]), "takes one --tpm-key");
        ok(&add(&["--tpm-key", DIGEST]));
        refused(&add(&["--tpm-key", "device.pub", "--seal"]), "has a config already, entry 3");
        ok(&add(&["--tpm-key", "device.pub", "--seal", "--replace"]));
        let nothing = "nothing was replaced: no config was for this machine";
        assert!(said(&add(&["--serial", "C", "--replace"])).contains(nothing));
        let listed = ok(&["image", "list-config", image]);
        assert!(listed.contains("SEALED FOR") && listed.contains(&format!("TPM key {DIGEST}")), "{listed}");
        assert_eq!(listed.matches("TPM key").count(), 2, "{listed}");
        let other =
            ["image", "add-config", image, "worker.yaml", "--signing-key", "others.key", "--serial", "B"];
        refused(&other, &format!("this image takes configs of key {key}, and the signing key is key"));
        let public =
            ["image", "add-config", image, "worker.yaml", "--signing-key", "devices.pub", "--serial", "B"];
        refused(&public, "no PEM block PRIVATE KEY");
    }
    fs::write(home.path().join("bad.yaml"), "version: v1alpha1\nmachin: {}\n").unwrap();
    let bad = [
        "image",
        "add-config",
        "metal-amd64.raw",
        "bad.yaml",
        "--signing-key",
        "devices.key",
        "--serial",
        "B",
    ];
    refused(&bad, "bad.yaml is not valid");
    fs::write(home.path().join("disk.zst"), [0x28, 0xb5, 0x2f, 0xfd, 0]).unwrap();
    let packed =
        ["image", "add-config", "disk.zst", "worker.yaml", "--signing-key", "devices.key", "--serial", "B"];
    refused(&packed, "unpack it first (unzstd)");
    fs::write(home.path().join("disk.zst"), [0x1f, 0x8b, 8, 0, 0]).unwrap();
    refused(&packed, "unpack it first (gunzip");
}

/// As a node does it: whoever makes machines of images installs nothing.
#[test]
fn a_config_is_checked_for_the_platform_of_the_image() {
    let home = tempfile::tempdir().unwrap();
    let ok = |words: &[&str]| done(home.path(), words);
    let refused = |words: &[&str]| {
        let output = billetctl(home.path(), words);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("install instructions are required"), "{said}");
    };
    parts(home.path());
    ok(&["gen", "config-key", "--name", "devices"]);
    ok(&["gen", "config", "demo", "https://10.0.0.1:6443", "-t", "worker", "-o", "whole.yaml"]);
    let whole = fs::read_to_string(home.path().join("whole.yaml")).unwrap();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let install = whole.lines().find(|line| line.trim() == "install:").map(indent).unwrap();
    let mut inside = false;
    let mut is_kept = |line: &&str| {
        inside = line.trim() == "install:" || inside && indent(line) > install;
        !inside
    };
    let without: Vec<&str> = whole.lines().filter(&mut is_kept).collect();
    assert!(without.len() < whole.lines().count(), "{whole}");
    fs::write(home.path().join("cloud.yaml"), without.join("\n")).unwrap();
    let build = ["image", "build", "--from", "parts", "--config-key", "devices.pub", "--kind", "disk,iso"];
    let with = |more: &[&'static str]| [&build[..], more].concat();
    refused(&with(&["--embedded-config-path", "cloud.yaml"]));
    ok(&with(&["--embedded-config-path", "cloud.yaml", "--platform", "aws"]));
    for ending in ["raw", "iso"] {
        let add = |platform: &str| {
            let image = format!("{platform}-amd64.{ending}");
            ["image", "add-config", &image, "cloud.yaml", "--signing-key", "devices.key", "--serial", "A"]
                .map(str::to_owned)
        };
        ok(&with(&[]));
        refused(&add("metal").each_ref().map(String::as_str));
        ok(&add("aws").each_ref().map(String::as_str));
    }
}

/// docs/users/secure-boot.md as a person does it: what is signed, what is refused, what is said.
#[test]
fn signing_covers_what_firmware_starts_and_ends_with_a_change() {
    let home = tempfile::tempdir().unwrap();
    let run = |program: &str, words: &str| {
        let ran = Command::new(program).current_dir(home.path()).args(words.split(' ')).output();
        let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}"));
        (ran.status.success(), text(&[ran.stdout, ran.stderr].concat()))
    };
    let said = |words: &str| {
        let output = billetctl(home.path(), &words.split(' ').collect::<Vec<_>>());
        (output.status.success(), text(&output.stderr))
    };
    let ok = |words: &str| {
        let (done, said) = said(words);
        assert!(done, "{words}: {said}");
        said
    };
    let refused = |words: &str, wanted: &str| {
        let (done, said) = said(words);
        assert!(!done && said.contains(wanted), "{words}: {wanted:?} is not in {said}");
    };
    let verified = |file: &str| run("sbverify", &format!("--cert certificate.pem {file}")).0;
    parts(home.path());
    let words =
        "req -new -x509 -newkey rsa:2048 -nodes -subj /CN=owner -days 1 -keyout key.pem -out certificate.pem";
    assert!(run("openssl", words).0);
    let key = "--sign-key key.pem --sign-certificate certificate.pem";
    ok(&format!("gen secureboot database {key} --output keys"));

    // kernel and initramfs of a directory for iPXE are files that nobody can sign.
    let build = "image build --from parts --kind";
    refused(&format!("{build} pxe {key}"), "which no signature of yours covers");
    refused(&format!("{build} disk,pxe {key}"), "for such machines --kind iso or disk; a UKI (--kind uki), ");
    refused(&format!("{build} uki,pxe {key}"), "finds its layers on a disk or medium only");
    assert!(!home.path().join("metal-amd64-pxe").exists() && !home.path().join("metal-amd64.raw").exists());
    refused(&format!("{build} uki {key} --enrol-keys keys"), "--enrol-keys is for disks and ISOs");
    refused(&format!("{build} uki --sign-key key.pem"), "--sign-certificate");

    // What is made of a signed image is signed, until something is changed; that is said, with what to do.
    let lost = "is not of what is in the image now and is left out";
    ok(&format!("{build} installer {key}"));
    let from = "image build --from installer-amd64.tar --kind uki";
    assert!(!ok(from).contains(lost) && verified("metal-amd64-uki.efi"));
    refused(&from.replace("uki", "disk,pxe"), "installer-amd64.tar is signed: a directory for iPXE (pxe)");
    let told = ok(&format!("{from} --extra-kernel-arg quiet"));
    assert!(told.contains(&format!("the signed UKI of installer-amd64.tar {lost}")), "{told}");
    assert!(told.contains("until it is signed with --sign-key and --sign-certificate"), "{told}");
    assert!(!verified("metal-amd64-uki.efi"));
    assert!(!ok(&format!("{from} --extra-kernel-arg quiet {key}")).contains(lost));
    assert!(verified("metal-amd64-uki.efi"));
    fs::create_dir(home.path().join("more")).unwrap();
    fs::write(home.path().join("more/file"), "more").unwrap();
    let told = ok("image add-layer installer-amd64.tar --add more --output layered.tar");
    assert!(told.contains(lost), "{told}");

    // Arguments beside a signed UKI.
    let addon = "gen secureboot addon --extra-kernel-arg quiet --extra-kernel-arg panic=0";
    ok(&format!("{addon} {key} site.addon.efi"));
    assert!(verified("site.addon.efi"));
    refused(&format!("{addon} {key} site.addon.efi"), "already exists");
    refused(&format!("{addon} {key} site.efi"), "ends with .addon.efi");
    refused(
        &format!("gen secureboot addon --extra-kernel-arg=-panic {key} b.addon.efi"),
        "takes none of the image",
    );
    refused(&format!("{build} uki --addon site.addon.efi"), "--addon is for disks and ISOs");
    let iso = "image build --from installer-amd64.tar --kind iso --addon";
    ok(&format!("{iso} site.addon.efi"));
    let (stripped, told) = run("sbattach", "--remove site.addon.efi");
    assert!(stripped, "{told}");
    refused(&format!("{iso} site.addon.efi"), "billetctl gen secureboot sign site.addon.efi");
    refused(&format!("{iso} site.addon.efi,./site.addon.efi"), "two files are called site.addon.efi");
    refused(&format!("{iso} metal-amd64-uki.efi"), "ends with .addon.efi");
    ok(&format!("gen secureboot sign {key} site.addon.efi"));
    ok(&format!("{iso} site.addon.efi"));
    ok(&format!("gen secureboot addon --arch arm64 --extra-kernel-arg quiet {key} arm.addon.efi"));
    refused(&format!("{iso} arm.addon.efi"), "other processors");
}
