//! The least that boots to a network service: busybox, a script, three modules.

use anyhow::{Context, Result};
use installer::tree::Tree;

use super::Parts;
use crate::inputs::Inputs;

const PACKAGE: &str = "busybox-static";

/// In the order in which they need each other.
const MODULES: [&str; 3] = ["failover", "net_failover", "virtio_net"];

const INIT: &str = "\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for module in failover net_failover virtio_net; do $b insmod /lib/$module.ko; done
$b ip link set lo up
$b ip link set eth0 up
$b udhcpc -i eth0 -s /etc/udhcpc -n -q
$b httpd -p 80 -h /www
/bin/bench-probe 127.0.0.1:80
exec $b sh
";

const LEASE: &str = "\
#!/bin/busybox sh
b=/bin/busybox
[ \"$1\" = bound ] || exit 0
$b ip addr add $ip/24 dev $interface
$b ip route add default via $router
echo nameserver $dns > /etc/resolv.conf
";

pub(super) fn files(parts: &Parts<'_>, inputs: &mut Inputs<'_>) -> Result<Tree> {
    let packages = inputs.resolve(&[PACKAGE])?;
    let directories = inputs.unpack(&packages)?;
    let package = directories.get(PACKAGE).with_context(|| format!("{PACKAGE} was not unpacked"))?;
    let mut files = Tree::new();
    for directory in ["dev", "proc", "sys", "www"] {
        files.dir(directory, 0o755)?;
    }
    files.file("bin/busybox", 0o755, package.join("usr/bin/busybox"))?;
    files.file("bin/bench-probe", 0o755, &parts.probe)?;
    files.bytes("init", 0o755, INIT)?;
    files.bytes("etc/udhcpc", 0o755, LEASE)?;
    for name in MODULES {
        files.file(&format!("lib/{name}.ko"), 0o644, parts.module(name)?)?;
    }
    Ok(files)
}
