//! Other kernels in an image, and images that were built on in a container, as other programs see them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::modular::{OLD, content, customised, files, gzip, in_initramfs, listed, names, source};
use common::{bzimage, module, text, tool};
use installer::custom::{Addition, From, Profile};
use installer::image::{Kind, Source, container};
use installer::kernel::Given;
use oci::archive::{self, Archive, Bytes, Content, NewImage};
use oci::installer::{LAYERS_LABEL, MANIFEST_PATH};
use ondisk::Architecture;

const NEW: &str = "6.13.0-own";

/// The directory of a kernel that was made to be installed, without depmod.
fn own_kernel(path: &Path) -> PathBuf {
    own_kernel_of(path, module)
}

/// The same with modules that are made so.
fn own_kernel_of(path: &Path, module: fn(&str) -> Vec<u8>) -> PathBuf {
    let vfat = module("depends=fat alias=fs-vfat");
    let dm = module("depends=");
    files(
        path,
        &[
            ("boot/vmlinuz", &bzimage(NEW)),
            (&format!("lib/modules/{NEW}/kernel/fs/vfat.ko"), &vfat),
            (&format!("lib/modules/{NEW}/kernel/fs/fat.ko"), &module("depends=")),
            (&format!("lib/modules/{NEW}/kernel/drivers/dm-verity.ko"), &dm),
            (&format!("lib/modules/{NEW}/kernel/drivers/net/other.ko"), &dm),
            (
                &format!("lib/modules/{NEW}/modules.builtin"),
                common::BUILTIN.replace("kernel/dm-verity.ko\n", "").as_bytes(),
            ),
        ],
    )
}

fn with_kernel(path: PathBuf, modules: Option<PathBuf>) -> Profile {
    Profile { kernel: Some(Given { path, modules, config: None }), ..Profile::default() }
}

/// A configuration with this value for all that a node needs.
fn options(value: &str) -> String {
    let list = fs::read_to_string("../kernel-config/required.toml").unwrap();
    // What must be off is not set.
    let lines = list.lines().filter(|line| !line.starts_with("off"));
    let names = lines
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
    names.map(|name| format!("CONFIG_{name}={value}\n")).collect()
}

/// A kernel that carries its configuration (IKCONFIG).
fn carrying(config: &str) -> Vec<u8> {
    let mut image = bzimage(NEW);
    let packed = gzip(&[&b"IKCFG_ST"[..], &gzip(config.as_bytes()), b"IKCFG_ED"].concat());
    image[0x1f1] = 1;
    let at = u32::try_from(image.len() - 2 * 512).unwrap();
    image[0x248..0x24c].copy_from_slice(&at.to_le_bytes());
    image[0x24c..0x250].copy_from_slice(&u32::try_from(packed.len()).unwrap().to_le_bytes());
    [image, packed].concat()
}

#[test]
fn another_kernel_takes_the_place_of_the_layer() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let own = own_kernel(&dir.path().join("own"));
    let profile = with_kernel(own.join("boot/vmlinuz"), Some(own.clone()));
    let made = customised(&source, &profile, &dir.path().join("work")).unwrap();
    assert_eq!(names(&made), ["base", "kernel"]);
    assert_eq!(made.system.manifest.kernel().unwrap().kernel_release.as_deref(), Some(NEW));
    assert_eq!(made.system.boot.kernel, bzimage(NEW));
    let list = listed(&made, "kernel");
    assert!(!list.contains(OLD), "{list}");
    for path in [
        "modules/6.13.0-own/kernel/drivers/net/other.ko",
        "boot/vmlinuz",
        "boot/grub-core.img",
        "boot/stub.efi",
    ] {
        assert!(list.contains(path), "{path} is not in\n{list}");
    }
    // The index was made of what the modules say.
    let dep = content(&made, "kernel", &format!("usr/lib/modules/{NEW}/modules.dep"));
    assert!(dep.contains("kernel/fs/vfat.ko: kernel/fs/fat.ko\n"), "{dep}");
    let initramfs = in_initramfs(&made, dir.path());
    for path in ["kernel/fs/vfat.ko", "kernel/fs/fat.ko", "kernel/drivers/dm-verity.ko", "modules.dep"] {
        assert!(initramfs.contains(&format!("lib/modules/{NEW}/{path}\n")), "{path} is not in\n{initramfs}");
    }
    assert!(!initramfs.contains("other.ko") && initramfs.contains("sysroot\n"), "{initramfs}");
    made.system.uki(&[]).unwrap();
    let [warning] = made.warnings.as_slice() else { panic!("{:?}", made.warnings) };
    assert!(warning.contains("kernel 6.13.0-own: its configuration was not found"), "{warning}");
    let again = customised(&source, &profile, &dir.path().join("again")).unwrap();
    assert_eq!(again.system, made.system);
}

