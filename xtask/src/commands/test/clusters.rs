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
use crate::cluster_images::releases::{RELEASES, Release};
use crate::inputs::Freshness;
use crate::place;

/// Names a file with the images that a cluster pulls.
const IMAGES: &str = "BILLET_CLUSTER_IMAGES";
/// Names the program that is every program of Kubernetes.
const KUBERNETES: &str = "BILLET_KUBERNETES";

/// Names a server of buckets.
const S3: &str = "BILLET_S3";

const BUCKET_TESTS: [&str; 6] = ["test", "--workspace", "--lib", "a_server_of_buckets", "--", "--ignored"];
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

impl Made {
    fn suite(&self, name: &str, arguments: &[&str]) -> Suite {
        Suite::cargo(name, arguments).with(IMAGES, &self.images).with(KUBERNETES, &self.kubernetes)
    }
}

/// Tests them with the default release; in the long run also with each of the others.
pub(super) fn run(suites: &mut Suites, long: bool) {
    let [default, others @ ..] = &RELEASES;
    let name = |what: &str, release: &Release| match release.kubernetes == default.kubernetes {
        true => what.to_owned(),
        false => format!("{what} of Kubernetes {}", release.minor()),
    };
    let prepare = |suites: &mut Suites, release: &'static Release| {
        let mut made = None;
        suites.call(&name("images of clusters", release), || {
            made = Some(make(release)?);
            Ok(())
        });
        made
    };
    // None where they failed, which is counted, or where all of this is left out by name.
    if let Some(made) = prepare(suites, default) {
        suites.tests(&made.suite("networks of clusters", &NETWORK_TESTS));
        suites.tests(&made.suite("manifests in clusters", &MANIFEST_TESTS));
        let whole: &[&str] = if long { &["--", "--include-ignored"] } else { &[] };
        suites.tests(&made.suite("clusters", &[&CLUSTER_TESTS[..], whole].concat()).long(long).live());
    }
    if long {
        let mut server = None;
        suites.call("a server of buckets", || {
            server = Some(cluster_images::bucket_server(&Cache::open(&place::cache()?)?, Freshness::Day)?);
            Ok(())
        });
        if let Some(server) = server {
            suites.tests(&Suite::cargo("snapshots in buckets", &BUCKET_TESTS).with(S3, &server));
        }
    }
    for release in others.iter().filter(|_| long) {
        if let Some(made) = prepare(suites, release) {
            suites.tests(&made.suite(&name("manifests in clusters", release), &MANIFEST_TESTS));
            suites.tests(&made.suite(&name("clusters", release), &CLUSTER_TESTS).live());
        }
    }
}

fn make(release: &'static Release) -> Result<Made> {
    let cache = Cache::open(&place::cache()?)?;
    let images = cluster_images::make(&cache, Freshness::Day, release)?;
    let kubernetes = cluster_images::kubernetes(&cache, Freshness::Day, release)?;
    let file = match release.kubernetes == RELEASES[0].kubernetes {
        true => "images.json".to_owned(),
        false => format!("images-{}.json", release.minor()),
    };
    let list: Vec<_> = images
        .iter()
        .map(|image| json!({ "repository": image.repository, "tag": image.tag, "archive": image.archive }))
        .collect();
    let path = place::target().join("test").join(file);
    fs::write(&path, serde_json::to_vec_pretty(&list)?)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(Made { images: path, kubernetes })
}
