//! `meta`: keys of the META partition.

use crate::session::{Maintenance, Session};
use anyhow::Result;
use api::proto::machine::{MetaDeleteRequest, MetaWriteRequest};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    action: Action,
    /// For a node in maintenance: no client certificate, and its own is not checked
    #[arg(short, long, global = true)]
    insecure: bool,
    /// With --insecure: the fingerprint that the node prints on its console
    #[arg(long, value_delimiter = ',', value_name = "FINGERPRINT", global = true)]
    cert_fingerprint: Vec<String>,
}

impl Flags {
    /// The flags may stand behind the action, too.
    pub(crate) fn maintenance(&self) -> Maintenance {
        Maintenance { insecure: self.insecure, cert_fingerprint: self.cert_fingerprint.clone() }
    }
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Set a key
    Write {
        /// Decimal, or hexadecimal with 0x
        #[arg(value_parser = key)]
        key: u32,
        /// Its value
        value: String,
    },
    /// Remove a key
    Delete {
        /// Decimal, or hexadecimal with 0x
        #[arg(value_parser = key)]
        key: u32,
    },
}

/// A key: one byte.
fn key(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map(u32::from).map_err(|_| format!("`{text}` is not a key; write 0 to 255, or 0x0 to 0xff"))
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let mut machine = session.client.machine();
    match flags.action {
        Action::Write { key, value } => {
            let request = session.request(MetaWriteRequest { key, value: value.into_bytes() });
            session.answers(machine.meta_write(request).await, |r| r.messages).map(drop)
        }
        Action::Delete { key } => {
            let request = session.request(MetaDeleteRequest { key });
            session.answers(machine.meta_delete(request).await, |r| r.messages).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        assert_eq!((key("10"), key("0xa"), key("255")), (Ok(10), Ok(10), Ok(255)));
        for wrong in ["", "256", "-1", "0x", "0x100", "a"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }
}
