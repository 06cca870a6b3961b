//! The variables that make firmware trust a key, signed so that firmware takes them.
//!
//! One key is all three: the platform's, the exchange key and the one in `db`. In setup mode firmware takes them as they
//! are; afterwards only what the key itself signed.
//! Source: UEFI specification 2.10 §8.2.2 (EFI_VARIABLE_AUTHENTICATION_2), §32.4.1 (EFI_SIGNATURE_LIST); systemd-boot(7),
//! `loader/keys/NAME/{PK,KEK,db}.auth`.

use std::fs;
use std::path::Path;

use super::{Error, Signer, message};

/// Where systemd-boot looks for the files on an EFI system partition, and their names in a directory.
const FILES: [(&str, &str); 3] = [
    ("loader/keys/auto/PK.auth", "PK.auth"),
    ("loader/keys/auto/KEK.auth", "KEK.auth"),
    ("loader/keys/auto/db.auth", "db.auth"),
];

/// Non-volatile, at boot and at run time, authenticated by time.
const ATTRIBUTES: u32 = 0x27;
const REVISION_2: u16 = 0x0200;
const TYPE_GUID: u16 = 0x0ef1;
/// GUIDs as they lie in memory: EFI_CERT_X509_GUID, EFI_CERT_TYPE_PKCS7_GUID, EFI_GLOBAL_VARIABLE,
/// EFI_IMAGE_SECURITY_DATABASE_GUID.
const X509: [u8; 16] = guid(0xa5c0_59a1, 0x94e4, 0x4aa7, [0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72]);
const PKCS7: [u8; 16] = guid(0x4aaf_d29d, 0x68df, 0x49ee, [0x8a, 0xa9, 0x34, 0x7d, 0x37, 0x56, 0x65, 0xa7]);
pub(super) const GLOBAL: [u8; 16] =
    guid(0x8be4_df61, 0x93ca, 0x11d2, [0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c]);
pub(super) const SECURITY: [u8; 16] =
    guid(0xd719_b2cb, 0x3d3a, 0x4596, [0xa3, 0xbc, 0xda, 0xd0, 0x0e, 0x67, 0x65, 0x6f]);

/// When a variable was made: firmware takes only what is newer than what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// From 1900 on.
    pub year: u16,
    /// From 1 on.
    pub month: u8,
    /// From 1 on.
    pub day: u8,
    /// Up to 23.
    pub hour: u8,
    /// Up to 59.
    pub minute: u8,
    /// Up to 59.
    pub second: u8,
}

/// What the boot loader does with the files in setup mode: `secure-boot-enroll` of loader.conf(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enrol {
    /// It offers them in its menu.
    Manual,
    /// It enrols them in virtual machines, and offers them elsewhere.
    IfSafe,
    /// It enrols them everywhere.
    Force,
    /// Nothing.
    Off,
}

impl Enrol {
    /// The line of loader.conf.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Self::Manual => "secure-boot-enroll manual\n",
            Self::IfSafe => "secure-boot-enroll if-safe\n",
            Self::Force => "secure-boot-enroll force\n",
            Self::Off => "secure-boot-enroll off\n",
        }
    }
}

/// The files to enrol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    /// `PK.auth`: enrolling it ends setup mode, so it comes last.
    pub pk: Vec<u8>,
    /// `KEK.auth`.
    pub kek: Vec<u8>,
    /// `db.auth`.
    pub db: Vec<u8>,
}

impl Enrolment {
    /// Makes them. `owner` is the GUID under which firmware lists the certificate.
    ///
    /// # Errors
    /// [`Error::Key`] if the key does not sign.
    pub fn new(signer: &Signer, owner: [u8; 16], time: Time) -> Result<Self, Error> {
        let list = signature_list(signer.certificate(), owner);
        let file = |name, vendor| signed(signer, name, vendor, time, &list);
        Ok(Self { pk: file("PK", GLOBAL)?, kek: file("KEK", GLOBAL)?, db: file("db", SECURITY)? })
    }

    /// Reads them from a directory, for a disk whose files `signer` signs.
    ///
    /// # Errors
    /// [`Error::Read`] names a file that is missing; [`Error::Enrolment`] a `db.auth` that does not have the signer's
    /// certificate: firmware that enrols it refuses what lies beside it.
    pub fn read(directory: &Path, signer: &Signer) -> Result<Self, Error> {
        let read = |(_, name): (&str, &str)| {
            let path = directory.join(name);
            fs::read(&path).map_err(|source| Error::Read { path, source })
        };
        let [pk, kek, db] = FILES.map(read);
        let found = Self { pk: pk?, kek: kek?, db: db? };
        let certificate = signer.certificate();
        if !found.db.windows(certificate.len()).any(|window| window == certificate) {
            let reason = "the certificate of --sign-certificate is not in it, so firmware that enrols it would refuse this \
                          image: make it with `billetctl gen secureboot database` of the same key";
            return Err(Error::Enrolment { path: directory.join("db.auth"), reason });
        }
        Ok(found)
    }

    /// The files with their paths on an EFI system partition.
    #[must_use]
    pub fn files(&self) -> [(&'static str, &[u8]); 3] {
        let [pk, kek, db] = FILES.map(|(path, _)| path);
        [(pk, &self.pk), (kek, &self.kek), (db, &self.db)]
    }
}

fn signature_list(certificate: &[u8], owner: [u8; 16]) -> Vec<u8> {
    let entry = u32::try_from(owner.len() + certificate.len()).unwrap_or(u32::MAX);
    let header = 28_u32;
    let lengths = [header.saturating_add(entry), 0, entry];
    let lengths: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
    [X509.as_slice(), &lengths, &owner, certificate].concat()
}

fn signed(signer: &Signer, name: &str, vendor: [u8; 16], time: Time, value: &[u8]) -> Result<Vec<u8>, Error> {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let time = time.bytes();
    let said = [name.as_slice(), &vendor, &ATTRIBUTES.to_le_bytes(), &time, value].concat();
    let message = message::of_bytes(signer, &said)?;
    let length = u32::try_from(24 + message.len()).unwrap_or(u32::MAX);
    let head =
        [length.to_le_bytes().as_slice(), &REVISION_2.to_le_bytes(), &TYPE_GUID.to_le_bytes()].concat();
    Ok([time.as_slice(), &head, &PKCS7, &message, value].concat())
}

impl Time {
    /// `EFI_TIME`, with everything zero that such a variable does not have.
    fn bytes(self) -> [u8; 16] {
        let [low, high] = self.year.to_le_bytes();
        let Self { month, day, hour, minute, second, .. } = self;
        [low, high, month, day, hour, minute, second, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    }
}

const fn guid(a: u32, b: u16, c: u16, d: [u8; 8]) -> [u8; 16] {
    let ([a0, a1, a2, a3], [b0, b1], [c0, c1]) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes());
    [a0, a1, a2, a3, b0, b1, c0, c1, d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
}
