//! Addresses that links had by DHCP: each is asked for first when its link is there again.
//!
//! Owns: a file of the running system, which a new machined reads, and one on STATE, which the next boot does; of each kind of
//! DHCP a pair. That of DHCPv4 says no more than hardware address and address, so that a prolonged lease writes nothing; a
//! lease of DHCPv6 has its times, and a prolonged one is written for the next machined alone. Whether an address is still the
//! machine's is for the server to say: nothing is used because it is here.
//! Fails by: a line in the log; the next lease then begins with a question for servers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use runtime::Runtime;
use tokio::sync::watch;

/// Where the files of the running system are.
const RUN: &str = "/system/run/machined";
/// Name of the files of DHCPv4.
pub(super) const ADDRESSES: &str = "dhcp-addresses.json";
/// Name of the files of DHCPv6.
pub(super) const LEASES: &str = "dhcp6-leases.json";
/// More cards than a machine has; those of virtual links come and go.
const MOST: usize = 64;

/// Files that outlive a restart of the machine.
pub trait Disk: Clone + Send + Sync + 'static {
    /// A file's text; `None` without such a file.
    fn text(&self, name: &str) -> Result<Option<String>, String>;
    /// Replaces a file; when this returns, the new content is on the disk.
    fn replace(&self, name: &str, text: &str) -> Result<(), String>;
}

/// By hardware address.
type Addresses = BTreeMap<String, String>;
type Write = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// What is known, for all clients.
pub(super) struct Kept {
    runtime: Arc<Runtime>,
    file: &'static str,
    run: PathBuf,
    known: Mutex<Addresses>,
    /// Writes the file on STATE, once it is there.
    disk: Mutex<Option<Write>>,
    /// Changes when STATE brings addresses.
    pub(super) arrivals: watch::Sender<()>,
}

impl Kept {
    /// Those of an earlier machined.
    pub(super) fn read(runtime: &Arc<Runtime>, file: &'static str) -> Arc<Self> {
        let run = runtime.path(RUN).join(file);
        let text = std::fs::read(&run).unwrap_or_default();
        // Without the file there was none.
        let known = Mutex::new(serde_json::from_slice(&text).unwrap_or_default());
        let (disk, arrivals) = (Mutex::new(None), watch::channel(()).0);
        Arc::new(Self { runtime: runtime.clone(), file, run, known, disk, arrivals })
    }

    /// Reads STATE when it is mounted, and keeps it up to date. Ends never.
    pub(super) async fn follow<D: Disk>(self: Arc<Self>, mut disks: watch::Receiver<Option<D>>) {
        loop {
            let disk = disks.borrow_and_update().clone();
            if let Some(disk) = disk {
                self.arrived(disk);
            } else {
                *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            if disks.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn arrived<D: Disk>(&self, disk: D) {
        let file = self.file;
        let there: Addresses = match disk.text(file) {
            Ok(Some(text)) => serde_json::from_str(&text).unwrap_or_else(|error| {
                self.warn(&format!("{file} on STATE: {error}; it is written anew"));
                Addresses::new()
            }),
            Ok(None) => Addresses::new(),
            Err(error) => {
                self.warn(&error);
                Addresses::new()
            }
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // What was granted since the boot is newer.
        *known = there.clone().into_iter().chain(std::mem::take(&mut *known)).collect();
        let write: Write = Arc::new(move |text| disk.replace(file, text));
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = Some(write);
        if *known != there {
            self.write(&known, true);
        }
        drop(known);
        self.arrivals.send_replace(());
    }

    /// What a link had.
    pub(super) fn get(&self, hardware: &[u8]) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key(hardware)).cloned()
    }

    /// The address that a link had by DHCPv4.
    pub(super) fn address(&self, hardware: &[u8]) -> Option<Ipv4Addr> {
        self.get(hardware)?.parse().ok()
    }

    /// A link has something, or lost it for good. What is prolonged only need not reach the disk.
    pub(super) fn put(&self, hardware: &[u8], wanted: Option<String>, is_prolonged: bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(hardware);
        if known.get(&key) == wanted.as_ref() {
            return;
        }
        match wanted {
            Some(_) if known.len() >= MOST && !known.contains_key(&key) => return,
            Some(wanted) => known.insert(key, wanted),
            None => known.remove(&key),
        };
        // Under the lock: of two changes the later one is written last.
        self.write(&known, !is_prolonged);
    }

    fn write(&self, all: &Addresses, to_disk: bool) {
        let Ok(text) = serde_json::to_string(all) else { return };
        let new = self.run.with_extension("new");
        let written = std::fs::write(&new, &text).and_then(|()| std::fs::rename(&new, &self.run));
        if let Err(error) = written {
            self.warn(&format!("write {}: {error}", self.run.display()));
        }
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(Err(error)) = disk.filter(|_| to_disk).map(|write| write(&text)) {
            self.warn(&error);
        }
    }

    fn warn(&self, text: &str) {
        self.runtime.journal.warn(&format!("networkd: keep addresses of DHCP: {text}"));
    }
}

fn key(hardware: &[u8]) -> String {
    hardware.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Directory(PathBuf);

    impl Disk for Directory {
        fn text(&self, name: &str) -> Result<Option<String>, String> {
            Ok(std::fs::read_to_string(self.0.join(name)).ok())
        }

        fn replace(&self, name: &str, text: &str) -> Result<(), String> {
            std::fs::write(self.0.join(name), text).map_err(|error| error.to_string())
        }
    }

    const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];
    const OLD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
    const NEW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 6);

    fn on_disk(disk: &Directory) -> String {
        disk.text(ADDRESSES).unwrap().unwrap_or_default()
    }

    #[test]
    fn addresses_outlive_machined_and_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(root.path().to_path_buf());
        std::fs::create_dir_all(runtime.path("/system/run/machined")).unwrap();
        let disk = Directory(root.path().to_owned());
        disk.replace(ADDRESSES, &format!(r#"{{"{}":"{OLD}","02:00:00:00:00:01":"{NEW}"}}"#, key(&MAC)))
            .unwrap();
        let kept = Kept::read(&runtime, ADDRESSES);
        assert_eq!(kept.address(&MAC), None, "STATE is not there yet");
        kept.put(&MAC, Some(NEW.to_string()), false);
        let mut arrivals = kept.arrivals.subscribe();
        kept.arrived(disk.clone());
        assert!(arrivals.has_changed().unwrap() && arrivals.borrow_and_update().eq(&()));
        assert_eq!((kept.address(&MAC), kept.address(&[2, 0, 0, 0, 0, 1])), (Some(NEW), Some(NEW)));
        assert!(on_disk(&disk).contains(&format!(r#""{}":"{NEW}""#, key(&MAC))), "{}", on_disk(&disk));
        assert_eq!(Kept::read(&runtime, ADDRESSES).address(&MAC), Some(NEW), "another machined");
        kept.put(&MAC, None, false);
        assert!(!on_disk(&disk).contains(&key(&MAC)));
        // A prolonged lease writes nothing.
        kept.put(&MAC, Some(OLD.to_string()), false);
        disk.replace(ADDRESSES, "").unwrap();
        kept.put(&MAC, Some(OLD.to_string()), false);
        assert_eq!(on_disk(&disk), "");
        kept.put(&MAC, Some("prolonged".into()), true);
        assert_eq!((on_disk(&disk).as_str(), kept.get(&MAC).as_deref()), ("", Some("prolonged")));
        kept.arrived(disk.clone());
        assert!(on_disk(&disk).contains(&key(&MAC)), "a broken file is written anew");
    }
}
