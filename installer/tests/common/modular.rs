//! A small system whose kernel has modules, and what is in an image of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use installer::custom::{Profile, customise};
use installer::image::{Kind, Source};
use installer::initramfs;
use installer::layer::{self, Spec};
use installer::system::{BootParts, System};
use installer::tree::Tree;
use ondisk::cpio;

use super::{bzimage, module, text, tool};

const STUB: &[u8] = include_bytes!("../../../crates/ondisk/testdata/stub.efi");
/// The kernel's release.
pub(crate) const OLD: &str = "6.12.1-test";

/// A base layer and a kernel layer, whose modules have an index, and segments of an initramfs with these, of an older making.
pub(crate) fn source(directory: &Path) -> Source {
    fs::create_dir_all(directory).unwrap();
    let mut base = Tree::new();
    base.symlink("lib", "usr/lib").unwrap();
    base.bytes("usr/bin/tool", 0o755, "tool").unwrap();
    base.bytes("usr/share/doc/tool", 0o644, "words").unwrap();
    let mut kernel = Tree::new();
    let modules = format!("usr/lib/modules/{OLD}");
    kernel.bytes(&format!("{modules}/kernel/vfat.ko"), 0o644, module("depends=fat alias=fs-vfat")).unwrap();
    kernel.bytes(&format!("{modules}/kernel/fat.ko"), 0o644, module("depends=")).unwrap();
    kernel.bytes(&format!("{modules}/kernel/igb.ko.gz"), 0o644, gzip(&module("depends="))).unwrap();
    let dep = "kernel/fat.ko:\nkernel/igb.ko.gz:\nkernel/vfat.ko: kernel/fat.ko\n";
    let index =
        [("dep", dep), ("alias", "alias fs-vfat vfat\n"), ("softdep", ""), ("builtin", super::BUILTIN)];
    for (name, content) in index {
        kernel.bytes(&format!("{modules}/modules.{name}"), 0o644, content).unwrap();
    }
    kernel.bytes("usr/lib/billet/boot/vmlinuz", 0o644, bzimage(OLD)).unwrap();
    kernel.bytes("usr/lib/billet/boot/grub-core.img", 0o644, "grub").unwrap();
    let build =
        |tree: &Tree, spec: &Spec<'_>| layer::build(tree, spec, directory, &mut installer::silent).unwrap();
    let layers = [
        build(&base, &Spec::new("base", "1.0")),
        build(&kernel, &Spec { kernel_release: Some(OLD), ..Spec::new("kernel", "1.0") }),
    ];
    let boot = BootParts {
        kernel: bzimage(OLD),
        stub: STUB.to_vec(),
        loader: STUB.to_vec(),
        modules: segment(&[
            (&format!("lib/modules/{OLD}/kernel/fat.ko"), "old"),
            (&format!("lib/modules/{OLD}/kernel/vfat.ko"), "old"),
            (&format!("lib/modules/{OLD}/modules.dep"), "kernel/fat.ko:\nkernel/vfat.ko: kernel/fat.ko\n"),
        ]),
        network: segment(&[
            (&format!("lib/modules/{OLD}/kernel/igb.ko"), "old"),
            (
                &format!("lib/modules/{OLD}/modules.dep"),
                "kernel/fat.ko:\nkernel/igb.ko:\nkernel/vfat.ko: kernel/fat.ko\n",
            ),
        ]),
        firmware: Vec::new(),
        init: segment(&[("init", "init")]),
        command_line: "panic=10".into(),
        boot_entry: "ID=billet\n".into(),
        loader_config: "timeout 0\n".into(),
        config_key: None,
        authorities: Vec::new(),
        signed_uki: Vec::new(),
    };
    Source::new(System { manifest: layer::stack("0.1.0", layers).unwrap(), boot }, directory.to_owned())
}

/// A compressed segment of an initramfs.
pub(crate) fn segment(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tree = Tree::new();
    for (path, content) in files {
        tree.bytes(path, 0o644, *content).unwrap();
    }
    initramfs::compressed_segment(&tree, 3).unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut out, bytes).unwrap();
    out.finish().unwrap()
}

pub(crate) fn files(path: &Path, files: &[(&str, &[u8])]) -> PathBuf {
    for (name, content) in files {
        let file = path.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    path.to_owned()
}

pub(crate) fn customised(source: &Source, profile: &Profile, work: &Path) -> Result<Source, String> {
    fs::create_dir_all(work).unwrap();
    customise(source, profile, work, &mut installer::silent).map_err(|error| error.to_string())
}

pub(crate) fn names(source: &Source) -> Vec<&str> {
    source.system.manifest.layers.iter().map(|layer| layer.name.as_str()).collect()
}

pub(crate) fn listed(source: &Source, name: &str) -> String {
    let layer = source.system.manifest.layers.iter().find(|layer| layer.name == name).unwrap();
    let path = layer::check(layer, &source.layers).unwrap();
    tool("unsquashfs", &["-lln", text(&path)])
}

pub(crate) fn content(source: &Source, name: &str, path: &str) -> String {
    let layer = source.system.manifest.layers.iter().find(|layer| layer.name == name).unwrap();
    tool("unsquashfs", &["-cat", text(&source.layers.join(layer.file_name())), path])
}

/// The names in the initramfs's first segment, as cpio lists them.
pub(crate) fn in_initramfs(source: &Source, dir: &Path) -> String {
    let path = dir.join("modules.cpio");
    // Zeros follow the frame.
    let mut frame = zstd::Decoder::new(&source.system.boot.modules[..]).unwrap().single_frame();
    std::io::copy(&mut frame, &mut fs::File::create(&path).unwrap()).unwrap();
    tool("cpio", &["--list", "--quiet", "--file", text(&path)])
}

/// What a machine that starts from the network finds in its initramfs, as its kernel unpacks that: segment after segment, the
/// later file of a name in the place of the earlier.
pub(crate) fn on_the_network(source: &Source, dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let directory = dir.join("pxe");
    Kind::Pxe.build(source, 512, &directory, &mut installer::silent).unwrap();
    let bytes = fs::read(directory.join("initramfs")).unwrap();
    let (mut left, mut found) = (&bytes[..], BTreeMap::new());
    while !left.is_empty() {
        let mut unpacked = Vec::new();
        if left[0] == 0 {
            left = &left[1..];
            continue;
        } else if left.starts_with(b"0707") {
            // What is not packed comes last.
            unpacked.extend_from_slice(std::mem::take(&mut left));
        } else {
            let mut frame = zstd::Decoder::with_buffer(&mut left).unwrap().single_frame();
            std::io::copy(&mut frame, &mut unpacked).unwrap();
        }
        for entry in cpio::Reader::new(&unpacked).map(Result::unwrap) {
            found.insert(entry.name.to_owned(), entry.content.to_vec());
        }
    }
    found
}
