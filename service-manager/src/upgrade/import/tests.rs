use std::fs;

use oci::archive::{self, Bytes, Content, NewImage};
use oci::installer::{Facts, labels};

use super::*;

/// An installer image that says it is of this version.
pub(crate) fn archive(version: &str) -> Vec<u8> {
    with_labels(labels(&Facts { version: version.into(), minimum_from: "0.0.1".into() }))
}

fn with_labels(labels: std::collections::BTreeMap<String, String>) -> Vec<u8> {
    let content = Content { path: "billet/root.json".into(), bytes: Bytes::Here(b"{}".to_vec()) };
    let architecture = Architecture::OWN.name().to_owned();
    let image = NewImage { architecture, tag: "1".into(), labels, layers: vec![vec![content]] };
    let mut bytes = Vec::new();
    archive::write(&mut bytes, &image).unwrap();
    bytes
}

async fn import(upgrades: &Arc<Upgrades>, bytes: &[u8]) -> Result<String, Failure> {
    let mut import = Import::begin(upgrades).await?;
    for chunk in bytes.chunks(1000) {
        import.push(chunk.to_vec()).await?;
    }
    import.finish().await
}

#[tokio::test]
async fn an_archive_gets_a_name_and_goes_when_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let upgrades = crate::server::tests_node(dir.path().to_owned()).upgrades.clone();
    let name = import(&upgrades, &archive("0.2.0+x")).await.unwrap();
    assert!(name.starts_with("imported.invalid/installer:0.2.0_x@sha256:"), "{name}");
    let reference: Reference = name.parse().unwrap();
    assert!(is_import(&reference));
    let (_, _, config) = open(&upgrades.runtime.root, &reference).unwrap();
    assert!(config.config.labels.contains_key(installer::FORMAT_LABEL));
    forget(&upgrades.runtime.root, "r.example/i:1");
    assert!(open(&upgrades.runtime.root, &reference).is_ok());
    forget(&upgrades.runtime.root, &name);
    let error = open(&upgrades.runtime.root, &reference).err().unwrap().to_string();
    assert!(error.contains("is not on this node any more"), "{error}");
}

/// Who may write below /var has another image, a link, or a directory elsewhere in the place of what was imported.
#[tokio::test]
async fn what_was_put_in_the_place_of_an_import_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let upgrades = crate::server::tests_node(dir.path().to_owned()).upgrades.clone();
    let name = import(&upgrades, &archive("0.2.0")).await.unwrap();
    let reference: Reference = name.parse().unwrap();
    let kept = upgrades.runtime.path(DIRECTORY).join(reference.digest.unwrap().to_string());
    fs::write(&kept, archive("0.3.0")).unwrap();
    let refused = |reference: &Reference| open(&upgrades.runtime.root, reference).err().unwrap().to_string();
    assert!(refused(&reference).contains("another image lies under its name"), "{}", refused(&reference));
    fs::remove_file(&kept).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("image"), archive("0.2.0")).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("image"), &kept).unwrap();
    assert!(
        refused(&reference).contains("is a symbolic link, which is not followed"),
        "{}",
        refused(&reference)
    );
    fs::remove_dir_all(upgrades.runtime.path(DIRECTORY)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, upgrades.runtime.path(DIRECTORY)).unwrap();
    let name = import(&upgrades, &archive("0.2.0")).await.unwrap();
    assert!(
        open(&upgrades.runtime.root, &name.parse().unwrap()).is_ok(),
        "the link is replaced by a directory of ours"
    );
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    let parent = upgrades.runtime.path("/var/lib/billet");
    fs::remove_dir_all(&parent).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &parent).unwrap();
    import(&upgrades, &archive("0.2.0")).await.unwrap();
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

#[tokio::test]
async fn what_is_no_installer_image_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let upgrades = crate::server::tests_node(dir.path().to_owned()).upgrades.clone();
    let error = import(&upgrades, &with_labels(Default::default())).await.unwrap_err();
    assert!(error.to_string().contains("the imported archive is no installer image"), "{error}");
    let error = import(&upgrades, b"no archive").await.unwrap_err();
    assert!(!error.to_string().is_empty());
    let held = Import::begin(&upgrades).await.unwrap();
    let busy = Import::begin(&upgrades).await.err().map(|error| error.to_string());
    assert_eq!(busy.as_deref(), Some("another import is under way"));
    drop(held);
    let left = fs::read_dir(upgrades.runtime.path(DIRECTORY)).unwrap().count();
    assert_eq!(left, 0);
}
