//! What sessions and objects are computed with: hash, key derivation, the cipher, the agreement with a key of the TPM.
//!
//! Does not: choose algorithms: SHA-256, AES-128 and P-256 are what every TPM 2.0 for a PC has.
//! Source: part 1, §11.4.10 (derivation), annex B.6 (cipher feedback), annex C.6 (secret sharing by ECDH); FIPS 198-1.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use hmac::{Hmac, Mac};
use p256::elliptic_curve::sec1::ToSec1Point;
use p256::{AffinePoint, NonZeroScalar, PublicKey};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::RandomBytes;

/// A digest, and all that is as long as one.
pub(crate) type Digest32 = [u8; 32];

/// Length of a coordinate.
const COORDINATE: usize = 32;

/// The digest of these pieces, one behind the other.
pub(crate) fn hash(pieces: &[&[u8]]) -> Digest32 {
    let mut state = Sha256::new();
    pieces.iter().for_each(|piece| state.update(piece));
    state.finalize().into()
}

pub(crate) fn mac(key: &[u8], pieces: &[&[u8]]) -> Digest32 {
    let Ok(mut state) = Hmac::<Sha256>::new_from_slice(key) else {
        unreachable!("an HMAC takes keys of every length")
    };
    pieces.iter().for_each(|piece| state.update(piece));
    state.finalize().into_bytes().into()
}

/// KDFa: 256 bits from a key, for a purpose and two parties.
pub(crate) fn kdf_a(key: &[u8], purpose: &str, u: &[u8], v: &[u8]) -> Zeroizing<Digest32> {
    derive(key, purpose, u, v, 256)
}

/// The same for a cipher's key of 128 bits, with a first block of zeros behind it.
pub(crate) fn kdf_a_128(key: &[u8], purpose: &str, u: &[u8], v: &[u8]) -> Zeroizing<Digest32> {
    let mut material = derive(key, purpose, u, v, 128);
    if let Some(first) = material.get_mut(16..) {
        first.fill(0);
    }
    material
}

/// `bits` are part of what is derived from; no more than 256.
fn derive(key: &[u8], purpose: &str, u: &[u8], v: &[u8], bits: u32) -> Zeroizing<Digest32> {
    let bits = bits.to_be_bytes();
    Zeroizing::new(mac(key, &[&1_u32.to_be_bytes(), purpose.as_bytes(), &[0], u, v, &bits]))
}

/// KDFe: 256 bits from an agreed point.
fn kdf_e(z: &[u8], purpose: &str, u: &[u8], v: &[u8]) -> Zeroizing<Digest32> {
    Zeroizing::new(hash(&[&1_u32.to_be_bytes(), z, purpose.as_bytes(), &[0], u, v]))
}

/// The two directions of cipher feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Encrypt,
    Decrypt,
}

/// AES-128 in cipher feedback, in place. `material` is the key, then the first block.
pub(crate) fn cfb(material: &Digest32, way: Way, data: &mut [u8]) {
    let (key, first) = material.split_at(16);
    let (Ok(key), Ok(first)) = (<[u8; 16]>::try_from(key), <[u8; 16]>::try_from(first)) else {
        unreachable!("32 bytes are twice 16")
    };
    let key = Zeroizing::new(key);
    let cipher = Aes128::new(&(*key).into());
    let mut feedback = first;
    for piece in data.chunks_mut(16) {
        let mut stream = feedback.into();
        cipher.encrypt_block(&mut stream);
        for (index, byte) in piece.iter_mut().enumerate() {
            let (Some(key), Some(back)) = (stream.get(index), feedback.get_mut(index)) else { break };
            let before = *byte;
            *byte ^= key;
            *back = if way == Way::Encrypt { *byte } else { before };
        }
    }
}

/// A point of P-256: its coordinates, each as long as the curve's field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) x: [u8; COORDINATE],
    pub(crate) y: [u8; COORDINATE],
}

