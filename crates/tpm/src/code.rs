//! A TPM's refusals in words.
//!
//! Owns: what a response code says, and for which part of the command.
//! Source: part 2, §6.6; tpm-rc numbers of the table there.

use core::fmt;

/// A response code that is not success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

/// Bit 7: the code has a number of a handle, session or parameter.
const FORMAT_ONE: u32 = 0x80;
/// Bit 6 of those: a parameter.
const PARAMETER: u32 = 0x40;
/// Bit 11 of those: a session.
const SESSION: u32 = 0x800;
/// Who refused, if not the TPM: the kernel's resource manager has a number there.
const LAYER: u32 = 0xffff_f000;

impl Code {
    pub(crate) const AUTH_FAIL: u32 = 0x08e;
    pub(crate) const NONCE: u32 = 0x08f;
    pub(crate) const BAD_AUTH: u32 = 0x0a2;
    const TESTING: u32 = 0x90a;
    const YIELDED: u32 = 0x908;
    const RETRY: u32 = 0x922;

    /// The refusal itself.
    #[must_use]
    pub fn base(self) -> u32 {
        let own = self.0 & !LAYER;
        if own & FORMAT_ONE != 0 { own & 0xbf } else { own & 0x97f }
    }

    /// Whether the same command may work a moment later.
    #[must_use]
    pub fn is_for_now(self) -> bool {
        matches!(self.base(), Self::TESTING | Self::YIELDED | Self::RETRY)
    }

    /// Whether it is about a parameter, a handle or a session, and not about the TPM.
    pub(crate) fn is_about_a_part(self) -> bool {
        self.0 & FORMAT_ONE != 0
    }

    fn place(self) -> Option<(&'static str, u32)> {
        let own = self.0 & !LAYER;
        if own & FORMAT_ONE == 0 {
            return None;
        }
        let (what, number) = match own {
            own if own & PARAMETER != 0 => ("parameter", own >> 8),
            own if own & SESSION != 0 => ("session", (own >> 8) & 7),
            own => ("handle", own >> 8),
        };
        (number != 0).then_some((what, number))
    }

    fn meaning(self) -> Option<(&'static str, &'static str)> {
        let base = self.base();
        TABLE.iter().find(|entry| entry.0 == base).map(|entry| (entry.1, entry.2))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some((name, meaning)) => write!(f, "{name} ({meaning}")?,
            None => write!(f, "code {:#x} (not known here", self.0)?,
        }
        match self.place() {
            Some((what, number)) => write!(f, "; {what} {number})"),
            None => f.write_str(")"),
        }
    }
}

/// Number, name behind `TPM_RC_`, what it means for who waits for a key.
const TABLE: &[(u32, &str, &str)] = &[
    (0x082, "ATTRIBUTES", "an object is not what it is used as"),
    (0x084, "VALUE", "a value is not allowed"),
    (0x085, "HIERARCHY", "the owner's hierarchy is disabled: enable the TPM in the firmware"),
    (0x08a, "TYPE", "an object is of another type"),
    (0x08b, "HANDLE", "there is no such object in this TPM"),
    (
        0x08e,
        "AUTH_FAIL",
        "the TPM's owner has a password, and Billet knows none: clear the TPM in the firmware",
    ),
    (0x08f, "NONCE", "somebody changed a session"),
    (0x092, "SCHEME", "the TPM does not know a scheme"),
    (0x095, "SIZE", "a size is not right: the object may be damaged"),
    (0x096, "SYMMETRIC", "the TPM does not know AES with 128 bits"),
    (0x098, "SELECTOR", "an object is damaged"),
    (0x09a, "INSUFFICIENT", "an object is cut short"),
    (0x09b, "SIGNATURE", "a signature is not of its key"),
    (0x09d, "POLICY_FAIL", "the machine is not in the state that the key was sealed to"),
    (
        0x09f,
        "INTEGRITY",
        "the object was sealed by another TPM, or before this one was cleared, or it is damaged",
    ),
    (0x0a0, "TICKET", "a ticket is not of this TPM, or not of this boot"),
    (0x0a1, "RESERVED_BITS", "bits are set that have no meaning"),
    (
        0x0a2,
        "BAD_AUTH",
        "the TPM's owner has a password, and Billet knows none: clear the TPM in the firmware",
    ),
    (0x0a6, "CURVE", "the TPM does not know the curve P-256"),
    (0x0a7, "ECC_POINT", "a point is not on the curve"),
    (0x100, "INITIALIZE", "the firmware did not start the TPM"),
    (
        0x101,
        "FAILURE",
        "the TPM found a fault in itself: turn the machine off and on; if it stays, the TPM is broken",
    ),
    (0x120, "DISABLED", "the command is disabled in the firmware"),
    (0x126, "POLICY", "a policy does not fit"),
    (0x127, "PCR", "a register does not exist"),
    (0x128, "PCR_CHANGED", "registers changed meanwhile"),
    (0x12d, "UPGRADE", "the TPM waits for the end of an update of its firmware"),
    (0x130, "REBOOT", "the TPM asks for a restart of the machine"),
    (0x143, "COMMAND_CODE", "the TPM does not know this command"),
    (0x153, "NEEDS_TEST", "the TPM has to test itself first"),
    (0x902, "OBJECT_MEMORY", "the TPM has no room for another object"),
    (0x903, "SESSION_MEMORY", "the TPM has no room for another session"),
    (0x904, "MEMORY", "the TPM has no memory left"),
    (0x905, "SESSION_HANDLES", "the TPM has no session left"),
    (0x907, "LOCALITY", "not from this locality"),
    (0x908, "YIELDED", "the TPM was interrupted"),
    (0x909, "CANCELED", "the command was cancelled"),
    (0x90a, "TESTING", "the TPM still tests itself"),
    (0x910, "REFERENCE_H0", "there is no such object in this TPM"),
    (0x918, "REFERENCE_S0", "there is no such session in this TPM"),
    (0x920, "NV_RATE", "the TPM writes no more for a while, to spare its memory"),
    (0x921, "LOCKOUT", "the TPM is locked after wrong passwords; wait, or clear it in the firmware"),
    (0x922, "RETRY", "the TPM is busy"),
    (0x923, "NV_UNAVAILABLE", "the TPM cannot write its memory"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_what_and_where() {
        for (code, text) in [
            (0x99d, "POLICY_FAIL (the machine is not in the state that the key was sealed to; session 1)"),
            (
                0x1df,
                "INTEGRITY (the object was sealed by another TPM, or before this one was cleared, or it is damaged; parameter 1)",
            ),
            (0x18b, "HANDLE (there is no such object in this TPM; handle 1)"),
            (0x921, "LOCKOUT (the TPM is locked after wrong passwords; wait, or clear it in the firmware)"),
            (0x910, "REFERENCE_H0 (there is no such object in this TPM)"),
            (0xb0143, "COMMAND_CODE (the TPM does not know this command)"),
            (0x5aa, "code 0x5aa (not known here; handle 5)"),
        ] {
            assert_eq!(Code(code).to_string(), text);
        }
        assert!(Code(0x922).is_for_now() && !Code(0x921).is_for_now());
    }

    #[test]
    fn the_table_has_each_code_once_and_in_order() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(TABLE.iter().all(|entry| Code(entry.0).base() == entry.0));
    }
}
