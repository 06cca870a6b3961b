//! Images that a registry of the test's serves.

use oci::archive;
use oci::installer::Contents;
use oci::server::{Behaviour, Server};
use ondisk::Digest;
use ondisk::manifest::{BLOCK_BYTES, FORMAT};

use super::*;

/// An installer image with parts that nobody looks into, and without its layer; nobody signed it.
fn unsigned(version: &str) -> Contents {
    let base = Layer {
        name: "base".to_owned(),
        version: version.to_owned(),
        offset: 0,
        data_bytes: 2 * BLOCK_BYTES,
        hash_offset: 2 * BLOCK_BYTES,
        hash_bytes: BLOCK_BYTES,
        root_hash: Digest::sha256(&[b"root"]),
        salt: Digest::sha256(&[b"salt"]),
        kernel_release: None,
    };
    let manifest = RootManifest { format: FORMAT, version: version.to_owned(), layers: vec![base] };
    let parts = [
        names::KERNEL,
        names::STUB,
        names::LOADER,
        names::MODULES,
        names::INIT,
        names::COMMAND_LINE,
        names::BOOT_ENTRY,
        names::LOADER_CONFIG,
    ];
    Contents {
        architecture: Architecture::OWN.name().to_owned(),
        facts: Facts { version: version.to_owned(), minimum_from: "0.0.1".to_owned() },
        manifest: manifest.to_json().into_bytes(),
        boot: parts.map(|name| (name.to_owned(), name.as_bytes().to_vec())).into(),
        layers: Vec::new(),
        program: None,
    }
}

/// A node whose config has this registry asked for images.
pub(crate) fn node_of(dir: &std::path::Path, server: &Server) -> Arc<Runtime> {
    let runtime = Runtime::detached(dir.to_owned());
    let text = format!(
        "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  registries:\n    mirrors:\n      registry.invalid:\n        \
         endpoints: [\"http://{}\"]\n        skipFallback: true\n",
        server.address()
    );
    runtime.config.send_replace(Some(Arc::new(config::parse(&text).unwrap_or_else(|e| panic!("{e}")))));
    runtime
}

/// A registry with an image as [`NAME`], and the digests of its blobs by the file in each.
pub(crate) async fn served(dir: &std::path::Path) -> (Server, Vec<(String, String)>) {
    let mut contents = unsigned("0.2.0");
    let manifest = RootManifest::parse(&contents.manifest).unwrap();
    for layer in &manifest.layers {
        let path = dir.join(layer.file_name());
        std::fs::write(&path, vec![7; usize::try_from(layer.total_bytes()).unwrap()]).unwrap();
        contents.layers.push(path);
    }
    let image = contents.image();
    let file = dir.join("image.tar");
    archive::write(&mut std::fs::File::create(&file).unwrap(), &image).unwrap();
    let server = Server::start(None, Behaviour::default()).await.unwrap();
    server.serve(&file, "billet/installer", "1").unwrap();
    let (manifest, _) = Archive::open(&file).unwrap().image(Architecture::OWN.name()).unwrap();
    let digests = manifest.layers.iter().map(|layer| format!("sha256:{}", layer.digest));
    let files = image.layers.iter().map(|layer| layer[0].path.clone());
    let blobs = files.zip(digests).collect();
    (server, blobs)
}

pub(crate) const NAME: &str = "registry.invalid/billet/installer:1";
/// The first byte of a file in a tar file: what is changed is what would be installed.
pub(crate) const CONTENT: usize = 512;

