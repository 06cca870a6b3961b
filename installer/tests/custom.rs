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

/// One that OpenSSL made.
const CERTIFICATE: &str = include_str!("../../crates/api/testdata/client-multi-role.crt");

/// A root with links as Debian has them, and a directory with modules.
fn source(directory: &Path) -> Source {
    fs::create_dir_all(directory).unwrap();
    let mut tree = Tree::new();
    for (link, target) in [("lib", "usr/lib"), ("bin", "usr/bin")] {
        tree.symlink(link, target).unwrap();
    }
    tree.bytes("usr/bin/tool", 0o755, noise(5000)).unwrap();
    tree.bytes("usr/lib/modules/6.1/a.ko", 0o644, "old").unwrap();
    tree.bytes("usr/lib/modules/6.1/b.ko", 0o644, "old").unwrap();
    tree.bytes("etc/ssl/certs/ca-certificates", 0o644, "# authorities").unwrap();
    tree.dir("usr/local", 0o711).unwrap();
    let base = layer::build(&tree, &Spec::new("base", "1.0"), directory, &mut installer::silent).unwrap();
    let boot = BootParts {
        kernel: Vec::new(),
        stub: Vec::new(),
        loader: Vec::new(),
        modules: Vec::new(),
        network: Vec::new(),
        firmware: Vec::new(),
        init: Vec::new(),
        command_line: "console=ttyS0 panic=10".into(),
        boot_entry: String::new(),
        loader_config: String::new(),
        config_key: None,
        authorities: Vec::new(),
        signed_uki: Vec::new(),
    };
    Source::new(System { manifest: layer::stack("0.1.0", [base]).unwrap(), boot }, directory.to_owned())
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

fn directory(path: &Path, files: &[(&str, &str)]) -> Addition {
    for (name, content) in files {
        let file = path.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    Addition { from: From::Directory(path.to_owned()), to: String::new() }
}

#[test]
fn a_customisation_is_two_layers_above_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let certificate = dir.path().join("ca.pem");
    fs::write(&certificate, CERTIFICATE).unwrap();
    let config = dir.path().join("config.yaml");
    fs::write(&config, "version: v1alpha1\n").unwrap();
    let profile = Profile {
        platform: None,
        additions: vec![
            directory(
                &dir.path().join("a"),
                &[
                    ("lib/modules/6.2/c.ko", "new"),
                    ("lib/modules/6.2/modules.dep", "c.ko:\n"),
                    ("lib/modules/6.2/modules.builtin", common::BUILTIN),
                    ("usr/local/lib/deep/x", "x"),
                ],
            ),
            Addition { to: "/opt/b".into(), ..directory(&dir.path().join("b"), &[("y", "y")]) },
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
    // The link /lib was followed, it is not covered by a directory.
    let kernel = listed(&made, "kernel");
    assert!(kernel.contains("squashfs-root/usr/lib/modules/6.2/c.ko\n"), "{kernel}");
    assert!(
        ![&custom_layer, &kernel].iter().any(|list| list.contains("squashfs-root/lib\n")),
        "{custom_layer}"
    );
    // A directory keeps the mode that it has below.
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
    let more = Profile {
        additions: vec![directory(&dir.path().join("c"), &[("opt/b/y", "z")])],
        ..Profile::default()
    };
    let more = custom(&made, &more, dir.path().join("more")).unwrap();
    assert_eq!(more.system.manifest.layers.len(), 5);
    assert_eq!(content(&more, "custom-2", "opt/b/y"), "z");
}

#[test]
fn the_same_customisation_once_more_is_there_once_and_on_top() {
    let temp = tempfile::tempdir().unwrap();
    let base = source(&temp.path().join("base"));
    let first = Profile {
        remove: vec!["/bin/tool".into()],
        additions: vec![directory(&temp.path().join("files"), &[("opt/site", "one")])],
        certificates: vec![temp.path().join("authority.pem")],
        ..Profile::default()
    };
    fs::write(temp.path().join("authority.pem"), CERTIFICATE).unwrap();
    let tool_again = directory(&temp.path().join("tool"), &[("usr/bin/tool", "new")]);
    let second = Profile { additions: vec![tool_again], ..Profile::default() };
    let mut made = base;
    for (number, profile) in [&first, &first, &second, &first].into_iter().enumerate() {
        made = custom(&made, profile, temp.path().join(number.to_string())).unwrap();
    }
    let layers = &made.system.manifest.layers;
    let names: Vec<_> = layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["base", "custom-2", "removed", "custom"]);
    // Installer images, ISOs and network boot directories have each layer as a file of its root hash.
    for (index, layer) in layers.iter().enumerate() {
        layer::check(layer, &made.layers).unwrap();
        assert!(!layers.iter().skip(index + 1).any(|other| other.root_hash == layer.root_hash), "{names:?}");
    }
    assert_eq!(content(&made, "custom", "opt/site"), "one");
}

#[test]
fn tar_files_and_images_are_layers_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let files = dir.path().join("files");
    directory(&files, &[("usr/share/doc", "text"), ("usr/share/tool", "#!")]);
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

    let a = directory(&dir.path().join("a"), &[("opt/x", "1"), ("opt/same", "s"), ("opt/y", "1")]);
    let b = directory(&dir.path().join("b"), &[("opt/x", "2"), ("opt/same", "s"), ("opt/y", "2")]);
    let error = refused(additions(vec![a, b]));
    assert!(
        error.contains("/opt/x is in") && error.contains("/opt/y is in") && !error.contains("same"),
        "{error}"
    );

    let error = refused(additions(vec![directory(&dir.path().join("c"), &[("usr/bin/tool/x", "x")])]));
    assert!(error.contains("/usr/bin/tool") && error.contains("remove it first"), "{error}");
    let below = "etc/ssl/certs/ca-certificates/z";
    let error = refused(additions(vec![directory(&dir.path().join("d"), &[(below, "x")])]));
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
    let lines: Vec<&str> = CERTIFICATE.lines().collect();
    let key = "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n";
    for (text, wanted) in [
        (CERTIFICATE.replace(lines[3], ""), "certificate 1 is damaged: what its PEM holds is no X.509"),
        (format!("{CERTIFICATE}{}", CERTIFICATE.replace("MII", "!!!")), "certificate 2 is damaged"),
        (format!("{CERTIFICATE}{key}"), "it has a private key, which everybody who has the image could read"),
    ] {
        let path = dir.path().join("bad.pem");
        fs::write(&path, text).unwrap();
        let error = refused(Profile { certificates: vec![path], ..Profile::default() });
        assert!(error.contains(wanted) && !error.contains("secret"), "{wanted:?} is not in {error}");
    }
    let part = directory(&dir.path().join("part"), &[("lib/billet/boot/cmdline", "quiet")]);
    let error = refused(additions(vec![part]));
    assert!(error.contains("/lib/billet/boot/cmdline") && error.contains("--extra-kernel-arg"), "{error}");
    let profile = Profile { kernel_arguments: vec!["a\nb".into()], ..Profile::default() };
    let error = refused(profile);
    assert!(error.contains("--extra-kernel-arg") && !error.contains("machine.install"), "{error}");
    let links = dir.path().join("links");
    directory(&links, &[("in/a", "a"), ("out", "o")]);
    fs::hard_link(links.join("in/a"), links.join("in/b")).unwrap();
    let packed = dir.path().join("links.tar");
    tool("tar", &["-C", text(&links), "-cf", text(&packed), "in/a", "in/b"]);
    tool("tar", &["-f", text(&packed), "--delete", "in/a"]);
    let error = refused(additions(vec![Addition { from: From::Tar(packed.clone()), to: String::new() }]));
    assert!(error.contains("links.tar: /in/b is a hard link to in/a"), "{error}");
    // Names as somebody typed them are those of the same files.
    tool("tar", &["-C", text(&links), "-cf", text(&packed), ".//in//a", ".//in//b"]);
    let profile = additions(vec![Addition { from: From::Tar(packed), to: String::new() }]);
    custom(&source, &profile, dir.path().join("doubled")).unwrap();
}

/// Each was packed wrong, or hid other files, without a word.
#[test]
fn tar_entries_that_would_be_packed_wrong_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let packed = dir.path().join("files.tar");
    let refused = || {
        let addition = Addition { from: From::Tar(packed.clone()), to: String::new() };
        let profile = Profile { additions: vec![addition], ..Profile::default() };
        custom(&source, &profile, dir.path().join("work")).unwrap_err()
    };
    let holes = fs::File::create(dir.path().join("holes")).unwrap();
    holes.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&holes, b"end", (1 << 20) - 3).unwrap();
    let formats: [&[&str]; 4] = [
        &["--format=gnu"],
        &["--format=posix", "--sparse-version=0.0"],
        &["--format=posix", "--sparse-version=0.1"],
        &["--format=posix", "--sparse-version=1.0"],
    ];
    for format in formats {
        let more = ["-C", text(dir.path()), "--sparse", "-cf", text(&packed), "holes"];
        tool("tar", &[format, &more].concat());
        let error = refused();
        assert!(error.contains("files.tar: /holes is stored as a sparse file"), "{format:?}: {error}");
        assert!(error.contains("without --sparse"), "{error}");
    }
    let deep = vec!["d"; 800].join("/");
    let name = |bytes: usize| format!("opt/{}", "n".repeat(bytes));
    for (path, target, wanted) in [
        (name(256), None, "more than 255 bytes"),
        (name(300), None, "more than 255 bytes"),
        (deep, None, "more than 99 directories"),
        (".wh.".to_owned(), None, "/.wh. takes away a name without saying which"),
        ("opt/.wh.".to_owned(), None, "/opt/.wh. takes away a name without saying which"),
        ("opt/link".to_owned(), Some(""), "/opt/link is a symbolic link to nothing"),
    ] {
        let mut builder = tar::Builder::new(fs::File::create(&packed).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(0);
        if target.is_some() {
            header.set_entry_type(tar::EntryType::Symlink);
        }
        builder.append_data(&mut header, &path, &b""[..]).unwrap();
        builder.finish().unwrap();
        let error = refused();
        assert!(error.contains("files.tar: /") && error.contains(wanted), "{wanted:?} is not in {error}");
        assert!(error.len() < 400, "{error}");
    }
    for sizes in [&["1", "2"][..], &["99999999999999999999999"]] {
        let mut builder = tar::Builder::new(fs::File::create(&packed).unwrap());
        builder.append_pax_extensions(sizes.iter().map(|size| ("size", size.as_bytes()))).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(1);
        builder.append_data(&mut header, "opt/x", &b"x"[..]).unwrap();
        builder.finish().unwrap();
        let error = refused();
        assert!(error.contains("files.tar: /opt/x has two sizes, or one that is no number"), "{error}");
    }
}

