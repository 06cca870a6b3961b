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

/// A look-up that took nearly all of its time, as over a slow line, leaves the whole time of a pull to what comes next.
#[tokio::test]
async fn a_slow_registry_is_not_taken_for_a_wrong_image() {
    let dir = tempfile::tempdir().unwrap();
    let node = crate::server::tests_node(dir.path().to_owned());
    let file = dir.path().join("image.tar");
    archive::write(&mut std::fs::File::create(&file).unwrap(), &unsigned("0.2.0").image()).unwrap();
    let server = Server::start(None, Behaviour::default()).await.unwrap();
    server.serve(&file, "billet/installer", "1").unwrap();
    let text = format!(
        "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  registries:\n    mirrors:\n      registry.invalid:\n        \
         endpoints: [\"http://{}\"]\n        skipFallback: true\n",
        server.address()
    );
    node.config.send_replace(Some(Arc::new(config::parse(&text).unwrap_or_else(|e| panic!("{e}")))));
    let variables = dir.path().join("sys/firmware/efi/efivars");
    std::fs::create_dir_all(&variables).unwrap();
    let name = format!("SecureBoot-{}", ondisk::efi::GLOBAL);
    std::fs::write(variables.join(name), ondisk::efi::variable_file(6, &[1])).unwrap();

    let found = look_up(&node, "registry.invalid/billet/installer:1", CALL_PATIENCE).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(CALL_PATIENCE.total + Duration::from_secs(1)).await;
    tokio::time::resume();
    // Its time is over, and what boots is read and judged all the same.
    let source = found.source.clone();
    let late = tokio::task::spawn_blocking(move || source.walk().manifest().map_err(broken)).await.unwrap();
    assert!(late.unwrap_err().to_string().contains("(deadline pull, 60 s)"));
    let refused = check_signed(&node, found).await.err().map(|failure| failure.to_string());
    let refused = refused.unwrap_or_default();
    assert!(
        refused.contains(
            "would not start registry.invalid/billet/installer:1 from its disk: it has no signed UKI"
        ),
        "{refused}"
    );
}
