//! Every form of image, from an installer image, as other programs see it; the same bytes on every build.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{noise, text, tool};
use installer::addon;
use installer::custom::{self, Profile};
use installer::image::{Kind, Source, container};
use installer::layer::{self, Spec};
use installer::secure_boot::{Enrol, Enrolment, Signer, Time};
use installer::system::{BootParts, System};
use ondisk::Architecture;
use ondisk::pe::Image;

/// A PE image by the GNU linker; its recipe is beside it.
const STUB: &[u8] = include_bytes!("../../crates/ondisk/testdata/stub.efi");

fn source(directory: &Path) -> Source {
    common::write_host_files(directory);
    let tree = common::tree(directory);
    let spec = Spec { kernel_release: Some("6.12.1"), ..Spec::new("base", "1.0") };
    let base = layer::build(&tree, &spec, directory, &mut installer::silent).unwrap();
    let manifest = layer::stack("0.1.0", [base]).unwrap();
    let boot = BootParts {
        kernel: [common::bzimage("6.12.1"), noise(50_000)].concat(),
        stub: STUB.to_vec(),
        loader: STUB.to_vec(),
        modules: noise(4_000),
        network: noise(3_000),
        firmware: noise(1_000),
        init: noise(2_000),
        command_line: "console=ttyS0 panic=10".into(),
        boot_entry: "ID=billet\n".into(),
        loader_config: "timeout 0\n".into(),
        config_key: None,
        authorities: Vec::new(),
        signed_uki: Vec::new(),
    };
    Source::new(System { manifest, boot }, directory.to_owned())
}

fn build(source: &Source, kind: Kind, directory: &Path) -> std::path::PathBuf {
    let path = directory.join(kind.file_name(source));
    kind.build(source, 512, &path, &mut installer::silent).unwrap();
    path
}

#[test]
fn every_form_from_a_directory_or_an_installer_image_is_the_same_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let directory = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let original = source(dir.path());
    let first = directory("first");
    let parts = directory("parts");
    original.save(&parts).unwrap();
    let (oci, docker) =
        (build(&original, Kind::Installer, &first), build(&original, Kind::DockerInstaller, &first));
    let sources = [
        Source::open(&oci, &directory("from-oci")).unwrap(),
        Source::open(&docker, &directory("from-docker")).unwrap(),
        Source::open(&parts, &directory("from-parts")).unwrap(),
    ];
    for kind in Kind::ALL {
        let wanted = build(&original, kind, &first);
        for (number, source) in sources.iter().enumerate() {
            assert_eq!(source.system, original.system);
            // Disks are 2.6 GB of nearly nothing: of the packed ones two each are compared.
            let is_packed = matches!(kind, Kind::PackedDisk | Kind::GzipDisk | Kind::TarDisk);
            if is_packed && number > 0 {
                continue;
            }
            let again = dir.path().join(format!("again-{number}"));
            fs::create_dir_all(&again).unwrap();
            let made = build(source, kind, &again);
            if kind == Kind::Disk {
                assert!(same_data(&wanted, &made), "{kind:?} from source {number}");
                continue;
            }
            let same = Command::new("diff").arg("-r").arg(&wanted).arg(made).output();
            assert!(same.unwrap().status.success(), "{kind:?} from source {number}");
        }
    }
}

/// Whether two files have the same length, and the same bytes wherever one of them has any.
fn same_data(a: &Path, b: &Path) -> bool {
    use rustix::fs::SeekFrom;
    use std::os::unix::fs::FileExt as _;
    let [a, b] = [a, b].map(|path| fs::File::open(path).unwrap());
    let length = a.metadata().unwrap().len();
    assert_eq!(length, b.metadata().unwrap().len());
    let (mut one, mut other) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut compared = 0;
    for file in [&a, &b] {
        let mut at = 0;
        while let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at)) {
            let end = rustix::fs::seek(file, SeekFrom::Hole(data)).unwrap();
            at = data;
            while at < end {
                let count = usize::try_from(end - at).unwrap().min(one.len());
                a.read_exact_at(&mut one[..count], at).unwrap();
                b.read_exact_at(&mut other[..count], at).unwrap();
                if one[..count] != other[..count] {
                    return false;
                }
                at += count as u64;
                compared += count;
            }
        }
    }
    assert!(compared > 1 << 20, "{compared} bytes were compared");
    true
}