/// /lib and /bin are links of the root: a place has several paths.
#[test]
fn sources_that_want_one_place_are_listed_by_both_spellings() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let added = |additions: Vec<Addition>, work: &str| {
        custom(&source, &Profile { additions, ..Profile::default() }, dir.path().join(work))
    };
    let one = directory(&dir.path().join("one"), &[("lib/x", "1"), ("lib/same", "s"), ("bin/y", "1")]);
    let other =
        directory(&dir.path().join("other"), &[("usr/lib/x", "2"), ("usr/lib/same", "s"), ("bin/y", "2")]);
    let error = added(vec![one.clone(), other], "work").unwrap_err();
    for (line, name) in
        [("/usr/lib/x is in ", "one (as /lib/x) and"), ("/usr/bin/y is in ", "other (as /bin/y)")]
    {
        let line = error
            .lines()
            .find(|text| text.contains(line))
            .unwrap_or_else(|| panic!("{line} is not in {error}"));
        assert!(line.contains(name) && line.contains(" and, different, in "), "{name} is not in {line}");
    }
    assert!(!error.contains("same"), "{error}");
    // A directory goes to where the link leads, a file takes its place.
    let file = directory(&dir.path().join("file"), &[("bin", "no directory")]);
    let error = added(vec![one.clone(), file], "file-work").unwrap_err();
    assert!(error.contains("/bin is in ") && error.contains("/one and, different, in "), "{error}");
    // Where they agree there is one of it.
    let same = directory(&dir.path().join("same"), &[("usr/lib/same", "s"), ("usr/bin/z", "z")]);
    let made = added(vec![one, same], "same-work").unwrap();
    let list = listed(&made, "custom");
    for path in ["usr/lib/x", "usr/lib/same", "usr/bin/y", "usr/bin/z"] {
        assert_eq!(list.matches(&format!("squashfs-root/{path}\n")).count(), 1, "{path} in\n{list}");
    }
}

