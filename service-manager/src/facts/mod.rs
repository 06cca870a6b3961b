//! What the kernel and the image say of themselves, as resources.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`watch`] | /proc, init's report, the image's bill of materials | `KernelCmdlines`, `BootIDs`, `PlatformMetadatas`, `ExtensionStatuses`, `CPUCores`, `SBOMItems`, `LoadedKernelModules`, `KernelModuleStatuses` | with machined |
//! | [`follow_devices`] | whether udevd has been through all devices | `DevicesStatuses` | with machined |
//!
//! Order: what is small at once; the rest not before the drivers of all devices are loaded, beside the boot.
//! Does not: poll: modules are listed anew when a device got a driver or the config changed, so that users of a module are
//! counted as of then.
//! Fails by: a line in the log; what cannot be read has no resource.
//! Source: proc(5); crates/api/tests/data/resources.tsv for the keys.

mod cores;
mod extensions;
mod modules;
mod packages;

use std::sync::Arc;
use std::time::Duration;

use runtime::store::{
    BOOT_ID, CPU_CORE, DEVICES_STATUS, Definition, EXTENSION_STATUS, Fact, KERNEL_CMDLINE,
    KERNEL_MODULE_STATUS, LOADED_KERNEL_MODULE, PLATFORM_METADATA, PlatformMetadata, SBOM_ITEM, Spec,
};

use crate::node::Node;

/// How long the first look waits for the drivers of all devices.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// Drivers take their devices in bursts: this long after the first one the modules are read once.
const BURST: Duration = Duration::from_millis(500);

/// Keeps the resources like the facts.
pub(crate) async fn watch(node: Arc<Node>) {
    let (mut bus, mut config) = (node.buses.subscribe(), node.runtime.config.subscribe());
    let mut settled = node.configuration.settled.subscribe();
    publish_boot(&node);
    // Past the deadline the facts are published as they are; drivers that come later are seen as changes.
    let _ = tokio::time::timeout(SETTLE_DEADLINE, settled.wait_for(|settled| *settled)).await;
    blocking(&node, |node| {
        put(node, &CPU_CORE, read(node, "/proc/cpuinfo").map(|text| cores::parse(&text)).unwrap_or_default());
        put(node, &SBOM_ITEM, packages::items(node));
    })
    .await;
    loop {
        bus.mark_unchanged();
        config.mark_unchanged();
        blocking(&node, publish_modules).await;
        let changed = tokio::select! {
            changed = bus.changed() => changed,
            changed = config.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        tokio::time::sleep(BURST).await;
    }
}

/// Says when the devices that the machine started with have their drivers.
pub(crate) async fn follow_devices(node: Arc<Node>) {
    let mut settled = node.configuration.settled.subscribe();
    loop {
        let ready = *settled.borrow_and_update();
        put(
            &node,
            &DEVICES_STATUS,
            vec![("devices".to_owned(), Spec::Fact(Box::new(Fact::Devices { ready })))],
        );
        if settled.changed().await.is_err() {
            return;
        }
    }
}

async fn blocking(node: &Arc<Node>, work: fn(&Node)) {
    let reader = node.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || work(&reader)).await {
        node.runtime.journal.warn(&format!("read facts of the kernel and the image: {error}"));
    }
}

fn publish_boot(node: &Node) {
    let one = |id: &str, fact| vec![(id.to_owned(), Spec::Fact(Box::new(fact)))];
    if let Some(text) = read(node, "/proc/cmdline") {
        put(node, &KERNEL_CMDLINE, one("cmdline", Fact::Cmdline { cmdline: text.trim_end().to_owned() }));
    }
    if let Some(text) = read(node, "/proc/sys/kernel/random/boot_id") {
        put(node, &BOOT_ID, one("bootid", Fact::BootId { boot_id: text.trim_end().to_owned() }));
    }
    let platform = PlatformMetadata {
        platform: node.runtime.parameters.platform.clone(),
        hostname: node.runtime.parameters.hostname.clone().unwrap_or_default(),
    };
    put(node, &PLATFORM_METADATA, one("platformmetadata", Fact::Platform(platform)));
    put(node, &EXTENSION_STATUS, extensions::items(&node.runtime.boot));
}