#[test]
fn a_packed_disk_is_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let sector_bytes = 4096;
    let raw = dir.path().join("raw");
    Kind::Disk.build(&source, sector_bytes, &raw, &mut installer::silent).unwrap();
    for (kind, unpack) in
        [(Kind::PackedDisk, "zstd -q -dc"), (Kind::GzipDisk, "gzip -dc"), (Kind::TarDisk, "tar -xzOf")]
    {
        let packed = dir.path().join("packed");
        kind.build(&source, sector_bytes, &packed, &mut installer::silent).unwrap();
        // What the checksum says counts too.
        let compared = format!("{unpack} {} | cmp - {}", text(&packed), text(&raw));
        tool("bash", &["-o", "pipefail", "-ec", &compared]);
        assert!(fs::metadata(&packed).unwrap().len() < 16 << 20, "{kind:?}");
    }
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
}

#[test]
fn xorriso_and_sgdisk_read_the_iso() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let iso = build(&source, Kind::Iso, dir.path());
    let out = dir.path().join("out");
    let read = ["-osirrox", "on", "-indev", text(&iso), "-report_el_torito", "plain", "-pvd_info"];
    let told = tool("xorriso", &[&read[..], &["-extract", "/", text(&out)]].concat());
    assert!(told.contains("UEFI") && told.contains("BILLET"), "{told}");
    for layer in &source.system.manifest.layers {
        let copied = fs::read(out.join("billet/layers").join(layer.file_name())).unwrap();
        assert!(copied == fs::read(source.layers.join(layer.file_name())).unwrap());
    }
    let told = tool("sgdisk", &["--verify", text(&iso)]);
    assert!(told.contains("No problems found"), "{told}");
    let told = tool("sgdisk", &["--print", text(&iso)]);
    let first = told.lines().find(|line| line.trim_end().ends_with("EFI")).unwrap();
    let sector: u64 = first.split_whitespace().nth(1).unwrap().parse().unwrap();
    // What firmware finds at both tables' place is a FAT with our UKI on it.
    let image = format!("{}@@{}", iso.display(), sector * 512);
    let told = tool("mdir", &["-i", &image, "::EFI/BOOT"]);
    assert!(told.contains("BOOTX64"), "{told}");
}

/// The stub says which machines an image is for; nobody has to.
#[test]
fn an_image_for_other_processors_has_their_names_and_is_read_here() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = source(dir.path());
    source.system.boot.stub = common::for_arm64(STUB);
    source.system.boot.kernel = common::arm64_image("6.12.1");
    let iso = build(&source, Kind::Iso, dir.path());
    assert!(iso.ends_with("metal-arm64.iso"), "{}", iso.display());
    let told = tool("sgdisk", &["--print", text(&iso)]);
    let line = told.lines().find(|line| line.trim_end().ends_with("EFI")).unwrap();
    let sector: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let told = tool("mdir", &["-i", &format!("{}@@{}", iso.display(), sector * 512), "::EFI/BOOT"]);
    assert!(told.contains("BOOTAA64") && !told.contains("BOOTX64"), "{told}");
    for kind in [Kind::Installer, Kind::DockerInstaller] {
        let image = build(&source, kind, dir.path());
        let work = dir.path().join(format!("{kind:?}"));
        fs::create_dir(&work).unwrap();
        let read = Source::open(&image, &work).unwrap();
        assert_eq!(read.system.boot.architecture(), Architecture::Arm64);
    }
    let told = tool(
        "skopeo",
        &["inspect", &format!("oci-archive:{}", dir.path().join("installer-arm64.tar").display())],
    );
    assert!(told.contains("\"arm64\""), "{told}");
}

