//! Approving systems that are yet to run.
//!
//! Owns: the key that approves: it follows from the sealed key, so it is kept nowhere and who opens the volume is who
//! may approve; sealing with it; adding an approval to a key that is sealed already; how many are kept.
//! Does not: know what a system will measure (`installer::measured`).
//! Order of an upgrade: the key is unsealed while the running system is still the approved one; the new system's values
//! are signed; the token is written; then the new system may appear.
//! Source: docs/decisions/0009; FIPS 186-5, annex A.2.2 (candidates for a key); RFC 6979 (signatures without random numbers).

use alloc::vec::Vec;

use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use zeroize::Zeroizing;

use crate::command::Transport;
use crate::crypto::mac;
use crate::pcr::{self, Pcrs, Values};
use crate::policy::{Approval, Policy, PublicKey, Signed, only_values};
use crate::seal::{self, Sealed};
use crate::{Error, RandomBytes};

/// The oldest goes, and never the running system's: two systems fit on a disk.
pub const MOST_APPROVALS: usize = 4;

/// What a key is to be sealed to.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// Registers that have to stay as they are.
    pub fixed: Pcrs,
    /// Registers that have to hold these values, whatever they hold now: for a start that is yet to come.
    pub given: Values,
    /// Registers whose values are approved; none: there is no such demand.
    pub approved: Pcrs,
    /// What they may hold. Nothing: what they hold now.
    pub systems: Vec<Values>,
}

/// Seals a key to registers as they are now or are to be, and to systems that are approved.
pub fn seal_to(
    tpm: &mut dyn Transport,
    key: &[u8],
    demand: &Demand,
    random: RandomBytes<'_>,
) -> Result<Sealed, Error> {
    let given = demand.given.keys().copied();
    let numbers: Vec<u8> = demand.fixed.iter().chain(given).collect();
    // Those that are given as well: the TPM has to have them.
    let mut values = pcr::read(tpm, Pcrs::new(&numbers).ok_or(Error::Damaged)?)?;
    values.extend(demand.given.iter().map(|(number, value)| (*number, *value)));
    let signed = if demand.approved == Pcrs::default() {
        None
    } else {
        let signer = signer(key);
        let mut systems = demand.systems.clone();
        if systems.is_empty() {
            systems.push(pcr::read(tpm, demand.approved)?);
        }
        let mut signed = Signed { pcrs: demand.approved, key: public(&signer), approvals: Vec::new() };
        systems.iter().for_each(|values| signed.add(approval(&signer, values)));
        Some(signed)
    };
    seal::seal(tpm, key, Policy { values, signed }, random)
}

/// Approves a system that will measure these values. Nothing happens where nothing has to be approved. Whether anything
/// did.
pub fn approve(
    tpm: &mut dyn Transport,
    sealed: &mut Sealed,
    values: &Values,
    random: RandomBytes<'_>,
) -> Result<bool, Error> {
    if sealed
        .policy
        .signed
        .as_ref()
        .and_then(|signed| Pcrs::of(values).filter(|pcrs| *pcrs == signed.pcrs))
        .is_none()
    {
        return Ok(false);
    }
    let key = seal::unseal(tpm, sealed, random)?;
    let signer = signer(&key);
    let Some(signed) = sealed.policy.signed.as_mut() else { return Ok(false) };
    if signed.key != public(&signer) {
        return Err(Error::Damaged);
    }
    // The system that runs is what a failed upgrade comes back to, however often one is tried.
    let running = only_values(&pcr::read(tpm, signed.pcrs)?);
    if let Some(at) = signed.approvals.iter().position(|approval| approval.policy == running) {
        let running = signed.approvals.remove(at);
        signed.approvals.push(running);
    }
    signed.add(approval(&signer, values));
    Ok(true)
}

impl Signed {
    /// The newest is the last.
    fn add(&mut self, approval: Approval) {
        self.approvals.retain(|other| other.policy != approval.policy);
        self.approvals.push(approval);
        let surplus = self.approvals.len().saturating_sub(MOST_APPROVALS);
        self.approvals.drain(..surplus);
    }
}

fn approval(signer: &SigningKey, values: &Values) -> Approval {
    let sign = |what: &[u8]| {
        let signature: Signature = signer.sign(what);
        Ok::<_, core::convert::Infallible>(signature.to_bytes().into())
    };
    match Approval::new(values, sign) {
        Ok(approval) => approval,
        Err(never) => match never {},
    }
}

/// The first of the candidates that is a key: all but one in four thousand million are.
fn signer(key: &[u8]) -> SigningKey {
    let mut count = 0_u32;
    loop {
        let candidate = Zeroizing::new(mac(key, &[b"billet: approves systems", &count.to_be_bytes()]));
        if let Ok(signer) = SigningKey::from_slice(candidate.as_slice()) {
            return signer;
        }
        count += 1;
    }
}

fn public(signer: &SigningKey) -> PublicKey {
    let point = signer.verifying_key().to_sec1_point(false);
    let mut both = [0; 64];
    // Behind the byte that says that both coordinates follow.
    for (to, from) in both.iter_mut().zip(point.as_bytes().iter().skip(1)) {
        *to = *from;
    }
    PublicKey(both)
}
