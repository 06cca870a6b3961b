//! Installer images for tests: the built one under another version, or with a fault in it, in a registry of our own.
//!
//! Owns: a registry on 127.0.0.1, which guests reach through QEMU's user network, and the images in it.
//! Does not: build; the parts are those of the build.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use installer::slot;
use installer::system::names;
use oci::archive::{self, Archive, NewImage};
use oci::document::{CONFIG, MANIFEST};
use oci::files::Files;
use oci::installer::{Contents, Facts, Walk};
use oci::server::{Behaviour, Server};
use ondisk::Digest;
use ondisk::manifest::{BLOCK_BYTES, Layer, RootManifest};
use ondisk::verity::TreeBuilder;

use crate::artifacts::build;
use crate::paths;
use crate::web::HOST;

/// The registry's name in references; nobody answers for it but our mirror.
pub const NAME: &str = "registry.invalid";
const REPOSITORY: &str = "billet/installer";

/// A running registry.
pub struct Registry {
    server: Server,
    directory: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

/// The parts of the built test image.
pub struct Parts {
    /// Its root manifest.
    pub manifest: RootManifest,
    /// Its boot parts by name.
    pub boot: Vec<(String, Vec<u8>)>,
    /// Its layer files, lowest first.
    layers: Vec<PathBuf>,
}

impl Parts {
    /// Reads them from the built installer image.
    pub fn of_build() -> Result<Self> {
        let archive = Archive::open(&build().test.installer)?;
        let (manifest, _) = archive.image("amd64")?;
        let open = |number: usize| match manifest.layers.get(number) {
            Some(layer) => archive.blob(layer).map(Some).map_err(std::io::Error::other),
            None => Ok(None),
        };
        let mut walk =
            Walk::new(Files::new(Box::new(open)), ondisk::Architecture::Amd64, manifest.layers.len(), None);
        let manifest = RootManifest::parse(&walk.manifest()?)
            .map_err(|error| anyhow::anyhow!("the built installer image: {error}"))?;
        let boot = walk.boot()?.into_iter().collect();
        walk.finish()?;
        let layers = build().test.layers.iter().map(|layer| layer.file.clone()).collect();
        Ok(Self { manifest, boot, layers })
    }

    /// The bytes of a boot part.
    pub fn boot_part(&mut self, name: &str) -> Result<&mut Vec<u8>> {
        let found = self.boot.iter_mut().find(|(known, _)| known == name);
        found.map(|(_, bytes)| bytes).with_context(|| format!("the image has no boot part {name}"))
    }

    /// Adds words to the kernel's command line.
    pub fn add_arguments(&mut self, words: &str) -> Result<()> {
        let line = self.boot_part(names::COMMAND_LINE)?;
        line.extend(format!(" {words}").bytes());
        Ok(())
    }

    /// Puts a layer with what is in this directory above the others.
    pub fn cover(&mut self, directory: &Path, registry: &Registry) -> Result<()> {
        let (file, layer) = layer_of(directory, registry.directory.path())?;
        let layers = self.manifest.layers.drain(..).chain([layer]);
        self.manifest = slot::stack(&self.manifest.version, layers)?;
        self.layers.push(file);
        Ok(())
    }

    /// The image, which says that it is of this version.
    pub fn image(mut self, version: &str) -> NewImage {
        version.clone_into(&mut self.manifest.version);
        Contents {
            architecture: "amd64".into(),
            facts: Facts { version: version.into(), minimum_from: "0.1.0".into() },
            manifest: self.manifest.to_json().into_bytes(),
            boot: self.boot,
            layers: self.layers,
            program: None,
        }
        .image()
    }
}

impl Registry {
    /// A registry without images.
    pub fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.context("start the registry's runtime")?;
        let server =
            runtime.block_on(Server::start(None, Behaviour::default())).context("start a registry")?;
        Ok(Self { server, directory: paths::temporary_dir()?, _runtime: runtime })
    }

    /// Lines of the `machine` section that lead a node here.
    pub fn machine_section(&self) -> String {
        let port = self.server.address().port();
        format!(
            "  registries:\n    mirrors:\n      {NAME}:\n        endpoints: [\"http://{HOST}:{port}\"]\n        \
             skipFallback: true\n"
        )
    }