#[test]
fn a_missing_part_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let parts = dir.path().join("parts");
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    source.save(&parts).unwrap();
    let layer = format!("layers/{}", source.system.manifest.layers[0].file_name());
    for part in ["boot/stub.efi", "boot/cmdline", &layer, "root.json"] {
        let content = fs::read(parts.join(part)).unwrap();
        fs::remove_file(parts.join(part)).unwrap();
        let error = Source::open(&parts, &work).unwrap_err().to_string();
        assert!(error.contains(&format!("has no {part}")), "{error}");
        fs::write(parts.join(part), content).unwrap();
    }
    // A layer of the right length with other bytes.
    let mut content = fs::read(parts.join(&layer)).unwrap();
    content[100] ^= 1;
    fs::write(parts.join(&layer), content).unwrap();
    let error = Source::open(&parts, &work).unwrap_err().to_string();
    assert!(error.contains("root hash"), "{error}");
}

/// The key of the owner, as the page has it made.
fn signer(directory: &Path) -> Signer {
    let (key, certificate) = (directory.join("key.pem"), directory.join("certificate.pem"));
    let words = ["req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=owner", "-days", "1"];
    tool("openssl", &[&words[..], &["-keyout", text(&key), "-out", text(&certificate)]].concat());
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    Signer::from_pem(&read(&key), &read(&certificate)).unwrap()
}

#[test]
fn sbverify_accepts_what_was_signed_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = source(dir.path());
    let signer = signer(dir.path());
    source.sign(&signer, None).unwrap();
    let certificate = dir.path().join("certificate.pem");
    let verify = |path: &Path| {
        let told = tool("sbverify", &["--cert", text(&certificate), text(path)]);
        assert!(told.contains("Signature verification OK"), "{told}");
    };
    let uki = build(&source, Kind::Uki, dir.path());
    verify(&uki);
    let iso = build(&source, Kind::Iso, dir.path());
    let disk = build(&source, Kind::Disk, dir.path());
    for (name, image, path) in [
        ("iso.efi", &iso, installer::image::UKI_PATH),
        ("loader.efi", &iso, "EFI/BOOT/BOOTX64.EFI"),
        ("disk.efi", &disk, installer::image::UKI_PATH),
        ("loader.efi", &disk, "EFI/BOOT/BOOTX64.EFI"),
    ] {
        let told = tool("sgdisk", &["--print", text(image)]);
        let line = told.lines().find(|line| line.trim_end().ends_with("EFI")).unwrap();
        let sector: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        let out = dir.path().join(name);
        tool(
            "mcopy",
            &["-i", &format!("{}@@{}", text(image), sector * 512), &format!("::{path}"), text(&out)],
        );
        verify(&out);
        assert!(name == "loader.efi" || fs::read(&out).unwrap() == fs::read(&uki).unwrap(), "{name}");
    }
}

/// Signed once, an installer image gives signed forms; what is changed then has to be signed again.
#[test]
fn an_installer_image_keeps_its_signature_until_it_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let directory = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let mut original = source(dir.path());
    original.sign(&signer(dir.path()), None).unwrap();
    let uki = original.uki().unwrap();
    let first = directory("first");
    for kind in [Kind::Installer, Kind::DockerInstaller] {
        let image = build(&original, kind, &first);
        let work = directory(&format!("{kind:?}"));
        let read = Source::open(&image, &work).unwrap();
        assert!(read.is_signed() && !read.lost_signature);
        assert_eq!(read.system, original.system);
        assert!(fs::read(build(&read, Kind::Uki, &work)).unwrap() == uki);
        let profile = Profile { kernel_arguments: vec!["quiet".into()], ..Profile::default() };
        let changed = custom::customise(&read, &profile, &work, &mut installer::silent).unwrap();
        assert!(!changed.is_signed() && changed.lost_signature);
        assert!(Image::parse(&changed.uki().unwrap()).unwrap().signatures().unwrap().is_empty());
        let nothing = custom::customise(&read, &Profile::default(), &work, &mut installer::silent).unwrap();
        assert!(nothing.is_signed() && nothing.uki().unwrap() == uki);
    }
    // Parts that somebody changed by hand.
    let parts = directory("parts");
    original.save(&parts).unwrap();
    assert!(Source::open(&parts, &first).unwrap().is_signed());
    fs::write(parts.join("boot/cmdline"), "console=ttyS0 quiet").unwrap();
    let read = Source::open(&parts, &first).unwrap();
    assert!(!read.is_signed() && read.lost_signature);
}

