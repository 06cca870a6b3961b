//! Kubernetes and etcd out of Debian's archive, where no modules of them can be had.
//!
//! Owns: the steps from the source package to the one file of Kubernetes. Debian's own changes, which are to kubectl's output, are
//! left out: it is what upstream published.
//! Does not: look for newer versions; a package of another version than the release's is an error.
//! Order: source package -> newer copies of what it imports -> the generated file -> the binary.
//! Source: build/root/Makefile.generated_files of Kubernetes 1.20 (openapi), its cmd/*/*.go (xtask/kubernetes/1.20/main.go).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use installer::tree::Tree;

use super::golang::{Go, Toolchain};
use super::modules;
use super::releases::{self, Release};
use crate::cache::{Cache, KeyBuilder};
use crate::command::Cmd;
use crate::inputs::{Freshness, Inputs, Package, Upstream};
use crate::step::step;

/// The source package, and the name of its directory before the version.
const SOURCE: &str = "kubernetes";
/// The file that is made.
const PROGRAM: &str = "kubernetes";
/// What it is called in its own imports.
const IMPORTED_AS: &str = "k8s.io/kubernetes";
/// Its copies of what others publish are imported under this.
const VENDOR: &str = "k8s.io/kubernetes/vendor/";

/// Where all programs of one binary are put into the source, and the package that this makes.
const MAIN: &str = "cmd/billet";

/// Packages of types lie below these directories. The second are those that it imports by way of `vendor`.
const TYPES: [&str; 2] = ["pkg", STAGING];
const STAGING: &str = "staging/src";
/// Examples and tools, of which the API server has nothing.
const WITHOUT: [&str; 2] = ["staging/src/k8s.io/code-generator", "staging/src/k8s.io/sample-apiserver"];
/// A comment of a package whose types are described.
const MARK: &str = "// +k8s:openapi-gen=true";
/// What describes them, and what it writes: Go that the API server imports. The published source has it not.
const GENERATOR: &str = "vendor/k8s.io/kube-openapi/cmd/openapi-gen";
const GENERATED: &str = "pkg/generated/openapi";
const GENERATED_FILE: &str = "zz_generated.openapi";
const LICENCE: &str = "hack/boilerplate/boilerplate.generatego.txt";

/// What the source has too old a copy of for a Go of today, by the package that has a newer one: with the copy of 2018, every map in
/// JSON ends the program since Go 1.18.
const NEWER: [(&str, &str); 1] = [("golang-github-modern-go-reflect2-dev", "github.com/modern-go/reflect2")];
/// Where such packages have their files.
const GO_PACKAGES: &str = "usr/share/gocode/src";

/// Packages of etcd, each with its program. The second restores snapshots: a program of its own does since 3.5.
const ETCD: [(&str, &str); 2] = [("etcd-server", "etcd"), ("etcd-client", "etcdctl")];

/// What the archive has of a release.
pub(super) struct Packaged<'a> {
    cache: &'a Cache,
    release: &'static Release,
    inputs: Inputs<'a>,
    toolchain: Toolchain,
    source: Upstream,
    newer: Vec<Package>,
    etcd: Vec<Package>,
}

impl<'a> Packaged<'a> {
    /// Looks the packages up; `go` compiles the source.
    pub(super) fn open(
        cache: &'a Cache,
        freshness: Freshness,
        release: &'static Release,
        go: releases::Go,
    ) -> Result<Self> {
        let mut inputs = Inputs::open_part(cache, freshness, go.archive)?;
        let toolchain = Toolchain::resolve(&mut inputs, go.version)?;
        let source = inputs.resolve_source(SOURCE)?;
        let newer = inputs.resolve(&NEWER.map(|(package, _)| package))?;
        let etcd = inputs.resolve(&ETCD.map(|(package, _)| package))?;
        for Package { name, version, .. } in &etcd {
            let is_it = version.starts_with(&format!("{}-", release.etcd));
            ensure!(is_it, "{name} is {version}, not {}", release.etcd);
        }
        Ok(Self { cache, release, inputs, toolchain, source, newer, etcd })
    }

    /// The one file of Kubernetes.
    pub(super) fn kubernetes(&mut self) -> Result<PathBuf> {
        let main = modules::directory().join(self.release.minor()).join("main.go");
        let variables = self.release.variables(VENDOR);
        let key = KeyBuilder::new("kubernetes of a source package 1").part(self.toolchain.identity());
        let key = variables.iter().fold(key.part(&self.source.sha256), |key, variable| key.part(variable));
        let key = self.newer.iter().fold(key, |key, package| key.part(&package.sha256));
        let entry = self.cache.entry("go-program", &key.file(&main)?.finish(), |entry| {
            let go = self.toolchain.unpack(self.cache, &mut self.inputs)?;
            let archive = self.inputs.upstream(&self.source)?;
            let scratch = self.cache.scratch()?;
            let source = scratch.path().join("src").join(IMPORTED_AS);
            step("unpack the source of Kubernetes", || unpack(&archive, self.release, &source))?;
            self.renew(&source)?;
            place_main(&main, &source)?;
            let name = format!("compile {PROGRAM} by Go {}: 5 to 15 minutes on two cores", go.version());
            step(&name, || {
                describe_types(&go, scratch.path(), &source)?;
                let package = format!("{IMPORTED_AS}/{MAIN}");
                go.build_in(scratch.path(), &package, &variables, &entry.join(PROGRAM))
            })
        })?;
        Ok(entry.join(PROGRAM))
    }

