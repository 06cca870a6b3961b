//! docs/users/customising.md: the guides' Dockerfiles, built by buildah on our installer image.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use installer::{
    image::{Kind, Source},
    layer::{self, Spec},
    system::{BootParts, System},
    tree::Tree,
};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

const STUB: &[u8] = include_bytes!("../../crates/ondisk/testdata/stub.efi");
const OLD: &str = "6.12.1-test";
const NEW: &str = "6.13.0-own";
const BUILTIN: &str =
    "kernel/loop.ko\nkernel/squashfs.ko\nkernel/overlay.ko\nkernel/dm-mod.ko\nkernel/dm-verity.ko\n";

/// What a program said; it must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A bzImage with nothing but the release in it.
fn bzimage(release: &str) -> Vec<u8> {
    let mut image = vec![0; 4096];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e] = 0x10;
    image[0x210..0x210 + release.len()].copy_from_slice(release.as_bytes());
    image
}

/// A small system as an installer image.
fn installer_image(directory: &Path) -> PathBuf {
    let (mut base, mut kernel) = (Tree::new(), Tree::new());
    base.symlink("lib", "usr/lib").unwrap();
    base.symlink("bin", "usr/bin").unwrap();
    base.dir("usr/bin", 0o755).unwrap();
    base.dir("tmp", 0o1777).unwrap();
    base.dir("usr/lib", 0o755).unwrap();
    base.dir("usr/local/lib", 0o755).unwrap();
    base.bytes("usr/share/doc/words", 0o644, "words").unwrap();
    kernel.bytes(&format!("usr/lib/modules/{OLD}/modules.builtin"), 0o644, BUILTIN).unwrap();
    kernel.bytes("usr/lib/billet/boot/vmlinuz", 0o644, bzimage(OLD)).unwrap();
    let build = |tree, spec: &Spec<'_>| layer::build(tree, spec, directory, &mut installer::silent).unwrap();
    let layers = [
        build(&base, &Spec::new("base", "1.0")),
        build(&kernel, &Spec { kernel_release: Some(OLD), ..Spec::new("kernel", "1.0") }),
    ];
    let boot = BootParts {
        kernel: bzimage(OLD),
        stub: STUB.to_vec(),
        loader: STUB.to_vec(),
        modules: b"modules".to_vec(),
        init: b"init".to_vec(),
        command_line: "panic=10".into(),
        boot_entry: "ID=billet\n".into(),
        loader_config: "timeout 0\n".into(),
        ..BootParts::default()
    };
    let source =
        Source::new(System { manifest: layer::stack("0.1.0", layers).unwrap(), boot }, directory.to_owned());
    let path = directory.join("installer.tar");
    Kind::Installer.build(&source, 512, &path, &mut installer::silent).unwrap();
    path
}

fn billetctl(words: &[&str]) -> String {
    run(Command::new(env!("CARGO_BIN_EXE_billetctl")).args(words))
}

/// buildah with images of its own.
struct Buildah(tempfile::TempDir);

impl Buildah {
    /// With the installer image of the guides.
    fn with_installer(dir: &Path) -> Self {
        let out = dir.join("out");
        let installer = installer_image(dir);
        billetctl(&[
            "image",
            "build",
            "--from",
            text(&installer),
            "--kind",
            "docker",
            "--output",
            text(&out),
        ]);
        let buildah = Self(tempfile::tempdir().unwrap());
        buildah.run(&["pull", &format!("docker-archive:{}", text(&out.join("installer-amd64-docker.tar")))]);
        buildah.run(&["tag", "localhost/billet/installer:0.1.0", "localhost/billet/installer:latest"]);
        buildah
    }

    fn command(&self, words: &[&str]) -> Command {
        let [images, run_directory] = ["images", "run"].map(|name| self.0.path().join(name));
        let places = ["--storage-driver", "vfs", "--root", text(&images), "--runroot", text(&run_directory)];
        let mut command = Command::new("buildah");
        command.args(places).args(words).current_dir(self.0.path());
        command
    }

    fn run(&self, words: &[&str]) -> String {
        run(&mut self.command(words))
    }

    /// The directory with an image's files.
    fn directory(&self, name: &str) -> PathBuf {
        self.0.path().join(name.replace(['/', ':'], "-"))
    }

    /// An image with nothing but these files, and those that are in its directory already.
    fn image(&self, name: &str, files: &[(&str, &[u8])]) {
        let directory = self.directory(name);
        for (path, content) in files {
            let file = directory.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        fs::write(directory.join("Dockerfile"), "FROM scratch\nCOPY . /\n").unwrap();
        self.run(&["bud", "--isolation", "chroot", "--tag", name, text(&directory)]);
    }

    /// Builds a Dockerfile of the guides with these flags besides; the result as an image in a file.
    fn build(&self, guide: &str, remove: &str, flags: &[&str], to: &str) -> PathBuf {
        run(&mut self.building(guide, remove, flags));
        let path = self.0.path().join(format!("{guide}.tar"));
        self.run(&["push", guide, &format!("{to}:{}:{guide}:1", text(&path))]);
        path
    }

    fn building(&self, guide: &str, remove: &str, flags: &[&str]) -> Command {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/dockerfiles").join(guide);
        let remove = format!("RM={remove}");
        let words = [
            "bud",
            "--isolation",
            "chroot",
            "--format",
            "docker",
            "--skip-unused-stages=false",
            "--build-arg",
        ];
        self.command(&[&words[..], &[&remove], flags, &["--tag", guide, text(&directory)]].concat())
    }
}

fn listed(source: &Source, name: &str) -> String {
    let layer = source.system.manifest.layers.iter().find(|layer| layer.name == name).unwrap();
    run(Command::new("unsquashfs").arg("-lln").arg(layer::check(layer, &source.layers).unwrap()))
}

fn names(source: &Source) -> Vec<&str> {
    source.system.manifest.layers.iter().map(|layer| layer.name.as_str()).collect()
}

#[test]
fn the_guides_dockerfiles_make_installers() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let buildah = Buildah::with_installer(dir.path());
    let opened = |image: &Path, name: &str| {
        let work = dir.path().join(name);
        fs::create_dir(&work).unwrap();
        Source::open(image, &work).unwrap()
    };

