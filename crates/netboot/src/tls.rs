//! The server's certificate.
//!
//! Owns: reading it and its key, whether it is for the address that machines are sent to, that address.
//! Does not: make one, or look whether anybody believes it.
//! Fails by: [`Error::Certificate`], naming the file.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, InconsistentKeys, ServerConfig};

use crate::Error;

/// What is served by HTTPS besides, and where.
#[derive(Debug, Clone)]
pub struct Secure {
    /// TCP port.
    pub port: u16,
    /// PEM of the certificate, with those between it and the authority behind it.
    pub certificate: PathBuf,
    /// PEM of its key.
    pub key: PathBuf,
    /// What the certificate is for; without it that is the interface's address.
    pub name: Option<String>,
}

impl Secure {
    /// Host and port, as machines are told them.
    pub(crate) fn authority(&self, address: Ipv4Addr, port: u16) -> String {
        let host = self.name.clone().unwrap_or_else(|| address.to_string());
        if port == 443 { host } else { format!("{host}:{port}") }
    }

    /// What connections need, of a certificate that machines can take for this server's.
    pub(crate) fn config(&self, address: Ipv4Addr) -> Result<Arc<ServerConfig>, Error> {
        let fail = |path: &Path, reason: String| Error::Certificate { path: path.to_owned(), reason };
        let read = |path: &Path| std::fs::read(path).map_err(|error| fail(path, error.to_string()));
        let chain = CertificateDer::pem_slice_iter(&read(&self.certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| fail(&self.certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(fail(&self.certificate, "has no certificate in PEM".into()));
        }
        self.check_name(address, &chain)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|_| fail(&self.key, "has no private key in PEM".into()))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    let certificate = self.certificate.display();
                    fail(
                        &self.key,
                        format!("is the key of another certificate than the first one in {certificate}"),
                    )
                }
                error => fail(&self.certificate, error.to_string()),
            })?;
        Ok(Arc::new(config))
    }

    /// Machines compare the address that they were told with the names in the certificate.
    fn check_name(&self, address: Ipv4Addr, chain: &[CertificateDer<'_>]) -> Result<(), Error> {
        let host = self.name.clone().unwrap_or_else(|| address.to_string());
        let fail = |reason| Err(Error::Certificate { path: self.certificate.clone(), reason });
        let Ok(name) = ServerName::try_from(host.as_str()) else {
            return fail(format!(
                "machines cannot ask for {host:?}: --tls-name is a host name or an address"
            ));
        };
        let own = chain
            .first()
            .map(|own| ParsedCertificate::try_from(own).and_then(|own| verify_server_name(&own, &name)));
        match own {
            Some(Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented,
                ..
            }))) => {
                let names = if presented.is_empty() { "nothing".to_owned() } else { presented.join(", ") };
                fail(format!(
                    "is not for {host}, where machines are sent to, but for {names}; name what it is for with --tls-name, \
                     or make one with {host} in its subjectAltName"
                ))
            }
            Some(Err(error)) => fail(error.to_string()),
            Some(Ok(())) | None => Ok(()),
        }
    }
}