#[test]
fn a_kernel_that_does_not_fit_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let own = own_kernel(&dir.path().join("own"));
    let kernel = own.join("boot/vmlinuz");
    let refused = |profile: &Profile| customised(&source, profile, &dir.path().join("work")).unwrap_err();
    let alone = refused(&with_kernel(kernel.clone(), None));
    assert!(
        alone.contains(&format!("kernel {NEW}: it comes without modules, and the image's are for {OLD}")),
        "{alone}"
    );
    let other = files(&dir.path().join("other"), &[("lib/modules/6.1/kernel/a.ko", &module("depends="))]);
    let mixed = refused(&with_kernel(kernel.clone(), Some(other.clone())));
    assert_eq!(mixed, format!("the kernel is {NEW} and the modules are for 6.1: give both from one build"));
    let text = files(&dir.path().join("text"), &[("vmlinuz", b"no kernel")]);
    assert!(refused(&with_kernel(text.join("vmlinuz"), None)).contains("it is no kernel for amd64"));
    let mut cut = bzimage(NEW);
    cut[0x1f4..0x1f8].copy_from_slice(&256_u32.to_le_bytes());
    let cut = files(&dir.path().join("cut"), &[("vmlinuz", &cut[..])]).join("vmlinuz");
    assert!(refused(&with_kernel(cut, None)).contains("it is cut off"));
    let packed = files(&dir.path().join("packed"), &[("vmlinuz", b"MZ\0\0zimg")]);
    assert!(refused(&with_kernel(packed.join("vmlinuz"), None)).contains("it is packed for the firmware"));
    let foreign = files(&dir.path().join("foreign"), &[("Image", &common::arm64_image(NEW))]);
    let foreign = refused(&with_kernel(foreign.join("Image"), None));
    assert!(foreign.contains("it is for arm64, and the image is for amd64"), "{foreign}");
    fs::write(own.join("boot/config"), "CONFIG_SQUASHFS=y\n").unwrap();
    let lacking = refused(&with_kernel(kernel.clone(), Some(own.clone())));
    assert!(
        lacking.contains("will not do") && lacking.contains("CONFIG_DM_VERITY must be y or m"),
        "{lacking}"
    );
    fs::remove_file(own.join("boot/config")).unwrap();
    let directory = |path: &Path| Addition { from: From::Directory(path.join("lib")), to: "/lib".into() };
    let both = Profile { additions: vec![directory(&own), directory(&other)], ..Profile::default() };
    assert!(refused(&both).contains("modules are given for several kernels (6.1, 6.13.0-own)"));
    // The files alone are an image that cannot start: said when one is made.
    let modules = Profile { additions: vec![directory(&own)], ..Profile::default() };
    let made = customised(&source, &modules, &dir.path().join("alone")).unwrap();
    assert!(
        made.system.uki(&[]).unwrap_err().to_string().contains("COPY the kernel to /usr/install/vmlinuz")
    );
    // The same release may come without modules, another one where nothing is a module.
    let same = files(&dir.path().join("same"), &[("vmlinuz", &bzimage(OLD))]).join("vmlinuz");
    let made = customised(&source, &with_kernel(same, None), &dir.path().join("same-work")).unwrap();
    assert_eq!(names(&made), ["base", "kernel", "custom"]);
    let [warning] = made.warnings.as_slice() else { panic!("{:?}", made.warnings) };
    assert!(warning.contains(&format!("kernel {OLD}: its configuration was not found")), "{warning}");
    let whole = Profile { remove: vec!["/lib/modules".into()], ..with_kernel(kernel.clone(), None) };
    let made = customised(&source, &whole, &dir.path().join("whole")).unwrap();
    let [warning] = made.warnings.as_slice() else { panic!("{:?}", made.warnings) };
    assert!(warning.contains("6.13.0-own has no modules, and its configuration was not found"), "{warning}");
    assert_eq!(names(&made), ["base", "kernel"]);
    assert!(made.system.manifest.kernel().is_none() && !listed(&made, "kernel").contains("modules/6"));
    made.system.uki(&[]).unwrap();
}

