//! Which servers a registry's password goes to when the registry names one that gives tokens.
//!
//! Owns: the rule. It goes to the registry's own host, at any port; to a host whose domain the registry lies in, since who
//! owns that says where the registry is; to one pair that is known; to hosts that the config has an entry for. A common
//! parent domain is no reason: two users of one hosting service have that too.
//! Does not: ask anybody. Everybody else is asked for a token without the password.
//! Source: Docker's token authentication, "realm".

use http::Uri;

use super::Settings;
use super::endpoint::HUB_HOST;

/// Who gives tokens for the one registry that has two hosts with a common parent, [`HUB_HOST`].
const HUB_REALM: &str = concat!("auth.", "docker", ".io");

/// The host, as settings name it, that a registry's password may not go to; `None`: it may.
pub(super) fn withheld(settings: &Settings, registry: &str, realm: &Uri) -> Option<String> {
    let authority = realm.authority()?;
    let (own, host) = (host_of(registry), authority.host().to_ascii_lowercase());
    let is_above = host.contains('.') && is_name(&own) && own.ends_with(&format!(".{host}"));
    let is_listed = |name: &str| settings.hosts.keys().any(|listed| listed.eq_ignore_ascii_case(name));
    let may = own == host
        || is_above
        || (registry, host.as_str()) == (HUB_HOST, HUB_REALM)
        || is_listed(&host)
        || is_listed(authority.as_str());
    (!may).then(|| authority.to_string())
}

/// What an error says of a password that was not sent.
pub(super) fn sentence(host: &str) -> String {
    format!(
        "it wants its password sent to {host}, another host, which was asked without it: if that is right, give \
         machine.registries.config an entry for {host}"
    )
}

fn host_of(registry: &str) -> String {
    let host = registry.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    host.unwrap_or_else(|| registry.to_owned()).to_ascii_lowercase()
}

/// Whether it is no address in numbers, of which a part is no domain.
fn is_name(host: &str) -> bool {
    host.rsplit('.').next().is_some_and(|last| last.starts_with(|first: char| first.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::super::Host;
    use super::*;

    fn is_sent(registry: &str, realm: &str, listed: &[&str]) -> bool {
        let hosts = listed.iter().map(|&name| (name.to_owned(), Host::default()));
        let settings = Settings { hosts: hosts.collect(), ..Settings::default() };
        withheld(&settings, registry, &realm.parse().unwrap()).is_none()
    }

    #[test]
    fn a_password_goes_to_the_registry_to_what_it_lies_in_and_to_what_is_listed() {
        for (registry, realm) in [
            ("r.example", "https://r.example/token"),
            ("R.example:5000", "https://r.EXAMPLE:5001/auth"),
            ("10.5.0.1:5000", "http://10.5.0.1:5001/auth"),
            ("[fd00::1]:5000", "https://[fd00::1]/auth"),
            ("registry.git.example", "https://git.example/jwt/auth"),
            (HUB_HOST, concat!("https://auth.", "docker", ".io/token")),
        ] {
            assert!(is_sent(registry, realm, &[]), "{registry} {realm}");
        }
        for (registry, realm) in [
            ("r.example", "https://example/token"),
            ("r.host.example", "https://thief.host.example/token"),
            ("r.example", "https://r.example.thief.example/token"),
            ("r.example", "https://xr.example/token"),
            ("ar.example", "https://r.example/token"),
            ("git.example", "https://registry.git.example/jwt/auth"),
            ("10.5.0.1", "https://5.0.1/token"),
            ("10.5.0.1", "https://10.5.0.2/token"),
            ("other.example", concat!("https://auth.", "docker", ".io/token")),
            ("r.example", "https://r.example@thief.example/token"),
        ] {
            assert!(!is_sent(registry, realm, &["third.example"]), "{registry} {realm}");
        }
        for listed in ["Auth.example", "auth.example:8443"] {
            assert!(is_sent("r.example", "https://auth.example:8443/token", &[listed]), "{listed}");
        }
        assert!(!is_sent("r.example", "https://auth.example:8444/token", &["auth.example:8443"]));
    }

    #[test]
    fn what_is_named_can_be_written_into_the_config() {
        let realm = "https://auth.example:8443/token".parse().unwrap();
        let host = withheld(&Settings::default(), "r.example", &realm).unwrap();
        assert_eq!(host, "auth.example:8443");
        assert!(is_sent("r.example", "https://auth.example:8443/token", &[&host]));
    }
}
