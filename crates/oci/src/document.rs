//! Manifests, indexes and configs, of OCI and of Docker's schema 2: the two differ in the names of types only.
//!
//! Owns: reading them, and the choice among the images of an index.
//! Does not: fetch; trust a document whose digest was not compared (the callers do).
//! Source: OCI image specification 1.1; Docker's "Image Manifest V 2, Schema 2".

use std::collections::BTreeMap;

use ondisk::Digest;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::error::shown;

/// Machines that an error names.
const MOST_OFFERED: usize = 8;

/// Largest document that is read, in bytes (distribution specification: at least 4 MiB must be possible).
pub const MAX_BYTES: usize = 4 << 20;

/// Types of the documents, for the header `Accept`.
pub const ACCEPTED: [&str; 4] = [INDEX, MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST];

/// An index of images.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// One image.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// An image's config.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// A layer: a tar file.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Content by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// `sha256:` and 64 digits.
    #[serde(with = "digest_text")]
    pub digest: Digest,
    /// Length in bytes.
    pub size: u64,
    /// In an index: for which machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Free text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// For which machines an image is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// `amd64`, `arm64`, …
    pub architecture: String,
    /// `linux`.
    pub os: String,
}

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// 2.
    pub schema_version: u32,
    /// [`MANIFEST`] or Docker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Where the config is.
    pub config: Descriptor,
    /// The lowest first.
    pub layers: Vec<Descriptor>,
    /// Free text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Several images under one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// 2.
    pub schema_version: u32,
    /// [`INDEX`] or Docker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The images.
    pub manifests: Vec<Descriptor>,
}

/// What an image says of itself; the rest of it belongs to those who run containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// For which machines.
    #[serde(default)]
    pub architecture: String,
    /// For which system.
    #[serde(default)]
    pub os: String,
    /// How it would run.
    #[serde(default)]
    pub config: Execution,
    /// Digests of the layers as tar files.
    #[serde(default)]
    pub rootfs: Rootfs,
}

/// How an image would run as a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Execution {
    /// The program.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Its arguments where who runs it gives none.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Free text.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Digests of the layers as tar files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rootfs {
    /// `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The lowest first.
    pub diff_ids: Vec<String>,
}

impl Default for Rootfs {
    fn default() -> Self {
        Self { kind: "layers".into(), diff_ids: Vec::new() }
    }
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// One image.
    Manifest(Manifest),
    /// Several.
    Index(Index),
}

impl Document {
    /// What it says it is, or OCI's type of what it is.
    #[must_use]
    pub fn media_type(&self) -> &str {
        match self {
            Self::Manifest(manifest) => manifest.media_type.as_deref().unwrap_or(MANIFEST),
            Self::Index(index) => index.media_type.as_deref().unwrap_or(INDEX),
        }
    }
}

/// Reads a manifest or an index. What it is stands in it, or its fields tell; a registry's header does not count.
pub fn parse(image: &str, bytes: &[u8]) -> Result<Document, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        schema_version: Option<u32>,
        media_type: Option<String>,
        manifests: Option<serde::de::IgnoredAny>,
    }
    let fail = |reason: String| Error::Document { what: "manifest", image: image.to_owned(), reason };
    let json = |error: serde_json::Error| fail(not_json(&error));
    if bytes.len() > MAX_BYTES {
        return Err(fail(format!("longer than {MAX_BYTES} bytes")));
    }
    let kind: Kind = serde_json::from_slice(bytes).map_err(json)?;
    if kind.schema_version != Some(2) {
        let version = kind.schema_version.map_or("none".to_owned(), |version| version.to_string());
        return Err(fail(format!(
            "schema version {version} is not supported: push the image with a tool that writes OCI or Docker's schema 2"
        )));
    }
    let is_index = match kind.media_type.as_deref() {
        Some(INDEX | DOCKER_INDEX) => true,
        Some(MANIFEST | DOCKER_MANIFEST) => false,
        Some(other) => {
            let other = shown(other);
            return Err(fail(format!("its type {other:?} is neither an image nor an index of images")));
        }
        None => kind.manifests.is_some(),
    };
    if is_index {
        return serde_json::from_slice(bytes).map(Document::Index).map_err(json);
    }
    serde_json::from_slice(bytes).map(Document::Manifest).map_err(json)
}