/// What `--add FILE:/DIRECTORY` takes for one file, for a tar file, and for what only the user knows.
#[test]
fn one_file_is_told_from_a_tar_file_by_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.tar");
    directory(&dir.path().join("good"), &[("tool", "#!")]);
    tool("tar", &["-C", text(&dir.path().join("good")), "-cf", text(&good), "tool"]);
    let tar = fs::read(&good).unwrap();
    let zst = |bytes: &[u8]| zstd::bulk::compress(bytes, 3).unwrap();
    let gz = |bytes: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut out, bytes).unwrap();
        out.finish().unwrap()
    };
    let found = |name: &str, content: &[u8], to: &str| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        Addition::found(path, to.to_owned()).map(|addition| addition.from).map_err(|error| error.to_string())
    };
    for (name, content) in [("a.tar", tar.clone()), ("a.tar.gz", gz(&tar)), ("a.tar.zst", zst(&tar))] {
        for to in ["", "/usr/local"] {
            assert_eq!(found(name, &content, to), Ok(From::Tar(dir.path().join(name))), "{name} {to:?}");
        }
    }
    let noise = noise(50_000);
    let cut = &gz(&noise)[..20_000];
    let zeros = [vec![0; 512], noise.clone()].concat();
    for (name, content) in [
        ("fw.bin.zst", &zst(&noise)[..]),
        ("fw.bin.gz", &gz(b"short")),
        ("empty.gz", &gz(b"")),
        ("cut.bin.gz", cut),
        ("tool", b"#!"),
        ("zeros.bin", &zeros),
        ("empty", b""),
    ] {
        let path = dir.path().join(name);
        assert_eq!(found(name, content, "/usr/lib/firmware"), Ok(From::File(path.clone())), "{name}");
        assert_eq!(found(name, content, ""), Ok(From::Tar(path)), "{name}: refused when it is read");
    }
    let mut damaged = tar.clone();
    damaged[..8].copy_from_slice(b"otherwis");
    for (name, content, wanted) in [
        (
            "a.tar.xz",
            &b"\xfd7zXZ\0\0"[..],
            "is an xz file: unpack it first (unxz); to have it in /usr/local as it is",
        ),
        ("a.tar.bz2", b"BZh91AY", "is a bzip2 file: unpack it first (bunzip2); "),
        ("a.zip", b"PK\x03\x04", "is a ZIP file: unpack it first (unzip); "),
        ("damaged.tar", &damaged, "is a damaged tar file: make it once more; "),
        ("damaged.tar.zst", &zst(&damaged), "is a damaged tar file: make it once more; "),
        ("damaged.gz", &[0x1f, 0x8b, 0xff, 0xff, 0, 0], "is a gzip file: unpack it first (gunzip); "),
    ] {
        let error = found(name, content, "/usr/local").unwrap_err();
        assert!(error.contains(&format!("{name} {wanted}")), "{wanted:?} is not in {error}");
        assert!(error.ends_with("name it in a profile ([[add]] file = …, to = \"/usr/local\")"), "{error}");
    }
    // As the error says.
    let source = source(&dir.path().join("base"));
    let profile = dir.path().join("profile.toml");
    fs::write(&profile, "[[add]]\nfile = 'a.zip'\nto = '/usr/local'\n").unwrap();
    let made = custom(&source, &Profile::read(&profile).unwrap(), dir.path().join("work")).unwrap();
    assert_eq!(content(&made, "custom", "usr/local/a.zip"), "PK\x03\x04");
}

