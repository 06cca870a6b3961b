//! Customised systems as other programs see their layers; the same bytes on every build.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{noise, text, tool};
use installer::custom::{Addition, From, Profile, customise};
use installer::image::Source;
use installer::layer::{self, Spec};
use installer::system::{BootParts, System};
use installer::tree::Tree;
use oci::archive::{self, Bytes, Content, NewImage};

/// A root with links as Debian has them, and a folder with modules.
fn source(folder: &Path) -> Source {
    fs::create_dir_all(folder).unwrap();
    let mut tree = Tree::new();
    for (link, target) in [("lib", "usr/lib"), ("bin", "usr/bin")] {
        tree.symlink(link, target).unwrap();
    }
    tree.bytes("usr/bin/tool", 0o755, noise(5000)).unwrap();
    tree.bytes("usr/lib/modules/6.1/a.ko", 0o644, "old").unwrap();
    tree.bytes("usr/lib/modules/6.1/b.ko", 0o644, "old").unwrap();
    tree.bytes("etc/ssl/certs/ca-certificates", 0o644, "# authorities").unwrap();
    tree.dir("usr/local", 0o711).unwrap();
    let base = layer::build(&tree, &Spec::new("base", "1.0"), folder, &mut installer::silent).unwrap();
    let boot = BootParts {
        kernel: Vec::new(),
        stub: Vec::new(),
        loader: Vec::new(),
        modules: Vec::new(),
        network: Vec::new(),
        init: Vec::new(),
        command_line: "console=ttyS0 panic=10".into(),
        boot_entry: String::new(),
        loader_config: String::new(),
        config_key: None,
        authorities: Vec::new(),
        signed_uki: Vec::new(),
    };
    Source::new(System { manifest: layer::stack("0.1.0", [base]).unwrap(), boot }, folder.to_owned())
}

fn custom(source: &Source, profile: &Profile, work: PathBuf) -> Result<Source, String> {
    fs::create_dir_all(&work).unwrap();
    customise(source, profile, &work, &mut installer::silent).map_err(|error| error.to_string())
}

/// What unsquashfs lists of a layer.
fn listed(source: &Source, name: &str) -> String {
    let layer = source.system.manifest.layers.iter().find(|layer| layer.name == name).unwrap();
    let path = layer::check(layer, &source.layers).unwrap();
    tool("unsquashfs", &["-lln", text(&path)])
}

fn content(source: &Source, name: &str, path: &str) -> String {
    let layer = source.system.manifest.layers.iter().find(|layer| layer.name == name).unwrap();
    tool("unsquashfs", &["-cat", text(&source.layers.join(layer.file_name())), path])
}

