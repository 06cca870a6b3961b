//! Records of the kernel log, as reading `/dev/kmsg` gives them.
//!
//! Owns: the form `prefix,sequence,stamp,flags[,…];text\n KEY=value…`.
//! Source: Documentation/ABI/testing/dev-kmsg.

/// Most bytes that the kernel gives for one record (PRINTK_MESSAGE_MAX of 6.12 is 2048; older kernels 8192).
pub const MAX_RECORD_BYTES: usize = 8192;

/// One entry of the kernel log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// syslog facility times eight, and priority.
    pub prefix: u16,
    /// Counts every record since boot.
    pub sequence: u64,
    /// Microseconds since boot.
    pub stamp_us: u64,
    /// The message, escapes as the kernel made them; what follows bytes that are no UTF-8 is left out.
    pub text: &'a str,
}

impl<'a> Record<'a> {
    /// Reads one record; `None` for anything else.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = valid_start(bytes).split_once(';')?;
        let mut fields = head.split(',');
        Some(Self {
            prefix: fields.next()?.parse().ok()?,
            sequence: fields.next()?.parse().ok()?,
            stamp_us: fields.next()?.parse().ok()?,
            text: rest.split('\n').next()?,
        })
    }

    /// syslog priority, 0 (the worst) to 7.
    #[must_use]
    pub fn priority(&self) -> u16 {
        self.prefix & 7
    }
}

fn valid_start(bytes: &[u8]) -> &str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => bytes
            .get(..error.valid_up_to())
            .and_then(|valid| core::str::from_utf8(valid).ok())
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split_into_their_parts() {
        let bytes = b"6,339,5140900,-,caller=T1;NET: Registered protocol family 10\n SUBSYSTEM=net\n";
        let text = "NET: Registered protocol family 10";
        assert_eq!(
            Record::parse(bytes),
            Some(Record { prefix: 6, sequence: 339, stamp_us: 5_140_900, text })
        );
        assert_eq!(Record::parse(b"28,1,0,-;x").unwrap().priority(), 4);
    }

    #[test]
    fn foreign_bytes_are_no_record() {
        for bytes in [&b""[..], b"6;x", b"a,1,2;x", b"6,1", &[0xff, 0xfe]] {
            assert_eq!(Record::parse(bytes), None);
        }
        assert_eq!(Record::parse(b"6,1,2,-;caf\xc3").unwrap().text, "caf");
    }
}