    /// Replaces the copies that are too old.
    fn renew(&mut self, source: &Path) -> Result<()> {
        let unpacked = self.inputs.unpack(&self.newer)?;
        for (package, name) in NEWER {
            let files_of = unpacked.get(package).with_context(|| format!("{package} was not unpacked"))?;
            let old = source.join("vendor").join(name);
            fs::remove_dir_all(&old).with_context(|| format!("remove {}", old.display()))?;
            Cmd::new("cp").arg("-R").arg(files_of.join(GO_PACKAGES).join(name)).arg(&old).run()?;
        }
        Ok(())
    }

    /// The server, and the tool that makes its data directory of a snapshot, in this directory.
    pub(super) fn etcd(&mut self, programs: &str) -> Result<Tree> {
        let unpacked = self.inputs.unpack(&self.etcd)?;
        let mut files = Tree::new();
        for (package, program) in ETCD {
            let files_of = unpacked.get(package).with_context(|| format!("{package} was not unpacked"))?;
            files.file(&format!("{programs}/{program}"), 0o755, files_of.join("usr/bin").join(program))?;
        }
        Ok(files)
    }
}

/// Puts the source where Go looks for it.
fn unpack(archive: &Path, release: &Release, source: &Path) -> Result<()> {
    let parent = source.parent().context("the source lies in a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    Cmd::new("tar").args(["--no-same-owner", "-xf"]).arg(archive).arg("-C").arg(parent).run()?;
    let unpacked = parent.join(format!("{SOURCE}-{}", release.kubernetes));
    let what =
        || format!("Debian's source is not of {}: {} is missing", release.kubernetes, unpacked.display());
    fs::rename(&unpacked, source).with_context(what)
}

fn place_main(main: &Path, source: &Path) -> Result<()> {
    let to = source.join(MAIN);
    fs::create_dir_all(&to).with_context(|| format!("create {}", to.display()))?;
    fs::copy(main, to.join("main.go")).with_context(|| format!("copy {}", main.display())).map(drop)
}

/// Writes the descriptions of all types that the API server serves.
fn describe_types(go: &Go, gopath: &Path, source: &Path) -> Result<()> {
    let generator = gopath.join("openapi-gen");
    go.build_in(gopath, &format!("{IMPORTED_AS}/{GENERATOR}"), &[], &generator)?;
    let packages = described(source)?;
    ensure!(!packages.is_empty(), "no package of the source has {MARK:?}");
    let run = go.run_in(gopath, &generator, source).arg("--go-header-file").arg(source.join(LICENCE));
    let run = run.args(["--input-dirs", &packages.join(",")]);
    let run = run.arg("--output-package").arg(format!("{IMPORTED_AS}/{GENERATED}"));
    let run = run.args(["--output-file-base", GENERATED_FILE]).arg("--output-base").arg(gopath.join("src"));
    // Names that are against the rules: Kubernetes compares them with a list.
    run.arg("--report-filename").arg(gopath.join("violations")).run()
}

/// The packages whose types are described, as they are imported, in order.
fn described(source: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for directory in TYPES {
        collect(source, directory, &mut found)?;
    }
    found.sort();
    Ok(found)
}

fn collect(source: &Path, directory: &str, found: &mut Vec<String>) -> Result<()> {
    let path = source.join(directory);
    let mut marked = false;
    for item in fs::read_dir(&path).with_context(|| format!("list {}", path.display()))? {
        let item = item.with_context(|| format!("list {}", path.display()))?;
        let kind = item.file_type().with_context(|| format!("inspect {}", item.path().display()))?;
        let name = item.file_name().to_string_lossy().into_owned();
        let below = format!("{directory}/{name}");
        if kind.is_dir() && !WITHOUT.contains(&below.as_str()) {
            collect(source, &below, found)?;
        } else if kind.is_file() && name.ends_with(".go") && !marked {
            let text = fs::read(item.path()).with_context(|| format!("read {}", item.path().display()))?;
            marked = text.split(|byte| *byte == b'\n').any(|line| line.starts_with(MARK.as_bytes()));
        }
    }
    if marked {
        found.push(match directory.strip_prefix(STAGING).and_then(|rest| rest.strip_prefix('/')) {
            Some(vendored) => format!("{VENDOR}{vendored}"),
            None => format!("{IMPORTED_AS}/{directory}"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_packages_are_described_under_the_names_of_their_imports() {
        let source = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("pkg/a/doc.go", "// +k8s:openapi-gen=true\npackage a\n"),
            ("pkg/b/doc.go", "// +k8s:openapi-gen=false\npackage b\n"),
            ("pkg/b/c/types.go", "package c\n\n// +k8s:openapi-gen=true\ntype C struct{}\n"),
            ("pkg/d/README.md", "// +k8s:openapi-gen=true\n"),
            ("staging/src/k8s.io/api/v1/doc.go", "// +k8s:openapi-gen=true\npackage v1\n"),
            ("staging/src/k8s.io/sample-apiserver/doc.go", "// +k8s:openapi-gen=true\npackage sample\n"),
        ] {
            let path = source.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
        }
        assert_eq!(
            described(source.path()).unwrap(),
            [
                "k8s.io/kubernetes/pkg/a",
                "k8s.io/kubernetes/pkg/b/c",
                "k8s.io/kubernetes/vendor/k8s.io/api/v1"
            ]
        );
    }

    #[test]
    fn a_source_of_another_version_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("kubernetes-1.2.3")).unwrap();
        let archive = root.path().join("upstream.tar");
        Cmd::new("tar")
            .arg("-C")
            .arg(root.path())
            .arg("-cf")
            .arg(&archive)
            .arg("kubernetes-1.2.3")
            .run()
            .unwrap();
        let [release, ..] = &super::super::releases::RELEASES;
        let error = unpack(&archive, release, &root.path().join("src/kubernetes")).unwrap_err();
        assert!(error.to_string().starts_with("Debian's source is not of 1.34.10: "), "{error:#}");
    }
}
