//! `machine.registries` and the node's proxies as the settings of our own registry client.

use std::collections::BTreeMap;
use std::path::PathBuf;

use config::v1alpha1::{Registries, RegistryAuth, RegistryTls};
use oci::registry::{Auth, Host, Identity, Mirror, Proxies, Settings, Tls};
use zeroize::Zeroizing;

/// The authorities that the image and the config name.
pub(super) const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates";

/// The settings, or what is wrong with them. `environment`: the variables that services get, with their proxies;
/// `authorities`: where [`AUTHORITIES`] are.
pub(super) fn settings(
    registries: &Registries,
    environment: &BTreeMap<String, String>,
    authorities: PathBuf,
) -> Result<Settings, String> {
    let proxies = Proxies::of_environment(|name| environment.get(name).cloned())?;
    let mut settings = Settings { authorities: Some(authorities), proxies, ..Settings::default() };
    for (name, mirror) in &registries.mirrors {
        let mirror = Mirror {
            endpoints: mirror.normal_endpoints().map(str::to_owned).collect(),
            override_path: mirror.override_path == Some(true),
            skip_fallback: mirror.skip_fallback == Some(true),
        };
        settings.mirrors.insert(name.clone(), mirror);
    }
    for (name, config) in &registries.config {
        let auth = config.auth.as_ref().map_or(Ok(None), |auth| sign_in(name, auth))?;
        let tls = config.tls.as_ref().map(certificates).unwrap_or_default();
        settings.hosts.insert(name.clone(), Host { tls, auth });
    }
    Ok(settings)
}

/// Name and password first, then the token, then both in base64 (docs/users/containerd.md).
fn sign_in(host: &str, auth: &RegistryAuth) -> Result<Option<Auth>, String> {
    let exposed = |secret: &config::Secret| Zeroizing::new(secret.expose_secret().to_owned());
    if !auth.username.is_empty() {
        let password = auth.password.as_ref().map(exposed).unwrap_or_default();
        return Ok(Some(Auth::Password { name: auth.username.clone(), password }));
    }
    if let Some(token) = &auth.identity_token {
        return Ok(Some(Auth::Identity(exposed(token))));
    }
    let Some(encoded) = &auth.auth else { return Ok(None) };
    let pair = config::decode_base64(encoded.expose_secret())
        .map_err(|reason| format!("invalid auth config for {host:?}: {reason}"))?;
    let (name, password) = pair
        .split_once(':')
        .ok_or_else(|| format!("invalid decoded auth for {host:?}: it is not of the form name:password"))?;
    Ok(Some(Auth::Password { name: name.to_owned(), password: Zeroizing::new(password.to_owned()) }))
}

fn certificates(tls: &RegistryTls) -> Tls {
    let identity = tls.client_identity.as_ref().map(|identity| Identity {
        certificate: identity.crt.0.clone(),
        key: Zeroizing::new(identity.key().map_or("", |key| key.expose_secret()).to_owned()),
    });
    let insecure = tls.insecure_skip_verify == Some(true);
    Tls { authorities: tls.ca.0.clone(), identity, insecure }
}

#[cfg(test)]
mod tests {
    use config::Secret;
    use config::v1alpha1::{RegistryConfig, RegistryMirror};

    use super::*;

    fn auth(auth: RegistryAuth) -> Result<Option<Auth>, String> {
        let mut registries = Registries::default();
        registries.config.insert("h".into(), RegistryConfig { tls: None, auth: Some(auth) });
        settings(&registries, &BTreeMap::new(), AUTHORITIES.into())
            .map(|settings| settings.hosts["h"].auth.clone())
    }

    #[test]
    fn sign_ins_count_in_order() {
        let all = RegistryAuth {
            username: "me".into(),
            password: Some(Secret::new("pass")),
            auth: Some(Secret::new("bWU6Z2VoZWlt")),
            identity_token: Some(Secret::new("token")),
        };
        assert!(
            matches!(auth(all.clone()), Ok(Some(Auth::Password { password, .. })) if password.as_str() == "pass")
        );
        let token = RegistryAuth { username: String::new(), ..all.clone() };
        assert!(matches!(auth(token.clone()), Ok(Some(Auth::Identity(token))) if token.as_str() == "token"));
        let pair = RegistryAuth { identity_token: None, ..token };
        assert!(
            matches!(auth(pair.clone()), Ok(Some(Auth::Password { password, .. })) if password.as_str() == "geheim")
        );
        let broken = RegistryAuth { auth: Some(Secret::new("bm9uZQ==")), ..pair };
        assert!(auth(broken).err().unwrap().starts_with("invalid decoded auth for \"h\""));
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named() {
        let environment = [("https_proxy".to_owned(), "socks5://me:secret@p".to_owned())].into();
        let error = settings(&Registries::default(), &environment, AUTHORITIES.into()).err().unwrap();
        assert_eq!(
            error,
            "HTTPS_PROXY: a proxy that is spoken to by socks5 is not supported: use an http:// one"
        );
    }

    #[test]
    fn mirrors_keep_their_order_and_their_words() {
        let mut registries = Registries::default();
        let mirror = RegistryMirror {
            endpoints: vec!["http://a/".into(), "http://b".into()],
            skip_fallback: Some(true),
            ..Default::default()
        };
        registries.mirrors.insert("*".into(), mirror);
        let settings = settings(&registries, &BTreeMap::new(), AUTHORITIES.into()).ok().unwrap();
        let mirror = &settings.mirrors["*"];
        assert_eq!(
            (mirror.endpoints.as_slice(), mirror.skip_fallback),
            (&["http://a".to_owned(), "http://b".into()][..], true)
        );
    }
}
