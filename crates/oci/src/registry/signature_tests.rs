//! Signatures as they lie in a registry: beside an image, beside the index that names it, of the wrong key, or nowhere.

use std::path::Path;

use ondisk::Digest;

use super::tests::{Rig, client, http, mirrors, rig};
use super::{Client, Image};
use crate::document::MANIFEST;
use crate::server::Behaviour;
use crate::signature::{self, Key, tests as signing};

const REPOSITORY: &str = "demo/app";
const KIND: &str = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256";

/// Signs a digest with a new key and serves the signature as cosign stores it.
fn sign(rig: &Rig, directory: &Path, digest: &Digest) -> Key {
    let payload = signing::payload(digest);
    let (public, made) = signing::signed(directory, KIND, &payload);
    let layer = signing::layer(&payload, &made);
    let file = directory.join(format!("payload-{digest}"));
    std::fs::write(&file, &payload).unwrap();
    rig.server.serve_blob(&layer.digest, &file).unwrap();
    let config = serde_json::json!({ "mediaType": "x", "digest": format!("sha256:{digest}"), "size": 1 });
    let manifest = serde_json::json!({ "schemaVersion": 2, "config": config, "layers": [layer] });
    let text = manifest.to_string();
    rig.server.serve_document(REPOSITORY, &signature::tag(digest), MANIFEST, text.as_bytes());
    Key::from_pem(&public).unwrap()
}

async fn found(rig: &Rig) -> (Client, Image) {
    let client = client(mirrors(&[http(rig)]));
    let image = client.image("amd64").await.unwrap();
    (client, image)
}

#[tokio::test]
async fn a_signed_image_is_taken_and_one_of_another_key_is_not() {
    let rig = rig(Behaviour::default()).await;
    let (client, image) = found(&rig).await;
    let directory = tempfile::tempdir().unwrap();
    let key = sign(&rig, directory.path(), &image.digest);
    client.check_signed(&image, &key).await.unwrap();
    // The same place now holds somebody else's signature.
    sign(&rig, directory.path(), &image.digest);
    let error = client.check_signed(&image, &key).await.unwrap_err().to_string();
    assert!(error.contains("is not signed with the key that"), "{error}");
    assert!(error.ends_with(".sig does not count: it is of another key"), "{error}");
}

#[tokio::test]
async fn an_image_without_signatures_is_unsigned_and_a_registry_without_answers_is_no_verdict() {
    let rig = rig(Behaviour::default()).await;
    let (client, image) = found(&rig).await;
    let directory = tempfile::tempdir().unwrap();
    let key = sign(&rig, directory.path(), &Digest::sha256(&[b"another image"]));
    let error = client.check_signed(&image, &key).await.unwrap_err();
    assert!(matches!(error, crate::Error::Unsigned { .. }), "{error}");
    assert!(error.to_string().contains("not there (404)"), "{error}");
    rig.server.behave(Behaviour { unavailable: usize::MAX, ..Behaviour::default() });
    let error = client.check_signed(&image, &key).await.unwrap_err();
    assert!(matches!(error, crate::Error::Deadline { .. }), "{error}");
}

#[tokio::test]
async fn a_signed_index_stands_for_its_images() {
    let rig = rig(Behaviour::default()).await;
    let (_, image) = found(&rig).await;
    let size = serde_json::to_vec(&image.manifest).unwrap().len();
    let index = serde_json::json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": MANIFEST,
            "digest": format!("sha256:{}", image.digest),
            "size": size,
            "platform": { "architecture": "amd64", "os": "linux" },
        }],
    })
    .to_string();
    rig.server.serve_document(REPOSITORY, "1", "application/vnd.oci.image.index.v1+json", index.as_bytes());
    let (client, again) = found(&rig).await;
    assert_eq!((again.named, again.digest), (Digest::sha256(&[index.as_bytes()]), image.digest));
    let directory = tempfile::tempdir().unwrap();
    let key = sign(&rig, directory.path(), &again.named);
    client.check_signed(&again, &key).await.unwrap();
}