    /// A new directory that is gone with the registry.
    pub fn new_directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(name);
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(path)
    }

    /// Keeps an image; returns its reference.
    pub fn keep(&self, tag: &str, image: &NewImage) -> Result<String> {
        self.keep_in(REPOSITORY, tag, image)
    }

    /// Serves an image that others made, as an OCI layout in a tar file; returns its reference.
    pub fn serve(&self, repository: &str, tag: &str, image: &Path) -> Result<String> {
        self.server.serve(image, repository, tag).context("serve an image")?;
        Ok(format!("{NAME}/{repository}:{tag}"))
    }

    /// Keeps an image in this repository; returns its reference.
    pub fn keep_in(&self, repository: &str, tag: &str, image: &NewImage) -> Result<String> {
        let path = self.path_of(tag);
        let mut out = std::io::BufWriter::new(std::fs::File::create(&path).context("create an image")?);
        archive::write(&mut out, image)?;
        std::io::Write::flush(&mut out).context("write an image")?;
        self.serve(repository, tag, &path)
    }

    fn path_of(&self, tag: &str) -> PathBuf {
        self.directory.path().join(format!("{tag}.tar"))
    }

    /// Signs a kept image with a new key, as cosign does; returns the key's public half as PEM.
    pub fn sign(&self, repository: &str, tag: &str) -> Result<String> {
        let digest = self.server.serve(&self.path_of(tag), repository, tag).context("serve an image")?;
        let payload = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"{NAME}/{repository}"}},"image":{{"docker-manifest-digest":"sha256:{digest}"}},"type":"cosign container image signature"}},"optional":null}}"#
        );
        let (public, signature) = signed_by_openssl(self.directory.path(), payload.as_bytes())?;
        let blob = |name: &str, bytes: &[u8]| -> Result<Digest> {
            let path = self.directory.path().join(name);
            std::fs::write(&path, bytes).with_context(|| format!("write {name}"))?;
            let digest = Digest::sha256(&[bytes]);
            self.server.serve_blob(&digest, &path).with_context(|| format!("serve {name}"))?;
            Ok(digest)
        };
        let payload_digest = blob("payload", payload.as_bytes())?;
        let config = blob("config", b"{}")?;
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": { "mediaType": CONFIG, "digest": format!("sha256:{config}"), "size": 2 },
            "layers": [{
                "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
                "digest": format!("sha256:{payload_digest}"),
                "size": payload.len(),
                "annotations": { "dev.cosignproject.cosign/signature": STANDARD.encode(signature) },
            }],
        });
        let document = manifest.to_string();
        self.server.serve_document(repository, &oci::signature::tag(&digest), MANIFEST, document.as_bytes());
        Ok(public)
    }

    /// Changes how it answers from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.server.behave(behaviour);
    }
}

/// A new key's public half, and its signature of a message: ECDSA on P-256, which cosign's own keys are.
fn signed_by_openssl(directory: &Path, message: &[u8]) -> Result<(String, Vec<u8>)> {
    let run = |words: &str| -> Result<()> {
        let output = Command::new("openssl").current_dir(directory).args(words.split(' ')).output();
        let output = output.context("run openssl; install it with: apt-get install openssl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "openssl {words}: {said}");
        Ok(())
    };
    std::fs::write(directory.join("message"), message).context("write what is signed")?;
    run("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out signer.pem")?;
    run("pkey -in signer.pem -pubout -out signer.pub")?;
    run("dgst -sha256 -sign signer.pem -out signature message")?;
    let public = std::fs::read_to_string(directory.join("signer.pub")).context("read the public key")?;
    Ok((public, std::fs::read(directory.join("signature")).context("read the signature")?))
}

/// A layer file of a directory, made by mksquashfs, which keeps what our own builder has no word for: pipes.
fn layer_of(directory: &Path, into: &Path) -> Result<(PathBuf, Layer)> {
    let draft = into.join("draft");
    let output = Command::new("mksquashfs")
        .args([directory, &draft])
        .args(["-noappend", "-all-root", "-no-progress", "-quiet", "-comp", "zstd"])
        .output()
        .context("run mksquashfs; install it with: apt-get install squashfs-tools")?;
    ensure!(output.status.success(), "mksquashfs failed: {}", String::from_utf8_lossy(&output.stderr));
    let mut bytes = std::fs::read(&draft).context("read the layer's squashfs")?;
    bytes.resize(bytes.len().next_multiple_of(usize::try_from(BLOCK_BYTES)?), 0);
    let salt = Digest::sha256(&[&bytes]);
    let mut builder = TreeBuilder::new(salt);
    builder.push(&bytes);
    let tree = builder.finish().map_err(|error| anyhow::anyhow!("hash a layer: {error}"))?;
    let data_bytes = u64::try_from(bytes.len())?;
    let layer = Layer {
        name: "fault".into(),
        version: "1".into(),
        offset: 0,
        data_bytes,
        hash_offset: data_bytes,
        hash_bytes: u64::try_from(tree.bytes.len())?,
        root_hash: tree.root,
        salt,
        kernel_release: None,
    };
    let file = into.join(layer.file_name());
    std::fs::write(&file, [bytes, tree.bytes].concat()).context("write the layer")?;
    Ok((file, layer))
}
