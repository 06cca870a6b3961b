//! The data agrees with crates/kubernetes and with the modules that are pinned; real images say their versions.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use kubernetes::Cluster;

use super::contents::{self, NAMES, images};
use super::modules::pins;
use super::releases::{Origin, RELEASES, Release};
use super::*;
use crate::place;

/// Paths below whatever registry.
fn below(names: Vec<String>) -> BTreeSet<String> {
    names.into_iter().map(|name| name.split_once('/').unwrap().1.to_owned()).collect()
}

/// What a control plane node's configuration says, with these lines in the part `cluster`.
fn configuration(machine: &str, cluster: &str) -> config::Config {
    let text = format!(
        "version: v1alpha1\nmachine:\n  type: controlplane\n{machine}cluster:\n  controlPlane: {{endpoint: \
         \"https://demo.example.org:6443\"}}\n{cluster}"
    );
    config::parse(&text).unwrap()
}

/// A configuration that names the images of a release below a registry, but for those that belong to its version.
fn naming(release: &Release) -> config::Config {
    let specs = images(release);
    let name = |wanted: &str| {
        let spec = specs.iter().find(|spec| spec.repository.ends_with(wanted));
        let spec = spec.unwrap_or_else(|| panic!("no image {wanted}"));
        format!("\"127.0.0.1:5000/{}:{}\"", spec.repository, spec.tag)
    };
    configuration(
        &format!("  kubelet: {{image: {}}}\n", name("kubelet")),
        &format!(
            "  apiServer: {{image: {}}}\n  controllerManager: {{image: {}}}\n  scheduler: {{image: {}}}\n  \
             proxy: {{image: {}}}\n",
            name("kube-apiserver"),
            name("kube-controller-manager"),
            name("kube-scheduler"),
            name("kube-proxy")
        ),
    )
}

#[test]
fn every_image_that_a_cluster_pulls_is_made_under_its_name() {
    for release in &RELEASES {
        let config = naming(release);
        let pulled = below(kubernetes::images::all(&Cluster::new(&config).unwrap()));
        let made: BTreeSet<String> =
            images(release).iter().map(|spec| format!("{}:{}", spec.repository, spec.tag)).collect();
        assert_eq!(made, pulled, "{}", release.kubernetes);
    }
}

/// Repositories are those of a configuration that names no image: a mirror of their registries has them.
#[test]
fn repositories_are_those_of_a_configuration_without_images() {
    let config = configuration("", "");
    let repository = |name: String| name.split_once(':').unwrap().0.to_owned();
    let defaults = below(kubernetes::images::all(&Cluster::new(&config).unwrap()));
    let defaults: BTreeSet<String> = defaults.into_iter().map(repository).collect();
    let made: BTreeSet<String> = images(&RELEASES[0]).iter().map(|spec| spec.repository.to_owned()).collect();
    assert_eq!(made, defaults);
}

#[test]
fn modules_are_pinned_to_the_versions_of_the_release() {
    for release in &RELEASES {
        for (module, line) in [
            (contents::core_dns_module(release), format!("github.com/coredns/coredns v{}", release.core_dns)),
            (contents::flannel_module(), format!("github.com/flannel-io/flannel v{}", release.flannel)),
        ] {
            let pins = pins(&module);
            assert!(
                pins.lines().any(|found| found.trim_end_matches(" // indirect").ends_with(&line)),
                "go.mod of {} lacks {line:?}",
                module.name
            );
        }
    }
    for release in RELEASES.iter().filter(|release| release.origin == Origin::Modules) {
        let pins = pins(&contents::module(release));
        for line in [
            format!("\tk8s.io/kubernetes v{}", release.kubernetes),
            format!("\tgo.etcd.io/etcd/server/v3 v{}", release.etcd),
            format!("\tgo.etcd.io/etcd/etcdutl/v3 v{}", release.etcd),
        ] {
            assert!(pins.lines().any(|found| found == line), "go.mod of {} lacks {line:?}", release.minor());
        }
        let staging = format!("v0.{}", release.kubernetes.trim_start_matches("1."));
        let replaced: Vec<&str> = pins.lines().filter(|line| line.contains(" => k8s.io/")).collect();
        assert!(replaced.len() > 20, "{replaced:?}");
        assert!(replaced.iter().all(|line| line.ends_with(&format!(" {staging}"))), "{replaced:?}");
    }
}

