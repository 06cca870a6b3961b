//! Which addresses are asked for an image, and in which order.
//!
//! Source: docs/users/containerd.md; containerd's `hosts.toml` for paths and for the parameter `ns`, by which a
//! mirror of several registries learns which one is meant.

use http::Uri;

use super::Settings;
use crate::{Error, Reference};

/// The one registry whose name is not the host that answers for it. No default of ours: it is asked only when an image
/// names it.
const HUB: &str = concat!("docker", ".io");
pub(super) const HUB_HOST: &str = concat!("registry-1.", "docker", ".io");

/// An address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Scheme, host, port.
    pub(super) origin: String,
    /// Host and port, as settings are named.
    pub(super) host: String,
    /// Where the repository lies: `/v2/<repository>`.
    pub(super) path: String,
    /// Added to every request.
    pub(super) query: String,
    /// For people.
    pub(super) shown: String,
    /// What tokens are asked for.
    pub(super) repository: String,
}

impl Endpoint {
    /// The address of something in the repository.
    pub(super) fn uri(&self, path: &str) -> Result<Uri, String> {
        let text = format!("{}{}/{path}{}", self.origin, self.path, self.query);
        text.parse().map_err(|e| format!("{text} is no address: {e}"))
    }
}

/// The addresses for an image.
pub(super) fn of(reference: &Reference, settings: &Settings) -> Result<Vec<Endpoint>, Error> {
    let registry = reference.registry.as_str();
    let mirror = settings.mirrors.get(registry).or_else(|| settings.mirrors.get("*"));
    let mut endpoints = Vec::new();
    for url in mirror.iter().flat_map(|mirror| &mirror.endpoints) {
        let whole = mirror.is_some_and(|mirror| mirror.override_path);
        endpoints.push(mirrored(reference, url, whole)?);
    }
    if endpoints.is_empty() || !mirror.is_some_and(|mirror| mirror.skip_fallback) {
        let host = if registry == HUB { HUB_HOST } else { registry };
        endpoints.push(Endpoint {
            origin: format!("https://{host}"),
            host: host.to_owned(),
            path: format!("/v2/{}", reference.repository),
            query: String::new(),
            shown: host.to_owned(),
            repository: reference.repository.clone(),
        });
    }
    Ok(endpoints)
}

fn mirrored(reference: &Reference, url: &str, whole: bool) -> Result<Endpoint, Error> {
    let fail = |reason: String| Error::Setting { host: reference.registry.clone(), reason };
    let uri: Uri = url.parse().map_err(|e| fail(format!("its mirror {url:?} is no address: {e}")))?;
    let (Some(scheme @ ("http" | "https")), Some(host)) = (uri.scheme_str(), uri.authority()) else {
        return Err(fail(format!("its mirror {url:?} is no address: write https://host[:port]")));
    };
    if host.as_str().contains('@') {
        return Err(fail(
            "a mirror's address holds no name and password: use machine.registries.config".into(),
        ));
    }
    let path = uri.path().trim_end_matches('/');
    let version = if whole || path.ends_with("/v2") { "" } else { "/v2" };
    let query = if host.as_str() == reference.registry {
        String::new()
    } else {
        format!("?ns={}", super::auth::encoded(&reference.registry))
    };
    Ok(Endpoint {
        origin: format!("{scheme}://{host}"),
        host: host.to_string(),
        path: format!("{path}{version}/{}", reference.repository),
        query,
        shown: format!("mirror {host}"),
        repository: reference.repository.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Mirror;
    use super::*;

    fn addresses(name: &str, mirrors: &[(&str, Mirror)]) -> Vec<String> {
        let named = mirrors.iter().map(|(name, mirror)| ((*name).to_owned(), mirror.clone()));
        let settings = Settings { mirrors: named.collect(), ..Settings::default() };
        let endpoints = of(&name.parse().unwrap(), &settings).unwrap();
        endpoints.iter().map(|endpoint| endpoint.uri("x").unwrap().to_string()).collect()
    }

    fn mirror(endpoints: &[&str]) -> Mirror {
        Mirror { endpoints: endpoints.iter().map(|&url| url.to_owned()).collect(), ..Mirror::default() }
    }

    #[test]
    fn mirrors_come_first_and_the_registry_last() {
        assert_eq!(addresses("r.example:5000/a/b:1", &[]), ["https://r.example:5000/v2/a/b/x"]);
        let two = mirror(&["http://10.5.0.1:6000/", "https://m.example/v2"]);
        let all = [("r.example", two.clone()), ("*", mirror(&["http://other"]))];
        assert_eq!(
            addresses("r.example/a:1", &all),
            [
                "http://10.5.0.1:6000/v2/a/x?ns=r.example",
                "https://m.example/v2/a/x?ns=r.example",
                "https://r.example/v2/a/x"
            ]
        );
        assert_eq!(
            addresses("s.example/a:1", &all),
            ["http://other/v2/a/x?ns=s.example", "https://s.example/v2/a/x"]
        );
        let only = [("r.example", Mirror { skip_fallback: true, ..two })];
        assert_eq!(addresses("r.example/a:1", &only).len(), 2);
        let whole = [("r.example", Mirror { override_path: true, ..mirror(&["https://m.example/x/y"]) })];
        assert_eq!(addresses("r.example/a:1", &whole)[0], "https://m.example/x/y/a/x?ns=r.example");
        let deep = [("r.example", mirror(&["https://m.example/proxy", "https://r.example"]))];
        assert_eq!(
            addresses("r.example/a:1", &deep)[..2],
            ["https://m.example/proxy/v2/a/x?ns=r.example", "https://r.example/v2/a/x"]
        );
    }

    #[test]
    fn mistakes_in_addresses_are_named() {
        for (url, why) in [
            ("m.example", "write https://"),
            ("ftp://m", "write https://"),
            ("http://a:b@m", "name and password"),
        ] {
            let mut settings = Settings::default();
            settings.mirrors.insert("*".into(), mirror(&[url]));
            let error = of(&"r.example/a:1".parse().unwrap(), &settings).unwrap_err().to_string();
            assert!(error.starts_with("registry r.example: ") && error.contains(why), "{error}");
        }
    }
}
