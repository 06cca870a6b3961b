//! What the kernel and the image say of themselves, as resources.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`watch`] | /proc, init's report, the image's bill of materials | `KernelCmdlines`, `BootIDs`, `PlatformMetadatas`, `ExtensionStatuses`, `CPUCores`, `SBOMItems`, `LoadedKernelModules`, `KernelModuleStatuses` | with machined |
//! | [`follow_devices`] | whether udevd has been through all devices | `DevicesStatuses` | with machined |
//!
//! Order: what is small at once; the rest not before the drivers of all devices are loaded, beside the boot.
//! Does not: show secrets of the command line, as every role reads `KernelCmdlines` and support bundles hold it; poll:
//! modules are listed anew when a device got a driver, the config changed or its modules were loaded
//! ([`publish_modules`]), so that users of a module are counted as of then.
//! Fails by: a line in the log; what cannot be read has no resource.
//! Source: proc(5); crates/api/tests/data/resources.tsv for the keys.

mod cores;
mod extensions;
mod modules;
mod packages;

use std::sync::Arc;
use std::time::Duration;

use ondisk::redact::redacted;
use runtime::Runtime;
use runtime::store::{
    BOOT_ID, CPU_CORE, DEVICES_STATUS, Definition, EXTENSION_STATUS, Fact, KERNEL_CMDLINE,
    KERNEL_MODULE_STATUS, LOADED_KERNEL_MODULE, PLATFORM_METADATA, PlatformMetadata, SBOM_ITEM, Spec,
};

/// How long the first look waits for the drivers of all devices.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// Drivers take their devices in bursts: this long after the first one the modules are read once.
const BURST: Duration = Duration::from_millis(500);

