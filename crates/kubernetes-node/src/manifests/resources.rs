//! What clients see of the manifests: `Manifests`, `ManifestStatuses`, `ExtraManifestsConfigs`.
//!
//! Owns: their ids. Does not: decide who reads them (the definitions do).

use std::collections::BTreeMap;

use kubernetes::Cluster;
use kubernetes::manifests::{self, Download, Manifest};
use runtime::Runtime;
use runtime::store::{EXTRA_MANIFESTS_CONFIG, ExtraManifest, KubernetesSpec, MANIFEST, MANIFEST_STATUS};

use crate::published::replace;

/// Id of the one that names the manifests that are there.
const STATUS: &str = "manifests";
/// Id of the one that names those of the config.
const EXTRA: &str = "extra-manifests";

/// Has the manifests be these.
pub(super) fn publish(runtime: &Runtime, all: &[Manifest]) {
    let wanted =
        all.iter().map(|manifest| (manifest.id.clone(), KubernetesSpec::Manifest(manifest.objects.clone())));
    replace(runtime, &MANIFEST, wanted);
}

/// Says which of them are there; `None` on a node that brings none.
pub(super) fn publish_status(runtime: &Runtime, applied: Option<Vec<String>>) {
    let status =
        applied.map(|ids| (STATUS.to_owned(), KubernetesSpec::ManifestStatus { manifests_applied: ids }));
    replace(runtime, &MANIFEST_STATUS, status);
}

/// Says which the config names.
pub(super) fn publish_extra(runtime: &Runtime, cluster: &Cluster<'_>, downloads: &[Download]) {
    let of =
        || (EXTRA.to_owned(), KubernetesSpec::ExtraManifests { extra_manifests: extra(cluster, downloads) });
    replace(runtime, &EXTRA_MANIFESTS_CONFIG, cluster.is_control_plane().then(of));
}

fn extra(cluster: &Cluster<'_>, downloads: &[Download]) -> Vec<ExtraManifest> {
    let parts =
        |id: &str| id.split_once('-').map_or_else(Default::default, |(a, b)| (a.to_owned(), b.to_owned()));
    let downloads = downloads.iter().map(|download| ExtraManifest {
        name: download.url.clone(),
        priority: parts(&download.id).0,
        url: download.url.clone(),
        extra_headers: download.headers.clone(),
        inline_manifest: String::new(),
    });
    let inline = manifests::inline(cluster).into_iter().map(|inline| ExtraManifest {
        name: parts(&inline.id).1,
        priority: parts(&inline.id).0,
        url: String::new(),
        extra_headers: BTreeMap::new(),
        inline_manifest: inline.text,
    });
    downloads.chain(inline).collect()
}