/// A kernel that has everything, in part as modules: without these it is none that starts a node.
#[test]
fn a_modular_kernel_without_modules_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let own = own_kernel(&dir.path().join("own"));
    let config = own.join("boot/the-config");
    let profile = || {
        let mut profile = with_kernel(own.join("boot/vmlinuz"), None);
        profile.kernel.as_mut().unwrap().config = Some(config.clone());
        Profile { remove: vec!["/lib/modules".into()], ..profile }
    };
    fs::write(&config, options("y")).unwrap();
    let made = customised(&source, &profile(), &dir.path().join("whole")).unwrap();
    assert!(made.warnings.is_empty(), "{:?}", made.warnings);
    let bundle = |source: &Source| {
        Kind::Pxe.build(source, 512, &dir.path().join("pxe"), &mut installer::silent).map(drop)
    };
    let error = bundle(&made).unwrap_err().to_string();
    assert!(error.contains("no drivers of network cards") && error.contains("--kernel-modules"), "{error}");
    let modular = options("y").replace("CONFIG_SQUASHFS=y", "CONFIG_SQUASHFS=m");
    assert!(modular.contains("CONFIG_SQUASHFS=m"), "the option is in the list");
    fs::write(&config, modular).unwrap();
    let error = customised(&source, &profile(), &dir.path().join("modular")).unwrap_err();
    assert!(error.contains("CONFIG_SQUASHFS must be y, is m, and there are no modules"), "{error}");
    let mut with_modules = profile();
    with_modules.kernel.as_mut().unwrap().modules = Some(own.clone());
    customised(&source, &with_modules, &dir.path().join("modules")).unwrap();

    // What is built in says which cards it knows.
    let list = [common::BUILTIN, "kernel/drivers/net/virtio_net.ko\n"].concat();
    let path = format!("lib/modules/{NEW}/modules.builtin");
    let built_in = files(&dir.path().join("built-in"), &[(&path, list.as_bytes())]);
    fs::write(&config, options("y")).unwrap();
    with_modules.kernel.as_mut().unwrap().modules = Some(built_in);
    bundle(&customised(&source, &with_modules, &dir.path().join("list")).unwrap()).unwrap();
}

