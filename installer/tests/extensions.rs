//! System extensions in every form that they come in, and several of them in one image.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{module, text, tool};
use installer::custom::{Profile, customise};
use installer::image::Source;
use installer::layer::{self, Spec};
use installer::system::{BootParts, System};
use installer::tree::Tree;
use oci::archive::{self, Bytes, Content, NewImage};

const STUB: &[u8] = include_bytes!("../../crates/ondisk/testdata/stub.efi");
const RELEASE: &str = "6.12.1-test";

/// A root with a link as Debian has it, and modules with an index.
fn source(directory: &Path) -> Source {
    fs::create_dir_all(directory).unwrap();
    let (mut base, mut kernel) = (Tree::new(), Tree::new());
    base.symlink("lib", "usr/lib").unwrap();
    base.bytes("usr/bin/tool", 0o755, "tool").unwrap();
    let modules = format!("usr/lib/modules/{RELEASE}");
    kernel.bytes(&format!("{modules}/kernel/fat.ko"), 0o644, module("depends=")).unwrap();
    let index = [
        ("dep", "kernel/fat.ko:\n"),
        ("alias", "alias fs-fat fat\n"),
        ("softdep", ""),
        ("builtin", common::BUILTIN),
    ];
    for (name, content) in index {
        kernel.bytes(&format!("{modules}/modules.{name}"), 0o644, content).unwrap();
    }
    let build = |tree, spec: &Spec<'_>| layer::build(tree, spec, directory, &mut installer::silent).unwrap();
    let layers = [
        build(&base, &Spec::new("base", "1.0")),
        build(&kernel, &Spec { kernel_release: Some(RELEASE), ..Spec::new("kernel", "1.0") }),
    ];
    let boot = BootParts { stub: STUB.to_vec(), command_line: "panic=10".into(), ..BootParts::default() };
    Source::new(System { manifest: layer::stack("0.1.0", layers).unwrap(), boot }, directory.to_owned())
}

fn manifest(name: &str) -> String {
    format!("version: v1alpha1\nmetadata:\n  name: {name}\n  version: '1.0'\n")
}

/// An extension as a directory of this name in `above`, with these files in its root.
fn extension(above: &Path, name: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let directory = above.join(name);
    for (path, content) in files {
        let file = directory.join("rootfs").join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    fs::write(directory.join("manifest.yaml"), manifest(name)).unwrap();
    directory
}

fn extended(source: &Source, extensions: &[&Path], work: &Path) -> Result<Source, String> {
    fs::create_dir_all(work).unwrap();
    let extensions = extensions.iter().map(|path| path.to_path_buf()).collect();
    let profile = Profile { extensions, ..Profile::default() };
    customise(source, &profile, work, &mut installer::silent).map_err(|error| error.to_string())
}

fn names(source: &Source) -> Vec<&str> {
    source.system.manifest.layers.iter().map(|layer| layer.name.as_str()).collect()
}

fn in_layer(source: &Source, name: &str, words: &[&str]) -> String {
    let layer = source.system.manifest.layers.iter().find(|layer| layer.name == name).unwrap();
    let path = layer::check(layer, &source.layers).unwrap();
    tool("unsquashfs", &[&words[..1], &[text(&path)], &words[1..]].concat())
}

#[test]
fn an_extension_may_be_a_container_image() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let here = |path: &str, text: &str| Content { path: path.into(), bytes: Bytes::Here(text.into()) };
    let program = dir.path().join("program");
    fs::write(&program, "#!").unwrap();
    let image = |architecture: &str| NewImage {
        architecture: architecture.into(),
        tag: "1".into(),
        labels: Default::default(),
        layers: vec![
            vec![here("manifest.yaml", &manifest("tools")), here("rootfs/usr/local/share/old", "old")],
            vec![
                here("rootfs/usr/local/share/.wh.old", ""),
                Content { path: "rootfs/usr/local/bin/tool".into(), bytes: Bytes::Program(program.clone()) },
            ],
        ],
    };
    let [oci, docker, layout, unpacked] =
        ["oci.tar", "docker.tar", "layout", "docker"].map(|name| dir.path().join(name));
    archive::write(&mut fs::File::create(&oci).unwrap(), &image("amd64")).unwrap();
    let out = &mut fs::File::create(&docker).unwrap();
    archive::write_docker(out, &image("amd64"), "tools", &[]).unwrap();
    for (tar, directory) in [(&oci, &layout), (&docker, &unpacked)] {
        fs::create_dir(directory).unwrap();
        tool("tar", &["-C", text(directory), "-xf", text(tar)]);
    }
    let work = |name: &str| dir.path().join("work").join(name);
    let made = extended(&source, &[&oci], &work("oci")).unwrap();
    assert_eq!(names(&made), ["base", "kernel", "tools"]);
    let list = in_layer(&made, "tools", &["-lln"]);
    let tool_line = list.lines().find(|line| line.ends_with("/usr/local/bin/tool")).unwrap();
    assert!(tool_line.starts_with("-rwxr-xr-x 0/0"), "{list}");
    // Nothing of the image itself, and nothing that a layer of it takes away.
    for gone in ["old", ".wh.", "manifest.yaml", "rootfs", "blobs"] {
        assert!(!list.replace("squashfs-root", "").contains(gone), "{gone} is in\n{list}");
    }
    for (path, name) in [(&docker, "docker"), (&layout, "layout"), (&unpacked, "unpacked")] {
        assert_eq!(extended(&source, &[path], &work(name)).unwrap().system, made.system, "{name}");
    }

    tool("gzip", &["-kn", text(&docker)]);
    let error = extended(&source, &[&dir.path().join("docker.tar.gz")], &work("packed")).unwrap_err();
    assert!(
        error.ends_with("docker.tar.gz is no tar file (it is a gzip file): unpack it first (gunzip)"),
        "{error}"
    );
    let foreign = dir.path().join("foreign.tar");
    archive::write(&mut fs::File::create(&foreign).unwrap(), &image("arm64")).unwrap();
    let error = extended(&source, &[&foreign], &work("foreign")).unwrap_err();
    assert!(error.contains("is for linux/arm64, and what is made is for linux/amd64"), "{error}");
}

