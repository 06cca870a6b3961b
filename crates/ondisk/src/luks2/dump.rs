//! The header for a person, as `cryptsetup luksDump` shows it.

use alloc::format;
use alloc::string::{String, ToString as _};
use core::fmt::{self, Write as _};

use super::Header;
use super::metadata::{Digest, Id, Keyslot, Segment, Token};

/// Bytes of a salt or digest on one line.
const BYTES_A_LINE: usize = 16;

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &str, none: &str| String::from(if text.is_empty() { none } else { text });
        let config = &self.metadata.config;
        writeln!(f, "LUKS header information")?;
        writeln!(f, "Version:       \t2")?;
        writeln!(f, "Epoch:         \t{}", self.epoch)?;
        writeln!(f, "Metadata area: \t{} [bytes]", self.copy_bytes)?;
        writeln!(f, "Keyslots area: \t{} [bytes]", config.keyslots_size)?;
        writeln!(f, "UUID:          \t{}", self.uuid)?;
        writeln!(f, "Label:         \t{}", or(&self.label, "(no label)"))?;
        writeln!(f, "Subsystem:     \t{}", or(&self.subsystem, "(no subsystem)"))?;
        let flags: String = config.flags.iter().map(|flag| format!("{flag} ")).collect();
        writeln!(f, "Flags:       \t{}\n", or(&flags, "(no flags)"))?;
        writeln!(f, "Data segments:")?;
        self.metadata.segments.iter().try_for_each(|(id, segment)| show_segment(f, *id, segment))?;
        writeln!(f, "Keyslots:")?;
        self.metadata.keyslots.iter().try_for_each(|(id, slot)| self.show_slot(f, *id, slot))?;
        writeln!(f, "Tokens:")?;
        self.metadata.tokens.iter().try_for_each(|(id, token)| show_token(f, *id, token))?;
        writeln!(f, "Digests:")?;
        self.metadata.digests.iter().try_for_each(|(id, digest)| show_digest(f, *id, digest))
    }
}

impl Header {
    fn show_slot(&self, f: &mut fmt::Formatter<'_>, id: Id, slot: &Keyslot) -> fmt::Result {
        let unbound = if self.metadata.digest_of(id).is_some_and(|(_, digest)| digest.segments.is_empty()) {
            " (unbound)"
        } else {
            ""
        };
        writeln!(f, "  {id}: {}{unbound}", slot.kind)?;
        writeln!(f, "\tKey:        {} bits", u64::from(slot.key_size) * 8)?;
        let priority = match slot.priority {
            Some(0) => "ignored",
            Some(2) => "preferred",
            _ => "normal",
        };
        writeln!(f, "\tPriority:   {priority}")?;
        let (Some(area), Some(af), Some(kdf)) = (&slot.area, &slot.af, &slot.kdf) else { return Ok(()) };
        writeln!(f, "\tCipher:     {}", area.encryption.as_deref().unwrap_or_default())?;
        writeln!(f, "\tCipher key: {} bits", u64::from(area.key_size.unwrap_or_default()) * 8)?;
        writeln!(f, "\tPBKDF:      {}", kdf.kind)?;
        let number = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
        if kdf.kind == "pbkdf2" {
            writeln!(f, "\tHash:       {}", kdf.hash.as_deref().unwrap_or_default())?;
            writeln!(f, "\tIterations: {}", number(kdf.iterations))?;
        } else {
            writeln!(f, "\tTime cost:  {}", number(kdf.time))?;
            writeln!(f, "\tMemory:     {}", number(kdf.memory))?;
            writeln!(f, "\tThreads:    {}", number(kdf.cpus))?;
        }
        writeln!(f, "\tSalt:       {}", hex(&kdf.salt))?;
        writeln!(f, "\tAF stripes: {}", af.stripes)?;
        writeln!(f, "\tAF hash:    {}", af.hash)?;
        writeln!(f, "\tArea offset:{} [bytes]", area.offset)?;
        writeln!(f, "\tArea length:{} [bytes]", area.size)?;
        match self.metadata.digest_of(id) {
            Some((digest, _)) => writeln!(f, "\tDigest ID:  {digest}"),
            None => Ok(()),
        }
    }
}

fn show_segment(f: &mut fmt::Formatter<'_>, id: Id, segment: &Segment) -> fmt::Result {
    writeln!(f, "  {id}: {}", segment.kind)?;
    writeln!(f, "\toffset: {} [bytes]", segment.offset)?;
    match segment.size.as_str() {
        "dynamic" => writeln!(f, "\tlength: (whole device)")?,
        length => writeln!(f, "\tlength: {length} [bytes]")?,
    }
    if let (Some(cipher), Some(sector)) = (&segment.encryption, segment.sector_size) {
        writeln!(f, "\tcipher: {cipher}\n\tsector: {sector} [bytes]")?;
    }
    f.write_char('\n')
}

fn show_token(f: &mut fmt::Formatter<'_>, id: Id, token: &Token) -> fmt::Result {
    writeln!(f, "  {id}: {}", token.kind)?;
    if let Some(description) = token.key_description() {
        writeln!(f, "\tKey description: {description}")?;
    }
    token.keyslots.iter().try_for_each(|slot| writeln!(f, "\tKeyslot:    {slot}"))
}

fn show_digest(f: &mut fmt::Formatter<'_>, id: Id, digest: &Digest) -> fmt::Result {
    writeln!(f, "  {id}: {}", digest.kind)?;
    writeln!(f, "\tHash:       {}", digest.hash.as_deref().unwrap_or_default())?;
    writeln!(f, "\tIterations: {}", digest.iterations.unwrap_or_default())?;
    writeln!(f, "\tSalt:       {}", hex(&digest.salt))?;
    writeln!(f, "\tDigest:     {}", hex(&digest.digest))
}

/// Bytes in hexadecimal, the lines below one another.
fn hex(bytes: &[u8]) -> String {
    let lines =
        bytes.chunks(BYTES_A_LINE).map(|line| line.iter().map(|byte| format!("{byte:02x} ")).collect());
    lines.collect::<alloc::vec::Vec<String>>().join("\n\t            ")
}