/// An image as a file, packed and as a directory; what of it is added, and what is not.
#[test]
fn images_are_told_from_tar_files() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let (tar, layout) = (dir.path().join("image.tar"), dir.path().join("layout"));
    let file = |path: &str, text: &str| Content { path: path.into(), bytes: Bytes::Here(text.into()) };
    let image = |architecture: &str| NewImage {
        architecture: architecture.into(),
        tag: "1".into(),
        labels: Default::default(),
        layers: vec![vec![file("opt/x", "x")]],
    };
    archive::write(&mut fs::File::create(&tar).unwrap(), &image("amd64")).unwrap();
    fs::create_dir(&layout).unwrap();
    tool("tar", &["-C", text(&layout), "-xf", text(&tar)]);
    let docker = dir.path().join("docker.tar");
    archive::write_docker(&mut fs::File::create(&docker).unwrap(), &image("amd64"), "a/b", &[]).unwrap();
    let packed = dir.path().join("docker.tar.gz");
    tool("cp", &[text(&docker), text(&dir.path().join("docker"))]);
    tool("gzip", &["-n", text(&dir.path().join("docker"))]);
    fs::rename(dir.path().join("docker.gz"), &packed).unwrap();
    let added = |from: From| {
        let profile = Profile { additions: vec![Addition { from, to: String::new() }], ..Profile::default() };
        custom(&source, &profile, dir.path().join("work"))
    };
    for path in [&tar, &docker, &packed, &layout] {
        let found = Addition::found(path.clone(), String::new()).unwrap();
        let error = added(found.from).unwrap_err();
        assert!(error.contains("is a container image") && error.contains("[[add]] image = "), "{error}");
    }
    let wanted = added(From::Image(tar)).unwrap();
    assert_eq!(content(&wanted, "custom", "opt/x"), "x");
    for path in [&layout, &docker] {
        assert_eq!(added(From::Image(path.clone())).unwrap().system, wanted.system);
    }
    let foreign = dir.path().join("foreign.tar");
    archive::write(&mut fs::File::create(&foreign).unwrap(), &image("arm64")).unwrap();
    let error = added(From::Image(foreign)).unwrap_err();
    assert!(
        error.ends_with("is for linux/arm64, and what is made is for linux/amd64: give one for that"),
        "{error}"
    );
    // A file of a web site that has the name only.
    let site =
        directory(&dir.path().join("site"), &[("usr/share/manifest.json", "{}"), ("manifest.json", "[]")]);
    added(site.from).unwrap();
    // A layer that zstd packed: its type says so, and its first bytes.
    let config = fs::read_dir(layout.join("blobs/sha256")).unwrap().count();
    assert_eq!(config, 3);
    let index = fs::read_to_string(layout.join("index.json")).unwrap();
    let digest = |text: &str| text.split("sha256:").nth(1).unwrap()[..64].to_owned();
    let blob = |digest: &str| layout.join("blobs/sha256").join(digest);
    let manifest = fs::read_to_string(blob(&digest(&index))).unwrap();
    let layer = manifest.rsplit("sha256:").next().unwrap()[..64].to_owned();
    let put = |bytes: &[u8]| {
        fs::write(dir.path().join("blob"), bytes).unwrap();
        let hash = tool("sha256sum", &[text(&dir.path().join("blob"))])[..64].to_owned();
        fs::write(blob(&hash), bytes).unwrap();
        hash
    };
    let old = fs::read(blob(&layer)).unwrap();
    let new = zstd::bulk::compress(&old, 3).unwrap();
    let sized = |text: String, old: usize, new: usize| {
        text.replace(&format!("\"size\":{old}"), &format!("\"size\":{new}"))
    };
    let changed = sized(manifest.replace(&layer, &put(&new)), old.len(), new.len());
    let index =
        sized(index.replace(&digest(&index), &put(changed.as_bytes())), manifest.len(), changed.len());
    fs::write(layout.join("index.json"), index).unwrap();
    assert_eq!(added(From::Image(layout)).unwrap().system, wanted.system);
}

