//! `machine.registries` as containerd's own files.
//!
//! Secrets (keys of client certificates, sign-ins) are in files that only root reads.

use std::collections::BTreeMap;

use config::v1alpha1::{Registries, RegistryAuth, RegistryConfig, RegistryMirror, RegistryTls};

use crate::files::{Operation, Wanted};

/// Kubernetes' containerd.
pub(crate) const CONFIG: &str = "/etc/cri/containerd.toml";
/// Where containerd finds one directory a registry.
const HOSTS: &str = "/var/etc/cri/hosts";
/// Where certificates of registries are (docs/users/containerd.md).
const AUTHORITIES: &str = "/var/etc/cri/ca";
const CLIENTS: &str = "/var/etc/cri/client";
const PLUGIN: &str = "io.containerd.grpc.v1.cri";
/// The one registry whose name is not the host that answers for it (docs/users/containerd.md). No default of ours:
/// it is asked only when a config mirrors it.
const HUB: &str = concat!("docker", ".io");
const HUB_HOST: &str = concat!("registry-1.", "docker", ".io");
const PUBLIC: u32 = 0o644;
const PRIVATE: u32 = 0o600;

/// The files for all registries; none when the config says nothing about any.
pub(crate) fn files(registries: &Registries) -> Result<Vec<Wanted>, Vec<String>> {
    if registries.mirrors.is_empty() && registries.config.is_empty() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    let mut errors = Vec::new();
    for (name, mirror) in &registries.mirrors {
        match mirrored(name, mirror, &registries.config) {
            Ok(text) => files.push(hosts_file(name, text)),
            Err(error) => errors.push(error),
        }
    }
    for (host, config) in &registries.config {
        if let Some(tls) = &config.tls {
            files.extend(certificates(host, tls));
            let known = registries.mirrors.contains_key(host);
            if !known {
                files.push(hosts_file(host, entry(&format!("https://{host}"), Some((host, tls)), None)));
            }
        }
        if let Err(error) = config.auth.as_ref().map_or(Ok(()), |auth| check(host, auth)) {
            errors.push(error);
        }
    }
    files.push(part(&registries.config));
    if errors.is_empty() { Ok(files) } else { Err(errors) }
}

fn create(path: String, content: String, mode: u32) -> Wanted {
    Wanted { path, content, mode: Some(mode), operation: Operation::Create }
}

fn hosts_file(registry: &str, text: String) -> Wanted {
    let directory = if registry == "*" { "_default" } else { registry };
    create(format!("{HOSTS}/{directory}/hosts.toml"), text, PRIVATE)
}

/// The mirrors of a registry, by preference, and whether the registry itself is asked after them.
fn mirrored(
    registry: &str,
    mirror: &RegistryMirror,
    configs: &BTreeMap<String, RegistryConfig>,
) -> Result<String, String> {
    let endpoints: Vec<&str> = mirror.endpoints.iter().map(|url| url.trim_end_matches('/')).collect();
    let mut text = String::new();
    match (mirror.skip_fallback, endpoints.last()) {
        // containerd asks `server` last: naming a mirror there leaves the registry itself out.
        (Some(true), Some(last)) => text.push_str(&format!("server = {}\n", quoted(last))),
        _ if registry == "*" => {}
        _ => text.push_str(&format!("server = {}\n", quoted(&format!("https://{}", default_host(registry))))),
    }
    for endpoint in endpoints {
        let (scheme, rest) = endpoint.split_once("://").ok_or_else(|| {
            format!("mirror of {registry}: {endpoint:?} is no URL; write https://host[:port]")
        })?;
        let host = rest.split('/').next().unwrap_or(rest);
        let tls = configs.get(host).and_then(|config| config.tls.as_ref());
        if tls.is_some() && scheme != "https" {
            return Err(format!("TLS config specified for non-HTTPS registry: {host:?}"));
        }
        text.push_str(&entry(endpoint, tls.map(|tls| (host, tls)), mirror.override_path));
    }
    Ok(text)
}

fn default_host(registry: &str) -> &str {
    if registry == HUB { HUB_HOST } else { registry }
}

