//! Certificates with which nothing may get past TLS, and none.
//!
//! Does not: send anything; `tls_faults` shows them to a server.

use std::time::{Duration, SystemTime};

use api::pki::{Authority, CA_LIFETIME, Identity, LEAF_LIFETIME, Leaf, Lifetime, PkiError, Usage};

/// A certificate that must not be let in, and why.
pub struct Stranger {
    pub(crate) what: &'static str,
    pub(crate) identity: Option<Identity>,
}

impl std::fmt::Debug for Stranger {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)
    }
}

/// None, and one for each fault that a certificate of `authority`, or one like it, can have.
///
/// # Errors
/// [`PkiError`].
pub fn strangers(authority: &Authority) -> Result<Vec<Stranger>, PkiError> {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let now = SystemTime::now();
    let valid = Lifetime::from_now(LEAF_LIFETIME);
    let leaf = |usage, lifetime| Leaf {
        organizations: vec!["os:admin".to_owned()],
        names: vec!["127.0.0.1".to_owned()],
        usage,
        lifetime,
    };
    let other = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME))?;
    let past = Lifetime { not_before: now - DAY * 2, not_after: now - DAY };
    let future = Lifetime { not_before: now + DAY, not_after: now + DAY * 2 };
    let named = |what, identity| Stranger { what, identity: Some(identity) };
    Ok(vec![
        Stranger { what: "a client without a certificate", identity: None },
        named("a certificate of another CA", other.issue(&leaf(Usage::Client, valid))?),
        named("an expired certificate", authority.issue(&leaf(Usage::Client, past))?),
        named("a certificate that is not valid yet", authority.issue(&leaf(Usage::Client, future))?),
        named("a server's certificate", authority.issue(&leaf(Usage::Server, valid))?),
        named(
            "a certificate that signed itself",
            api::pki::self_signed("os:admin", &["127.0.0.1".to_owned()], valid)?,
        ),
    ])
}