/// Extensions that come one after the other, and what of them a node does nothing with.
#[test]
fn an_image_has_an_extension_once() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("base"));
    let extension = |place: &str, name: &str, files: &[(&str, &str)]| {
        let path = dir.path().join(place);
        let manifest = format!("version: v1alpha1\nmetadata:\n  name: {name}\n  version: '1.0'\n");
        directory(&path, &[("manifest.yaml", &manifest)]);
        directory(&path.join("rootfs"), files);
        path
    };
    let with = |extensions: Vec<PathBuf>| Profile { extensions, ..Profile::default() };
    let tools = extension(
        "tools",
        "tools",
        &[
            ("usr/local/bin/tool", "1"),
            ("usr/local/same", "s"),
            ("usr/local/etc/containers/tool.yaml", "name: tool"),
            ("usr/lib/firmware/intel-ucode/06-00-00", "m"),
        ],
    );
    let made = custom(&source, &with(vec![tools.clone()]), dir.path().join("work")).unwrap();
    let [services, microcode] = made.warnings.as_slice() else { panic!("{:?}", made.warnings) };
    assert!(services.contains("extension tools: nodes do not run the services that"), "{services}");
    assert!(services.contains("/usr/local/etc/containers/tool.yaml"), "{services}");
    assert!(microcode.contains("do not load the processor microcode"), "{microcode}");
    let refused = |profile: Profile| custom(&made, &profile, dir.path().join("more")).unwrap_err();
    let files: [(&str, &str); 1] = [("usr/local/bin/twin", "1")];
    let twins = ["twin-one", "twin-two"].map(|name| extension(name, name, &files));
    let twin = refused(with(twins.to_vec()));
    assert!(
        twin.contains("extension twin-two: its files are those of the extension twin-one: leave one"),
        "{twin}"
    );
    let again = refused(with(vec![tools.clone()]));
    assert!(
        again.contains("extension tools: the image has an extension of this name, version 1.0"),
        "{again}"
    );
    let other = extension("other", "other", &[("usr/local/bin/tool", "2"), ("usr/local/same", "s")]);
    let error = refused(with(vec![other]));
    assert!(
        error.contains(
            "/usr/local/bin/tool is in extension tools of the image and, different, in extension other"
        ),
        "{error}"
    );
    assert!(!error.contains("same"), "{error}");
    let third = extension("third", "third", &[("usr/local/third", "3")]);
    let twice = refused(with(vec![third.clone(), third.clone()]));
    assert!(twice.contains("extension third: it is named twice"), "{twice}");
    let more = custom(&made, &with(vec![third]), dir.path().join("third-work")).unwrap();
    assert_eq!(more.system.manifest.layers.len(), 3);
    let profile = Profile { remove: vec!["/usr/bin/tool".into(), "-nothere".into()], ..Profile::default() };
    let made = custom(&source, &profile, dir.path().join("absent")).unwrap();
    assert_eq!(made.warnings, ["remove: the image has no -nothere, so nothing is removed there"]);
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
    directory(&dir.path().join("good"), &[("usr/a", "a")]);
    tool("tar", &["-C", text(&dir.path().join("good")), "-cf", text(&good), "."]);
    let mut damaged = fs::read(&good).unwrap();
    damaged[512..512 + 700].copy_from_slice(&config[..700]);
    let packed = zstd::bulk::compress(&config, 3).unwrap();
    for (path, wanted) in [
        (file("machine.yaml", &config), "machine.yaml is no tar file (it is a YAML file)"),
        (file("packed.zst", &packed), "packed.zst, unpacked, is no tar file (it is a YAML file)"),
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