/// What a reader of JSON says, which may quote all of a text in it.
fn not_json(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    format!("not the JSON that it should be (line {line}, column {column}): {}", shown(&error.to_string()))
}

impl Index {
    /// The image for machines of this architecture. An image that says nothing of machines is looked at last.
    pub fn choose(&self, image: &str, architecture: &str) -> Result<&Descriptor, Error> {
        let fits = |found: &&Descriptor| {
            found.platform.as_ref().is_some_and(|p| p.os == "linux" && p.architecture == architecture)
        };
        let silent = |found: &&Descriptor| found.platform.is_none();
        let chosen = self.manifests.iter().find(fits).or_else(|| self.manifests.iter().find(silent));
        chosen.ok_or_else(|| {
            let known = self.manifests.iter().filter_map(|found| found.platform.as_ref());
            // Attestations are listed as images for unknown machines.
            let mut offered: Vec<String> = known
                .filter(|platform| platform.os != "unknown")
                .map(|platform| format!("{}/{}", shown(&platform.os), shown(&platform.architecture)))
                .collect();
            offered.sort();
            offered.dedup();
            if offered.len() > MOST_OFFERED {
                let more = offered.len() - MOST_OFFERED;
                offered.truncate(MOST_OFFERED);
                offered.push(format!("and {more} more"));
            }
            let offered =
                if offered.is_empty() { "no machine at all".to_owned() } else { offered.join(", ") };
            wrong(image, architecture, offered)
        })
    }
}

impl Config {
    /// Reads a config.
    pub fn parse(image: &str, bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|error| {
            let reason = not_json(&error);
            Error::Document { what: "config", image: image.to_owned(), reason }
        })
    }

    /// Refuses an image for other machines.
    pub fn check(&self, image: &str, architecture: &str) -> Result<(), Error> {
        if self.os == "linux" && self.architecture == architecture {
            return Ok(());
        }
        Err(wrong(image, architecture, format!("{}/{}", shown(&self.os), shown(&self.architecture))))
    }
}

fn wrong(image: &str, architecture: &str, offered: String) -> Error {
    Error::Architecture { image: image.to_owned(), wanted: format!("linux/{architecture}"), offered }
}

/// `null` stands for nothing: Docker writes it.
fn or_default<'de, T: Default + Deserialize<'de>, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

