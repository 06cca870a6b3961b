//! Documents of images: manifests, indexes, configs, references, what registries say of signing in, layouts in tar files.
//!
//! An input is a kind, and the document.
//! What must hold: nothing panics; memory is bounded by the document; a refusal is short, names the image, and has nothing in
//! it that acts on a terminal; what is read is written and read back the same; a secret is in no text.

use std::os::fd::AsRawFd;

use http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use oci::archive::{Archive, Bytes, Content, NewImage};
use oci::document::{self, Config, Document};
use oci::installer;
use oci::registry::Auth;
use oci::registry::auth::{self, Challenge};
use oci::{Error, Reference};
use zeroize::Zeroizing;

use crate::check;
use crate::shape;
use crate::target::{Outcome, Target};

pub(super) const TARGET: Target = Target {
    name: "oci",
    about: "documents of container images and their registries",
    seeds,
    words: WORDS,
    run,
};

const WORDS: &[&str] = &[
    "\"schemaVersion\":2",
    "\"mediaType\":\"application/vnd.oci.image.index.v1+json\"",
    "\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}",
    "\"annotations\":{\"a\":\"b\"}",
    "\"size\":18446744073709551615",
    "sha256:",
    "\"\\u001b[2J\"",
    "\"Labels\":null",
    "io.billet.installer.format",
    "dev.talos.version",
    "Bearer realm=\"https://t.example/token\",service=\"s\"",
    "Basic realm=\"x\"",
    "access_token",
    "@sha256:",
    "[::1]:5000/a",
];

const NAME: &str = "r.example/i:1";
const SECRET: &str = "geheim-7Kq";

/// A document's values, and its text once more to write it.
const MOST_BYTES: usize = 1 << 20;
/// Bytes held for each of a document: a short field of JSON becomes a string with a name in a map.
const HELD_PER_BYTE: usize = 64;
/// Of a layout: the longest document that is read, whatever its entry claims, twice.
const LAYOUT_BYTES: usize = 2 * document::MAX_BYTES;

const MANIFEST: u8 = 0;
const CONFIG: u8 = 1;
const REFERENCE: u8 = 2;
const CHALLENGE: u8 = 3;
const ANSWER: u8 = 4;
const LAYOUT: u8 = 5;
const KINDS: u8 = 6;

