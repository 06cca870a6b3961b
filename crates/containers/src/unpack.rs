//! Images that are here, made into snapshots.
//!
//! Owns: which snapshot stands for which layers (the chain of their digests), and what keeps it: the image's config.
//! Does not: fetch.
//! Order: each layer on the snapshot of those below it; it gets its name when it is whole. What a machined that died left half
//! unpacked lies under a key of its own and goes with the lease.
//! Fails by: a gRPC status.
//! Source: OCI image specification (chain id); containerd's documentation of snapshots and of garbage collection.

use std::collections::HashMap;

use oci::document::{Config, Manifest};
use ondisk::Digest;
use tonic::{Code, Status};

use super::client::Client;
use super::run_wire::{
    ApplyDiffRequest, CommitSnapshotRequest, GetImageRequest, GetImageResponse, Mount, MountsResponse,
    PrepareSnapshotRequest, SnapshotRequest,
};
use super::size;
use super::wire::{Descriptor, Image};

/// What roots of containers are made with.
pub(super) const SNAPSHOTTER: &str = "overlayfs";
/// What a config keeps: the snapshot of all its layers.
const KEEPS: &str = "containerd.io/gc.ref.snapshot.overlayfs";

/// An image whose layers are a snapshot.
#[derive(Debug, Clone)]
pub struct Unpacked {
    /// Name of the snapshot.
    pub snapshot: String,
    /// What the image says of its program.
    pub config: Config,
}

impl Client {
    /// The image of this name, if it is here.
    pub async fn image(&self, name: &str) -> Result<Option<Image>, Status> {
        let request = GetImageRequest { name: name.to_owned() };
        let path = "/containerd.services.images.v1.Images/Get";
        match self.unary::<_, GetImageResponse>(path, request).await {
            Ok(answer) => Ok(answer.image),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Makes a snapshot of an image's layers, unless there is one.
    pub async fn unpack(&self, image: &Image) -> Result<Unpacked, Status> {
        let target = image.target.as_ref().ok_or_else(|| broken(&image.name, "it has no manifest"))?;
        let manifest = self.own_manifest(&image.name, target).await?;
        let digest = format!("sha256:{}", manifest.config.digest);
        let config: Config = self.parsed(&image.name, &digest).await?;
        if config.rootfs.diff_ids.len() != manifest.layers.len() {
            return Err(broken(&image.name, "its config names another number of layers than its manifest"));
        }
        let lease = self.lease().await?;
        let unpacked = self.layers(&manifest, &config, &lease).await;
        let kept = match &unpacked {
            Ok(snapshot) => self.label(&digest, &HashMap::from([(KEEPS.to_owned(), snapshot.clone())])).await,
            Err(_) => Ok(()),
        };
        self.end_lease(lease).await;
        kept?;
        Ok(Unpacked { snapshot: unpacked?, config })
    }

    /// The manifest for this platform.
    async fn own_manifest(&self, name: &str, target: &Descriptor) -> Result<Manifest, Status> {
        let first = self.manifest(&target.digest).await?;
        let digest = size::for_this_platform(&first).unwrap_or_else(|| target.digest.clone());
        self.parsed(name, &digest).await
    }

    async fn parsed<T: serde::de::DeserializeOwned>(&self, name: &str, digest: &str) -> Result<T, Status> {
        let bytes = self.content(digest).await?;
        serde_json::from_slice(&bytes).map_err(|error| broken(name, &format!("{digest}: {error}")))
    }

    /// The snapshot of all layers.
    async fn layers(&self, manifest: &Manifest, config: &Config, lease: &str) -> Result<String, Status> {
        let mut chain = String::new();
        for (layer, diff) in manifest.layers.iter().zip(&config.rootfs.diff_ids) {
            let parent = std::mem::take(&mut chain);
            chain = chain_id(&parent, diff);
            if self.has_snapshot(&chain).await? {
                continue;
            }
            // Of this lease: a second machined's has another key.
            let key = format!("extract-{lease}-{chain}");
            let mounts = self.prepare(&key, &parent, Some(lease)).await?;
            let descriptor = Descriptor {
                media_type: layer.media_type.clone(),
                digest: format!("sha256:{}", layer.digest),
                size: i64::try_from(layer.size).unwrap_or(i64::MAX),
            };
            let request = ApplyDiffRequest { diff: Some(descriptor), mounts };
            self.unary_of::<_, ()>("/containerd.services.diff.v1.Diff/Apply", request, Some(lease)).await?;
            self.commit(&chain, &key, lease).await?;
        }
        Ok(chain)
    }

    async fn has_snapshot(&self, name: &str) -> Result<bool, Status> {
        let request = SnapshotRequest { snapshotter: SNAPSHOTTER.to_owned(), key: name.to_owned() };
        match self.unary::<_, ()>("/containerd.services.snapshots.v1.Snapshots/Stat", request).await {
            Ok(()) => Ok(true),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// A writable snapshot on another one, and how it is mounted.
    pub(super) async fn prepare(
        &self,
        key: &str,
        parent: &str,
        lease: Option<&str>,
    ) -> Result<Vec<Mount>, Status> {
        let request = PrepareSnapshotRequest {
            snapshotter: SNAPSHOTTER.to_owned(),
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels: HashMap::new(),
        };
        let path = "/containerd.services.snapshots.v1.Snapshots/Prepare";
        Ok(self.unary_of::<_, MountsResponse>(path, request, lease).await?.mounts)
    }

    async fn commit(&self, name: &str, key: &str, lease: &str) -> Result<(), Status> {
        let request = CommitSnapshotRequest {
            snapshotter: SNAPSHOTTER.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
            labels: HashMap::new(),
        };
        let path = "/containerd.services.snapshots.v1.Snapshots/Commit";
        match self.unary_of::<_, ()>(path, request, Some(lease)).await {
            // Another client unpacked the same layer meanwhile.
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            done => done,
        }
    }

    /// Removes a container's root; one that is not there is removed.
    pub(super) async fn remove_snapshot(&self, key: &str) -> Result<(), Status> {
        let request = SnapshotRequest { snapshotter: SNAPSHOTTER.to_owned(), key: key.to_owned() };
        match self.unary("/containerd.services.snapshots.v1.Snapshots/Remove", request).await {
            Err(status) if status.code() == Code::NotFound => Ok(()),
            done => done,
        }
    }
}

/// The name of a layer on those below it.
fn chain_id(parent: &str, diff: &str) -> String {
    match parent {
        "" => diff.to_owned(),
        parent => format!("sha256:{}", Digest::sha256(&[format!("{parent} {diff}").as_bytes()])),
    }
}

fn broken(name: &str, why: &str) -> Status {
    Status::data_loss(format!("image {name}: {why}; remove and pull it again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_named_as_the_image_specification_says() {
        let (a, b) = (format!("sha256:{}", "a".repeat(64)), format!("sha256:{}", "b".repeat(64)));
        assert_eq!(chain_id("", &a), a);
        // printf 'sha256:aaa… sha256:bbb…' | sha256sum
        let both = chain_id(&a, &b);
        assert_eq!(both, format!("sha256:{}", Digest::sha256(&[format!("{a} {b}").as_bytes()])));
        assert_ne!(chain_id(&b, &a), both);
    }
}
