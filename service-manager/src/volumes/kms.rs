//! A key server as a vault of `installer::encryption`.
//!
//! Owns: the fields of the token; the runtime that a question needs, in a thread of the process that opens volumes.
//! Does not: try again or wait beyond what `kms::Client` does; log: the process answers, machined logs.
//! Source: docs/formats/luks2.md ("Sealed keys"); docs/users/encryption.md.

use std::path::PathBuf;

use installer::encryption::Vault;
use kms::{Client, Endpoint, Trust};
use serde_json::{Map, Value, json};
use unlock::{KeyKind, SealedKey, Secret};

/// The authorities that the image and the config name.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates";
/// The field with what the server made of the key.
const SEALED: &str = "sealedData";

/// A server, for this node.
#[derive(Debug)]
pub(super) struct KmsVault {
    /// As the config has it.
    pub(super) endpoint: String,
    /// The node's UUID.
    pub(super) node: String,
}

impl KmsVault {
    fn client(&self) -> Result<Client, String> {
        let endpoint = Endpoint::parse(&self.endpoint).map_err(|error| error.to_string())?;
        Ok(Client::new(endpoint, &self.node, Trust::File(PathBuf::from(AUTHORITIES))))
    }
}

/// Runs a question to its end, in the calling thread.
fn run<T>(question: impl Future<Output = Result<T, kms::Error>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("start a runtime: {error}"))?;
    let answer = runtime.block_on(question).map_err(|error| error.to_string());
    // A look-up of a name that hangs is left behind.
    runtime.shutdown_background();
    answer
}

impl Vault for KmsVault {
    fn settings(&self) -> Map<String, Value> {
        Map::from_iter([("endpoint".to_owned(), json!(self.endpoint))])
    }

    fn seal(&self, key: &[u8], _demands_config: bool) -> Result<Map<String, Value>, String> {
        let client = self.client()?;
        let sealed = run(client.seal(key))?;
        let empty = SealedKey { kind: KeyKind::Kms, settings: None, fields: Map::new() };
        Ok(empty.with_bytes(SEALED, &sealed).fields)
    }

    fn unseal(&self, sealed: &SealedKey) -> Result<Secret, String> {
        let sealed = sealed.bytes(SEALED)?;
        let client = self.client()?;
        run(client.unseal(&sealed))
    }
}