fn seeds() -> Vec<Vec<u8>> {
    let digest = "ab".repeat(32);
    let descriptor = format!(
        r#"{{"mediaType":"{}","digest":"sha256:{digest}","size":7,"annotations":{{"a":"b"}}}}"#,
        document::LAYER
    );
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{}","config":{descriptor},"layers":[{descriptor},{descriptor}],"annotations":{{"c":"d"}}}}"#,
        document::MANIFEST
    );
    let of = |architecture: &str| {
        descriptor.replace(
            "\"size\":7",
            &format!(r#""size":9,"platform":{{"os":"linux","architecture":"{architecture}"}}"#),
        )
    };
    let index = format!(
        r#"{{"schemaVersion":2,"mediaType":"{}","manifests":[{},{},{descriptor}]}}"#,
        document::INDEX,
        of("arm64"),
        of("amd64")
    );
    let foreign = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, of("arm64"));
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Entrypoint":["/bin/installer"],"Labels":{{"io.billet.installer.format":"1","io.billet.installer.minimum-from":"0.1.0","io.billet.installer.layers":"2","org.opencontainers.image.version":"1.2.0-rc.1+x"}}}},"rootfs":{{"type":"layers","diff_ids":["sha256:{digest}"]}}}}"#
    );
    let talos = r#"{"architecture":"amd64","os":"linux","config":{"Labels":{"dev.talos.version":"v1.2.3"}}}"#;
    let kind = |kind: u8, text: &str| [&[kind], text.as_bytes()].concat();
    vec![
        kind(MANIFEST, &manifest),
        kind(MANIFEST, &index),
        kind(MANIFEST, &foreign),
        kind(CONFIG, &config),
        kind(CONFIG, talos),
        kind(REFERENCE, &format!("localhost:5000/a/b_c.d:v1@sha256:{digest}")),
        kind(REFERENCE, "[fd00::1]:5000/a:1"),
        kind(
            CHALLENGE,
            "Basic realm=x\nBearer realm=\"https://t.example/t?a=b\",service=\"a b\",scope=\"repository:x:pull\"",
        ),
        kind(CHALLENGE, "Bearer realm=http://t.example,,="),
        kind(ANSWER, r#"{"token":"","access_token":"abc","expires_in":1}"#),
        kind(ANSWER, r#"{"errors":[{"code":"X","message":""},{"code":"Y","message":"manifest\nunknown"}]}"#),
        [&[LAYOUT][..], &layout()].concat(),
        [&[LAYOUT][..], &saved()].concat(),
    ]
}

fn image() -> NewImage {
    let content = |path: &str| vec![Content { path: path.into(), bytes: Bytes::Here(vec![7; 700]) }];
    NewImage {
        architecture: "amd64".into(),
        tag: "1.0".into(),
        labels: [("a".to_owned(), "b".to_owned())].into(),
        layers: vec![content("billet/root.json"), content("billet/boot/vmlinuz")],
    }
}

fn layout() -> Vec<u8> {
    let mut out = Vec::new();
    oci::archive::write(&mut out, &image()).expect("an image in memory");
    out
}

fn saved() -> Vec<u8> {
    let mut out = Vec::new();
    oci::archive::write_docker(&mut out, &image(), "a/b", &["ARG RM".into()]).expect("an image in memory");
    out
}

fn run(input: &[u8]) -> Outcome {
    let Some((kind, text)) = input.split_first() else { return Outcome::refused("nothing") };
    let most = MOST_BYTES + HELD_PER_BYTE * text.len();
    match kind % KINDS {
        MANIFEST => check::within(most, || manifest(text)),
        CONFIG => check::within(most, || config(text)),
        REFERENCE => check::within(most, || reference(text)),
        CHALLENGE => check::within(most, || challenge(text)),
        ANSWER => check::within(most, || answer(text)),
        _ => check::within(most + LAYOUT_BYTES, || opened(text)),
    }
}

fn accepted(shape: impl Into<String>) -> Outcome {
    Outcome { accepted: true, shapes: vec![shape.into()] }
}

fn refused(error: &Error) -> Outcome {
    check::shown(&error.to_string());
    Outcome::refused(&error.to_string())
}

fn manifest(text: &[u8]) -> Outcome {
    let read = match document::parse(NAME, text) {
        Ok(read) => read,
        Err(error) => {
            assert!(error.to_string().contains(NAME), "{error} names no image");
            return refused(&error);
        }
    };
    let written = match &read {
        Document::Manifest(manifest) => serde_json::to_vec(manifest),
        Document::Index(index) => serde_json::to_vec(index),
    };
    let again = document::parse(NAME, &written.expect("a document is JSON"));
    assert!(again.as_ref().ok() == Some(&read), "a document changed: {again:?}");
    let Document::Index(index) = read else { return accepted("a manifest") };
    match index.choose(NAME, "amd64") {
        Ok(_) => accepted("an index"),
        Err(error) => {
            check::shown(&error.to_string());
            accepted(format!("an index: {}", shape::of(&error.to_string())))
        }
    }
}

fn config(text: &[u8]) -> Outcome {
    let read = match Config::parse(NAME, text) {
        Ok(read) => read,
        Err(error) => return refused(&error),
    };
    let again = Config::parse(NAME, &serde_json::to_vec(&read).expect("a config is JSON"));
    assert!(again.as_ref().ok() == Some(&read), "a config changed: {again:?}");
    let mut shapes = Vec::new();
    if let Err(error) = read.check(NAME, "amd64") {
        check::shown(&error.to_string());
        shapes.push(shape::of(&error.to_string()));
    }
    match installer::facts(NAME, &read, "0.9.0") {
        Ok(facts) => {
            assert!(installer::Version::parse(&facts.version).is_some(), "{facts:?} has no version");
            shapes.push(format!(
                "an installer image of {:?} layers",
                installer::own_layers(&read).map(|n| n.min(3))
            ));
        }
        Err(error) => {
            check::shown(&error.to_string());
            shapes.push(shape::of(&error.to_string()));
        }
    }
    Outcome { accepted: true, shapes }
}

fn reference(text: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(text);
    match text.parse::<Reference>() {
        Ok(reference) => {
            let again = reference.to_string().parse::<Reference>();
            assert!(again.as_ref().ok() == Some(&reference), "{reference} is read as {again:?}");
            assert!(reference.to_string() == text, "{text} is written as {reference}");
            accepted(format!("tag {}, digest {}", reference.tag.is_some(), reference.digest.is_some()))
        }
        Err(error) => refused(&error),
    }
}

/// One header a line.
fn challenge(text: &[u8]) -> Outcome {
    let mut headers = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n').take(64) {
        let Ok(value) = HeaderValue::from_bytes(line) else { continue };
        headers.append(WWW_AUTHENTICATE, value);
    }
    let bearer = match Challenge::of(&headers) {
        Ok(Challenge::Bearer(bearer)) => bearer,
        Ok(Challenge::Basic) => return accepted("basic"),
        Err(reason) => {
            check::shown(&reason);
            return Outcome::refused(&reason);
        }
    };
    let password = Auth::Password { name: "me".into(), password: Zeroizing::new(SECRET.into()) };
    let identity = Auth::Identity(Zeroizing::new(SECRET.into()));
    let mut shapes = Vec::new();
    for who in [None, Some(&password), Some(&identity)] {
        match bearer.request(who, "https://r.example", "a/b") {
            Ok(request) => {
                check::without(&request.uri, SECRET);
                assert!(request.uri.starts_with("https://"), "a secret goes to {}", request.uri);
                let shown = format!("{:?}", request.authorization);
                check::without(&shown, "bWU6");
                shapes.push(format!("asked, by a form: {}", request.form.is_some()));
            }
            Err(reason) => {
                check::without(&reason, SECRET);
                check::shown(&reason);
                shapes.push(shape::of(&reason));
            }
        }
    }
    Outcome { accepted: true, shapes }
}