/// What a Dockerfile copies makes another system: its image has no signed UKI any more.
#[test]
fn what_is_taken_in_ends_the_signature() {
    let dir = tempfile::tempdir().unwrap();
    let mut original = source(dir.path());
    original.sign(&signer(dir.path()), None).unwrap();
    let root = dir.path().join("root");
    original.save(&root.join("billet")).unwrap();
    let signed = root.join("billet/boot/uki.efi");
    let take_in = || container::take_in(&root, Vec::new(), &mut installer::silent).unwrap();
    assert!(!take_in().lost_signature && signed.exists());
    fs::create_dir_all(root.join("rootfs/opt")).unwrap();
    fs::write(root.join("rootfs/opt/file"), "new").unwrap();
    let taken = take_in();
    assert!(taken.lost_signature && taken.layers.len() == 1);
    assert!(!signed.exists());
}

/// The files of a volume in a disk or ISO, by mtools.
fn copied(image: &Path, path: &str, to: &Path) -> Vec<u8> {
    let told = tool("sgdisk", &["--print", text(image)]);
    let line = told.lines().find(|line| line.trim_end().ends_with("EFI")).unwrap();
    let sector: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let volume = format!("{}@@{}", text(image), sector * 512);
    tool("mcopy", &["-n", "-i", &volume, &format!("::{path}"), text(to)]);
    fs::read(to).unwrap()
}

#[test]
fn disk_and_iso_bring_what_enrols_their_key() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = source(dir.path());
    let signer = signer(dir.path());
    source.sign(&signer, None).unwrap();
    let time = Time { year: 2026, month: 11, day: 21, hour: 1, minute: 2, second: 3 };
    let made = Enrolment::new(&signer, [9; 16], time).unwrap();
    source.enrolment = Some((made.clone(), Enrol::Force));
    let out = dir.path().join("out");
    for kind in [Kind::Disk, Kind::Iso] {
        let image = build(&source, kind, dir.path());
        for (path, content) in made.files() {
            assert!(copied(&image, path, &out) == content, "{kind:?} {path}");
        }
        let settings = copied(&image, "loader/loader.conf", &out);
        assert_eq!(settings, b"timeout 0\nsecure-boot-enroll force\n");
    }
    // A node writes the image's own settings to its disk.
    assert_eq!(source.system.boot.loader_config, "timeout 0\n");
}

/// Where a running system finds the command line that it was made with.
const CMDLINE_PATH: &str = "usr/lib/billet/boot/cmdline";

