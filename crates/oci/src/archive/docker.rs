//! The older form of an image in a file, as `docker save` writes it: `manifest.json`, a config, tar files of layers.
//!
//! Owns: the image's documents made from it, and writing one: only its config can carry triggers (ONBUILD). Layers lie there
//! as they are, so the digests that the config has of them as tar files are those of the files.
//! Source: Docker Image Specification v1.2, "Combined Image JSON + Filesystem Changeset Format".

use std::collections::BTreeMap;

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::{Archive, Blob, Bytes, END_BYTES, NewImage, json, layer_blob, put};
use crate::document::{self, Config, Descriptor, Manifest};
use crate::{Error, digest};

/// Where it says what it holds.
pub(super) const CONTENTS: &str = "manifest.json";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(skip_deserializing)]
    repo_tags: Vec<String>,
    layers: Vec<String>,
}

/// The config of an image to be written.
#[derive(Serialize)]
struct NewConfig<'i> {
    architecture: &'i str,
    os: &'static str,
    config: NewExecution<'i>,
    rootfs: document::Rootfs,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct NewExecution<'i> {
    labels: &'i BTreeMap<String, String>,
    on_build: &'i [String],
}

/// Writes an image as `docker save` does, called `name:tag`, with what shall happen when somebody builds on it. The same
/// image is the same bytes.
pub fn write_docker(
    out: &mut dyn Write,
    image: &NewImage,
    name: &str,
    on_build: &[String],
) -> Result<(), Error> {
    write(out, image, name, on_build).map_err(|source| Error::Archive { operation: "write", source })
}

fn write(out: &mut dyn Write, image: &NewImage, name: &str, on_build: &[String]) -> io::Result<()> {
    let layers = image.layers.iter().map(|layer| layer_blob(layer)).collect::<io::Result<Vec<_>>>()?;
    let diff_ids = layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect();
    let config = json(&NewConfig {
        architecture: &image.architecture,
        os: "linux",
        config: NewExecution { labels: &image.labels, on_build },
        rootfs: document::Rootfs { diff_ids, ..document::Rootfs::default() },
    })?;
    let path = |blob: &Blob| format!("{}/layer.tar", blob.digest);
    let saved = Saved {
        config: format!("{}.json", config.digest),
        repo_tags: vec![format!("{name}:{}", image.tag)],
        layers: layers.iter().map(path).collect(),
    };
    let contents = Blob::of(vec![Bytes::Here(serde_json::to_vec(&[&saved]).map_err(io::Error::other)?)])?;
    put(out, &saved.config, &config)?;
    for layer in &layers {
        put(out, &path(layer), layer)?;
    }
    put(out, CONTENTS, &contents)?;
    out.write_all(&[0; END_BYTES])
}

/// Whether a `manifest.json` names images, and is not something else of that name: web sites have such files too.
pub(super) fn names_images(text: &[u8]) -> bool {
    serde_json::from_slice::<Vec<Saved>>(text).is_ok_and(|images| !images.is_empty())
}

/// The only image of such a file: its manifest, its config, and where each blob lies.
pub(super) fn image(archive: &Archive) -> Result<(Manifest, Config, BTreeMap<String, String>), Error> {
    let bad = |reason: String| archive.bad("archive", reason);
    let text = archive.small(CONTENTS)?;
    let saved: Vec<Saved> =
        serde_json::from_slice(&text).map_err(|error| bad(format!("{CONTENTS}: {error}")))?;
    let [saved] = saved.as_slice() else {
        return Err(bad(format!("{CONTENTS} names {} images: save one", saved.len())));
    };
    let bytes = archive.small(&saved.config)?;
    let config = Config::parse(&archive.name, &bytes)?;
    let digests = &config.rootfs.diff_ids;
    if digests.len() != saved.layers.len() {
        return Err(bad(format!("{} layers, and the config knows {}", saved.layers.len(), digests.len())));
    }
    let mut places = BTreeMap::new();
    let mut layers = Vec::new();
    for (path, text) in saved.layers.iter().zip(digests) {
        let digest = digest::parse(text).ok_or_else(|| bad(format!("the config's digest {text:?}")))?;
        let (_, size) = archive.place(path)?;
        places.insert(super::blob_path(&digest), path.clone());
        layers.push(descriptor(document::LAYER, digest, size));
    }
    let config_digest = ondisk::Digest::sha256(&[&bytes]);
    places.insert(super::blob_path(&config_digest), saved.config.clone());
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(document::MANIFEST.into()),
        config: descriptor(document::CONFIG, config_digest, bytes.len() as u64),
        layers,
        annotations: BTreeMap::new(),
    };
    Ok((manifest, config, places))
}

