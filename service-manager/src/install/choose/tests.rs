use super::*;

/// An empty disk of the usual kind.
pub(in crate::install) fn disk(name: &str) -> Candidate {
    let disk = Disk {
        dev_path: format!("/dev/{name}"),
        size: 20 << 30,
        pretty_size: "21 GB".into(),
        model: "Model".into(),
        serial: format!("S-{name}"),
        ..Disk::default()
    };
    Candidate { disk, name: String::new(), holds: Holds::Nothing }
}

fn holding(name: &str, holds: Holds) -> Candidate {
    Candidate { holds, ..disk(name) }
}

fn foreign(name: &str) -> Candidate {
    holding(name, Holds::Foreign("ext4 labelled mine, without a partition table".into()))
}

fn path(given: &str) -> Wanted {
    Wanted::Path { given: given.into(), leads_to: Some(given.into()) }
}

fn any_size() -> Wanted {
    let config = config::v1alpha1::DiskSelector { size: ">= 1GB".into(), ..Default::default() };
    Wanted::Selector(Selector::read(&config).unwrap())
}

fn chosen(wanted: &Wanted, wipe: bool, disks: &[Candidate]) -> Result<String, String> {
    choose(wanted, wipe, disks).map(|disk| disk.disk.dev_path.clone()).map_err(|refused| refused.to_string())
}

#[test]
fn a_path_or_properties_name_the_disk() {
    let disks = [disk("sda"), disk("vda")];
    assert_eq!(chosen(&path("/dev/vda"), false, &disks).unwrap(), "/dev/vda");
    assert_eq!(chosen(&any_size(), false, &disks).unwrap(), "/dev/sda", "the first of several empty ones");
}

#[test]
fn a_disk_that_is_not_there_is_said_with_those_that_are() {
    let wanted = Wanted::Path { given: "/dev/sdz".into(), leads_to: None };
    let text = chosen(&wanted, false, &[disk("sda")]).unwrap_err();
    let expected = "specified install disk does not exist: \"/dev/sdz\"\nthe disks of this machine:\n  \
                    /dev/sda: model Model, serial S-sda, 21 GB: it is not /dev/sdz";
    assert_eq!(text, expected);
    let wanted = Wanted::Path { given: "/dev/disk/by-id/x".into(), leads_to: None };
    let text = chosen(&wanted, false, &[]).unwrap_err();
    assert!(text.contains("`get blocksymlinks` shows") && text.ends_with("has no disks"), "{text}");
}

#[test]
fn a_link_that_is_not_made_yet_names_the_disk_too() {
    let mut other = disk("vda");
    other.disk.symlinks = vec!["/dev/disk/by-id/virtio-b".into(), "/dev/disk/by-path/x".into()];
    let disks = [disk("sda"), other];
    let wanted = Wanted::Path { given: "/dev/disk/by-id/virtio-b".into(), leads_to: None };
    assert_eq!(chosen(&wanted, false, &disks).unwrap(), "/dev/vda");
    let wanted = Wanted::Path { given: "/dev/disk/by-id/virtio".into(), leads_to: None };
    assert!(chosen(&wanted, false, &disks).is_err());
}

#[test]
fn what_can_never_be_a_target_is_none_even_with_wipe() {
    let mut small = disk("vda");
    small.disk.size = LEAST_BYTES - 1;
    let mut read_only = disk("vda");
    read_only.disk.readonly = true;
    let mut cd = disk("vda");
    cd.disk.cdrom = true;
    let cases = [
        (holding("vda", Holds::Medium("was started from")), "this machine was started from it"),
        (holding("vda", Holds::Unusable("in use: mounted".into())), "in use: mounted"),
        (small, "it is too small: 3414 MiB are needed"),
        (read_only, "it is read-only"),
        (cd, "it is a CD drive"),
    ];
    for (candidate, reason) in cases {
        for wanted in [path("/dev/vda"), any_size()] {
            let text = chosen(&wanted, true, std::slice::from_ref(&candidate)).unwrap_err();
            assert!(text.contains(&format!(": {reason}")), "{text}");
        }
    }
}