/// /lib is a link of the root: both ways to write a path lead to one place.
#[test]
fn extensions_that_want_one_place_are_listed_by_both_spellings() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let firmware = |name: &str, lib: &str, content: &[u8]| {
        let [x, y, same] = ["x", "y", "same"].map(|file| format!("{lib}/firmware/{file}"));
        extension(dir.path(), name, &[(&x, content), (&y, content), (&same, b"s")])
    };
    let (one, other) = (firmware("one", "lib", b"1"), firmware("other", "usr/lib", b"2"));
    let work = dir.path().join("work");
    let error = extended(&source, &[&one, &other], &work).unwrap_err();
    for file in ["x", "y"] {
        let line = format!(
            "/usr/lib/firmware/{file} is in extension one (as /lib/firmware/{file}) and, different, in extension other"
        );
        assert!(error.contains(&line), "{line:?} is not in {error}");
    }
    assert!(!error.contains("same"), "{error}");
    // One of them is in the image already.
    let made = extended(&source, &[&other], &work).unwrap();
    let error = extended(&made, &[&one], &dir.path().join("more")).unwrap_err();
    let line = "/usr/lib/firmware/y is in extension other of the image and, different, in extension one (as /lib/firmware/y)";
    assert!(error.contains(line) && error.contains("firmware/x") && !error.contains("same"), "{error}");
}

/// What depmod leaves for the modules of an extension says nothing of the others'.
#[test]
fn each_extensions_modules_get_into_one_index() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let file = |lib: &str, name: &str| format!("{lib}/modules/{RELEASE}/{name}");
    let (first, second) = (module("depends=fat alias=pci:v1*"), module("depends=first,fat alias=pci:v2*"));
    let one = extension(dir.path(), "one", &[(&file("usr/lib", "extra/first.ko"), &first)]);
    // As `make modules_install` leaves it: without what it needs of the kernel's, and in kmod's own form besides.
    let other = extension(
        dir.path(),
        "other",
        &[
            (&file("lib", "extra/second.ko"), &second),
            (&file("lib", "extra/third.ko.xz"), b"packed"),
            (&file("lib", "modules.dep"), b"extra/second.ko:\nextra/third.ko.xz: extra/second.ko\n"),
            (&file("lib", "modules.alias"), b"alias pci:v2* second\nalias pci:v3* third\n"),
            (&file("lib", "modules.dep.bin"), b"other"),
        ],
    );
    let work = |name: &str| dir.path().join("work").join(name);
    let index = |source: &Source, name: &str| {
        in_layer(source, "other", &["-cat", &file("usr/lib", &format!("modules.{name}"))])
    };
    let dep = "extra/first.ko: kernel/fat.ko\nextra/second.ko: extra/first.ko kernel/fat.ko\n\
               extra/third.ko.xz: extra/second.ko extra/first.ko kernel/fat.ko\nkernel/fat.ko:\n";
    let first = extended(&source, &[&one], &work("one")).unwrap();
    let after = extended(&first, &[&other], &work("after")).unwrap();
    let at_once = extended(&source, &[&one, &other], &work("both")).unwrap();
    for made in [&after, &at_once] {
        assert_eq!(names(made), ["base", "kernel", "one", "other"]);
        assert_eq!(index(made, "dep"), dep);
        let alias = "alias fs-fat fat\nalias pci:v1* first\nalias pci:v2* second\nalias pci:v3* third\n";
        assert_eq!(index(made, "alias"), alias);
        assert_eq!(index(made, "builtin").lines().count(), common::BUILTIN.lines().count());
        assert!(!in_layer(made, "other", &["-lln"]).contains(".bin"));
    }
    assert_eq!(after.system, at_once.system);
    // One that nothing tells of.
    let mute = extension(
        dir.path(),
        "mute",
        &[(&file("lib", "a.ko.xz"), b"packed"), (&file("lib", "modules.dep"), b"")],
    );
    let error = extended(&source, &[&mute], &work("mute")).unwrap_err();
    assert!(error.contains("a.ko.xz is packed by xz, and there is no modules.dep"), "{error}");
}

/// A path is checked as it is written, and must lie there.
#[test]
fn a_path_that_climbs_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let directory = extension(dir.path(), "tools", &[("usr/local/file", b"x")]);
    let packed = dir.path().join("tools.tar");
    let renamed = "--transform=s,^rootfs/usr/local/file,rootfs/usr/local/../../etc/passwd,";
    tool(
        "tar",
        &[
            "-C",
            text(&directory),
            "-P",
            renamed,
            "-cf",
            text(&packed),
            "manifest.yaml",
            "rootfs/usr/local/file",
        ],
    );
    let error = extended(&source, &[&packed], &dir.path().join("work")).unwrap_err();
    assert!(error.contains("tools.tar: rootfs/usr/local/../../etc/passwd has .. in it"), "{error}");
}