fn entry(endpoint: &str, tls: Option<(&str, &RegistryTls)>, override_path: Option<bool>) -> String {
    let mut text = format!("\n[host.{}]\n  capabilities = [\"pull\", \"resolve\"]\n", quoted(endpoint));
    if override_path == Some(true) {
        text.push_str("  override_path = true\n");
    }
    if let Some((host, tls)) = tls {
        if tls.insecure_skip_verify == Some(true) {
            text.push_str("  skip_verify = true\n");
        }
        if !tls.ca.0.is_empty() {
            text.push_str(&format!("  ca = {}\n", quoted(&format!("{AUTHORITIES}/{host}.crt"))));
        }
        if tls.client_identity.is_some() {
            let path = |end: &str| quoted(&format!("{CLIENTS}/{host}.{end}"));
            text.push_str(&format!("  client = [[{}, {}]]\n", path("crt"), path("key")));
        }
    }
    text
}

fn certificates(host: &str, tls: &RegistryTls) -> Vec<Wanted> {
    let mut files = Vec::new();
    if !tls.ca.0.is_empty() {
        files.push(create(format!("{AUTHORITIES}/{host}.crt"), tls.ca.0.clone(), PUBLIC));
    }
    if let Some(identity) = &tls.client_identity {
        files.push(create(format!("{CLIENTS}/{host}.crt"), identity.crt.0.clone(), PRIVATE));
        let key = identity.key().map_or("", |key| key.expose_secret());
        files.push(create(format!("{CLIENTS}/{host}.key"), key.to_owned(), PRIVATE));
    }
    files
}

/// What goes into containerd's own file: where the directories are, and who we are to each host.
fn part(configs: &BTreeMap<String, RegistryConfig>) -> Wanted {
    let mut text = format!("[plugins.{}.registry]\n  config_path = {}\n", quoted(PLUGIN), quoted(HOSTS));
    for (host, auth) in configs.iter().filter_map(|(host, config)| Some((host, config.auth.as_ref()?))) {
        let table = format!("\n[plugins.{}.registry.configs.{}.auth]\n", quoted(PLUGIN), quoted(host));
        text.push_str(&table);
        let mut field = |name: &str, value: &str| {
            if !value.is_empty() {
                text.push_str(&format!("  {name} = {}\n", quoted(value)));
            }
        };
        let exposed = |secret: &Option<config::Secret>| {
            secret.as_ref().map_or(String::new(), |secret| secret.expose_secret().to_owned())
        };
        field("username", &auth.username);
        field("password", &exposed(&auth.password));
        field("identitytoken", &exposed(&auth.identity_token));
        field("auth", &exposed(&auth.auth));
    }
    Wanted { path: CONFIG.to_owned(), content: text, mode: Some(PRIVATE), operation: Operation::Append }
}

