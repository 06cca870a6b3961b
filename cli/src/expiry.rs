//! When a client certificate ends.
//!
//! Owns: the words for it. Does not: say from when on it is warned about; [`CertificateFacts::ends_soon`] does.

use api::pki::CertificateFacts;
use jiff::Timestamp;
use std::time::SystemTime;

/// The day on which it ends, or `expired`.
pub(crate) fn day(facts: &CertificateFacts) -> String {
    let until = Timestamp::try_from(facts.not_after)
        .map_or_else(|_| "?".to_owned(), |t| t.strftime("%Y-%m-%d").to_string());
    if facts.remaining().is_some() { until } else { format!("{until} (expired)") }
}

/// What a person should do about the certificate of a context, if anything.
pub(crate) fn warning(context: &str, facts: &CertificateFacts) -> Option<String> {
    let renew = "docs/users/pki.md says how to renew it";
    let Some(left) = facts.remaining() else {
        return Some(format!(
            "the client certificate of context `{context}` expired on {}; {renew}",
            day(facts)
        ));
    };
    let soon = facts.ends_soon(SystemTime::now());
    let hours = left.as_secs() / 3600;
    let left = if hours < 48 { format!("{hours} hours") } else { format!("{} days", hours / 24) };
    soon.then(|| format!("the client certificate of context `{context}` expires in {left}; {renew}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::pki::{Authority, CA_LIFETIME, Leaf, Lifetime, Usage};
    use std::time::Duration;

    fn facts(age_hours: u64, left_hours: i64) -> CertificateFacts {
        let hour = |h: u64| Duration::from_secs(h * 3600 + 60);
        let now = SystemTime::now();
        let not_after = match u64::try_from(left_hours) {
            Ok(left) => now + hour(left),
            Err(_) => now - hour(left_hours.unsigned_abs()),
        };
        let lifetime = Lifetime { not_before: now - hour(age_hours), not_after };
        let leaf = Leaf { organizations: vec![], names: vec![], usage: Usage::Client, lifetime };
        let authority = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
        let issued = authority.issue(&leaf).unwrap();
        CertificateFacts::from_pem("it", &issued.certificate).unwrap()
    }

    #[test]
    fn warned_in_the_last_tenth_and_after_the_end() {
        assert_eq!(warning("c", &facts(1, 23)), None);
        assert_eq!(warning("c", &facts(24, 24 * 40)), None);
        assert!(warning("c", &facts(23, 1)).unwrap().contains("`c` expires in 1 hours"));
        assert!(warning("c", &facts(24 * 365, 24 * 10)).unwrap().contains("expires in 10 days"));
        assert!(warning("c", &facts(30, -1)).unwrap().contains("expired on 20"));
    }
}
