//! `VolumeMountStatuses`: which volume is mounted where.

use runtime::store::{
    Block, Fact, MOUNT_STATUS, MountStatus, Spec, VOLUME_MOUNT_STATUS, VOLUME_STATUS, VolumeMount,
};

use super::controller::{Action, Controller, Snapshot};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "block.VolumeMountController",
    inputs: &[&VOLUME_STATUS, &MOUNT_STATUS],
    outputs: &[&VOLUME_MOUNT_STATUS],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let mut wanted = Vec::new();
    for volume in snapshot.list(&VOLUME_STATUS) {
        let Spec::Block(block) = &volume.spec else { continue };
        let Block::VolumeStatus(status) = &**block else { continue };
        for mount in snapshot.list(&MOUNT_STATUS) {
            let Spec::MountStatus(mount) = &mount.spec else { continue };
            if !mount.source.is_empty() && mount.source == status.mount_location {
                let fact = Fact::VolumeMount(mounted(&volume.metadata.id, mount));
                let id = format!("{}{}", volume.metadata.id, mount.target);
                wanted.push((id, Spec::Fact(Box::new(fact))));
            }
        }
    }
    Ok(vec![Action::Replace(&VOLUME_MOUNT_STATUS, wanted)])
}

fn mounted(volume: &str, mount: &MountStatus) -> VolumeMount {
    let has = |option: &str| mount.options.iter().any(|found| found == option);
    VolumeMount {
        volume_id: volume.to_owned(),
        requester: VOLUME_STATUS.writer.to_owned(),
        target: mount.target.clone(),
        read_only: has("ro"),
        detached: false,
        disable_access_time: has("noatime"),
        secure: has("nosuid") && has("nodev"),
        no_exec: has("noexec"),
    }
}

#[cfg(test)]
mod tests {
    use runtime::store::{Store, VolumeStatus};

    use super::*;
    use crate::controllers::testing::snapshot;

    #[test]
    fn a_volume_is_where_its_node_is_mounted() {
        let store = Store::new();
        for (id, node) in [("EPHEMERAL", "/dev/vda6"), ("STATE", "/dev/vda5"), ("u-broken", "")] {
            let status = VolumeStatus { mount_location: node.into(), ..VolumeStatus::default() };
            let spec = Spec::Block(Box::new(Block::VolumeStatus(status)));
            store.put(VOLUME_STATUS.writer, &VOLUME_STATUS, id, spec).unwrap();
        }
        for (source, target) in [("/dev/vda6", "/var"), ("", "/run"), ("/dev/vda7", "/mnt")] {
            let mount = MountStatus {
                source: source.into(),
                target: target.into(),
                filesystem_type: "xfs".into(),
                options: vec!["rw".into(), "noatime".into()],
            };
            store.put(MOUNT_STATUS.writer, &MOUNT_STATUS, target, Spec::MountStatus(mount)).unwrap();
        }
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        let [Action::Replace(_, wanted)] = actions.as_slice() else { panic!("{actions:?}") };
        let ids: Vec<_> = wanted.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["EPHEMERAL/var"]);
        let text = wanted[0].1.yaml().unwrap();
        assert!(text.contains("target: /var\n") && text.contains("disableAccessTime: true\n"), "{text}");
    }
}
