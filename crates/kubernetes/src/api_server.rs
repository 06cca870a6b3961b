//! The static pod of the API server, and the files that it reads.
//!
//! Owns: which argument which version has; which may not be replaced, since the node writes the files that they name.
//! Source: `kube-apiserver --help` of each minor (testdata/flags); docs/users/configuration.md.

use serde_json::{Map, Value, json};

use crate::arguments::{Arguments, Flag, fixed, flag, list};
use crate::file::{File, Owner, headed, yaml};
use crate::pod::{Probe, Rendered, StaticPod};
use crate::version::{ALWAYS, Minors, Version, since, until};
use crate::{Cluster, Error, Node, images, paths};

/// Name of the pod and its program.
pub const NAME: &str = "kube-apiserver";
/// Cipher suites below TLS 1.3 whose keys are ephemeral.
const CIPHER_SUITES: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,\
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,\
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";
/// Minors with pod security policies.
const POD_SECURITY_POLICIES: Minors = until(24);
/// Minors whose watches can end before the program does.
const WATCHES_END: Minors = since(30);
/// Minors that read who is allowed what from a file.
const AUTHORIZATION_FILE: Minors = since(30);
/// Minors that read who clients are from a file.
const AUTHENTICATION_FILE: Minors = since(30);
/// Form of the file with authorizers.
const AUTHORIZATION_API: [(Minors, &str); 2] =
    [(until(31), "apiserver.config.k8s.io/v1beta1"), (ALWAYS, "apiserver.config.k8s.io/v1")];
/// Form of the file that says who clients are.
const AUTHENTICATION_API: [(Minors, &str); 2] =
    [(until(33), "apiserver.config.k8s.io/v1beta1"), (ALWAYS, "apiserver.config.k8s.io/v1")];
/// How `Secret` objects are encrypted in etcd.
const ENCRYPTION_FILE: &str = "encryptionconfig.yaml";
/// What is written to the audit log.
const AUDIT_FILE: &str = "auditpolicy.yaml";
/// Plugins that admit objects.
const ADMISSION_FILE: &str = "admission-control-config.yaml";
/// Who is allowed what.
const AUTHORIZERS_FILE: &str = "authorization-config.yaml";
/// Who clients are.
const AUTHENTICATION_FILE_NAME: &str = "authentication-config.yaml";

/// Name of the pod's file and the pod.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`].
pub fn pod(cluster: &Cluster<'_>, node: &Node, rendered: &Rendered) -> Result<(String, Value), Error> {
    let settings = cluster.api_server();
    let pod = StaticPod {
        name: NAME,
        image: images::api_server(cluster),
        command: [vec![NAME.to_owned()], arguments(cluster, node)?.to_vec()].concat(),
        owner: Owner::ApiServer,
        env: settings.env.clone(),
        directories: &[("secrets", paths::API_SERVER_SECRETS), ("config", paths::API_SERVER_CONFIG)],
        writes: Some(("audit", paths::AUDIT_LOG)),
        extra_volumes: &settings.extra_volumes,
        resources: settings.resources.as_ref(),
        requests: ("200m", "512Mi"),
        // Requests without a certificate are refused, so a probe can only see whether it listens.
        startup: (settings.startup_probes == Some(true)).then(|| Probe::Tcp { port: cluster.api_port() }),
        // The kubelet's attempt to show the pod fails while the API server makes its priority classes. An answer to this has it
        // try again; without one it does so a minute later.
        readiness: Some(Probe::Tcp { port: cluster.api_port() }),
        liveness: None,
        rendered,
    };
    Ok((pod.name.to_owned(), pod.to_value()))
}

/// Arguments of the program.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`].
pub fn arguments(cluster: &Cluster<'_>, node: &Node) -> Result<Arguments, Error> {
    let version = images::api_server_version(cluster)?;
    let flags = [listening(cluster, node), clients(cluster, version), tokens(cluster), storage(), auditing()];
    let built_in = Arguments::built_in(version, flags.into_iter().flatten());
    built_in.with("cluster.apiServer.extraArgs", &cluster.api_server().extra_args)
}

fn secret(name: &str) -> String {
    format!("{}/{name}", paths::API_SERVER_SECRETS)
}

fn file(name: &str) -> String {
    format!("{}/{name}", paths::API_SERVER_CONFIG)
}