/// Debian's kernel does it by itself under Secure Boot, others do what they are told.
#[test]
fn a_signed_image_locks_its_kernel_down() {
    let dir = tempfile::tempdir().unwrap();
    let line = |source: &Source| {
        let uki = source.uki().unwrap();
        String::from_utf8(Image::parse(&uki).unwrap().section(".cmdline").unwrap().to_vec()).unwrap()
    };
    let plain = source(dir.path());
    assert_eq!(line(&plain), "console=ttyS0 panic=10");
    let signer = signer(dir.path());
    for (before, after) in [
        ("panic=10", "panic=10 lockdown=integrity"),
        ("lockdown=none panic=10", "lockdown=none panic=10 lockdown=integrity"),
        ("lockdown=confidentiality panic=10", "lockdown=confidentiality panic=10"),
    ] {
        let mut source = plain.clone();
        source.system.boot.command_line = before.to_owned();
        let mut without_layers = source.clone();
        without_layers.sign(&signer, None).unwrap();
        assert_eq!(line(&without_layers), after);
        assert_eq!(without_layers.system.manifest, plain.system.manifest);
        source.sign(&signer, Some(dir.path())).unwrap();
        assert_eq!(line(&source), after);
        assert!(source.is_signed());
        // A medium that installs itself makes the UKI anew, of what lies in its layers.
        match source.system.manifest.layers.iter().find(|layer| layer.name == "custom") {
            Some(layer) => {
                let file = source.layers.join(layer.file_name());
                assert_eq!(common::tool("unsquashfs", &["-cat", common::text(&file), CMDLINE_PATH]), after);
            }
            None => assert_eq!(before, after, "the line was changed without a layer that says so"),
        }
    }
}

/// They are signed with the rest, lie where the stub looks, and are part of no installer image.
#[test]
fn disk_and_iso_bring_signed_addons() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = source(dir.path());
    let signer = signer(dir.path());
    let plain = addon::assemble(Architecture::Amd64, &["quiet".to_owned(), "panic=0".to_owned()]).unwrap();
    source.addons = vec![("site.addon.efi".to_owned(), plain.clone())];
    let out = dir.path().join("out.efi");
    // Without a loader too: the stub that firmware starts looks for them.
    assert!(copied(&build(&source, Kind::Iso, dir.path()), "loader/addons/site.addon.efi", &out) == plain);
    assert_eq!(source.unsigned_addon().unwrap(), None, "nothing is signed here");
    // As a machine reads them that was started from there.
    let read = |source: &Source| {
        let iso = fs::read(build(source, Kind::Iso, dir.path())).unwrap();
        let bytes = iso.len() as u64;
        addon::of_disk(&mut iso.as_slice(), bytes).unwrap()
    };
    assert_eq!(read(&source), source.addons);
    assert!(read(&Source { addons: Vec::new(), ..source.clone() }).is_empty());
    source.sign(&signer, None).unwrap();
    assert_eq!(source.unsigned_addon().unwrap(), None);
    for kind in [Kind::Disk, Kind::Iso] {
        let image = build(&source, kind, dir.path());
        let found = copied(&image, "loader/addons/site.addon.efi", &out);
        assert_eq!(Image::parse(&found).unwrap().section(".cmdline"), Some(&b"quiet panic=0"[..]));
        let told = tool("sbverify", &["--cert", text(&dir.path().join("certificate.pem")), text(&out)]);
        assert!(told.contains("Signature verification OK"), "{told}");
    }
    source.addons[0].1 = plain;
    assert_eq!(source.unsigned_addon().unwrap(), Some("site.addon.efi"));
    source.addons[0].0 = "site.efi".to_owned();
    let error = Kind::Disk.build(&source, 512, &dir.path().join("disk"), &mut installer::silent).unwrap_err();
    assert!(error.to_string().contains("ends with .addon.efi"), "{error}");
}

/// Debian's docker-registry over a directory; gone with the value.
struct Registry {
    child: std::process::Child,
    address: std::net::SocketAddr,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    fn start(directory: &Path) -> Self {
        // Freed for the registry at once: it takes no socket from us.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let settings = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage:\n  filesystem: {{ rootdirectory: {}/storage }}\nhttp:\n  \
             addr: {address}\n",
            directory.display()
        );
        let file = directory.join("registry.yaml");
        fs::write(&file, settings).unwrap();
        let mut command = Command::new("docker-registry");
        command
            .arg("serve")
            .arg(file)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let child = command.spawn().expect("docker-registry is a package that `cargo xtask test` installs");
        let mut registry = Self { child, address };
        let begin = std::time::Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(begin.elapsed().as_secs() < 30, "the registry does not listen within 30 s");
            assert_eq!(registry.child.try_wait().unwrap(), None, "the registry ended");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        registry
    }
}