fn folder(path: &Path, files: &[(&str, &str)]) -> Addition {
    for (name, content) in files {
        let file = path.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    Addition { from: From::Folder(path.to_owned()), to: String::new() }
}

#[test]
fn a_customisation_is_two_layers_above_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let certificate = dir.path().join("ca.pem");
    fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n").unwrap();
    let config = dir.path().join("config.yaml");
    fs::write(&config, "version: v1alpha1\n").unwrap();
    let profile = Profile {
        additions: vec![
            folder(
                &dir.path().join("a"),
                &[
                    ("lib/modules/6.2/c.ko", "new"),
                    ("lib/modules/6.2/modules.dep", "c.ko:\n"),
                    ("lib/modules/6.2/modules.builtin", common::BUILTIN),
                    ("usr/local/lib/deep/x", "x"),
                ],
            ),
            Addition { to: "/opt/b".into(), ..folder(&dir.path().join("b"), &[("y", "y")]) },
        ],
        remove: vec!["/lib/modules".into(), "/lib/modules/6.1".into(), "/not/there".into()],
        kernel_arguments: vec!["quiet".into(), "-panic".into()],
        certificates: vec![certificate],
        firmware: Vec::new(),
        config: Some(config),
        config_key: None,
        kernel: None,
        extensions: Vec::new(),
    };
    let made = custom(&source, &profile, dir.path().join("work")).unwrap();
    let names: Vec<_> = made.system.manifest.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["base", "removed", "custom", "kernel"]);
    assert_eq!(made.system.manifest.layers[0], source.system.manifest.layers[0], "the base is as it was");
    assert_eq!(made.system.boot.command_line, "console=ttyS0 quiet");

    let removed = listed(&made, "removed");
    let whiteouts: Vec<&str> = removed.lines().filter(|line| line.starts_with('c')).collect();
    assert!(whiteouts.len() == 1 && whiteouts[0].ends_with("usr/lib/modules"), "{removed}");
    let custom_layer = listed(&made, "custom");
    for path in [
        "usr/local/lib/deep/x",
        "opt/b/y",
        "etc/ssl/certs/ca-certificates",
        "usr/local/etc/billet/config.yaml",
        "usr/lib/billet/boot/cmdline",
    ] {
        assert!(
            custom_layer.contains(&format!("squashfs-root/{path}\n")),
            "{path} is not in\n{custom_layer}"
        );
    }
    // The link /lib was followed, it is not covered by a folder.
    let kernel = listed(&made, "kernel");
    assert!(kernel.contains("squashfs-root/usr/lib/modules/6.2/c.ko\n"), "{kernel}");
    assert!(
        ![&custom_layer, &kernel].iter().any(|list| list.contains("squashfs-root/lib\n")),
        "{custom_layer}"
    );
    // A folder keeps the mode that it has below.
    let local = custom_layer.lines().find(|line| line.ends_with("/usr/local")).unwrap();
    assert!(local.starts_with("drwx--x--x"), "{local}");
    let secret = custom_layer.lines().find(|line| line.ends_with("config.yaml")).unwrap();
    assert!(secret.starts_with("-rw-------"), "{secret}");
    let bundle = content(&made, "custom", "etc/ssl/certs/ca-certificates");
    assert!(bundle.starts_with("# authorities\n-----BEGIN"), "{bundle}");
    // init believes the same authority before there is a root.
    assert!(made.system.boot.authorities.starts_with(b"-----BEGIN"));
    assert_eq!(content(&made, "custom", "usr/lib/billet/boot/cmdline"), "console=ttyS0 quiet");

    // The same once more, and a second customisation on the first.
    let again = custom(&source, &profile, dir.path().join("again")).unwrap();
    assert_eq!(again.system, made.system);
    let more =
        Profile { additions: vec![folder(&dir.path().join("c"), &[("opt/b/y", "z")])], ..Profile::default() };
    let more = custom(&made, &more, dir.path().join("more")).unwrap();
    assert_eq!(more.system.manifest.layers.len(), 5);
    assert_eq!(content(&more, "custom-2", "opt/b/y"), "z");
}

#[test]
fn tar_files_and_images_are_layers_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let files = dir.path().join("files");
    folder(&files, &[("usr/share/doc", "text"), ("usr/share/tool", "#!")]);
    std::os::unix::fs::symlink("doc", files.join("usr/share/link")).unwrap();
    fs::hard_link(files.join("usr/share/doc"), files.join("usr/share/same")).unwrap();
    let packed = dir.path().join("files.tar.gz");
    tool("tar", &["-C", text(&files), "--owner=7", "--group=8", "-czf", text(&packed), "."]);
    let addition = Addition { from: From::Tar(packed), to: String::new() };
    let profile = Profile { additions: vec![addition], ..Profile::default() };
    let made = custom(&source, &profile, dir.path().join("work")).unwrap();
    let list = listed(&made, "custom");
    for line in ["usr/share/link -> doc", "usr/share/same", "7/8"] {
        assert!(list.contains(line), "{line} is not in\n{list}");
    }
    assert_eq!(content(&made, "custom", "usr/share/same"), "text");
    assert_eq!(made.system.manifest.layers.len(), 2, "nothing was removed");

    // An image whose second layer takes a file of the first away.
    let file = |path: &str, text: &str| Content { path: path.into(), bytes: Bytes::Here(text.into()) };
    let image = NewImage {
        architecture: "amd64".into(),
        tag: "1".into(),
        labels: Default::default(),
        layers: vec![
            vec![file("opt/gone", "1"), file("opt/kept", "1"), file("opt/deep/gone", "1")],
            vec![file("opt/.wh.gone", ""), file("opt/deep/.wh..wh..opq", ""), file("opt/deep/new", "2")],
        ],
    };
    let path = dir.path().join("image.tar");
    archive::write(&mut fs::File::create(&path).unwrap(), &image).unwrap();
    let addition = Addition { from: From::Image(path), to: "/usr".into() };
    let profile = Profile { additions: vec![addition], ..Profile::default() };
    let made = custom(&source, &profile, dir.path().join("image-work")).unwrap();
    let list = listed(&made, "custom");
    assert!(list.contains("usr/opt/kept") && list.contains("usr/opt/deep/new"), "{list}");
    assert!(!list.contains("gone") && !list.contains(".wh."), "{list}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let refused = |profile: Profile| custom(&source, &profile, dir.path().join("work")).unwrap_err();
    let additions = |list: Vec<Addition>| Profile { additions: list, ..Profile::default() };
    let removing = |path: &str| Profile { remove: vec![path.into()], ..Profile::default() };

    let a = folder(&dir.path().join("a"), &[("opt/x", "1"), ("opt/same", "s"), ("opt/y", "1")]);
    let b = folder(&dir.path().join("b"), &[("opt/x", "2"), ("opt/same", "s"), ("opt/y", "2")]);
    let error = refused(additions(vec![a, b]));
    assert!(
        error.contains("/opt/x is in") && error.contains("/opt/y is in") && !error.contains("same"),
        "{error}"
    );

    let error = refused(additions(vec![folder(&dir.path().join("c"), &[("usr/bin/tool/x", "x")])]));
    assert!(error.contains("/usr/bin/tool") && error.contains("remove it first"), "{error}");
    let below = "etc/ssl/certs/ca-certificates/z";
    let error = refused(additions(vec![folder(&dir.path().join("d"), &[(below, "x")])]));
    assert!(error.contains("ca-certificates"), "{error}");
    for path in ["/", "", "/usr", "/lib", "/usr/lib/billet/boot/vmlinuz"] {
        assert!(refused(removing(path)).contains("nothing starts without it"), "{path:?}");
    }
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let packed = dir.path().join("fifo.tar");
    tool("tar", &["-C", text(dir.path()), "-cf", text(&packed), "fifo"]);
    let error = refused(additions(vec![Addition { from: From::Tar(packed), to: String::new() }]));
    assert!(error.contains("fifo"), "{error}");
    let profile = Profile { certificates: vec![dir.path().join("a/opt/x")], ..Profile::default() };
    assert!(refused(profile).contains("no certificate in PEM form"));
}