#[test]
fn each_name_is_a_case_of_the_one_binary() {
    for main in ["main.go", "1.20/main.go"] {
        let source = fs::read_to_string(super::modules::directory().join(main)).unwrap();
        let cases = source.lines().filter_map(|line| line.trim().strip_prefix('"')?.split_once("\":"));
        assert_eq!(cases.map(|(name, _)| name).collect::<Vec<_>>(), NAMES, "{main}");
    }
}

#[test]
fn a_version_without_images_is_told_which_ones_there_are() {
    assert_eq!(Release::find("v1.34.10").unwrap().kubernetes, "1.34.10");
    let error = Release::find("1.2.3").unwrap_err().to_string();
    assert!(error.contains("\"1.2.3\": use 1.34.10, 1.37.2, 1.20.2, or"), "{error}");
}

/// The files of an image, unpacked to a directory.
fn unpacked(made: &Made) -> tempfile::TempDir {
    let archive = oci::archive::Archive::open(&made.archive).unwrap();
    let (manifest, _) = archive.image(ARCHITECTURE).unwrap();
    let root = tempfile::tempdir().unwrap();
    for (number, layer) in manifest.layers.iter().enumerate() {
        let file = root.path().join(format!("layer-{number}.tar"));
        std::io::copy(&mut archive.blob(layer).unwrap(), &mut File::create(&file).unwrap()).unwrap();
        let untar = Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(root.path()).status().unwrap();
        assert!(untar.success());
    }
    root
}

#[test]
#[ignore = "compiles Kubernetes where the cache has none: `cargo test -p xtask -- --ignored programs_say`"]
fn programs_say_their_versions_and_find_their_libraries() {
    let cache = Cache::open(&place::cache().unwrap()).unwrap();
    for release in &RELEASES {
        let made = make(&cache, Freshness::Day, release).unwrap();
        let of = |repository: &str| made.iter().find(|image| image.repository == repository).unwrap();
        let said = |root: &Path, words: &[&str]| {
            let output = Command::new(root.join(words[0])).args(&words[1..]).output().unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let kubelet = unpacked(of("siderolabs/kubelet"));
        let version = format!("v{}", release.kubernetes);
        for name in ["kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"] {
            let text = said(kubelet.path(), &[&format!("usr/local/bin/{name}"), "--version"]);
            assert_eq!(text.trim(), format!("Kubernetes {version}"), "{name}");
        }
        // By the image's own linker and libraries.
        let libraries = kubelet.path().join("usr/lib/x86_64-linux-gnu");
        let linker = "usr/lib64/ld-linux-x86-64.so.2";
        for words in [
            ["usr/sbin/nft", "--version"],
            ["usr/sbin/xtables-nft-multi", "iptables"],
            ["usr/bin/nsenter", "--version"],
            ["usr/bin/mount", "--version"],
            ["usr/sbin/blkid", "--version"],
            ["usr/bin/du", "--version"],
            ["usr/bin/cp", "--version"],
        ] {
            let program = kubelet.path().join(words[0]);
            let (libraries, program) = (libraries.to_str().unwrap(), program.to_str().unwrap());
            let last = if words[1] == "iptables" { vec!["iptables", "--version"] } else { vec![words[1]] };
            said(kubelet.path(), &[&[linker, "--library-path", libraries, program][..], &last].concat());
        }
        let etcd = unpacked(of("etcd"));
        let text = said(etcd.path(), &["usr/local/bin/etcd", "--version"]);
        assert!(text.starts_with(&format!("etcd Version: {}\n", release.etcd)), "{text}");
        let tool = if release.origin == Origin::Modules { "etcdutl" } else { "etcdctl" };
        let text = said(etcd.path(), &[&format!("usr/local/bin/{tool}"), "version"]);
        assert!(text.starts_with(&format!("{tool} version: {}\n", release.etcd)), "{text}");
        let mut pause = Command::new(unpacked(of("pause")).path().join("pause")).spawn().unwrap();
        assert_eq!(pause.try_wait().unwrap(), None, "it waits");
        pause.kill().unwrap();
        pause.wait().unwrap();
    }
}
