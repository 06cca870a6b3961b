//! Certificates outside of a handshake: who signed one.
//!
//! Owns: the question whether one authority signed a leaf itself. Does not: read what a certificate says (`pki`).
//! Fails by: [`TlsError`].

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::{TlsError, provider};

/// The clients of one authority.
#[derive(Debug, Clone)]
pub struct Clients(Arc<dyn ClientCertVerifier>);

impl Clients {
    /// Those of the authority in this PEM.
    ///
    /// # Errors
    /// [`TlsError::Refused`] for what is no authority.
    pub fn of(authority: &str) -> Result<Self, TlsError> {
        let builder = WebPkiClientVerifier::builder_with_provider(roots(authority)?, provider());
        builder.build().map(Self).map_err(|error| refused("the authority", &error))
    }

    /// Whether the authority signed this certificate, for a client, without another one between them.
    #[must_use]
    pub fn include(&self, leaf: &CertificateDer<'_>) -> bool {
        self.0.verify_client_cert(leaf, &[], UnixTime::now()).is_ok()
    }
}

/// Checks that one of the authorities in a PEM signed a server's certificate, and that it has each of these names.
///
/// # Errors
/// [`TlsError::Refused`] with the reason, and with the name where one is missing.
pub fn check_server(authorities: &str, certificate: &str, names: &[String]) -> Result<(), TlsError> {
    const WHAT: &str = "the certificate";
    let builder = WebPkiServerVerifier::builder_with_provider(roots(authorities)?, provider());
    let verifier = builder.build().map_err(|error| refused("the authority", &error))?;
    let leaf =
        CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| refused(WHAT, &error))?;
    for name in names {
        let named = |reason: &dyn std::fmt::Display| refused(WHAT, &format!("for {name}: {reason}"));
        let server = ServerName::try_from(name.as_str()).map_err(|error| named(&error))?;
        verifier
            .verify_server_cert(&leaf, &[], &server, &[], UnixTime::now())
            .map_err(|error| named(&error))?;
    }
    Ok(())
}

fn roots(authorities: &str) -> Result<Arc<RootCertStore>, TlsError> {
    const WHAT: &str = "the authority";
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        let certificate = certificate.map_err(|error| refused(WHAT, &error))?;
        store.add(certificate).map_err(|error| refused(WHAT, &error))?;
    }
    Ok(Arc::new(store))
}

fn refused(what: &'static str, reason: &dyn std::fmt::Display) -> TlsError {
    TlsError::Refused { what, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Authority, CA_LIFETIME, LEAF_LIFETIME, Leaf, Lifetime, Usage};

    fn authority() -> Authority {
        Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap()
    }

    fn leaf(usage: Usage) -> Leaf {
        Leaf {
            organizations: vec![],
            names: vec!["10.0.0.7".into(), "n7".into()],
            usage,
            lifetime: Lifetime::from_now(LEAF_LIFETIME),
        }
    }

    #[test]
    fn a_client_belongs_to_the_authority_that_signed_it() {
        let (own, other) = (authority(), authority());
        let clients = Clients::of(own.certificate()).unwrap();
        let of = |authority: &Authority, usage| {
            let issued = authority.issue(&leaf(usage)).unwrap();
            clients.include(&CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap())
        };
        assert!(of(&own, Usage::Client));
        assert!(!of(&own, Usage::Server), "a server's certificate is no client's");
        assert!(!of(&other, Usage::Client), "another authority of the same name");
        assert!(Clients::of("").is_err());
    }

    #[test]
    fn a_server_has_every_name_and_a_known_authority() {
        let (own, other) = (authority(), authority());
        let issued = own.issue(&leaf(Usage::Server)).unwrap().certificate;
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        check_server(own.certificate(), &issued, &names(&["10.0.0.7", "n7"])).unwrap();
        let error = check_server(own.certificate(), &issued, &names(&["n7", "n8"])).unwrap_err().to_string();
        assert!(error.contains("for n8: "), "{error}");
        assert!(check_server(other.certificate(), &issued, &names(&["n7"])).is_err());
        let both = format!("{}\n{}", other.certificate(), own.certificate());
        check_server(&both, &issued, &names(&["n7"])).unwrap();
        let client = own.issue(&leaf(Usage::Client)).unwrap().certificate;
        assert!(check_server(own.certificate(), &client, &names(&["n7"])).is_err());
    }
}
