//! The hardware as resources: what firmware and TPM say once, what the PCI bus says whenever it changes.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`watch`] | the SMBIOS table, /sys/bus/pci/devices, the TPM | the types of `store/hardware.rs` | with machined |
//!
//! Order: not before the boot is through with the API.
//! Fails by: a machine without the table has none of the resources that come from it.
//! Source: Documentation/ABI/testing/sysfs-firmware-dmi-tables, sysfs-bus-pci.

pub(crate) mod pci;
mod shown;
mod tpm_key;

use std::sync::Arc;
use std::time::Duration;

use ondisk::smbios;
use runtime::Runtime;
use runtime::store::{
    Hardware, MEMORY_MODULE, MemoryModule, PCI_DEVICE, PROCESSOR, Processor, RuntimeSpec, SECURITY_STATE,
    SYSTEM_INFORMATION, SecurityState, Spec, SystemInformation,
};
use shown::put;

const TABLE: &str = "/sys/firmware/dmi/tables/DMI";
/// Set by systemd-stub, which starts a kernel out of a UKI (systemd's Boot Loader Interface).
const STUB: &str = "StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
/// How long the first look waits for the drivers of all devices.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// Drivers take their devices in bursts: this long after the first one the bus is read once.
const BURST: Duration = Duration::from_millis(500);

/// Keeps the resources like the hardware.
///
/// `bus` counts devices that came, went or got a driver; `settled` is true once the first ones have theirs.
pub(crate) async fn watch(
    runtime: Arc<Runtime>,
    mut bus: tokio::sync::watch::Receiver<u64>,
    mut settled: tokio::sync::watch::Receiver<bool>,
) {
    // Past the deadline the bus is listed as it is; drivers that come later are seen as changes.
    let _ = tokio::time::timeout(SETTLE_DEADLINE, settled.wait_for(|settled| *settled)).await;
    publish_firmware(&runtime);
    publish_security(&runtime);
    let asker = runtime.clone();
    // Beside the rest: a TPM that does not answer costs a deadline.
    tokio::task::spawn_blocking(move || tpm_key::publish(&asker));
    loop {
        bus.mark_unchanged();
        let reader = runtime.clone();
        let read = tokio::task::spawn_blocking(move || put(&reader, &PCI_DEVICE, pci::devices(&reader)));
        if let Err(error) = read.await {
            runtime.journal.warn(&format!("list PCI devices: {error}"));
        }
        if bus.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(BURST).await;
    }
}

fn publish_firmware(runtime: &Runtime) {
    let table = match std::fs::read(runtime.path(TABLE)) {
        Ok(bytes) => smbios::parse(&bytes),
        Err(error) => {
            // A board without SMBIOS is no fault.
            runtime.journal.controller(&format!("{}: read {TABLE}: {error}", PROCESSOR.writer));
            return;
        }
    };
    let numbered = |name: &str, specs: Vec<Hardware>| {
        let named = specs.into_iter().enumerate();
        named.map(|(index, spec)| (format!("{name}-{index}"), Spec::Hardware(Box::new(spec)))).collect()
    };
    put(runtime, &PROCESSOR, numbered("CPU", table.processors.into_iter().map(processor).collect()));
    put(runtime, &MEMORY_MODULE, numbered("DIMM", table.memory.into_iter().map(module).collect()));
    let system =
        table.system.map(|found| ("systeminformation".to_owned(), Spec::Hardware(Box::new(system(found)))));
    put(runtime, &SYSTEM_INFORMATION, system.into_iter().collect());
}

/// Variables of the firmware: four bytes of attributes, then the value.
fn publish_security(runtime: &Runtime) {
    let variable =
        |name: &str| std::fs::read(runtime.path(&format!("/sys/firmware/efi/efivars/{name}"))).ok();
    let enforced = std::fs::read_to_string(runtime.path("/sys/module/module/parameters/sig_enforce"));
    let state = SecurityState {
        secure_boot: crate::secure_boot::is_on(&runtime.root),
        booted_with_uki: variable(STUB).is_some(),
        module_signature_enforced: enforced.is_ok_and(|text| text.trim() == "Y"),
    };
    let spec = Spec::Runtime(RuntimeSpec::SecurityState(state));
    put(runtime, &SECURITY_STATE, vec![("securitystate".to_owned(), spec)]);
}