#[test]
fn data_of_others_stays_unless_wipe_says_otherwise() {
    let disks = [foreign("vda")];
    let text = chosen(&path("/dev/vda"), false, &disks).unwrap_err();
    assert!(text.starts_with("the disk /dev/vda of machine.install.disk cannot be installed to\n"), "{text}");
    assert!(
        text.contains("it holds ext4 labelled mine") && text.contains("machine.install.wipe: true"),
        "{text}"
    );
    assert_eq!(chosen(&path("/dev/vda"), true, &disks).unwrap(), "/dev/vda");
    let installed = [holding("vda", Holds::Billet)];
    assert!(chosen(&path("/dev/vda"), false, &installed).unwrap_err().contains("reset it"));
    assert_eq!(chosen(&path("/dev/vda"), true, &installed).unwrap(), "/dev/vda");
}

#[test]
fn a_reset_disk_of_ours_comes_first_then_an_empty_one() {
    let disks = [foreign("sda"), disk("sdb"), holding("sdc", Holds::Reset)];
    assert_eq!(chosen(&any_size(), true, &disks).unwrap(), "/dev/sdc");
    assert_eq!(chosen(&any_size(), true, &disks[..2]).unwrap(), "/dev/sdb");
    assert_eq!(chosen(&any_size(), true, &disks[..1]).unwrap(), "/dev/sda");
    assert_eq!(chosen(&any_size(), false, &disks[..2]).unwrap(), "/dev/sdb");
}

#[test]
fn of_several_disks_with_data_none_is_wiped_by_accident() {
    let disks = [foreign("sda"), foreign("sdb")];
    let text = chosen(&any_size(), true, &disks).unwrap_err();
    assert!(text.starts_with("several disks could be wiped: name one of them"), "{text}");
    assert_eq!(chosen(&path("/dev/sdb"), true, &disks).unwrap(), "/dev/sdb");
}

#[test]
fn a_machine_has_one_installation() {
    let disks = [holding("sda", Holds::Billet), disk("sdb")];
    let text = chosen(&path("/dev/sdb"), false, &disks).unwrap_err();
    assert!(text.starts_with("/dev/sda holds an installation of Billet already"), "{text}");
    assert!(text.contains("before /dev/sdb is installed to"), "{text}");
    let both = [holding("sda", Holds::Reset), holding("sdb", Holds::Reset)];
    assert!(chosen(&any_size(), true, &both).is_err());
    // A medium with our partitions is what the machine runs from, and is pulled afterwards.
    let medium = [holding("sda", Holds::Medium("was started from")), disk("sdb")];
    assert_eq!(chosen(&path("/dev/sdb"), false, &medium).unwrap(), "/dev/sdb");
}

#[test]
fn a_selector_without_a_match_says_so() {
    let config = config::v1alpha1::DiskSelector { model: "Other*".into(), ..Default::default() };
    let wanted = Wanted::Selector(Selector::read(&config).unwrap());
    let text = chosen(&wanted, false, &[disk("sda")]).unwrap_err();
    assert!(text.starts_with("no disks matched the expression: model Other*\n"), "{text}");
    assert!(text.contains("its model \"Model\" is not \"Other*\""), "{text}");
}

#[test]
fn an_expression_of_a_document_names_the_disk() {
    let disks = [disk("sda"), disk("vda")];
    let wanted = |expression: &str| {
        let install =
            Install { disk: "/dev/sda".into(), disk_expression: expression.into(), ..Install::default() };
        Wanted::read(&install, |path| Some(path.to_owned()))
    };
    let by_path = wanted("disk.dev_path == \"/dev/vda\"").unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(chosen(&by_path, false, &disks).unwrap(), "/dev/vda", "the document wins");
    let none = wanted("disk.transport == \"nvme\"").unwrap_or_else(|why| panic!("{why}"));
    let text = chosen(&none, false, &disks).unwrap_err();
    assert!(
        text.starts_with("no disks matched the expression: \"disk.transport == \\\"nvme\\\"\""),
        "{text}"
    );
    let full = [holding("vda", Holds::Billet)];
    let text = chosen(&by_path, false, &full).unwrap_err();
    assert!(text.contains("can be installed to") && text.contains("provisioning.wipe"), "{text}");
    assert!(wanted("disk.").is_err_and(|why| why.starts_with("provisioning.diskSelector.match: ")));
}
