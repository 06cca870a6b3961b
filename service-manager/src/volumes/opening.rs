//! The process that derives keys and opens a volume: `machined open-volume`, started by machined and gone when it is done.
//!
//! Owns: the request, which has the keys and comes over a pipe; what is done; the answer.
//! Does not: know the config, META, or which key is for what.
//! Order: mend the header → try the keys → map → bring the slots in step. Of a new volume: write the header → map. It
//! ends with machined; its memory, a gigabyte for some keys, ends with it.
//! Fails by: an answer in a sentence; a process that ends without one is named with its status. No key is part of either.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use installer::device::{BlockDevice, Disk};
use installer::encryption::{self, Key, Opened, Protection, Wanted};
use ondisk::luks2::Cipher;
use runtime::errors::chain;
use serde::{Deserialize, Serialize};
use sys::errno::Described;
use unlock::{Plan, Refused};
use zeroize::Zeroizing;

use super::key::{NoKey, VolumeKey};
use super::program;
use super::random::random;
use super::tpm::{self, Approved};

/// How machined calls itself.
pub const ARGUMENT: &str = "open-volume";
/// 32 keys on a slow processor; a KDF of a gigabyte takes it some seconds.
const DEADLINE: Duration = Duration::from_secs(300);

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Job {
    /// Make a volume, and map it.
    Format {
        /// What the data is encrypted with.
        cipher: Cipher,
        /// Length of the volume key.
        key_bytes: usize,
        /// Bytes that are encrypted together.
        sector_bytes: Option<u32>,
    },
    /// Open it, map it, bring its slots in step. With a recovery key by that alone; sealed keys are sealed anew then.
    Open,
    /// Bring the slots of one that is mapped in step; with a recovery key as above.
    Synchronise,
    /// Approve a system that is yet to run for the keys of the TPM, by what it will measure. Needs no keys.
    Approve([u8; 32]),
}

/// The question.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) job: Job,
    /// `STATE`
    pub(super) volume: String,
    /// `/dev/vda5`
    pub(super) device: String,
    /// Switches for speed, by their names in a config.
    pub(super) options: Vec<String>,
    keys: Vec<VolumeKey>,
    refused: Vec<NoKey>,
    /// What a person gave, once for each slot that it may be for.
    recovery: Vec<VolumeKey>,
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    /// The slot whose key opened it.
    pub(super) slot: u8,
    /// Where that key came from.
    pub(super) kind: String,
    /// Keys that were tried before, or could not be had, and why.
    pub(super) refused: Vec<String>,
    /// What was wrong with the header, and was mended.
    pub(super) mended: Option<String>,
    /// Slots that got their key.
    pub(super) added: Vec<u8>,
    /// Slots that held another key.
    pub(super) replaced: Vec<u8>,
    /// Slots that went.
    pub(super) removed: Vec<u8>,
    /// Slots that are not in step, with the reason.
    pub(super) failed: Vec<(u8, String)>,
    /// What the sealed keys are bound to, by slot.
    pub(super) bindings: Vec<(u8, String)>,
    /// What became of [`Job::Approve`].
    pub(super) approved: Option<Box<Approved>>,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Done(Done),
    Failed(String),
}

impl Request {
    pub(super) fn new(
        job: Job,
        volume: &str,
        device: &Path,
        keys: &[Result<VolumeKey, Refused>],
        options: &[String],
    ) -> Self {
        Self {
            job,
            volume: volume.to_owned(),
            device: device.display().to_string(),
            options: options.to_vec(),
            keys: keys.iter().filter_map(|key| key.as_ref().ok().cloned()).collect(),
            refused: keys.iter().filter_map(|key| key.as_ref().err().map(NoKey::from)).collect(),
            recovery: Vec::new(),
        }
    }

    /// The same, with what a person gave.
    pub(super) fn with_recovery(mut self, recovery: &[VolumeKey]) -> Self {
        self.recovery = recovery.to_vec();
        self
    }

    /// What it is opened with.
    fn to_try(&self, keys: &[Key]) -> Vec<Result<Key, Refused>> {
        let device = Path::new(&self.device);
        match self.recovery.as_slice() {
            [] => keys.iter().cloned().map(Ok).chain(self.refused().into_iter().map(Err)).collect(),
            given => given.iter().map(|key| Ok(key.key(device))).collect(),
        }
    }

    /// Slots whose key did not open the volume, or a person would not have been asked.
    fn sealed_anew(&self) -> Vec<u8> {
        let sealed = self.keys.iter().filter(|key| key.is_sealed_by_machines() && !self.recovery.is_empty());
        sealed.map(|key| key.slot).collect()
    }

    fn keys(&self) -> Vec<Key> {
        self.keys.iter().map(|key| key.key(Path::new(&self.device))).collect()
    }

    fn refused(&self) -> Vec<Refused> {
        self.refused.iter().map(Refused::from).collect()
    }
}