fn listening(cluster: &Cluster<'_>, node: &Node) -> Vec<Flag> {
    let services: Vec<_> = cluster.service_networks().iter().map(|network| network.text()).collect();
    vec![
        flag("advertise-address", "$(POD_IP)"),
        flag("bind-address", if node.is_ipv6_only() { "::" } else { "0.0.0.0" }),
        // Ended with 1.24; 1.19 would serve everybody on 8080.
        flag("insecure-port", "0").only(until(23)),
        flag("secure-port", cluster.api_port().to_string()),
        // Without it clients that watch keep it from its end until it is killed.
        flag("shutdown-watch-termination-grace-period", "5s").only(WATCHES_END),
        flag("service-cluster-ip-range", services.join(",")),
        flag("tls-min-version", "VersionTLS12"),
        list("tls-cipher-suites", CIPHER_SUITES),
        fixed("tls-cert-file", secret("apiserver.crt")),
        fixed("tls-private-key-file", secret("apiserver.key")),
        flag("allow-privileged", "true"),
        flag("profiling", "false"),
        flag("kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname"),
        fixed("kubelet-client-certificate", secret("apiserver-kubelet-client.crt")),
        fixed("kubelet-client-key", secret("apiserver-kubelet-client.key")),
    ]
}

/// Who clients are and what they may do.
fn clients(cluster: &Cluster<'_>, version: Version) -> Vec<Flag> {
    let settings = cluster.api_server();
    let has_policies =
        settings.disable_pod_security_policy != Some(true) && POD_SECURITY_POLICIES.contain(version);
    let plugins = if has_policies { "NodeRestriction,PodSecurityPolicy" } else { "NodeRestriction" };
    let from_file = has_authorizers(cluster, version);
    // The file that says who clients are says it of anonymous ones too.
    let knows_clients = settings.authentication.is_some() && AUTHENTICATION_FILE.contain(version);
    vec![
        flag("anonymous-auth", "false").when(!knows_clients),
        fixed("authentication-config", file(AUTHENTICATION_FILE_NAME)).when(knows_clients),
        fixed("authorization-config", file(AUTHORIZERS_FILE)).when(from_file),
        list("authorization-mode", "Node,RBAC").when(!from_file),
        list("enable-admission-plugins", plugins),
        fixed("admission-control-config-file", file(ADMISSION_FILE))
            .when(!settings.admission_control.is_empty()),
        flag("enable-bootstrap-token-auth", "true"),
        fixed("client-ca-file", secret("ca.crt")),
        fixed("requestheader-client-ca-file", secret("aggregator-ca.crt")),
        flag("requestheader-allowed-names", "front-proxy-client"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-username-headers", "X-Remote-User"),
        fixed("proxy-client-cert-file", secret("front-proxy-client.crt")),
        fixed("proxy-client-key-file", secret("front-proxy-client.key")),
    ]
}

/// Tokens of service accounts.
fn tokens(cluster: &Cluster<'_>) -> Vec<Flag> {
    let account = &cluster.config().cluster.service_account;
    let issuer = if account.issuer.is_empty() { cluster.endpoint() } else { account.issuer.as_str() };
    let audiences: Vec<_> =
        std::iter::once(issuer).chain(account.accepted_audiences.iter().map(String::as_str)).collect();
    vec![
        flag("api-audiences", audiences.join(",")),
        flag("service-account-issuer", issuer).and(account.accepted_issuers.iter().cloned()),
        fixed("service-account-key-file", secret("service-account.pub")),
        fixed("service-account-signing-key-file", secret("service-account.key")),
    ]
}

fn storage() -> Vec<Flag> {
    vec![
        fixed("etcd-cafile", secret("etcd-client-ca.crt")),
        fixed("etcd-certfile", secret("etcd-client.crt")),
        fixed("etcd-keyfile", secret("etcd-client.key")),
        fixed("etcd-servers", "https://127.0.0.1:2379"),
        fixed("encryption-provider-config", secret(ENCRYPTION_FILE)),
    ]
}

fn auditing() -> Vec<Flag> {
    vec![
        flag("audit-policy-file", file(AUDIT_FILE)),
        flag("audit-log-path", format!("{}/kube-apiserver.log", paths::AUDIT_LOG)),
        flag("audit-log-maxage", "30"),
        flag("audit-log-maxbackup", "10"),
        flag("audit-log-maxsize", "100"),
    ]
}

fn has_authorizers(cluster: &Cluster<'_>, version: Version) -> bool {
    !cluster.api_server().authorization_config.is_empty() && AUTHORIZATION_FILE.contain(version)
}

/// Files beside the certificates.
///
/// # Errors
/// [`Error::Version`], [`Error::NotAMapping`], [`Error::Missing`] without a key for what etcd holds.
pub fn files(cluster: &Cluster<'_>) -> Result<Vec<File>, Error> {
    let version = images::api_server_version(cluster)?;
    let settings = cluster.api_server();
    let owner = Owner::ApiServer;
    let config = |name, value: &Value| {
        yaml(name, value).map(|text| File::new(paths::API_SERVER_CONFIG, name, owner, text))
    };
    let encryption = yaml(ENCRYPTION_FILE, &encryption(cluster)?)?;
    let mut files = vec![
        File::new(paths::API_SERVER_SECRETS, ENCRYPTION_FILE, owner, encryption),
        config(AUDIT_FILE, &audit_policy(cluster)?)?,
    ];
    if !settings.admission_control.is_empty() {
        files.push(config(ADMISSION_FILE, &admission(cluster))?);
    }
    if has_authorizers(cluster, version) {
        files.push(config(AUTHORIZERS_FILE, &authorizers(cluster, version))?);
    }
    if let Some(authentication) = settings.authentication.filter(|_| AUTHENTICATION_FILE.contain(version)) {
        let api = Minors::pick(&AUTHENTICATION_API, version).unwrap_or_default();
        let field = "KubeAuthenticationConfig.configuration";
        files.push(config(
            AUTHENTICATION_FILE_NAME,
            &headed(field, &authentication, api, "AuthenticationConfiguration")?,
        )?);
    }
    Ok(files)
}

/// How `Secret` objects are encrypted in etcd: secretbox before AES-CBC, as both generations prefer it.
fn encryption(cluster: &Cluster<'_>) -> Result<Value, Error> {
    const API: &str = "apiserver.config.k8s.io/v1";
    let cluster = &cluster.config().cluster;
    if let Some(given) = &cluster.etcd_encryption {
        return headed("KubeEtcdEncryptionConfig.config", given, API, "EncryptionConfiguration");
    }
    let keys = [
        ("secretbox", "key2", &cluster.secretbox_encryption_secret),
        ("aescbc", "key1", &cluster.aescbc_encryption_secret),
    ];
    let mut providers: Vec<Value> = keys
        .into_iter()
        .filter_map(|(provider, name, secret)| Some((provider, name, secret.as_ref()?)))
        .filter(|(_, _, secret)| !secret.is_empty())
        .map(|(provider, name, secret)| {
            json!({ provider: { "keys": [{ "name": name, "secret": secret.expose_secret() }] } })
        })
        .collect();
    if providers.is_empty() {
        let hint = "write 32 random bytes in base64, as `gen config` does";
        return Err(Error::Missing { field: "cluster.secretboxEncryptionSecret", hint });
    }
    // What was written before there was a key is still read.
    providers.push(json!({ "identity": {} }));
    Ok(json!({
        "apiVersion": API,
        "kind": "EncryptionConfiguration",
        "resources": [{ "resources": ["secrets"], "providers": providers }],
    }))
}

pub(crate) fn audit_policy(cluster: &Cluster<'_>) -> Result<Value, Error> {
    const API: &str = "audit.k8s.io/v1";
    match cluster.api_server().audit_policy {
        Some(policy) => headed("cluster.apiServer.auditPolicy", &policy, API, "Policy"),
        None => Ok(json!({ "apiVersion": API, "kind": "Policy", "rules": [{ "level": "Metadata" }] })),
    }
}

fn admission(cluster: &Cluster<'_>) -> Value {
    let plugins = cluster.api_server().admission_control;
    let plugins: Vec<Value> = plugins
        .iter()
        .map(|plugin| json!({ "name": plugin.name, "configuration": plugin.configuration }))
        .collect();
    json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins })
}

/// Nodes and roles are asked first, unless the configuration places them itself.
pub(crate) fn authorizers(cluster: &Cluster<'_>, version: Version) -> Value {
    let given = cluster.api_server().authorization_config;
    let is_given = |kind: &str| given.iter().any(|authorizer| authorizer.kind == kind);
    let own = [("Node", "node"), ("RBAC", "rbac")]
        .into_iter()
        .filter(|(kind, _)| !is_given(kind))
        .map(|(kind, name)| json!({ "type": kind, "name": name }));
    let theirs = given.iter().map(|authorizer| {
        let mut fields = Map::from_iter([
            ("type".to_owned(), json!(authorizer.kind)),
            ("name".to_owned(), json!(authorizer.name)),
        ]);
        if let Some(webhook) = &authorizer.webhook {
            fields.insert("webhook".to_owned(), json!(webhook));
        }
        Value::Object(fields)
    });
    json!({
        "apiVersion": Minors::pick(&AUTHORIZATION_API, version),
        "kind": "AuthorizationConfiguration",
        "authorizers": own.chain(theirs).collect::<Vec<_>>(),
    })
}