#[test]
fn a_kernel_for_arm64_is_checked_against_the_options_for_arm64() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = source(&dir.path().join("base"));
    source.system.boot.stub = common::for_arm64(&source.system.boot.stub);
    source.system.boot.kernel = common::arm64_image(OLD);
    let own = own_kernel_of(&dir.path().join("own"), common::arm64_module);
    let image = own.join("boot/Image");
    fs::write(&image, common::arm64_image(NEW)).unwrap();
    let profile = with_kernel(image, Some(own.clone()));
    let made = customised(&source, &profile, &dir.path().join("work")).unwrap();
    assert_eq!(made.system.manifest.kernel().unwrap().kernel_release.as_deref(), Some(NEW));
    made.system.uki(&[]).unwrap();
    let for_others = customised(
        &source,
        &with_kernel(own.join("boot/vmlinuz"), Some(own.clone())),
        &dir.path().join("others"),
    );
    assert!(for_others.unwrap_err().contains("it is for amd64, and the image is for arm64"));
    // What the kernel itself carries, which is not packed.
    let packed = gzip(b"CONFIG_SQUASHFS=y\n");
    let whole = [common::arm64_image(NEW), b"IKCFG_ST".to_vec(), packed, b"IKCFG_ED".to_vec()].concat();
    let whole = files(&dir.path().join("whole"), &[("Image", &whole)]).join("Image");
    let lacking =
        customised(&source, &with_kernel(whole, Some(own)), &dir.path().join("lacking")).unwrap_err();
    assert!(lacking.contains("will not do") && lacking.contains("CONFIG_DM_VERITY"), "{lacking}");
}

/// They would make an image that nothing says a word about, and that does not start.
#[test]
fn modules_for_other_processors_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let mut for_arm64 = source.clone();
    for_arm64.system.boot.stub = common::for_arm64(&source.system.boot.stub);
    let refused = |source: &Source, profile: &Profile| {
        customised(source, profile, &dir.path().join("work")).err().unwrap_or_default()
    };
    // Beside a kernel, without an index and with depmod's, which nothing but the initramfs goes by.
    for (name, module, image, source, words) in [
        (
            "arm64",
            common::arm64_module as fn(&str) -> Vec<u8>,
            bzimage(NEW),
            &source,
            "is for arm64, and the image is for amd64: give modules that were built for amd64",
        ),
        (
            "amd64",
            module,
            common::arm64_image(NEW),
            &for_arm64,
            "is for amd64, and the image is for arm64: give modules that were built for arm64",
        ),
    ] {
        let own = own_kernel_of(&dir.path().join(name), module);
        let kernel = own.join("boot/kernel");
        fs::write(&kernel, image).unwrap();
        let profile = with_kernel(kernel, Some(own.clone()));
        let wanted = format!("kernel {NEW}: module kernel/drivers/dm-verity.ko {words}");
        assert_eq!(refused(source, &profile), wanted, "without an index");
        fs::write(own.join(format!("lib/modules/{NEW}/modules.dep")), "kernel/drivers/dm-verity.ko:\n")
            .unwrap();
        assert_eq!(refused(source, &profile), wanted, "with an index");
    }
    // Added to the kernel that there is, for its index alone; and packed by xz, with an index of their own.
    let directory = format!("usr/lib/modules/{OLD}");
    let own = common::arm64_module("depends=");
    fs::write(dir.path().join("packed.ko"), &own).unwrap();
    tool("xz", &["--check=crc32", text(&dir.path().join("packed.ko"))]);
    let packed = fs::read(dir.path().join("packed.ko.xz")).unwrap();
    for (name, content) in [("sound.ko", own), ("sound.ko.xz", packed)] {
        let (path, dep) = (format!("{directory}/extra/{name}"), format!("{directory}/modules.dep"));
        let index = format!("extra/{name}:\n");
        let more = files(&dir.path().join(name).join("more"), &[(&path, &content), (&dep, index.as_bytes())]);
        let addition = Addition { from: From::Directory(more), to: String::new() };
        let profile = Profile { additions: vec![addition], ..Profile::default() };
        let error = refused(&source, &profile);
        let wanted = format!("kernel {OLD}: module extra/{name} is for arm64, and the image is for amd64");
        assert!(error.starts_with(&wanted), "{error}");
        customised(&for_arm64, &profile, &dir.path().join(name).join("work")).unwrap();
    }
}