mod digest_text {
    use ondisk::Digest;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(digest: &Digest, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("sha256:{digest}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(from)?;
        let unknown = || {
            let text = crate::error::shown(&text);
            de::Error::custom(format!("the digest {text:?} is not sha256: and 64 hex digits"))
        };
        crate::digest::parse(&text).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(byte: u8) -> String {
        format!("sha256:{}", ondisk::Digest([byte; 32]))
    }

    fn descriptor(byte: u8, rest: &str) -> String {
        format!(r#"{{"mediaType":"x","digest":"{}","size":3{rest}}}"#, digest(byte))
    }

    #[test]
    fn both_generations_are_read() {
        for (kind, index) in [(MANIFEST, INDEX), (DOCKER_MANIFEST, DOCKER_INDEX)] {
            let config = descriptor(1, "");
            let text = format!(
                r#"{{"schemaVersion":2,"mediaType":"{kind}","config":{config},"layers":[],"extra":1}}"#
            );
            let Document::Manifest(manifest) = parse("i", text.as_bytes()).unwrap() else { panic!("{text}") };
            assert_eq!(manifest.config.digest, ondisk::Digest([1; 32]));
            let text = format!(r#"{{"schemaVersion":2,"mediaType":"{index}","manifests":[{config}]}}"#);
            assert!(matches!(parse("i", text.as_bytes()).unwrap(), Document::Index(_)));
        }
        // OCI 1.0 leaves the type out.
        let bare = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, descriptor(1, ""));
        assert!(matches!(parse("i", bare.as_bytes()).unwrap(), Document::Index(_)));
    }

    #[test]
    fn what_is_no_image_is_refused() {
        for (text, why) in [
            (r#"{"schemaVersion":1,"fsLayers":[]}"#.to_owned(), "schema version 1"),
            ("{}".to_owned(), "schema version none"),
            ("nothing".to_owned(), "not the JSON"),
            (r#"{"schemaVersion":2,"mediaType":"text/plain"}"#.to_owned(), "text/plain"),
            (
                r#"{"schemaVersion":2,"config":{"mediaType":"x","digest":"sha512:00","size":1},"layers":[]}"#
                    .to_owned(),
                "sha512:00",
            ),
            (" ".repeat(MAX_BYTES + 1), "longer than"),
        ] {
            let error = parse("r.example/i:1", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("manifest of r.example/i:1: ") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_image_for_this_machine_is_chosen_and_others_are_named() {
        let of = |byte, architecture: &str| {
            descriptor(byte, &format!(r#","platform":{{"os":"linux","architecture":"{architecture}"}}"#))
        };
        let unknown = descriptor(9, r#","platform":{"os":"unknown","architecture":"unknown"}"#);
        let text = format!(
            r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{unknown},{},{}]}}"#,
            of(1, "arm64"),
            of(2, "amd64")
        );
        let Document::Index(index) = parse("i", text.as_bytes()).unwrap() else { panic!() };
        assert_eq!(index.choose("i", "amd64").unwrap().digest, ondisk::Digest([2; 32]));
        let error = index.choose("r.example/i:1", "riscv64").unwrap_err().to_string();
        assert_eq!(
            error,
            "r.example/i:1 is for linux/amd64, linux/arm64, and this node is linux/riscv64: use an image for linux/riscv64"
        );
    }

    #[test]
    fn a_refusal_is_short_whatever_the_document_says() {
        let long = "x".repeat(100_000);
        let of = |architecture: &str| {
            descriptor(1, &format!(r#","platform":{{"os":"linux","architecture":"{architecture}"}}"#))
        };
        let index = |manifests: &str| {
            let text = format!(r#"{{"schemaVersion":2,"manifests":[{manifests}]}}"#);
            let Document::Index(index) = parse("i", text.as_bytes()).unwrap() else { panic!() };
            index.choose("i", "amd64").unwrap_err().to_string()
        };
        let many: Vec<_> = (0..1000).map(|number| of(&format!("m{number}"))).collect();
        let parsed = |text: &str| parse("i", text.as_bytes()).unwrap_err().to_string();
        let config = |text: &str| Config::parse("i", text.as_bytes()).unwrap().check("i", "amd64");
        for said in [
            parsed(&format!(r#"{{"schemaVersion":2,"mediaType":"{long}"}}"#)),
            parsed(&format!(r#"{{"schemaVersion":"{long}"}}"#)),
            parsed(&format!(
                r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"x","digest":"{long}","size":1}}]}}"#
            )),
            index(&of(r"\u001b[2J")),
            index(&of(&long)),
            index(&many.join(",")),
            config(&format!(r#"{{"os":"{long}","architecture":"\u0007"}}"#)).unwrap_err().to_string(),
        ] {
            assert!(said.len() < 500 && !said.chars().any(char::is_control), "{said:.600}");
        }
        assert!(index(&many.join(",")).contains("linux/m104, and 992 more"), "{}", index(&many.join(",")));
    }

    #[test]
    fn a_config_says_for_whom_it_is() {
        let text =
            br#"{"architecture":"arm64","os":"linux","config":{"Entrypoint":null,"Labels":{"a":"b"}},"x":1}"#;
        let config = Config::parse("i", text).unwrap();
        assert_eq!(config.config.labels.get("a").map(String::as_str), Some("b"));
        assert!(config.check("i", "arm64").is_ok());
        assert!(config.check("i", "amd64").unwrap_err().to_string().contains("is for linux/arm64"));
        assert!(Config::parse("i", b"7").is_err());
    }
}