/// Has a process do it. Blocks.
pub(super) fn ask(request: &Request) -> Result<Done, String> {
    let question = postcard::to_allocvec(request).map(Zeroizing::new);
    let question = question.map_err(|e| format!("open {}: say what is wanted: {e}", request.volume))?;
    let arguments = [c"machined", c"open-volume"];
    let answer = program::ask(c"/proc/self/exe", &arguments, &question, DEADLINE)
        .map_err(|reason| format!("open {} (deadline openVolume): {reason}", request.volume))?;
    match postcard::from_bytes(&answer) {
        Ok(Answer::Done(done)) => Ok(done),
        Ok(Answer::Failed(reason)) => Err(reason),
        Err(error) => Err(format!("open {}: understand the answer: {error}", request.volume)),
    }
}

/// The process: question on descriptor 0, answer on descriptor 1.
pub fn serve() -> Result<(), String> {
    let mut question = Zeroizing::new(Vec::new());
    std::io::stdin().read_to_end(&mut question).map_err(|e| format!("read the question: {e}"))?;
    let request: Request =
        postcard::from_bytes(&question).map_err(|e| format!("understand the question: {e}"))?;
    let answer = match act(&request, &mut map) {
        Ok(done) => Answer::Done(done),
        Err(reason) => Answer::Failed(reason),
    };
    let answer = postcard::to_allocvec(&answer).map_err(|e| format!("say the answer: {e}"))?;
    std::io::stdout().write_all(&answer).map_err(|e| format!("write the answer: {e}"))
}

/// What becomes of an opened volume: its mapping, on a node.
type Map<'m> = &'m mut dyn FnMut(&Request, &dyn BlockDevice, &Opened) -> Result<(), String>;

fn act(request: &Request, map: Map<'_>) -> Result<Done, String> {
    let failed = |error: installer::Error| chain(&error);
    let mut part = Disk::open_shared(Path::new(&request.device)).map_err(|error| failed(error.into()))?;
    let keys = request.keys();
    let mut done = Done::default();
    if let Job::Approve(pcr_11) = request.job {
        done.approved = Some(Box::new(tpm::approve_here(&mut part, pcr_11)?));
        return Ok(done);
    }
    let mut opened = match request.job {
        Job::Format { cipher, key_bytes, sector_bytes } => {
            let (flags, keys) = (Vec::new(), keys.clone());
            let protection = Protection { cipher, key_bytes, sector_bytes, flags, keys };
            encryption::format(&mut part, &request.volume, &protection, &mut random).map_err(failed)?
        }
        Job::Open | Job::Synchronise | Job::Approve(_) => {
            let to_try = request.to_try(&keys);
            let mut opened = encryption::open(&mut part, &request.volume, to_try).map_err(failed)?;
            done.mended = encryption::mend(&mut part, &mut opened).map_err(failed)?;
            opened
        }
    };
    done.slot = opened.unlocked.slot;
    done.kind = opened.unlocked.kind.to_string();
    done.refused = opened.refused.iter().map(Refused::to_string).collect();
    if request.job != Job::Synchronise {
        map(request, &part, &opened)?;
    }
    let refused = request.refused();
    done.failed = refused.iter().map(|one| (one.slot, one.to_string())).collect();
    if matches!(request.job, Job::Format { .. }) {
        // Left out of the new volume.
        done.failed.extend(opened.refused.iter().map(|one| (one.slot, one.to_string())));
    } else {
        // What a slot holds whose key cannot be had now is not known: it stays.
        let kept: Vec<u8> = refused.iter().map(|one| one.slot).collect();
        let anew = request.sealed_anew();
        let wanted = Wanted { keys: &keys, kept: &kept, sealed_anew: &anew };
        let mut synchronised = encryption::synchronise(&mut part, &mut opened, wanted, &mut random);
        done.failed.append(&mut synchronised.problems);
        (done.added, done.replaced, done.removed) =
            (synchronised.added, synchronised.replaced, synchronised.removed);
    }
    done.bindings = encryption::bindings(&opened.header);
    Ok(done)
}