#[test]
fn extensions_are_layers_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let manifest = b"version: v1alpha1\nmetadata:\n  name: tools\n  version: 1.2\n";
    let driver = module("depends=fat alias=pci:v2*");
    let extension = files(
        &dir.path().join("tools"),
        &[
            ("manifest.yaml", manifest),
            ("rootfs/usr/local/bin/tool", b"#!"),
            (&format!("rootfs/usr/lib/modules/{OLD}/extra/driver.ko"), &driver),
        ],
    );
    let packed = dir.path().join("tools.tar");
    tool("tar", &["-C", text(&extension), "--owner=0", "--group=0", "-cf", text(&packed), "."]);
    let more = files(&dir.path().join("more"), &[("usr/local/bin/tool", b"ours")]);
    let addition = Addition { from: From::Directory(more), to: String::new() };
    let from_directory =
        Profile { extensions: vec![extension], additions: vec![addition], ..Profile::default() };
    let made = customised(&source, &from_directory, &dir.path().join("work")).unwrap();
    assert_eq!(names(&made), ["base", "kernel", "tools", "custom"]);
    assert_eq!(made.system.manifest.layers[2].version, "1.2");
    let dep = content(&made, "tools", &format!("usr/lib/modules/{OLD}/modules.dep"));
    assert!(dep.contains("extra/driver.ko: kernel/fat.ko\n"), "{dep}");
    let from_tar = Profile { extensions: vec![packed], ..from_directory };
    let again = customised(&source, &from_tar, &dir.path().join("again")).unwrap();
    assert_eq!(again.system, made.system);
}

/// The root of a container that the image's triggers run in.
fn container(source: &Source, root: &Path, stage: &[(&str, &[u8])]) {
    source.save(&root.join("billet")).unwrap();
    files(&root.join("rootfs"), stage);
}

/// What a container tool would make of the container's changes: one image layer above ours. A kernel for amd64 lies at the path
/// for all machines, one for arm64 at its own.
fn committed(source: &Source, root: &Path, kernel: Option<&[u8]>, path: &Path) {
    let base = path.with_extension("base");
    Kind::Installer.build(source, 512, &base, &mut installer::silent).unwrap();
    let archive = Archive::open(&base).unwrap();
    let architecture = source.system.boot.architecture();
    let (manifest, config) = archive.image(architecture.name()).unwrap();
    let mut layers: Vec<Vec<Content>> = Vec::new();
    let open = |number: usize| match manifest.layers.get(number) {
        Some(layer) => archive.blob(layer).map(Some).map_err(std::io::Error::other),
        None => Ok(None),
    };
    let mut walk = oci::files::Files::new(Box::new(open));
    while let Some(file) = walk.next_file().unwrap() {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut walk, &mut bytes).unwrap();
        layers.push(vec![Content { path: file.path, bytes: Bytes::Here(bytes) }]);
    }
    assert_eq!(config.config.labels[LAYERS_LABEL], layers.len().to_string());
    let old: Vec<&str> = layers.iter().map(|layer| layer[0].path.as_str()).collect();
    let mut added = Vec::new();
    let here = |path: &str, bytes: Vec<u8>| Content { path: path.into(), bytes: Bytes::Here(bytes) };
    for directory in ["billet/boot", "billet/layers"] {
        for item in fs::read_dir(root.join(directory)).unwrap() {
            let path = item.unwrap().path();
            let name = format!("{directory}/{}", path.file_name().unwrap().to_str().unwrap());
            if directory == "billet/boot" || !old.contains(&name.as_str()) {
                added.push(here(&name, fs::read(&path).unwrap()));
            }
        }
    }
    for path in old.iter().filter(|path| **path != MANIFEST_PATH && !root.join(path).exists()) {
        let (directory, name) = path.rsplit_once('/').unwrap();
        added.push(here(&format!("{directory}/.wh.{name}"), Vec::new()));
    }
    added.push(here(MANIFEST_PATH, fs::read(root.join(MANIFEST_PATH)).unwrap()));
    added.sort_by(|a, b| a.path.cmp(&b.path));
    layers.push(added);
    let place = match architecture {
        Architecture::Amd64 => "usr/install/vmlinuz",
        Architecture::Arm64 => "usr/install/arm64/vmlinuz",
    };
    layers.extend(kernel.map(|kernel| vec![here(place, kernel.to_vec())]));
    let architecture = architecture.name().into();
    let image = NewImage { architecture, tag: "x".into(), labels: config.config.labels, layers };
    archive::write(&mut fs::File::create(path).unwrap(), &image).unwrap();
}