/// skopeo compares every digest when it copies.
#[test]
fn skopeo_copies_both_installer_images_and_a_registry_hands_them_out() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let registry = Registry::start(dir.path());
    let policy = dir.path().join("policy.json");
    fs::write(&policy, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
    let skopeo = |words: &[&str]| tool("skopeo", &[&["--policy", text(&policy)], words].concat());
    for (number, (kind, form)) in
        [(Kind::Installer, "oci-archive"), (Kind::DockerInstaller, "docker-archive")].into_iter().enumerate()
    {
        let path = build(&source, kind, dir.path());
        let from = format!("{form}:{}", path.display());
        let told = skopeo(&["inspect", &from]);
        assert!(told.contains("io.billet.installer.format") && told.contains("amd64"), "{told}");
        let copy = dir.path().join(format!("copy-{number}"));
        skopeo(&["copy", "--quiet", &from, &format!("dir:{}", copy.display())]);
        assert!(fs::read_dir(&copy).unwrap().count() >= 4, "{}", copy.display());
        let name = format!("{}/billet/installer:{number}", registry.address);
        skopeo(&["copy", "--quiet", "--dest-tls-verify=false", &from, &format!("docker://{name}")]);
        // Back by skopeo, whole: what a user's build starts from.
        let back = dir.path().join(format!("back-{number}.tar"));
        let to = format!("oci-archive:{}:1", back.display());
        skopeo(&["copy", "--quiet", "--src-tls-verify=false", &format!("docker://{name}"), &to]);
        let work = dir.path().join(format!("work-{number}"));
        fs::create_dir(&work).unwrap();
        assert_eq!(Source::open(&back, &work).unwrap().system, source.system, "{form}");
        // And by our own client, as a node does it.
        assert_eq!(fetched(&registry, number), source.system.manifest.to_json().into_bytes(), "{form}");
    }
}

/// Of every blob one byte: nothing is made of an image in which one is another, and no layer of it stays.
#[test]
fn an_image_with_a_changed_blob_is_refused_and_leaves_no_layer() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let image = build(&source, Kind::Installer, dir.path());
    let whole = fs::read(&image).unwrap();
    let archive = oci::archive::Archive::open(&image).unwrap();
    let (manifest, _) = archive.image(Architecture::Amd64.name()).unwrap();
    for layer in &manifest.layers {
        let mut bytes = whole.clone();
        let name = format!("blobs/sha256/{}", layer.digest);
        let header = bytes.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
        // Behind the blob's header and that of the file in it.
        bytes[header + 2 * 512] ^= 1;
        fs::write(&image, bytes).unwrap();
        let work = dir.path().join("work");
        fs::create_dir(&work).unwrap();
        let error = Source::open(&image, &work).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(cause.contains(&layer.digest.to_string()), "{name}: {error}: {cause}");
        assert_eq!(names(&work), Vec::<String>::new(), "{name}");
        fs::remove_dir(&work).unwrap();
    }
}

