//! The small server as a program: `billet-kms --listen 0.0.0.0:4050 --key FILE [--certificate FILE --private-key FILE]`.
//!
//! Owns: its arguments. Without a certificate it speaks without encryption, as `grpc://` addresses want it.
//! Fails by: one line on standard error and exit status 1.

use std::fs;
use std::process::ExitCode;

use kms::server::{KEY_BYTES, Server};
use tonic::transport::{Identity, ServerTlsConfig};
use zeroize::Zeroizing;

const USAGE: &str = "usage: billet-kms --listen ADDRESS:PORT --key FILE [--certificate FILE --private-key FILE]\nFILE of --key: 32 \
     random bytes";

#[derive(Default)]
struct Arguments {
    listen: String,
    key: String,
    certificate: String,
    private_key: String,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("billet-kms: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| format!("start: {e}"))?.block_on(arguments.serve())
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            let place = match word.as_str() {
                "--listen" => &mut arguments.listen,
                "--key" => &mut arguments.key,
                "--certificate" => &mut arguments.certificate,
                "--private-key" => &mut arguments.private_key,
                other => return Err(format!("unknown argument {other:?}\n{USAGE}")),
            };
            *place = words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"))?;
        }
        let is_half = arguments.certificate.is_empty() != arguments.private_key.is_empty();
        if arguments.listen.is_empty() || arguments.key.is_empty() || is_half {
            return Err(USAGE.to_owned());
        }
        Ok(arguments)
    }

    async fn serve(&self) -> Result<(), String> {
        let read = |path: &str| fs::read(path).map_err(|e| format!("read {path}: {e}")).map(Zeroizing::new);
        let key = read(&self.key)?;
        let key: &[u8; KEY_BYTES] =
            key.as_slice().try_into().map_err(|_| format!("{} has not {KEY_BYTES} bytes", self.key))?;
        let address = self.listen.parse().map_err(|e| format!("--listen {}: {e}", self.listen))?;
        let mut builder = tonic::transport::Server::builder();
        if !self.certificate.is_empty() {
            let identity = Identity::from_pem(read(&self.certificate)?, read(&self.private_key)?);
            let tls = ServerTlsConfig::new().identity(identity);
            builder = builder.tls_config(tls).map_err(|e| format!("{}: {e}", self.certificate))?;
        }
        let served = builder.add_service(Server::new(key).service()).serve(address);
        served.await.map_err(|e| format!("serve at {}: {e}", self.listen))
    }
}
