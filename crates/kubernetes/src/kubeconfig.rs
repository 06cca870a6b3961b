//! Client configurations of Kubernetes.
//!
//! Source: `kubectl config view` of a kubeconfig; docs/users/pki.md.

use config::Secret;
use serde_json::{Value, json};

use crate::file::yaml;
use crate::{Cluster, Error};

/// How a client shows who it is.
pub enum Credentials<'a> {
    /// A certificate and its key, both PEM.
    Certificate {
        /// The certificate.
        certificate: &'a str,
        /// Its key.
        key: &'a Secret,
    },
    /// A token.
    Token(&'a Secret),
}

/// Names inside a kubeconfig.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// Of the cluster.
    pub cluster: &'a str,
    /// Of the user.
    pub user: &'a str,
    /// Of the context, which is the current one.
    pub context: &'a str,
}

/// A kubeconfig.
///
/// # Errors
/// [`Error::Write`].
pub fn render(
    names: Names<'_>,
    server: &str,
    authority: &str,
    credentials: &Credentials<'_>,
) -> Result<Secret, Error> {
    let user = match credentials {
        Credentials::Token(token) => json!({ "token": token.expose_secret() }),
        Credentials::Certificate { certificate, key } => json!({
            "client-certificate-data": encode(certificate),
            "client-key-data": encode(key.expose_secret()),
        }),
    };
    let value: Value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": names.cluster,
            "cluster": { "server": server, "certificate-authority-data": encode(authority) },
        }],
        "users": [{ "name": names.user, "user": user }],
        "contexts": [{
            "name": names.context,
            "context": { "cluster": names.cluster, "user": names.user, "namespace": "default" },
        }],
        "current-context": names.context,
    });
    yaml("a kubeconfig", &value).map(Secret::new)
}

/// The administrator's, as `kubeconfig` hands it out.
///
/// # Errors
/// [`Error::Write`].
pub fn admin(cluster: &Cluster<'_>, credentials: &Credentials<'_>) -> Result<Secret, Error> {
    let name = cluster.name();
    let user = format!("admin@{name}");
    let names = Names { cluster: name, user: &user, context: &user };
    render(names, cluster.endpoint(), &cluster.config().cluster.ca.crt.0, credentials)
}

/// With which a kubelet without a certificate asks for one, by the cluster's token.
///
/// # Errors
/// [`Error::Missing`] without a token.
pub fn bootstrap(cluster: &Cluster<'_>) -> Result<Secret, Error> {
    let Some(token) = &cluster.config().cluster.token else {
        let hint = "write the bootstrap token of the cluster: abcdef.0123456789abcdef";
        return Err(Error::Missing { field: "cluster.token", hint });
    };
    let names = Names { cluster: "local", user: "kubelet", context: "local" };
    render(names, cluster.endpoint(), &cluster.config().cluster.ca.crt.0, &Credentials::Token(token))
}

/// Of a program of the control plane, which asks the API server beside it.
///
/// # Errors
/// [`Error::Write`].
pub fn of_control_plane(
    cluster: &Cluster<'_>,
    user: &str,
    credentials: &Credentials<'_>,
) -> Result<Secret, Error> {
    let names = Names { cluster: "local", user, context: "local" };
    let server = format!("https://localhost:{}", cluster.api_port());
    render(names, &server, &cluster.config().cluster.ca.crt.0, credentials)
}

fn encode(pem: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(pem)
}