fn descriptor(media_type: &str, digest: ondisk::Digest, size: u64) -> Descriptor {
    let annotations = BTreeMap::new();
    Descriptor { media_type: media_type.into(), digest, size, platform: None, annotations }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use super::*;

    fn saved(directory: &Path, layer: &[u8], diff_id: &str) -> Archive {
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"Labels":{{"a":"b"}}}},"rootfs":{{"type":"layers","diff_ids":["{diff_id}"]}}}}"#
        );
        let contents = br#"[{"Config":"c.json","RepoTags":["r.example/i:1"],"Layers":["1/layer.tar"]}]"#;
        let mut tar = tar::Builder::new(Vec::new());
        for (path, bytes) in
            [("1/layer.tar", layer), ("c.json", config.as_bytes()), (CONTENTS, contents.as_slice())]
        {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, path, bytes).unwrap();
        }
        let path = directory.join("saved.tar");
        std::fs::write(&path, tar.into_inner().unwrap()).unwrap();
        Archive::open(&path).unwrap()
    }

    #[test]
    fn an_image_that_docker_saved_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let layer = b"a layer";
        let digest = ondisk::Digest::sha256(&[layer]);
        let archive = saved(directory.path(), layer, &format!("sha256:{digest}"));
        let (manifest, config) = archive.image("amd64").unwrap();
        assert_eq!(config.config.labels.get("a").map(String::as_str), Some("b"));
        let mut content = Vec::new();
        archive.blob(&manifest.layers[0]).unwrap().read_to_end(&mut content).unwrap();
        assert_eq!(content, layer);
        assert!(archive.image("arm64").unwrap_err().to_string().contains("is for linux/amd64"));
    }

    #[test]
    fn a_manifest_json_is_an_images_by_what_it_says() {
        let is_image = |file: &str, text: &str| {
            super::super::is_image(|name| name == file, |_| Some(text.as_bytes().to_vec()))
        };
        let image = r#"{"Config":"c.json","RepoTags":null,"Layers":[]}"#;
        assert!(is_image(CONTENTS, &format!("[{image}]")));
        assert!(!is_image("x.json", &format!("[{image}]")), "another file");
        // As web sites and build tools have them.
        for text in ["[]", "{}", image, r#"[{"src":"a.js"}]"#, "no JSON"] {
            assert!(!is_image(CONTENTS, text), "{text}");
        }
    }

    #[test]
    fn what_was_written_is_read() {
        use super::super::{Bytes, Content};
        let content = |path: &str| {
            vec![Content { path: path.into(), bytes: Bytes::Here(path.repeat(100).into_bytes()) }]
        };
        let image = NewImage {
            architecture: "amd64".into(),
            tag: "1.0".into(),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            layers: vec![content("billet/root.json"), content("billet/layers/x")],
        };
        let mut bytes = Vec::new();
        write_docker(&mut bytes, &image, "billet/installer", &["ARG RM".into()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image.tar");
        std::fs::write(&path, &bytes).unwrap();
        let archive = Archive::open(&path).unwrap();
        let (manifest, config) = archive.image("amd64").unwrap();
        assert_eq!(config.config.labels, image.labels);
        assert_eq!(manifest.layers.len(), 2);
        for layer in &manifest.layers {
            archive.blob(layer).unwrap().read_to_end(&mut Vec::new()).unwrap();
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.contains(r#""OnBuild":["ARG RM"]"#) && text.contains(r#""billet/installer:1.0""#));
    }

    #[test]
    fn a_layer_that_is_not_the_configs_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let other = ondisk::Digest::sha256(&[b"another"]);
        let archive = saved(directory.path(), b"a layer", &format!("sha256:{other}"));
        let (manifest, _) = archive.image("amd64").unwrap();
        let error = archive.blob(&manifest.layers[0]).unwrap().read_to_end(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("it was changed on the way"), "{error}");
        let error = saved(directory.path(), b"x", "md5:1").image("amd64").unwrap_err().to_string();
        assert!(error.contains("the config's digest \"md5:1\""), "{error}");
    }
}