    // Guide 11.
    let builtin = format!("lib/modules/{NEW}/modules.builtin");
    let index = format!("lib/modules/{NEW}/modules.dep");
    let kernel = bzimage(NEW);
    let files = [("boot/vmlinuz", &kernel[..]), (&builtin, BUILTIN.as_bytes()), (&index, b"")];
    buildah.image("localhost/custom-kernel:1", &files);
    let image = buildah.build("kernel", "/lib/modules", &[], "docker-archive");
    let source = opened(&image, "kernel-work");
    assert_eq!(names(&source), ["base", "kernel", "vmlinuz"]);
    assert_eq!(source.system.manifest.kernel().unwrap().kernel_release.as_deref(), Some(NEW));
    let list = listed(&source, "kernel");
    assert!(list.contains(NEW) && !list.contains(OLD), "{list}");
    let made =
        billetctl(&["image", "build", "--from", text(&image), "--kind", "uki,iso", "--output", text(&out)]);
    assert!(made.contains("metal-amd64-uki.efi"), "{made}");
    let uki = fs::read(out.join("metal-amd64-uki.efi")).unwrap();
    let has = |text: &str| uki.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has(NEW) && !has(OLD));

    // Guide 12.
    buildah
        .image("localhost/library:1", &[("opt/library/liba.so", b"library"), ("opt/library/data/x", b"x")]);
    // As it stands there: with everything in one layer.
    for (flags, work) in [(&[][..], "rootfs-work"), (&["--squash"], "squashed-work")] {
        let image = buildah.build("rootfs", "/usr/share/doc /not/there", flags, "oci-archive");
        let source = opened(&image, work);
        assert_eq!(names(&source), ["base", "kernel", "removed", "custom"]);
        let list = listed(&source, "custom");
        assert!(list.contains("usr/local/lib/library/liba.so") && list.contains("library/data/x"), "{list}");
        let list = listed(&source, "removed");
        assert!(list.lines().any(|line| line.starts_with('c') && line.ends_with("/usr/share/doc")), "{list}");
    }
}

/// A stage that begins with a distribution's root, whose /lib is a directory: ours is a link.
#[test]
fn a_distributions_root_goes_where_links_of_ours_lead() {
    let dir = tempfile::tempdir().unwrap();
    let buildah = Buildah::with_installer(dir.path());
    buildah.image("localhost/library:1", &[("opt/library/liba.so", b"library")]);
    let name = "localhost/distribution:1";
    let directory = buildah.directory(name);
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(directory.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    for path in ["lib", "etc/alternatives", "usr/bin", "usr/lib", "tmp", "var/spool/mail"] {
        fs::create_dir_all(directory.join(path)).unwrap();
    }
    for (path, bits) in
        [("lib/ld.so", 0o755), ("usr/lib/os", 0o644), ("usr/bin/su", 0o711), ("etc/shadow", 0o640)]
    {
        fs::write(directory.join(path), path).unwrap();
        mode(path, bits);
    }
    mode("var/spool/mail", 0o1775);
    mode("tmp", 0o1777);
    for (target, link) in
        [("/usr/bin", "bin"), ("/usr/bin/su", "etc/alternatives/su"), ("../lib/os", "usr/bin/os")]
    {
        symlink(target, directory.join(link)).unwrap();
    }
    buildah.image(name, &[]);
    let image = buildah.build("distribution", "", &[], "docker-archive");
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let source = Source::open(&image, &work).unwrap();
    assert_eq!(names(&source), ["base", "kernel", "custom"]);
    let list = listed(&source, "custom");
    for (modes, path) in [
        ("-rwxr-xr-x 0/0", "usr/lib/ld.so"),
        ("-rw-r--r-- 0/0", "usr/lib/library/liba.so"),
        ("-rw-r--r-- 0/0", "usr/lib/os"),
        ("-rwx--x--x 0/0", "usr/bin/su"),
        ("-rw-r----- 0/0", "etc/shadow"),
        ("drwxrwxr-t 0/0", "var/spool/mail"),
        ("lrwxrwxrwx 0/0", "bin -> /usr/bin"),
        ("lrwxrwxrwx 0/0", "etc/alternatives/su -> /usr/bin/su"),
        ("lrwxrwxrwx 0/0", "usr/bin/os -> ../lib/os"),
    ] {
        let line = list.lines().find(|line| line.ends_with(&format!(" squashfs-root/{path}")));
        assert!(line.is_some_and(|line| line.starts_with(modes)), "{modes} {path} is not in\n{list}");
    }
    // The link of the root stays, and directories that both have are the root's.
    for covered in ["squashfs-root/lib\n", "squashfs-root/tmp\n"] {
        assert!(!list.contains(covered), "{covered} is in\n{list}");
    }

    // What the one directory had in two places cannot be one.
    buildah.image(name, &[("usr/lib/ld.so", b"another")]);
    let output = buildah.building("distribution", "", &[]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("/usr/lib/ld.so is in /rootfs (as /lib/ld.so) and, different, in /rootfs"),
        "{said}"
    );
}