/// A client that ends the handshake says why; one that only hangs up is no news.
pub(crate) fn reason(error: &io::Error) -> Option<String> {
    (error.kind() != io::ErrorKind::UnexpectedEof).then(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::files::Files;
    use crate::http::Client;
    use crate::places::{Limits, Places};
    use crate::server::serve;

    #[tokio::test]
    async fn layers_come_by_https_and_the_script_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let made = rcgen::generate_simple_self_signed(["boot.lan".to_owned()]).unwrap();
        std::fs::create_dir_all(path("bundle/layers")).unwrap();
        std::fs::write(path("certificate"), made.cert.pem()).unwrap();
        std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(path("bundle/boot.ipxe"), "#!ipxe\n").unwrap();
        std::fs::write(path("bundle/layers/base"), "its bytes").unwrap();
        let (certificate, key) = (path("certificate"), path("key"));
        let secure = Secure { port: 8443, certificate, key, name: Some("boot.lan".to_owned()) };
        let files = Files::open(&path("bundle"), None).unwrap();
        let files = files.secured(secure.authority(Ipv4Addr::LOCALHOST, 8443));
        let script = files.script("10.0.0.1:8080", None).unwrap();
        assert!(script.contains("\nset billet-root https://boot.lan:8443/bundle/layers\n"), "{script}");

        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let acceptor = TlsAcceptor::from(secure.config(Ipv4Addr::LOCALHOST).unwrap());
        tokio::spawn(async move {
            let client = Client { from: ([10, 0, 0, 9], 1).into(), by: "HTTPS" };
            let (place, _given_away) =
                Places::new(Limits { of_peer: 1, of_all: 1 }).admit(client.from).unwrap();
            let (place, stream) = (Arc::new(place), acceptor.accept(theirs).await.unwrap());
            serve(stream, client, place, Arc::new(files), Arc::new(|_| ())).await;
        });
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect("boot.lan".try_into().unwrap(), ours).await.unwrap();
        let request = "GET /bundle/layers/base HTTP/1.1\r\nHost: boot.lan\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nits bytes"), "{answer}");
    }

    #[test]
    fn certificates_that_are_none_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("text"), "no PEM").unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(path("broken"), broken).unwrap();
        let said = |certificate: &str, key: &str| {
            let (certificate, key) = (path(certificate), path(key));
            Secure { port: 443, certificate, key, name: None }
                .config(Ipv4Addr::LOCALHOST)
                .unwrap_err()
                .to_string()
        };
        assert!(said("missing", "text").contains("missing: "));
        assert!(said("text", "text").ends_with("text: has no certificate in PEM"));
        assert!(said("broken", "text").contains("broken: "));
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(path("good"), made.cert.pem()).unwrap();
        assert!(said("good", "text").ends_with("text: has no private key in PEM"));
        let other = rcgen::KeyPair::generate().unwrap();
        std::fs::write(path("other"), other.serialize_pem()).unwrap();
        let wanted = format!(
            "other: is the key of another certificate than the first one in {}",
            path("good").display()
        );
        assert!(said("good", "other").ends_with(&wanted), "{}", said("good", "other"));
    }

    #[test]
    fn a_certificate_for_something_else_is_refused_before_anything_is_served() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let ask = |names: &[&str], name: Option<&str>| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            std::fs::write(path("certificate"), made.cert.pem()).unwrap();
            std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
            let (certificate, key) = (path("certificate"), path("key"));
            let secure = Secure { port: 8443, certificate, key, name: name.map(str::to_owned) };
            secure.config(address).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(ask(&["10.0.0.1"], None), Ok(()));
        assert_eq!(ask(&["boot.lan", "10.0.0.2"], Some("boot.lan")), Ok(()));
        assert_eq!(ask(&["10.0.0.2"], Some("10.0.0.2")), Ok(()));
        let said = ask(&["boot.lan"], None).unwrap_err();
        assert!(
            said.contains("certificate: is not for 10.0.0.1, where machines are sent to, but for "),
            "{said}"
        );
        assert!(said.contains("boot.lan") && said.contains("--tls-name"), "{said}");
        let said = ask(&[], Some("boot.lan")).unwrap_err();
        assert!(said.contains("is not for boot.lan, where machines are sent to, but for nothing;"), "{said}");
        let said = ask(&["boot.lan"], Some("boot lan")).unwrap_err();
        assert!(said.contains("machines cannot ask for \"boot lan\""), "{said}");
    }

    #[test]
    fn machines_are_told_the_name_of_the_certificate() {
        let secure = |name: Option<&str>| Secure {
            port: 0,
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            name: name.map(str::to_owned),
        };
        let us = Ipv4Addr::new(10, 0, 0, 1);
        assert_eq!(secure(None).authority(us, 8443), "10.0.0.1:8443");
        assert_eq!(secure(Some("boot.lan")).authority(us, 443), "boot.lan");
    }
}
