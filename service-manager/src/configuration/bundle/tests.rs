#[path = "../../../../crates/tpm/tests/emulator/mod.rs"]
mod emulator;

use std::sync::Mutex;

use installer::bundle::{SigningKey, seal};
use ondisk::bundle::blank;
use sys::Errno;

use super::*;
use emulator::Emulator;

const NO_TPM: &str = "this machine has no TPM";

fn key() -> SigningKey {
    let prefix =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    SigningKey::from_pkcs8(&[&prefix[..], &[5; 32]].concat()).unwrap()
}

fn serial(text: &str) -> Selector {
    Selector::serial(text).unwrap()
}

fn entry<'t>((selector, payload): &(Selector, Payload<'t>)) -> Entry<'t> {
    Entry { selectors: vec![selector.clone()], payload: *payload }
}

/// A machine with these selectors and no TPM.
fn machine(own: &[Selector]) -> Machine<impl Fn() -> Connected> {
    Machine { own: own.to_vec(), passed_over: Vec::new(), connect: || Err(NO_TPM.to_owned()) }
}

/// What comes of a bundle with these entries on a machine with MAC 52:54:00:00:00:01 and serial A-1.
fn taken(list: &[(Selector, Payload<'_>)]) -> Result<Option<(String, String)>, String> {
    taken_with(list, || Err(NO_TPM.to_owned()))
}

fn taken_with(
    list: &[(Selector, Payload<'_>)],
    connect: impl Fn() -> Connected,
) -> Result<Option<(String, String)>, String> {
    let list: Vec<Entry<'_>> = list.iter().map(entry).collect();
    let file = key().sign(&list).unwrap();
    let own = vec![Selector::mac("52:54:00:00:00:01").unwrap(), serial("A-1")];
    let found = take(&file, &key().public(), "/dev/vda", Machine { own, passed_over: Vec::new(), connect })?;
    Ok(found.map(|candidate| (candidate.origin.to_string(), candidate.text.to_string())))
}

/// A connection to a TPM that outlives it.
struct Connection(Arc<Mutex<Emulator>>);

impl Transport for Connection {
    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, Errno> {
        self.0.lock().unwrap().exchange(command)
    }

    fn pause(&mut self) {}
}

/// A TPM, the selector of its key, and a config that is sealed for it.
struct Sealing {
    tpm: Arc<Mutex<Emulator>>,
    selector: Selector,
    payload: Vec<u8>,
}

impl Sealing {
    fn new(text: &str) -> Self {
        let mut tpm = Emulator::start();
        let device = DeviceKey::of(&mut tpm).unwrap();
        let selector = Selector::of_tpm(device.digest());
        let payload = seal(&device, text.as_bytes()).unwrap();
        Self { tpm: Arc::new(Mutex::new(tpm)), selector, payload }
    }

    fn payload(&self) -> Payload<'_> {
        Payload::Sealed(Sealed::read(&self.payload).unwrap())
    }

    fn connect(&self) -> Connected {
        Ok(Box::new(Connection(self.tpm.clone())))
    }
}

#[test]
fn a_machine_opens_what_is_sealed_for_its_tpm() {
    let (own, other) = (Sealing::new("mine\n"), Sealing::new("other\n"));
    let by_key = [(other.selector.clone(), other.payload()), (own.selector.clone(), own.payload())];
    let (origin, text) = taken_with(&by_key, || own.connect()).unwrap().unwrap();
    assert_eq!(origin, format!("entry 2 of the config bundle of /dev/vda, by {}", own.selector));
    assert_eq!(text, "mine\n");
    let by_serial = [(serial("A-1"), own.payload())];
    assert_eq!(taken_with(&by_serial, || own.connect()).unwrap().unwrap().1, "mine\n");
    let plain = [(own.selector.clone(), Payload::Plain(b"plain\n"))];
    assert_eq!(taken_with(&plain, || own.connect()).unwrap().unwrap().1, "plain\n");
    let error = taken_with(&by_serial, || other.connect()).unwrap_err();
    for part in
        ["entry 1 of", "by serial A-1 is sealed and does not open: ", "and this one has key", "--seal"]
    {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    let error = taken_with(&by_key[1..], || other.connect()).unwrap_err();
    assert!(
        error.contains("none of the 1 configs") && error.contains(&other.selector.to_string()),
        "{error}"
    );
    let error = taken(&by_serial).unwrap_err();
    assert!(error.contains(&format!("does not open: {NO_TPM}; seal")), "{error}");
}

#[test]
fn a_machine_takes_its_own_config_alone() {
    let (mine, other) = (Payload::Plain(b"mine\n"), Payload::Plain(b"other\n"));
    let (origin, text) = taken(&[(serial("B-2"), other), (serial("A-1"), mine)]).unwrap().unwrap();
    assert_eq!(
        (origin.as_str(), text.as_str()),
        ("entry 2 of the config bundle of /dev/vda, by serial A-1", "mine\n")
    );
    let error = taken(&[(serial("B-2"), other)]).unwrap_err();
    assert!(
        error.contains("none of the 1 configs") && error.contains("(MAC 52:54:00:00:00:01, serial A-1)"),
        "{error}"
    );
    let both = [(Selector::mac("52:54:00:00:00:01").unwrap(), other), (serial("A-1"), mine)];
    let error = taken(&both).unwrap_err();
    assert!(error.contains("entries 1 by MAC 52:54:00:00:00:01, 2 by serial A-1"), "{error}");
    let tpm = Selector::tpm_key(&"ab".repeat(32)).unwrap();
    let error = taken(&[(tpm.clone(), mine)]).unwrap_err();
    assert!(error.ends_with(&format!("that name a TPM's key are passed over: {NO_TPM}")), "{error}");
    assert_eq!(taken(&[(tpm, other), (serial("A-1"), mine)]).unwrap().unwrap().1, "mine\n");
}

#[test]
fn nothing_is_taken_of_a_bundle_that_is_not_the_image_s() {
    let own = [serial("A-1")];
    let take = |file: &[u8]| take(file, &key().public(), "/dev/vda", machine(&own)).map(drop);
    assert_eq!(take(&blank(&key().public())), Ok(()));
    let error = take(&blank(&[1; 32])).unwrap_err();
    assert!(error.starts_with("EFI/billet/configs.bundle of /dev/vda: ") && error.contains("key"), "{error}");
    let entry = Entry { selectors: own.to_vec(), payload: Payload::Plain(b"mine\n") };
    let mut file = key().sign(&[entry]).unwrap().to_vec();
    let at = file.len() - 70;
    file[at] ^= 1;
    assert!(take(&file).unwrap_err().contains("its signature is wrong"));
    assert!(take(&file[..at]).unwrap_err().contains("cut off"));
    assert_eq!(
        take(b"no bundle").unwrap_err(),
        format!(
            "{PATH} of /dev/vda: the config bundle is not used: byte 0: it does not begin as a config bundle"
        )
    );
}

#[test]
fn a_machine_is_told_by_cards_and_firmware() {
    let sys = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = sys.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (card, mac) in [("eth0", "52:54:00:00:00:02\n"), ("eth1", "52:54:00:00:00:01\n")] {
        write(&format!("class/net/{card}/address"), mac);
        write(&format!("class/net/{card}/device/uevent"), "");
    }
    write("class/net/lo/address", "00:00:00:00:00:00\n");
    write("class/net/bond0/address", "52:54:00:00:00:09\n");
    write("class/dmi/id/product_serial", "To be filled by O.E.M.\n");
    write("class/dmi/id/product_uuid", "4c4c4544-0039-3510-8059-b7c04f333231\n");
    let Own { selectors, passed_over } = own(sys.path());
    let names: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    let uuid = "UUID 4c4c4544-0039-3510-8059-b7c04f333231";
    assert_eq!(names, ["MAC 52:54:00:00:00:01", "MAC 52:54:00:00:00:02", uuid]);
    assert_eq!(passed_over.len(), 1, "{passed_over:?}");
    let wanted =
        "its serial number \"To be filled by O.E.M.\" is what firmware has whose maker put none in: ";
    assert!(passed_over[0].starts_with(wanted), "{passed_over:?}");
}

/// Every board of a kind has the same: who added a config by it hears why no machine takes it.
#[test]
fn what_many_machines_have_names_none_and_is_told() {
    let sys = tempfile::tempdir().unwrap();
    let firmware = sys.path().join("class/dmi/id");
    fs::create_dir_all(&firmware).unwrap();
    fs::write(firmware.join("product_uuid"), "03000200-0400-0500-0006-000700080009\n").unwrap();
    let Own { selectors, passed_over } = own(sys.path());
    let uuid = Selector::Uuid([3, 0, 2, 0, 4, 0, 5, 0, 0, 6, 0, 7, 0, 8, 0, 9]);
    let entry = Entry { selectors: vec![uuid], payload: Payload::Plain(b"anybody's\n") };
    let file = key().sign(&[entry]).unwrap();
    let machine = Machine { passed_over, ..machine(&selectors) };
    let error = take(&file, &key().public(), "/dev/vda", machine).err().unwrap();
    for part in [
        "none of the 1 configs in the bundle of /dev/vda is for this machine",
        "; its UUID \"03000200-0400-0500-0006-000700080009\" is what firmware has whose maker put none in",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}
