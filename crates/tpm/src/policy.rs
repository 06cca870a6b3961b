//! What the TPM demands before it gives a key back.
//!
//! Owns: the two demands there are: registers that hold what they held at sealing, and registers that hold what
//! somebody approved by a signature, then or later; the digests of both; having a session meet them.
//! Does not: sign; decide which registers are of which sort.
//! Order: the approved registers first, since an authorisation takes the place of what was demanded before it.
//! Fails by: naming the registers.
//! Source: part 3, §23.7 (PolicyPCR), §23.16 (PolicyAuthorize); docs/decisions/0009.

use alloc::vec::Vec;

use crate::Error;
use crate::command::{self, Command, Transport};
use crate::crypto::{self, Digest32};
use crate::pcr::{self, Pcrs, Values};
use crate::session::Session;
use crate::wire::Writer;

const NULL_ALGORITHM: u16 = 0x0010;
const SHA_256: u16 = 0x000b;
const ECC: u16 = 0x0023;
const ECDSA: u16 = 0x0018;
const P_256: u16 = 0x0003;
/// It verifies signatures; used without a password.
const VERIFIES: u32 = 1 << 18 | 1 << 6;
/// Tickets of the null hierarchy do not authorise.
const OWNER: u32 = 0x4000_0001;

/// What is demanded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Registers that have to hold these values. None: whatever the machine measured will do.
    pub values: Values,
    /// Registers that have to hold approved values.
    pub signed: Option<Signed>,
}

/// A demand that its key's holder can widen without the sealed key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The registers.
    pub pcrs: Pcrs,
    /// Who approves.
    pub key: PublicKey,
    /// What was approved so far. Not secret, and of no use without the key that signed it.
    pub approvals: Vec<Approval>,
}

/// One approved set of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Approval {
    /// The digest of a policy that demands these values.
    pub policy: [u8; 32],
    /// ECDSA over its SHA-256: both numbers, 32 bytes each.
    pub signature: [u8; 64],
}

/// An ECDSA key on P-256: both coordinates, 32 bytes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 64]);

impl PublicKey {
    /// As the TPM keeps it.
    fn area(&self) -> Writer {
        let (x, y) = self.0.split_at(32);
        let area = Writer::new().u16(ECC).u16(SHA_256).u32(VERIFIES).sized(&[]);
        area.u16(NULL_ALGORITHM).u16(NULL_ALGORITHM).u16(P_256).u16(NULL_ALGORITHM).sized(x).sized(y)
    }
}

/// The name of an object: its algorithm, and the digest of its public area.
pub(crate) fn name(area: &[u8]) -> [u8; 34] {
    let mut name = [0; 34];
    let digest = crypto::hash(&[area]);
    for (to, from) in name.iter_mut().zip(SHA_256.to_be_bytes().iter().chain(&digest)) {
        *to = *from;
    }
    name
}

/// A policy that demands these values behind what it demanded before.
fn with_values(before: &Digest32, pcrs: Pcrs, values: &Values) -> Digest32 {
    let Command(_, number) = command::POLICY_PCR;
    crypto::hash(&[before, &number.to_be_bytes(), pcrs.selection().bytes(), &pcr::digest(values)])
}

/// The digest of a policy that demands these values and nothing else: what is signed to approve them.
pub(crate) fn only_values(values: &Values) -> Digest32 {
    with_values(&[0; 32], Pcrs::of(values).unwrap_or_default(), values)
}

impl Approval {
    /// Approves values: `sign` makes an ECDSA signature of the SHA-256 of what it gets.
    pub fn new<E>(values: &Values, sign: impl FnOnce(&[u8]) -> Result<[u8; 64], E>) -> Result<Self, E> {
        let policy = only_values(values);
        Ok(Self { policy, signature: sign(&policy)? })
    }
}

impl Policy {
    /// What a sealed object says of it.
    pub(crate) fn digest(&self) -> Digest32 {
        let before = self.signed.as_ref().map_or([0; 32], |signed| {
            let Command(_, number) = command::POLICY_AUTHORIZE;
            let key = crypto::hash(&[&[0; 32], &number.to_be_bytes(), &name(signed.key.area().bytes())]);
            // With the reference that a policy may have, which ours have not.
            crypto::hash(&[&key])
        });
        with_values(&before, Pcrs::of(&self.values).unwrap_or_default(), &self.values)
    }

    /// Has a session meet it.
    pub(crate) fn meet(&self, tpm: &mut dyn Transport, session: &Session) -> Result<(), Error> {
        if let Some(signed) = &self.signed {
            signed.meet(tpm, session)?;
        }
        let pcrs = Pcrs::of(&self.values).ok_or(Error::Damaged)?;
        let now = pcr::read(tpm, pcrs)?;
        let is_other = |number: &u8| now.get(number) != self.values.get(number);
        let changed: Vec<u8> = pcrs.iter().filter(is_other).collect();
        if !changed.is_empty() {
            return Err(Error::Changed(changed));
        }
        command::plain(tpm, command::POLICY_PCR, &[session.handle], &demand(pcrs)).map(drop)
    }
}

/// The digest is left to the TPM: it takes the registers as they are.
fn demand(pcrs: Pcrs) -> Writer {
    Writer::new().sized(&[]).raw(pcrs.selection().bytes())
}

impl Signed {
    fn meet(&self, tpm: &mut dyn Transport, session: &Session) -> Result<(), Error> {
        let policy = only_values(&pcr::read(tpm, self.pcrs)?);
        let approval = self.approvals.iter().find(|approval| approval.policy == policy);
        let approval = approval.ok_or_else(|| Error::NotApproved(self.pcrs.iter().collect()))?;
        command::plain(tpm, command::POLICY_PCR, &[session.handle], &demand(self.pcrs))?;
        let ticket = self.verify(tpm, approval)?;
        let area = self.key.area();
        let parameters = Writer::new().sized(&policy).sized(&[]).sized(&name(area.bytes())).raw(&ticket);
        command::plain(tpm, command::POLICY_AUTHORIZE, &[session.handle], &parameters).map(drop)
    }

    /// The TPM's ticket for a good signature.
    fn verify(&self, tpm: &mut dyn Transport, approval: &Approval) -> Result<Vec<u8>, Error> {
        let area = self.key.area();
        let parameters = Writer::new().sized(&[]).sized(area.bytes()).u32(OWNER);
        let key = command::plain(tpm, command::LOAD_EXTERNAL, &[], &parameters)?.handle;
        let (r, s) = approval.signature.split_at(32);
        let signature = Writer::new().u16(ECDSA).u16(SHA_256).sized(r).sized(s);
        let what = crypto::hash(&[&approval.policy]);
        let parameters = Writer::new().sized(&what).raw(signature.bytes());
        let ticket = command::plain(tpm, command::VERIFY_SIGNATURE, &[key], &parameters);
        command::flush(tpm, key);
        ticket.map(|ticket| ticket.parameters.to_vec())
    }
}
