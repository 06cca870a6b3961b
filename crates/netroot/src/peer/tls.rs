//! Servers with certificates, good and bad.
//!
//! Owns: authorities and what they sign; the server's end of TLS, which is rustls' own.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::io::{Read, Write};

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use smoltcp::socket::tcp;

/// 2026-06-01: what the clock says in tests.
pub const TODAY_S: u64 = 1_780_272_000;

/// First and last year of a certificate that is good on [`TODAY_S`].
pub const GOOD: (i32, i32) = (2026, 2027);

/// Somebody who signs.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        Self::of(name, KeyPair::generate().unwrap())
    }

    /// With a key of any kind.
    pub fn of(name: &str, key: KeyPair) -> Self {
        let parameters = Self::parameters(name);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(parameters, key), pem }
    }

    /// A server with an authority's own certificate, as people make it who have none.
    pub fn alone(name: &str) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = Self::parameters(name).self_signed(&key).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        config(&certificate, key, rustls::ALL_VERSIONS, ring::default_provider())
    }

    fn parameters(name: &str) -> CertificateParams {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters
    }

    /// A server with a certificate for these names, from the first day of one year to that of another.
    pub fn server(&self, names: &[&str], years: (i32, i32)) -> Arc<ServerConfig> {
        self.server_of(names, years, rustls::ALL_VERSIONS, ring::default_provider())
    }

    /// The same, which speaks no other versions and knows no other cryptography.
    pub fn server_of(
        &self,
        names: &[&str],
        years: (i32, i32),
        versions: &[&'static SupportedProtocolVersion],
        provider: CryptoProvider,
    ) -> Arc<ServerConfig> {
        let (certificate, key) = self.signed(names, years, &KeyPair::generate().unwrap());
        config(&certificate, key, versions, provider)
    }

    /// A server with a key of any kind.
    pub fn server_with(&self, names: &[&str], key: &KeyPair) -> Arc<ServerConfig> {
        let (certificate, key) = self.signed(names, GOOD, key);
        config(&certificate, key, rustls::ALL_VERSIONS, ring::default_provider())
    }

    fn signed(
        &self,
        names: &[&str],
        years: (i32, i32),
        key: &KeyPair,
    ) -> (Certificate, PrivateKeyDer<'static>) {
        let names: Vec<String> = names.iter().map(|name| String::from(*name)).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.not_before = date_time_ymd(years.0, 1, 1);
        parameters.not_after = date_time_ymd(years.1, 1, 1);
        let certificate = parameters.signed_by(key, &self.issuer).unwrap();
        (certificate, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

fn config(
    certificate: &Certificate,
    key: PrivateKeyDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
    provider: CryptoProvider,
) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert([certificate.der().clone()].into(), key)
        .unwrap();
    Arc::new(config)
}

/// One connection's records.
pub(super) struct Records {
    connection: ServerConnection,
    outgoing: Vec<u8>,
    /// Bytes on the wire.
    pub(super) sent: usize,
    /// What the client did wrong, or said that we did.
    pub(super) error: Option<rustls::Error>,
}

impl Records {
    pub(super) fn new(config: &Arc<ServerConfig>) -> Self {
        let mut connection = ServerConnection::new(config.clone()).unwrap();
        connection.set_buffer_limit(None);
        Self { connection, outgoing: Vec::new(), sent: 0, error: None }
    }

    /// From the wire; what is in it.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        while !bytes.is_empty() && self.error.is_none() {
            self.connection.read_tls(&mut bytes).unwrap();
            match self.connection.process_new_packets() {
                // Nothing more to read is an error there.
                Ok(_) => drop(self.connection.reader().read_to_end(&mut plain)),
                Err(error) => self.error = Some(error),
            }
        }
        self.collect();
        plain
    }

    /// Has these bytes encrypted; how many.
    pub(super) fn give(&mut self, plain: &[u8]) -> usize {
        self.connection.writer().write_all(plain).unwrap();
        self.collect();
        plain.len()
    }

    /// Puts records on the wire, up to the cut. Whether all are there.
    pub(super) fn send(&mut self, socket: &mut tcp::Socket<'_>, cut: Option<usize>) -> bool {
        let end = cut.map_or(usize::MAX, |cut| cut).min(self.outgoing.len());
        while socket.can_send() && self.sent < end {
            self.sent += socket.send_slice(&self.outgoing[self.sent..end]).unwrap();
        }
        self.sent == self.outgoing.len()
    }

    fn collect(&mut self) {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.outgoing).unwrap();
        }
    }
}