/// Everything that an upgrade reads of an image, in its order.
fn read_all(found: &Found) -> Result<(), String> {
    let (_, layers) = found.open().map_err(|failure| failure.to_string())?;
    for layer in &found.manifest.layers {
        let mut reader = layers.layer(layer).map_err(|error| runtime::errors::chain(&error))?;
        io::copy(&mut reader, &mut io::sink()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The look-up decides by an answer, and the upgrade reads another one.
#[tokio::test]
async fn a_registry_that_answers_otherwise_the_second_time_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (server, blobs) = served(dir.path()).await;
    let runtime = node_of(dir.path(), &server);
    let found = look_up(&runtime, NAME, CALL_PATIENCE).await.unwrap();
    tokio::task::spawn_blocking(move || read_all(&found)).await.unwrap().unwrap();
    assert_eq!(blobs.len(), 10);
    for (file, digest) in &blobs {
        let found = look_up(&runtime, NAME, CALL_PATIENCE).await.unwrap();
        server.change_after(digest, 0, CONTENT);
        let error = tokio::task::spawn_blocking(move || read_all(&found)).await.unwrap().unwrap_err();
        assert!(error.contains(digest.as_str()) && error.contains("changed on the way"), "{file}: {error}");
        // What comes first decides the look-up already.
        let again =
            look_up(&runtime, NAME, CALL_PATIENCE).await.map(drop).map_err(|failure| failure.to_string());
        let refused = again.is_err_and(|error| error.contains(digest.as_str()));
        assert_eq!(refused, file == oci::installer::MANIFEST_PATH, "{file}");
        server.change_after(digest, usize::MAX, CONTENT);
    }
}

/// The name's document is read once: what it led to is installed, whatever the name leads to later.
#[tokio::test]
async fn a_name_that_leads_elsewhere_the_second_time_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = served(dir.path()).await;
    let runtime = node_of(dir.path(), &server);
    let found = look_up(&runtime, NAME, CALL_PATIENCE).await.unwrap();
    server.serve_document("billet/installer", "1", "x", b"{}");
    tokio::task::spawn_blocking(move || read_all(&found)).await.unwrap().unwrap();
    assert_eq!(server.asked().iter().filter(|path| path.contains("/manifests/")).count(), 1);
}

/// With Secure Boot what boots is read a time of its own.
#[tokio::test]
async fn what_is_checked_for_secure_boot_was_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (server, blobs) = served(dir.path()).await;
    let runtime = node_of(dir.path(), &server);
    turn_secure_boot_on(dir.path());
    let kernel = blobs.iter().find(|(file, _)| file.ends_with(names::KERNEL)).unwrap();
    let found = look_up(&runtime, NAME, CALL_PATIENCE).await.unwrap();
    server.change_after(&kernel.1, 0, CONTENT);
    let refused =
        check_signed(&runtime, found).await.err().map(|failure| failure.to_string()).unwrap_or_default();
    assert!(refused.contains(&kernel.1) && refused.contains("changed on the way"), "{refused}");
}

fn turn_secure_boot_on(root: &std::path::Path) {
    let variables = root.join("sys/firmware/efi/efivars");
    std::fs::create_dir_all(&variables).unwrap();
    let name = format!("SecureBoot-{}", ondisk::efi::GLOBAL);
    std::fs::write(variables.join(name), ondisk::efi::variable_file(6, &[1])).unwrap();
}

/// A look-up that took nearly all of its time, as over a slow line, leaves the whole time of a pull to what comes next.
#[tokio::test]
async fn a_slow_registry_is_not_taken_for_a_wrong_image() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("image.tar");
    archive::write(&mut std::fs::File::create(&file).unwrap(), &unsigned("0.2.0").image()).unwrap();
    let server = Server::start(None, Behaviour::default()).await.unwrap();
    server.serve(&file, "billet/installer", "1").unwrap();
    let runtime = node_of(dir.path(), &server);
    turn_secure_boot_on(dir.path());

    let found = look_up(&runtime, NAME, CALL_PATIENCE).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(CALL_PATIENCE.total + Duration::from_secs(1)).await;
    tokio::time::resume();
    // Its time is over, and what boots is read and checked all the same.
    let source = found.source.clone();
    let late = tokio::task::spawn_blocking(move || source.walk().manifest().map_err(broken)).await.unwrap();
    assert!(late.unwrap_err().to_string().contains("(deadline pull, 60 s)"));
    let refused = check_signed(&runtime, found).await.err().map(|failure| failure.to_string());
    let refused = refused.unwrap_or_default();
    assert!(
        refused.contains(
            "would not start registry.invalid/billet/installer:1 from its disk: it has no signed UKI"
        ),
        "{refused}"
    );
}