#[test]
fn an_image_that_was_built_on_is_one_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let root = dir.path().join("container");
    let modules = format!("lib/modules/{NEW}");
    let own = own_kernel(&dir.path().join("own"));
    let vfat = fs::read(own.join(&modules).join("kernel/fs/vfat.ko")).unwrap();
    let stage = [
        (&*format!("{modules}/kernel/fs/vfat.ko"), &vfat[..]),
        (&*format!("{modules}/modules.builtin"), common::BUILTIN.as_bytes()),
        ("etc/motd", b"hello"),
    ];
    container(&source, &root, &stage);
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(root.join("rootfs/etc/motd"), fs::Permissions::from_mode(0o600)).unwrap();
    let remove = vec!["/lib/modules".to_owned(), "/usr/share/doc".to_owned()];
    let new = container::take_in(&root, remove, &mut installer::silent).unwrap();
    assert_eq!(
        new.layers.iter().map(|layer| layer.name.as_str()).collect::<Vec<_>>(),
        ["removed", "custom", "kernel"]
    );
    assert!(!root.join("rootfs").exists() && !root.join("billet/boot/vmlinuz").exists());
    assert!(!root.join("billet/boot/network.cpio.zst").exists(), "the new kernel has no driver of a card");

    let image = dir.path().join("without");
    committed(&source, &root, None, &image);
    let work = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let error = Source::open(&image, &work("a")).unwrap_err().to_string();
    assert!(
        error.contains("has no kernel: its modules were removed or are for another kernel now"),
        "{error}"
    );
    committed(&source, &root, Some(&bzimage(OLD)), &image);
    let error = Source::open(&image, &work("b")).unwrap_err().to_string();
    assert!(error.contains(&format!("the kernel is {OLD} and the modules are for {NEW}")), "{error}");
    committed(&source, &root, Some(&bzimage(NEW)), &image);
    let made = Source::open(&image, &work("c")).unwrap();
    assert_eq!(names(&made), ["base", "removed", "custom", "kernel", "vmlinuz"]);
    assert!(listed(&made, "vmlinuz").contains("usr/lib/billet/boot/vmlinuz"));
    assert!(listed(&made, "custom").contains("-rw------- 0/0"), "{}", listed(&made, "custom"));
    let doc = listed(&made, "removed");
    assert!(doc.lines().any(|line| line.starts_with('c') && line.ends_with("usr/share/doc")), "{doc}");
    made.system.uki(&[]).unwrap();
    // Nothing is special about it from here on.
    let path = dir.path().join("again.tar");
    Kind::Installer.build(&made, 512, &path, &mut installer::silent).unwrap();
    assert_eq!(Source::open(&path, &work("d")).unwrap().system, made.system);
}

#[test]
fn a_kernel_for_arm64_is_taken_from_the_path_for_arm64() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = source(&dir.path().join("base"));
    source.system.boot.stub = common::for_arm64(&source.system.boot.stub);
    source.system.boot.kernel = common::arm64_image(OLD);
    let (root, image, work) =
        (dir.path().join("container"), dir.path().join("image"), dir.path().join("work"));
    container(&source, &root, &[("etc/motd", b"hello")]);
    container::take_in(&root, Vec::new(), &mut installer::silent).unwrap();
    let kernel = [common::arm64_image(OLD), b"another build".to_vec()].concat();
    committed(&source, &root, Some(&kernel), &image);
    fs::create_dir(&work).unwrap();
    let made = Source::open(&image, &work).unwrap();
    assert_eq!(made.system.boot.kernel, kernel);
    assert!(listed(&made, "vmlinuz").contains("usr/lib/billet/boot/vmlinuz"));
}