/// `auth` must be base64 of `name:password` where it is what counts (docs/users/containerd.md).
fn check(host: &str, auth: &RegistryAuth) -> Result<(), String> {
    let first = !auth.username.is_empty() || auth.identity_token.is_some();
    let Some(encoded) = auth.auth.as_ref().filter(|_| !first) else { return Ok(()) };
    match config::decode_base64(encoded.expose_secret()) {
        Ok(text) if text.contains(':') => Ok(()),
        Ok(_) => Err(format!("invalid decoded auth for {host:?}: it is not of the form name:password")),
        Err(reason) => Err(format!("invalid auth config for {host:?}: {reason}")),
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use config::Secret;

    use super::*;

    fn mirror(endpoints: &[&str]) -> RegistryMirror {
        RegistryMirror { endpoints: endpoints.iter().map(|&e| e.to_owned()).collect(), ..Default::default() }
    }

    fn text<'a>(files: &'a [Wanted], end: &str) -> &'a str {
        files.iter().find(|file| file.path.ends_with(end)).map_or("", |file| &file.content)
    }

    #[test]
    fn nothing_is_written_for_nothing() {
        assert!(files(&Registries::default()).ok().unwrap().is_empty());
    }

    #[test]
    fn mirrors_become_directories_and_slashes_do_not_matter() {
        let mut registries = Registries::default();
        registries.mirrors.insert("*".into(), mirror(&["http://10.5.0.1:6000/"]));
        registries.mirrors.insert(HUB.into(), mirror(&["https://a.example", "https://b.example"]));
        let files = files(&registries).ok().unwrap();
        assert!(text(&files, "_default/hosts.toml").starts_with("\n[host.\"http://10.5.0.1:6000\"]"));
        let docker = text(&files, &format!("{HUB}/hosts.toml"));
        assert!(docker.starts_with(&format!("server = \"https://{HUB_HOST}\"\n")), "{docker}");
        assert!(docker.find("a.example") < docker.find("b.example"));
        assert!(text(&files, "containerd.toml").contains("config_path = \"/var/etc/cri/hosts\""));
    }

    #[test]
    fn without_fallback_the_registry_itself_is_not_asked() {
        let mut registries = Registries::default();
        let only = RegistryMirror { skip_fallback: Some(true), ..mirror(&["https://m.example"]) };
        registries.mirrors.insert("r.example".into(), only);
        let files = files(&registries).ok().unwrap();
        assert!(text(&files, "r.example/hosts.toml").starts_with("server = \"https://m.example\"\n"));
    }

    #[test]
    fn a_whole_path_and_a_token_are_passed_on() {
        let mut registries = Registries::default();
        let whole = RegistryMirror { override_path: Some(true), ..mirror(&["https://m.example/v2/a"]) };
        registries.mirrors.insert("r.example".into(), whole);
        registries.mirrors.insert("s.example".into(), mirror(&["https://m.example"]));
        let auth = RegistryAuth { identity_token: Some(Secret::new("token")), ..RegistryAuth::default() };
        registries.config.insert("m.example".into(), RegistryConfig { tls: None, auth: Some(auth) });
        let files = files(&registries).ok().unwrap();
        assert!(text(&files, "r.example/hosts.toml").contains("override_path = true"));
        assert!(!text(&files, "s.example/hosts.toml").contains("override_path"));
        assert!(text(&files, "containerd.toml").contains("identitytoken = \"token\""));
    }

    #[test]
    fn certificates_and_sign_ins_are_roots_alone() {
        let mut registries = Registries::default();
        registries.mirrors.insert("r.example".into(), mirror(&["https://m.example:5000/v2"]));
        let identity = config::CertificateAndKey {
            crt: config::EncodedPem("CRT".into()),
            key: config::EncodedSecret(Secret::new("KEY")),
        };
        let tls = RegistryTls {
            client_identity: Some(identity),
            ca: config::EncodedPem("CA".into()),
            insecure_skip_verify: Some(true),
        };
        let auth = RegistryAuth {
            username: "me".into(),
            password: Some(Secret::new("pa\"ss")),
            ..RegistryAuth::default()
        };
        let config = RegistryConfig { tls: Some(tls), auth: Some(auth) };
        registries.config.insert("m.example:5000".into(), config);
        let files = files(&registries).ok().unwrap();
        let ghcr = text(&files, "r.example/hosts.toml");
        assert!(
            ghcr.contains("ca = \"/var/etc/cri/ca/m.example:5000.crt\"")
                && ghcr.contains("skip_verify = true")
        );
        assert_eq!(text(&files, "client/m.example:5000.key"), "KEY");
        assert!(text(&files, "containerd.toml").contains("password = \"pa\\\"ss\""));
        for file in files.iter().filter(|file| file.content.contains("KEY") || file.content.contains("pa\\"))
        {
            assert_eq!(file.mode, Some(0o600), "{}", file.path);
        }
    }

    #[test]
    fn mistakes_are_named_together() {
        let mut registries = Registries::default();
        registries.mirrors.insert("a".into(), mirror(&["http://m.example"]));
        registries.mirrors.insert("b".into(), mirror(&["m.example"]));
        let tls = Some(RegistryTls::default());
        registries.config.insert("m.example".into(), RegistryConfig { tls, auth: None });
        for (host, auth) in [("x", "!"), ("y", "bm9uZQ==")] {
            let auth = Some(RegistryAuth { auth: Some(Secret::new(auth)), ..RegistryAuth::default() });
            registries.config.insert(host.into(), RegistryConfig { tls: None, auth });
        }
        let errors = files(&registries).err().unwrap();
        assert_eq!(errors[0], "TLS config specified for non-HTTPS registry: \"m.example\"");
        assert!(errors[1].contains("is no URL") && errors[2].starts_with("invalid auth config for \"x\""));
        assert!(errors[3].starts_with("invalid decoded auth for \"y\"") && errors.len() == 4, "{errors:?}");
    }
}