/// Names of what is in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_for_ipxe_is_made_anew_and_keeps_what_somebody_put_there() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let output = dir.path().join("output");
    fs::create_dir(&output).unwrap();
    let directory = build(&source, Kind::Pxe, &output);
    let made = names(&directory);
    assert_eq!(made, ["boot.ipxe", "cmdline", "initramfs", "layers", "stub.efi", "vmlinuz"]);
    let layers = names(&directory.join("layers"));
    assert_eq!(layers, [source.system.manifest.layers[0].file_name()]);
    let stub = fs::read(directory.join("stub.efi")).unwrap();
    for name in ["layers/00ff.layer", "ipxe.efi", "undionly.kpxe", "stub.efi"] {
        fs::write(directory.join(name), name).unwrap();
    }
    std::os::unix::fs::symlink("ipxe.efi", directory.join("link")).unwrap();
    fs::create_dir(directory.join("more")).unwrap();
    fs::write(directory.join("more/file"), "more").unwrap();
    build(&source, Kind::Pxe, &output);
    assert_eq!(names(&directory.join("layers")), layers, "a layer of the build before is served on");
    assert_eq!(fs::read(directory.join("stub.efi")).unwrap(), stub);
    assert_eq!(fs::read_to_string(directory.join("undionly.kpxe")).unwrap(), "undionly.kpxe");
    assert_eq!(fs::read_to_string(directory.join("more/file")).unwrap(), "more");
    assert_eq!(fs::read_link(directory.join("link")).unwrap(), Path::new("ipxe.efi"));
    let all = [&made[..], &["ipxe.efi", "link", "more", "undionly.kpxe"].map(str::to_owned)].concat();
    let all: std::collections::BTreeSet<_> = all.into_iter().collect();
    assert_eq!(names(&directory), Vec::from_iter(all));

    // A build that fails leaves the directory as it was, and nothing beside it.
    fs::remove_file(dir.path().join(&layers[0])).unwrap();
    let failed = Kind::Pxe.build(&source, 512, &directory, &mut installer::silent);
    assert!(failed.unwrap_err().to_string().contains(&layers[0]));
    assert_eq!(names(&directory.join("layers")), layers);
    assert_eq!(names(&output), ["metal-amd64-pxe"]);
    let file = output.join("file");
    fs::write(&file, "").unwrap();
    let failed = Kind::Pxe.build(&source, 512, &file, &mut installer::silent);
    assert!(failed.is_err() && file.is_file());
}

/// A script adds more than a boot loader does.
#[test]
fn a_directory_for_ipxe_leaves_room_for_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = source(dir.path());
    let mut build = |kind: Kind, bytes: usize| {
        source.system.boot.command_line = format!("a={}", "k".repeat(bytes - 2));
        kind.build(&source, 512, &dir.path().join("made"), &mut installer::silent)
    };
    build(Kind::CommandLine, 1983).unwrap();
    fs::remove_file(dir.path().join("made")).unwrap();
    let refused = build(Kind::Pxe, 1792).unwrap_err().to_string();
    assert!(refused.contains("has 1792 bytes and may have 1791"), "{refused}");
    assert!(!dir.path().join("made").exists());
    build(Kind::Pxe, 1791).unwrap();
}

/// The root manifest of an installer image in the registry, read to its end.
fn fetched(registry: &Registry, tag: usize) -> Vec<u8> {
    use oci::registry::{Client, Mirror, Patience, Reader, Settings};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let endpoints = vec![format!("http://{}", registry.address)];
    let mirror = Mirror { endpoints, skip_fallback: true, ..Mirror::default() };
    let settings = Settings { mirrors: [("r.example".to_owned(), mirror)].into(), ..Settings::default() };
    let reference = format!("r.example/billet/installer:{tag}").parse().unwrap();
    let client = std::sync::Arc::new(Client::new(reference, settings, Patience::default()).unwrap());
    let image = runtime.block_on(client.image(Architecture::Amd64.name())).unwrap();
    let layers = image.manifest.layers.clone();
    let (handle, count) = (runtime.handle().clone(), layers.len());
    let open = move |number: usize| {
        let layer = layers.get(number).cloned();
        Ok(layer.map(|layer| Box::new(Reader::new(&handle, client.clone(), layer)) as oci::files::Source))
    };
    let files = oci::files::Files::new(Box::new(open));
    let own = oci::installer::own_layers(&image.config);
    let mut walk = oci::installer::Walk::new(files, Architecture::Amd64, count, own);
    let manifest = walk.manifest().unwrap();
    walk.boot().unwrap();
    walk.finish().unwrap();
    manifest
}