fn publish_modules(node: &Node) {
    let Some(text) = read(node, "/proc/modules") else { return };
    let found = modules::parse(&text);
    let fact = |(name, fact): (String, Fact)| (name, Spec::Fact(Box::new(fact)));
    let loaded = found.iter().map(|(name, module)| (name.clone(), Fact::LoadedModule(module.clone())));
    put(node, &LOADED_KERNEL_MODULE, loaded.map(fact).collect());
    let statuses =
        found.into_iter().map(|(name, module)| (name, Fact::ModuleStatus(modules::status(module))));
    put(node, &KERNEL_MODULE_STATUS, statuses.map(fact).collect());
}

fn read(node: &Node, path: &str) -> Option<String> {
    match std::fs::read_to_string(node.runtime.path(path)) {
        Ok(text) => Some(text),
        Err(error) => {
            node.runtime.journal.warn(&format!("read {path}: {error}; its resources are missing"));
            None
        }
    }
}

fn put(node: &Node, kind: &'static Definition, wanted: Vec<(String, Spec)>) {
    if let Err(error) = node.runtime.store.replace(kind.writer, kind, wanted) {
        node.runtime.journal.warn(&error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn yaml(node: &Node, kind: &'static Definition, id: &str) -> String {
        node.runtime.store.get(kind, id).unwrap().spec.yaml().unwrap()
    }

    #[tokio::test]
    async fn devices_are_ready_when_udevd_has_been_through_them() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let (_, mut changes) = node.runtime.store.watch(&DEVICES_STATUS);
        let task = tokio::spawn(follow_devices(node.clone()));
        let deadline = Duration::from_secs(20);
        tokio::time::timeout(deadline, changes.recv()).await.unwrap().unwrap();
        assert_eq!(yaml(&node, &DEVICES_STATUS, "devices"), "ready: false\n");
        node.configuration.settled.send_replace(true);
        tokio::time::timeout(deadline, changes.recv()).await.unwrap().unwrap();
        assert_eq!(yaml(&node, &DEVICES_STATUS, "devices"), "ready: true\n");
        task.abort();
    }

    #[tokio::test]
    async fn what_the_kernel_says_becomes_resources() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        fs::create_dir_all(dir.path().join("proc/sys/kernel/random")).unwrap();
        fs::create_dir_all(dir.path().join("usr/share/billet")).unwrap();
        let files = [
            ("proc/cmdline", "console=ttyS0 panic=5\n"),
            ("proc/sys/kernel/random/boot_id", "6c1f5c3a-0000-4000-8000-000000000001\n"),
            ("proc/cpuinfo", "processor\t: 0\nphysical id\t: 0\ncore id\t: 1\ncpu cores\t: 2\n\n"),
            ("proc/modules", "dummy 12288 0 - Live 0x0000000000000000\n"),
            (
                "usr/share/billet/sbom.spdx.json",
                r#"{"packages": [{"name": "zlib1g", "versionInfo": "1.3", "licenseDeclared": "NOASSERTION"}]}"#,
            ),
        ];
        for (path, text) in files {
            fs::write(dir.path().join(path), text).unwrap();
        }
        node.configuration.settled.send_replace(true);
        tokio::spawn(watch(node.clone()));
        let listed = async {
            let mut changes = node.runtime.store.changes();
            while node.runtime.store.list(&KERNEL_MODULE_STATUS).is_empty() {
                changes.recv().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), listed).await.unwrap();
        assert_eq!(yaml(&node, &KERNEL_CMDLINE, "cmdline"), "cmdline: console=ttyS0 panic=5\n");
        assert!(yaml(&node, &BOOT_ID, "bootid").contains("6c1f5c3a-0000-4000-8000-000000000001"));
        assert!(yaml(&node, &PLATFORM_METADATA, "platformmetadata").contains("platform: metal\n"));
        assert!(yaml(&node, &CPU_CORE, "0-1").contains("coresPerSocket: 2\n"));
        assert!(yaml(&node, &SBOM_ITEM, "zlib1g").contains("version: \"1.3\"\n"));
        assert!(yaml(&node, &LOADED_KERNEL_MODULE, "dummy").contains("state: Live\n"));
        assert!(yaml(&node, &KERNEL_MODULE_STATUS, "dummy").contains("type: dynamic\n"));
        // A module that goes leaves with the next look.
        fs::write(dir.path().join("proc/modules"), "").unwrap();
        let (_, mut changes) = node.runtime.store.watch(&KERNEL_MODULE_STATUS);
        node.buses.send_modify(|count| *count += 1);
        let gone = async {
            while !node.runtime.store.list(&KERNEL_MODULE_STATUS).is_empty() {
                changes.recv().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    }
}