fn map(request: &Request, part: &dyn BlockDevice, opened: &Opened) -> Result<(), String> {
    let Request { volume, device, options, .. } = request;
    let plan = Plan::new(volume, &opened.header.uuid, device, part.bytes(), &opened.unlocked, options);
    let plan = plan.map_err(|error| error.to_string())?;
    match unlock::remove(&plan.name) {
        // Of an earlier volume in this partition, or with another length.
        Ok(()) | Err(sys::Errno::NXIO | sys::Errno::NOENT) => {}
        Err(errno) => return Err(format!("remove the old mapping {}: {}", plan.name, Described(errno))),
    }
    plan.make(&opened.unlocked.key).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use ondisk::luks2::Cost;
    use unlock::KeyKind;

    use super::super::key::Origin;
    use super::*;

    fn key(slot: u8, secret: &str) -> Result<VolumeKey, Refused> {
        let key =
            VolumeKey::new(slot, &KeyKind::Static, Origin::Known(secret.as_bytes().to_vec()), "EPHEMERAL");
        Ok(key.with_cost(Cost::Pbkdf2(1000)))
    }

    fn device(dir: &Path) -> std::path::PathBuf {
        let path = dir.join("volume.img");
        std::fs::File::create(&path).unwrap().set_len(encryption::HEADER_BYTES + (1 << 20)).unwrap();
        path
    }

    /// Over the wire and back, and done; the mapping is counted only.
    pub(crate) fn does(request: &Request, mapped: &mut u32) -> Result<Done, String> {
        let request: Request = postcard::from_bytes(&postcard::to_allocvec(request).unwrap()).unwrap();
        act(&request, &mut |_, _, _| {
            *mapped += 1;
            Ok(())
        })
    }

    #[test]
    fn a_volume_is_made_opened_and_brought_in_step() {
        let dir = tempfile::tempdir().unwrap();
        let device = device(dir.path());
        let mut mapped = 0;
        let mut ask = |job, keys: &[Result<VolumeKey, Refused>]| {
            does(&Request::new(job, "EPHEMERAL", &device, keys, &[]), &mut mapped)
        };
        let format = Job::Format { cipher: Cipher::AesXts, key_bytes: 64, sector_bytes: None };
        let done = ask(format, &[key(1, "one")]).unwrap();
        assert_eq!((done.slot, done.kind.as_str()), (1, "static"));
        let tpm = Err(Refused { slot: 5, kind: KeyKind::Tpm, why: "not yet".into() });
        let done = ask(Job::Open, &[key(1, "one"), key(2, "two"), tpm]).unwrap();
        assert_eq!((done.slot, done.added, done.removed), (1, vec![2], vec![]));
        assert_eq!(done.failed, [(5, "tpm key for slot 5: not yet".to_owned())]);
        let done = ask(Job::Synchronise, &[key(2, "two")]).unwrap();
        assert_eq!((done.slot, done.removed), (2, vec![1]));
        let error = ask(Job::Open, &[key(1, "one"), key(2, "wrong")]).unwrap_err();
        assert!(error.starts_with("failed to open encrypted device EPHEMERAL, no key matched: "), "{error}");
        assert_eq!(mapped, 2, "made and opened");
    }

    /// A key server on this machine, until it is dropped with its runtime.
    fn key_server() -> (tokio::runtime::Runtime, String) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = format!("grpc://{}", listener.local_addr().unwrap());
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let server = tonic::transport::Server::builder()
            .add_service(kms::server::Server::new(&[1; kms::server::KEY_BYTES]).service());
        runtime.spawn(server.serve_with_incoming(incoming));
        (runtime, address)
    }

    fn of_server(slot: u8, endpoint: &str, node: &str) -> Result<VolumeKey, Refused> {
        of_server_for("EPHEMERAL", slot, endpoint, node)
    }

    fn of_server_for(volume: &str, slot: u8, endpoint: &str, node: &str) -> Result<VolumeKey, Refused> {
        let origin = Origin::Kms { endpoint: endpoint.to_owned(), node: node.to_owned() };
        Ok(VolumeKey::new(slot, &KeyKind::Kms, origin, volume).with_cost(Cost::Pbkdf2(1000)))
    }

    #[test]
    fn a_server_has_a_key_of_a_volume() {
        let dir = tempfile::tempdir().unwrap();
        let device = device(dir.path());
        let mut mapped = 0;
        let mut ask = |job, keys: &[Result<VolumeKey, Refused>]| {
            does(&Request::new(job, "EPHEMERAL", &device, keys, &[]), &mut mapped)
        };
        let (runtime, address) = key_server();
        let own = of_server(0, &address, "node-1");
        let format = Job::Format { cipher: Cipher::AesXts, key_bytes: 64, sector_bytes: None };
        let done = ask(format, &[own.clone(), key(1, "local")]).unwrap();
        assert_eq!((done.slot, done.kind.as_str(), done.failed.len()), (0, "kms", 0));
        let done = ask(Job::Open, &[own.clone(), key(1, "wrong")]).unwrap();
        assert_eq!((done.slot, done.replaced, done.failed), (0, vec![1], vec![]));
        let error = ask(Job::Open, &[of_server(0, &address, "node-2")]).unwrap_err();
        assert!(error.contains("it was not sealed here for this node (PermissionDenied)"), "{error}");
        // Without the server the other key opens at once, and the slot stays as it is.
        // The header as STATE's: the server gives the key, and it is not for this volume.
        let as_state = of_server_for("STATE", 0, &address, "node-1");
        let error = does(&Request::new(Job::Open, "STATE", &device, &[as_state], &[]), &mut 0).unwrap_err();
        assert!(error.contains("it was sealed for EPHEMERAL, not for STATE"), "{error}");
        drop(runtime);
        let start = std::time::Instant::now();
        let done = ask(Job::Open, &[own.clone(), key(1, "wrong")]).unwrap();
        assert_eq!((done.slot, done.replaced, done.failed), (1, vec![], vec![]));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(mapped, 3);
    }
}