fn processor(found: smbios::Processor) -> Hardware {
    Hardware::Processor(Processor {
        socket: found.socket,
        manufacturer: found.manufacturer,
        product_name: found.version,
        max_speed_mhz: found.max_mhz,
        boot_speed_mhz: found.boot_mhz,
        status: found.status,
        serial_number: found.serial,
        asset_tag: found.asset_tag,
        part_number: found.part,
        core_count: found.cores,
        core_enabled: found.cores_enabled,
        thread_count: found.threads,
    })
}

fn module(found: smbios::Memory) -> Hardware {
    Hardware::MemoryModule(MemoryModule {
        size_mib: found.size_mib,
        device_locator: found.device_locator,
        bank_locator: found.bank_locator,
        speed: found.speed,
        manufacturer: found.manufacturer,
        product_name: found.part,
        serial_number: found.serial,
        asset_tag: found.asset_tag,
    })
}

fn system(found: smbios::System) -> Hardware {
    Hardware::SystemInformation(SystemInformation {
        manufacturer: found.manufacturer,
        product_name: found.product,
        version: found.version,
        serial_number: found.serial,
        uuid: found.uuid,
        wake_up_type: found.wake_up,
        sku_number: found.sku,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_guards_the_start_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        let text = || {
            publish_security(&runtime);
            runtime.store.get(&SECURITY_STATE, "securitystate").unwrap().spec.yaml().unwrap()
        };
        assert!(text().contains("secureBoot: false\nbootedWithUKI: false\nmoduleSignatureEnforced: false\n"));
        let variables = dir.path().join("sys/firmware/efi/efivars");
        fs::create_dir_all(&variables).unwrap();
        fs::write(variables.join(format!("SecureBoot-{}", ondisk::efi::GLOBAL)), [6, 0, 0, 0, 1]).unwrap();
        fs::write(variables.join(STUB), [6, 0, 0, 0, 0]).unwrap();
        fs::create_dir_all(dir.path().join("sys/module/module/parameters")).unwrap();
        fs::write(dir.path().join("sys/module/module/parameters/sig_enforce"), "Y\n").unwrap();
        assert!(text().contains("secureBoot: true\nbootedWithUKI: true\nmoduleSignatureEnforced: true\n"));
    }

    #[tokio::test]
    async fn the_firmware_s_table_becomes_resources() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().canonicalize().unwrap());
        fs::create_dir_all(dir.path().join("sys/firmware/dmi/tables")).unwrap();
        let mut table = vec![1, 0x1b, 0, 1, 1, 2, 0, 3];
        table.extend([0x11; 16]);
        table.extend([6, 0, 0]);
        table.extend(b"QEMU\0Standard PC\0S-1\0\0");
        // A module of 2048 MiB in `DIMM 0`.
        let mut dimm = vec![17, 0x22, 0, 2];
        dimm.resize(0x22, 0);
        dimm[0xc..0xe].copy_from_slice(&2048u16.to_le_bytes());
        dimm[0x10] = 1;
        table.extend(dimm);
        table.extend(b"DIMM 0\0\0");
        fs::write(dir.path().join("sys/firmware/dmi/tables/DMI"), table).unwrap();
        let (buses, settled) = (tokio::sync::watch::channel(0).0, tokio::sync::watch::channel(true).0);
        tokio::spawn(watch(runtime.clone(), buses.subscribe(), settled.subscribe()));
        let listed = async {
            while runtime.store.list(&MEMORY_MODULE).is_empty()
                || runtime.store.list(&SYSTEM_INFORMATION).is_empty()
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), listed).await.unwrap();
        let system =
            runtime.store.get(&SYSTEM_INFORMATION, "systeminformation").unwrap().spec.yaml().unwrap();
        assert!(
            system.contains("manufacturer: QEMU\n") && system.contains("serialnumber: S-1\n"),
            "{system}"
        );
        let module = runtime.store.get(&MEMORY_MODULE, "DIMM-0").unwrap().spec.yaml().unwrap();
        assert!(module.contains("sizeMiB: 2048\n") && module.contains("deviceLocator: DIMM 0\n"), "{module}");
        assert!(runtime.store.list(&PROCESSOR).is_empty());
    }
}
