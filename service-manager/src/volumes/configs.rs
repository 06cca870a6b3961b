//! `VolumeConfigs`: what the volumes of the machine config are to be. `os:admin` alone sees them.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | the config | `VolumeConfigs` | with machined |
//!
//! Does not: show a key, or which disks are meant: clients want a compiled expression there, and the config has its text.
//! A recovery key is no kind that clients know: it is left out.

use std::sync::Arc;

use config::documents::MaxSize;
use installer::volumes::{EPHEMERAL, STATE};
use runtime::store::{
    Fact, Spec, VOLUME_CONFIG, VolumeConfig, VolumeEncryption, VolumeFilesystem, VolumeKey, VolumePartition,
    VolumeProvisioning, VolumeTarget,
};
use unlock::{KeyKind, Record};

use super::handle::Volumes;
use super::mount::VAR;
use super::specs::{self, VolumeSpec};
use super::state_files::MOUNT_POINT;
use super::wanted;

/// Keeps the resources like the config.
pub(crate) async fn follow(volumes: Arc<Volumes>) {
    let mut config = volumes.runtime.config.subscribe();
    while config.changed().await.is_ok() {
        publish(&volumes);
    }
}

fn publish(volumes: &Volumes) {
    let Some(config) = volumes.runtime.config() else { return };
    let system = [(STATE, MOUNT_POINT), (EPHEMERAL, VAR)].map(|(name, target)| {
        let partition =
            VolumePartition { label: name.to_owned(), grow: name == EPHEMERAL, ..Default::default() };
        let encryption = wanted::of_system(&config, name);
        (name.to_owned(), volume(partition, Some(target.to_owned()), encryption.as_ref()))
    });
    let further = specs::in_force(volumes).into_iter().map(|spec| (spec.name.clone(), of_spec(&spec)));
    let fact = |(name, config)| (name, Spec::Fact(Box::new(Fact::VolumeConfig(Box::new(config)))));
    let wanted = system.into_iter().chain(further).map(fact).collect();
    if let Err(error) = volumes.runtime.store.replace(VOLUME_CONFIG.writer, &VOLUME_CONFIG, wanted) {
        volumes.runtime.journal.warn(&error.to_string());
    }
}

fn of_spec(spec: &VolumeSpec) -> VolumeConfig {
    let (max_size, relative_max_size, negative_max_size) = match spec.most {
        None => (0, 0, false),
        Some(MaxSize::Bytes(bytes)) => (bytes, 0, false),
        Some(MaxSize::Percent(percent)) => (0, percent.into(), false),
        Some(MaxSize::AllBut(bytes)) => (bytes, 0, true),
    };
    let partition = VolumePartition {
        label: spec.name.clone(),
        min_size: spec.least_bytes,
        max_size,
        relative_max_size,
        negative_max_size,
        grow: spec.most.is_none(),
    };
    volume(partition, spec.mount.as_ref().map(|mount| mount.target.clone()), spec.encryption.as_ref())
}

fn volume(
    partition_spec: VolumePartition,
    target: Option<String>,
    encryption: Option<&Record>,
) -> VolumeConfig {
    let filesystem_spec = target.is_some().then_some(VolumeFilesystem { kind: "xfs" });
    VolumeConfig {
        kind: "partition",
        provisioning: VolumeProvisioning { partition_spec, filesystem_spec },
        mount: target.map(|target_path| VolumeTarget { target_path }),
        encryption: encryption.map(|record| VolumeEncryption { provider: "luks2", keys: keys(record) }),
    }
}

fn keys(record: &Record) -> Vec<VolumeKey> {
    let known = [KeyKind::Static, KeyKind::NodeId, KeyKind::Kms, KeyKind::Tpm];
    let keys = record.keys.iter().map(|key| (key.slot, key.kind.name()));
    let keys = keys.filter(|(_, kind)| known.contains(kind));
    keys.map(|(slot, kind)| VolumeKey { slot, kind: kind.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use runtime::store::{MACHINE_CONFIG, MachineDocument};

    use super::*;

    #[test]
    fn volumes_of_both_kinds_are_shown_without_their_keys() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = crate::server::tests_node(dir.path().to_owned()).volumes.clone();
        let text = "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  systemDiskEncryption:\n    ephemeral:\n      provider: luks2\n      keys: [{slot: 0, static: {passphrase: hunter2}}, {slot: 1, nodeID: {}}]\n---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning:\n  diskSelector: {match: '!system_disk'}\n  minSize: 1GiB\n  maxSize: 50%\n";
        let loaded = config::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let document =
            MachineDocument::new(zeroize::Zeroizing::new(text.to_owned()), loaded.config, loaded.documents);
        let config = document.config.clone();
        let spec = Spec::MachineConfig(Arc::new(document));
        volumes.runtime.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, "v1alpha1", spec).unwrap();
        volumes.runtime.config.send_replace(Some(config));
        publish(&volumes);
        let shown = |id: &str| volumes.runtime.store.get(&VOLUME_CONFIG, id).unwrap().spec.yaml().unwrap();
        let ephemeral = shown("EPHEMERAL");
        assert!(!ephemeral.contains("hunter2"), "{ephemeral}");
        for part in
            ["targetPath: /var\n", "grow: true\n", "provider: luks2\n", "type: static\n", "type: nodeID\n"]
        {
            assert!(ephemeral.contains(part), "{part}: {ephemeral}");
        }
        let data = shown("u-data");
        for part in
            ["minSize: 1073741824\n", "relativeMaxSize: 50\n", "targetPath: /var/mnt/data\n", "grow: false\n"]
        {
            assert!(data.contains(part), "{part}: {data}");
        }
        assert!(!shown("STATE").contains("encryption"));
        for found in volumes.runtime.store.list(&VOLUME_CONFIG) {
            assert!(!found.spec.binary(VOLUME_CONFIG.kind).unwrap().is_empty());
        }
    }
}