/// Keeps the resources like the facts.
///
/// `bus` counts devices that came, went or got a driver; `settled` is true once the first ones have theirs.
pub(crate) async fn watch(
    runtime: Arc<Runtime>,
    mut bus: tokio::sync::watch::Receiver<u64>,
    mut settled: tokio::sync::watch::Receiver<bool>,
) {
    let mut config = runtime.config.subscribe();
    publish_boot(&runtime);
    // Past the deadline the facts are published as they are; drivers that come later are seen as changes.
    let _ = tokio::time::timeout(SETTLE_DEADLINE, settled.wait_for(|settled| *settled)).await;
    blocking(&runtime, |runtime| {
        put(
            runtime,
            &CPU_CORE,
            read(runtime, "/proc/cpuinfo").map(|text| cores::parse(&text)).unwrap_or_default(),
        );
        put(runtime, &SBOM_ITEM, packages::items(runtime));
    })
    .await;
    loop {
        bus.mark_unchanged();
        config.mark_unchanged();
        blocking(&runtime, publish_modules).await;
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
pub(crate) async fn follow_devices(runtime: Arc<Runtime>, mut settled: tokio::sync::watch::Receiver<bool>) {
    loop {
        let ready = *settled.borrow_and_update();
        put(
            &runtime,
            &DEVICES_STATUS,
            vec![("devices".to_owned(), Spec::Fact(Box::new(Fact::Devices { ready })))],
        );
        if settled.changed().await.is_err() {
            return;
        }
    }
}

async fn blocking(runtime: &Arc<Runtime>, work: fn(&Runtime)) {
    let reader = runtime.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || work(&reader)).await {
        runtime.journal.warn(&format!("read facts of the kernel and the image: {error}"));
    }
}

fn publish_boot(runtime: &Runtime) {
    let one = |id: &str, fact| vec![(id.to_owned(), Spec::Fact(Box::new(fact)))];
    if let Some(text) = read(runtime, "/proc/cmdline") {
        let cmdline = redacted(text.trim_end()).into_owned();
        put(runtime, &KERNEL_CMDLINE, one("cmdline", Fact::Cmdline { cmdline }));
    }
    if let Some(text) = read(runtime, "/proc/sys/kernel/random/boot_id") {
        put(runtime, &BOOT_ID, one("bootid", Fact::BootId { boot_id: text.trim_end().to_owned() }));
    }
    let platform = PlatformMetadata {
        platform: runtime.parameters.platform.clone(),
        hostname: runtime.parameters.hostname.clone().unwrap_or_default(),
    };
    put(runtime, &PLATFORM_METADATA, one("platformmetadata", Fact::Platform(platform)));
    put(runtime, &EXTENSION_STATUS, extensions::items(&runtime.boot));
}

/// Lists the modules that the kernel has loaded.
pub(crate) fn publish_modules(runtime: &Runtime) {
    let Some(text) = read(runtime, "/proc/modules") else { return };
    let found = modules::parse(&text);
    let fact = |(name, fact): (String, Fact)| (name, Spec::Fact(Box::new(fact)));
    let loaded = found.iter().map(|(name, module)| (name.clone(), Fact::LoadedModule(module.clone())));
    put(runtime, &LOADED_KERNEL_MODULE, loaded.map(fact).collect());
    let statuses =
        found.into_iter().map(|(name, module)| (name, Fact::ModuleStatus(modules::status(module))));
    put(runtime, &KERNEL_MODULE_STATUS, statuses.map(fact).collect());
}

fn read(runtime: &Runtime, path: &str) -> Option<String> {
    match std::fs::read_to_string(runtime.path(path)) {
        Ok(text) => Some(text),
        Err(error) => {
            runtime.journal.warn(&format!("read {path}: {error}; its resources are missing"));
            None
        }
    }
}

fn put(runtime: &Runtime, kind: &'static Definition, wanted: Vec<(String, Spec)>) {
    if let Err(error) = runtime.store.replace(kind.writer, kind, wanted) {
        runtime.journal.warn(&error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn yaml(runtime: &Runtime, kind: &'static Definition, id: &str) -> String {
        runtime.store.get(kind, id).unwrap().spec.yaml().unwrap()
    }

    #[tokio::test]
    async fn devices_are_ready_when_udevd_has_been_through_them() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        let (_, mut changes) = runtime.store.watch(&DEVICES_STATUS);
        let settled = tokio::sync::watch::channel(false).0;
        let task = tokio::spawn(follow_devices(runtime.clone(), settled.subscribe()));
        let deadline = Duration::from_secs(20);
        tokio::time::timeout(deadline, changes.recv()).await.unwrap().unwrap();
        assert_eq!(yaml(&runtime, &DEVICES_STATUS, "devices"), "ready: false\n");
        settled.send_replace(true);
        tokio::time::timeout(deadline, changes.recv()).await.unwrap().unwrap();
        assert_eq!(yaml(&runtime, &DEVICES_STATUS, "devices"), "ready: true\n");
        task.abort();
    }

    #[test]
    fn the_command_line_is_shown_without_its_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        fs::create_dir_all(dir.path().join("proc")).unwrap();
        let line = "console=ttyS0 billet.config.inline=c2VjcmV0 billet.config=https://u:secret@h.example/c?token=secret \
                    billet.environment=A=secret panic=5\n";
        fs::write(dir.path().join("proc/cmdline"), line).unwrap();
        publish_boot(&runtime);
        let resource = runtime.store.get(&KERNEL_CMDLINE, "cmdline").unwrap();
        let Spec::Fact(fact) = &resource.spec else { panic!("no fact") };
        let Fact::Cmdline { cmdline } = &**fact else { panic!("no command line") };
        assert_eq!(
            cmdline,
            "console=ttyS0 billet.config.inline=<hidden> billet.config=https://<hidden>@h.example/c?<hidden> \
             billet.environment=A=<hidden> panic=5"
        );
    }

    #[tokio::test]
    async fn what_the_kernel_says_becomes_resources() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().canonicalize().unwrap());
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
        let (buses, settled) = (tokio::sync::watch::channel(0).0, tokio::sync::watch::channel(true).0);
        tokio::spawn(watch(runtime.clone(), buses.subscribe(), settled.subscribe()));
        let listed = async {
            let mut changes = runtime.store.changes();
            while runtime.store.list(&KERNEL_MODULE_STATUS).is_empty() {
                changes.recv().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), listed).await.unwrap();
        assert_eq!(yaml(&runtime, &KERNEL_CMDLINE, "cmdline"), "cmdline: console=ttyS0 panic=5\n");
        assert!(yaml(&runtime, &BOOT_ID, "bootid").contains("6c1f5c3a-0000-4000-8000-000000000001"));
        assert!(yaml(&runtime, &PLATFORM_METADATA, "platformmetadata").contains("platform: metal\n"));
        assert!(yaml(&runtime, &CPU_CORE, "0-1").contains("coresPerSocket: 2\n"));
        assert!(yaml(&runtime, &SBOM_ITEM, "zlib1g").contains("version: \"1.3\"\n"));
        assert!(yaml(&runtime, &LOADED_KERNEL_MODULE, "dummy").contains("state: Live\n"));
        assert!(yaml(&runtime, &KERNEL_MODULE_STATUS, "dummy").contains("type: dynamic\n"));
        // A module that goes leaves with the next look.
        fs::write(dir.path().join("proc/modules"), "").unwrap();
        let (_, mut changes) = runtime.store.watch(&KERNEL_MODULE_STATUS);
        buses.send_modify(|count| *count += 1);
        let gone = async {
            while !runtime.store.list(&KERNEL_MODULE_STATUS).is_empty() {
                changes.recv().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    }
}