/// A file that was named by mistake may be a secret: what it is is told, nothing that is in it.
#[test]
fn what_is_no_tar_file_is_told_without_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let said = |profile: Profile| {
        fs::create_dir_all(dir.path().join("work")).unwrap();
        let error =
            customise(&source, &profile, &dir.path().join("work"), &mut installer::silent).unwrap_err();
        let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    };
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let config = b"version: v1alpha1\nmachine:\n  token: 4hrlfe.secret\n".repeat(20);
    let good = dir.path().join("good.tar");
    folder(&dir.path().join("good"), &[("usr/a", "a")]);
    tool("tar", &["-C", text(&dir.path().join("good")), "-cf", text(&good), "."]);
    let mut damaged = fs::read(&good).unwrap();
    damaged[512..512 + 700].copy_from_slice(&config[..700]);
    let packed = zstd::bulk::compress(&config, 3).unwrap();
    for (path, wanted) in [
        (file("machine.yaml", &config), "machine.yaml is no tar file (it is a YAML file)"),
        (file("packed.zst", &packed), "packed.zst is no tar file (it is a YAML file)"),
        (file("passwd", b"root:x:0:0:secret:/root:/bin/sh\n"), "passwd is no tar file (it is a text)"),
        (file("damaged.tar", &damaged), "damaged.tar: the tar file is damaged"),
        (file("cut.tar", &fs::read(&good).unwrap()[..512 * 3 + 100]), "cut.tar: the tar file is"),
    ] {
        let addition = Addition { from: From::Tar(path.clone()), to: String::new() };
        let added = said(Profile { additions: vec![addition], ..Profile::default() });
        let extension = said(Profile { extensions: vec![path], ..Profile::default() });
        for said in [added, extension] {
            assert!(said.contains(wanted), "{wanted:?} is not in {said}");
            assert!(!said.contains("secret") && !said.contains("token"), "{said}");
        }
    }
    for (name, content, wanted) in [
        ("from.yaml", &config, "from.yaml is no tar file (it is a YAML file): an image is a tar file"),
        ("from.zst", &packed, "from.zst is no tar file (it is a zstd file): unpack it first (unzstd)"),
        ("from.tar", &damaged, "read "),
    ] {
        let error = Source::open(&file(name, content), dir.path()).unwrap_err();
        let said = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
        assert!(said.contains(wanted) && said.contains(name), "{wanted:?} is not in {said}");
        assert!(!said.contains("secret") && !said.contains("token"), "{said}");
    }
}
