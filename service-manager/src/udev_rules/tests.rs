use std::os::unix::fs::MetadataExt;

use super::*;
use crate::node::Node;

/// A node with a serial adapter behind a USB port, and the rules.
fn node(rules: &[&str]) -> (tempfile::TempDir, Arc<Node>) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let port = root.join("sys/devices/pci0/usb1/1-1");
    let tty = port.join("tty/ttyUSB3");
    fs::create_dir_all(&tty).unwrap();
    fs::create_dir_all(root.join("sys/class/tty")).unwrap();
    fs::create_dir_all(root.join("dev")).unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\nvideo:x:44:\n").unwrap();
    fs::write(port.join("idVendor"), "0403\n").unwrap();
    fs::write(port.join("serial"), "A/1 ..\n").unwrap();
    fs::write(port.join("uevent"), "DEVTYPE=usb_device\n").unwrap();
    fs::write(tty.join("uevent"), "MAJOR=188\nMINOR=3\nDEVNAME=ttyUSB3\n").unwrap();
    fs::write(tty.join("latency"), "16\n").unwrap();
    fs::write(root.join("dev/ttyUSB3"), "").unwrap();
    symlink(root.join("sys/class/tty"), tty.join("subsystem")).unwrap();
    symlink(&tty, root.join("sys/class/tty/ttyUSB3")).unwrap();
    let node = crate::server::tests_node(root);
    let rules: String = rules.iter().map(|rule| format!("      - '{rule}'\n")).collect();
    let text =
        format!("version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  udev:\n    rules:\n{rules}");
    node.runtime.config.send_replace(Some(Arc::new(config::parse(&text).unwrap_or_else(|e| panic!("{e}")))));
    (dir, node)
}

const DEVICE: &str = "/devices/pci0/usb1/1-1/tty/ttyUSB3";

fn status(node: &Node, id: &str) -> String {
    node.runtime.store.get(&UDEV_RULE_STATUS, id).unwrap().spec.yaml().unwrap()
}

#[test]
fn permissions_links_and_attributes_of_a_device_that_is_there() {
    let (dir, node) = node(&[
        r#"SUBSYSTEM=="tty", KERNEL=="ttyUSB*", ATTRS{idVendor}=="0403", MODE="0620", SYMLINK+="meter/%n", ATTR{latency}="1""#,
        r#"SUBSYSTEM=="tty", ATTRS{idVendor}=="9999", MODE="0777""#,
        r#"KERNEL=="ttyUSB3", RUN+="/bin/sh""#,
    ]);
    take(&node.runtime, &node.udev);
    let dev = dir.path().join("dev");
    assert_eq!(fs::metadata(dev.join("ttyUSB3")).unwrap().mode() & 0o7777, 0o620);
    assert_eq!(fs::read_link(dev.join("meter/3")).unwrap(), Path::new("../ttyUSB3"));
    assert!(dev.join("meter/3").exists(), "the link leads somewhere");
    let latency = dir.path().join("sys").join(&DEVICE[1..]).join("latency");
    assert_eq!(fs::read_to_string(latency).unwrap(), "1");
    assert!(status(&node, "000").contains("active: true"));
    let refused = status(&node, "002");
    assert!(refused.contains("active: false") && refused.contains("RUN"), "{refused}");
}

#[test]
fn a_device_that_comes_later_and_goes_again() {
    let (dir, node) = node(&[r#"ACTION=="add", KERNEL=="ttyUSB*", SYMLINK+="adapter""#]);
    fs::remove_file(dir.path().join("sys/class/tty/ttyUSB3")).unwrap();
    take(&node.runtime, &node.udev);
    let link = dir.path().join("dev/adapter");
    assert!(!link.is_symlink());
    event(&node.runtime, &node.udev, "change", DEVICE);
    assert!(!link.is_symlink(), "the rule is for new devices");
    event(&node.runtime, &node.udev, "add", DEVICE);
    assert!(link.is_symlink());
    event(&node.runtime, &node.udev, "remove", DEVICE);
    assert!(!link.is_symlink());
}

#[test]
fn names_of_devices_lead_nowhere_else() {
    let (dir, node) = node(&[
        r#"KERNEL=="ttyUSB*", SYMLINK+="../escape""#,
        r#"KERNEL=="1-1", SYMLINK+="x""#,
        r#"KERNEL=="ttyUSB*", SYMLINK+="by-name/%s{serial}-%E{MINOR}""#,
    ]);
    fs::write(dir.path().join("sys").join(&DEVICE[1..]).join("serial"), "A/1 ..\n").unwrap();
    take(&node.runtime, &node.udev);
    assert!(!dir.path().join("escape").is_symlink());
    assert!(dir.path().join("dev/by-name/A_1_..-3").is_symlink());
    assert_eq!(number(&node.runtime, "/etc/group", "video"), Ok(44));
    assert!(number(&node.runtime, "/etc/group", "nobody").unwrap_err().contains("write the number"));
}

#[test]
fn groups_are_numbers_or_names() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, node) = node(&[r#"SUBSYSTEM=="tty", GROUP="video", OWNER="7""#]);
    take(&node.runtime, &node.udev);
    let found = fs::metadata(dir.path().join("dev/ttyUSB3")).unwrap();
    assert_eq!((found.uid(), found.gid()), (7, 44));
}