fn answer(text: &[u8]) -> Outcome {
    let said = auth::message(text);
    said.iter().filter(|said| !said.is_empty()).for_each(|said| check::shown(said));
    match auth::token(text) {
        Ok(value) => {
            assert!(value.is_sensitive(), "a token may be printed");
            accepted(format!("a token, and it says {}", said.is_some()))
        }
        Err(reason) => {
            check::shown(&reason);
            let said = said.map(|_| " and says something".to_owned()).unwrap_or_default();
            Outcome::refused(&format!("{reason}{said}"))
        }
    }
}

/// A tar file with an image in it, at a path as every other.
fn opened(text: &[u8]) -> Outcome {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("fuzz-oci", flags).expect("a file in memory");
    let mut text = text.to_vec();
    super::tar::mend(&mut text);
    rustix::io::write(&file, &text).expect("a file in memory takes an input");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let archive = match Archive::open(path.as_ref()) {
        Ok(archive) => archive,
        Err(error) => return refused(&error),
    };
    if !archive.is_image() {
        return Outcome::refused("no image");
    }
    let (manifest, _) = match archive.image("amd64") {
        Ok(image) => image,
        Err(error) => return refused(&error),
    };
    let mut shapes = vec![format!("an image of {} layers", manifest.layers.len().min(3))];
    for layer in &manifest.layers {
        let read = archive.blob(layer).map_err(|error| error.to_string()).and_then(|mut blob| {
            let mut sink = std::io::sink();
            std::io::copy(&mut blob, &mut sink).map_err(|error| error.to_string())
        });
        match read {
            Ok(bytes) => assert!(bytes == layer.size, "a layer of {} bytes has {bytes}", layer.size),
            Err(reason) => {
                check::shown(&reason);
                shapes.push(shape::of(&reason));
            }
        }
    }
    Outcome { accepted: true, shapes }
}