impl Point {
    /// A TPM may leave leading zeros out.
    pub(crate) fn new(x: &[u8], y: &[u8]) -> Option<Self> {
        Some(Self { x: padded(x)?, y: padded(y)? })
    }

    /// `None`: it does not lie on the curve.
    pub(crate) fn key(&self) -> Option<PublicKey> {
        let mut bytes = [4; 1 + 2 * COORDINATE];
        let (x, y) = bytes.get_mut(1..)?.split_at_mut(COORDINATE);
        x.copy_from_slice(&self.x);
        y.copy_from_slice(&self.y);
        PublicKey::from_sec1_bytes(&bytes).ok()
    }
}

fn padded(bytes: &[u8]) -> Option<[u8; COORDINATE]> {
    let mut all = [0; COORDINATE];
    all.get_mut(COORDINATE.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
    Some(all)
}

/// A secret that only the holder of a TPM's key can have as well, and the point that tells it. `key_x` is the key's
/// coordinate as its owner spells it. `None`: the key is no point of the curve.
pub(crate) fn agree(
    key: &Point,
    key_x: &[u8],
    purpose: &str,
    random: RandomBytes<'_>,
) -> Option<(Zeroizing<Digest32>, Point)> {
    let theirs = key.key()?;
    let ours = scalar(random);
    let point = AffinePoint::from(p256::ProjectivePoint::GENERATOR * **ours).to_sec1_point(false);
    let point = Point::new(point.x()?, point.y()?)?;
    let shared = AffinePoint::from(theirs.to_projective() * **ours).to_sec1_point(false);
    let z = Zeroizing::new(padded(shared.x()?)?);
    Some((kdf_e(z.as_slice(), purpose, &point.x, key_x), point))
}

/// A random one.
fn scalar(random: RandomBytes<'_>) -> Zeroizing<NonZeroScalar> {
    loop {
        let mut bytes = Zeroizing::new([0; COORDINATE]);
        random(bytes.as_mut_slice());
        // All but one in four thousand million are one.
        if let Some(scalar) = Option::<NonZeroScalar>::from(NonZeroScalar::from_repr((*bytes).into())) {
            return Zeroizing::new(scalar);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// NIST SP 800-38A, F.3.13, of which the last block is cut short.
    #[test]
    fn cipher_feedback_is_nists() {
        let material = hex("2b7e151628aed2a6abf7158809cf4f3c000102030405060708090a0b0c0d0e0f");
        let material: Digest32 = material.try_into().unwrap();
        let plain = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45");
        let mut data = plain.clone();
        cfb(&material, Way::Encrypt, &mut data);
        assert_eq!(data, hex("3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f"));
        cfb(&material, Way::Decrypt, &mut data);
        assert_eq!(data, plain);
    }

    /// RFC 4231, test case 2.
    #[test]
    fn the_mac_is_the_rfcs() {
        let expected = hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert_eq!(mac(b"Jefe", &[b"what do ya want ", b"for nothing?"]).to_vec(), expected);
    }

    /// Another implementation's, see testdata.
    #[test]
    fn keys_are_derived_as_elsewhere() {
        let vector = crate::vectors::get;
        assert_eq!(kdf_a(&[1; 32], "INTEGRITY", &[], &[]).to_vec(), vector("kdf_a"));
        let short = kdf_a_128(&[1; 32], "STORAGE", b"name", &[]);
        assert_eq!(short.to_vec(), [vector("kdf_a_128"), [0; 16].to_vec()].concat());
        assert_eq!(kdf_e(&[2; 32], "DUPLICATE", b"ours", b"theirs").to_vec(), vector("kdf_e"));
    }

    #[test]
    fn coordinates_may_be_shorter_and_points_have_to_lie_on_the_curve() {
        assert_eq!(padded(&[1, 2]).unwrap()[29..], [0, 1, 2]);
        assert!(padded(&[0; 33]).is_none());
        let off = Point::new(&[1], &[1]).unwrap();
        assert!(agree(&off, &[1], "SECRET", &mut |bytes| bytes.fill(7)).is_none());
    }
}