/// A kernel that a Dockerfile copies beside no modules is checked as one that a profile names.
#[test]
fn a_copied_kernel_without_modules_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let root = dir.path().join("container");
    container(&source, &root, &[("etc/motd", b"hello")]);
    let remove = vec!["/lib/modules".to_owned(), "/not/there".to_owned()];
    let new = container::take_in(&root, remove, &mut installer::silent).unwrap();
    assert_eq!(new.warnings, ["remove: the image has no /not/there, so nothing is removed there"]);
    let (image, work) = (dir.path().join("image"), dir.path().join("work"));
    fs::create_dir(&work).unwrap();
    committed(&source, &root, Some(&bzimage(NEW)), &image);
    let opened = Source::open(&image, &work).unwrap();
    let [warning] = opened.warnings.as_slice() else { panic!("{:?}", opened.warnings) };
    assert!(warning.contains("kernel 6.13.0-own has no modules"), "{warning}");
}

/// One that comes with modules, wherever its configuration is; the image's own was built with the image.
#[test]
fn a_copied_kernel_with_modules_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let opened = |name: &str, modules: bool, beside: &[(&str, &str)], kernel: &[u8]| {
        let (root, work) = (dir.path().join(name), dir.path().join(format!("{name}-work")));
        fs::create_dir(&work).unwrap();
        let builtin = format!("lib/modules/{NEW}/modules.builtin");
        let dep = format!("lib/modules/{NEW}/modules.dep");
        let mut stage = vec![("etc/motd", &b"hello"[..])];
        if modules {
            stage.extend([(&*builtin, common::BUILTIN.as_bytes()), (&*dep, b"")]);
        }
        stage.extend(beside.iter().map(|(path, text)| (*path, text.as_bytes())));
        container(&source, &root, &stage);
        let remove = if modules { vec!["/lib/modules".to_owned()] } else { Vec::new() };
        container::take_in(&root, remove, &mut installer::silent).unwrap();
        let image = dir.path().join(format!("{name}-image"));
        committed(&source, &root, Some(kernel), &image);
        Source::open(&image, &work).map(|opened| opened.warnings).map_err(|error| error.to_string())
    };
    let (kernel, [good, bad]) = (bzimage(NEW), [options("y"), "CONFIG_SQUASHFS=y\n".to_owned()]);
    let [boot, modules] = [format!("boot/config-{NEW}"), format!("lib/modules/{NEW}/config")];
    let nowhere = opened("nowhere", true, &[], &kernel).unwrap();
    let [warning] = nowhere.as_slice() else { panic!("{nowhere:?}") };
    assert!(warning.contains("kernel 6.13.0-own: its configuration was not found"), "{warning}");
    assert!(warning.contains("COPY its .config to /boot/config-6.13.0-own"), "{warning}");
    let none: Result<Vec<String>, String> = Ok(Vec::new());
    assert_eq!(opened("boot", true, &[(&boot, &good)], &kernel), none);
    assert_eq!(opened("modules", true, &[(&modules, &good)], &kernel), none);
    assert_eq!(opened("inside", true, &[], &carrying(&good)), none);
    assert_eq!(opened("own", false, &[], &bzimage(OLD)), none);
    for (name, beside, kernel) in [
        ("bad-boot", &[(&*boot, &*bad)][..], &kernel),
        ("bad-modules", &[(&*modules, &*bad)], &kernel),
        ("bad-inside", &[], &carrying(&bad)),
    ] {
        let error = opened(name, true, beside, kernel).unwrap_err();
        assert!(
            error.contains("will not do") && error.contains("CONFIG_DM_VERITY must be y or m"),
            "{error}"
        );
    }
}
