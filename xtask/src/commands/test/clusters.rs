//! Clusters: real Kubernetes, on nodes that are containers of this machine.
//!
//! Owns: that the tests find what they pull and call, by variables. Needs: root, loop devices, and what was built.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;

use super::suite::{Suite, Suites};
use crate::cache::Cache;
use crate::cluster_images;
use crate::cluster_images::releases::RELEASES;
use crate::inputs::Freshness;
use crate::place;

/// Names a file with the images that a cluster pulls.
const IMAGES: &str = "BILLET_CLUSTER_IMAGES";
/// Names the program that is every program of Kubernetes.
const KUBERNETES: &str = "BILLET_KUBERNETES";

const CLUSTER_TESTS: [&str; 5] = ["test", "--workspace", "--no-fail-fast", "--test", "cluster"];
const NETWORK_TESTS: [&str; 6] =
    ["test", "--workspace", "--lib", "nodes_reach_the_outside", "--", "--ignored"];
const MANIFEST_TESTS: [&str; 6] =
    ["test", "--workspace", "--lib", "manifests::cluster_tests", "--", "--ignored"];

/// What the tests pull and call.
struct Made {
    /// JSON: a list of `repository`, `tag`, `archive`.
    images: PathBuf,
    kubernetes: PathBuf,
}

pub(super) fn run(suites: &mut Suites, long: bool) {
    let mut made = None;
    suites.call("images of clusters", || {
        made = Some(make()?);
        Ok(())
    });
    // None where they failed, which is counted, or where all of this is left out by name.
    let Some(made) = made else { return };
    let suite = |name, arguments: &[&str]| {
        Suite::cargo(name, arguments).with(IMAGES, &made.images).with(KUBERNETES, &made.kubernetes)
    };
    suites.tests(&suite("networks of clusters", &NETWORK_TESTS));
    suites.tests(&suite("manifests in clusters", &MANIFEST_TESTS));
    let whole: &[&str] = if long { &["--", "--include-ignored"] } else { &[] };
    suites.tests(&suite("clusters", &[&CLUSTER_TESTS[..], whole].concat()).live());
}

fn make() -> Result<Made> {
    let [release, ..] = &RELEASES;
    let cache = Cache::open(&place::cache()?)?;
    let images = cluster_images::make(&cache, Freshness::Day, release)?;
    let kubernetes = cluster_images::kubernetes(&cache, Freshness::Day, release)?;
    let list: Vec<_> = images
        .iter()
        .map(|image| json!({ "repository": image.repository, "tag": image.tag, "archive": image.archive }))
        .collect();
    let path = place::target().join("test/images.json");
    fs::write(&path, serde_json::to_vec_pretty(&list)?)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(Made { images: path, kubernetes })
}
