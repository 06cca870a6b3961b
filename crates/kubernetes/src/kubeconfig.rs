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
    render_named(names, server, None, authority, credentials)
}

/// The same of a server whose certificate has another name than its address.
fn render_named(
    names: Names<'_>,
    server: &str,
    server_name: Option<&str>,
    authority: &str,
    credentials: &Credentials<'_>,
) -> Result<Secret, Error> {
    let mut cluster = json!({ "server": server, "certificate-authority-data": encode(authority) });
    if let (Some(name), Some(fields)) = (server_name, cluster.as_object_mut()) {
        fields.insert("tls-server-name".to_owned(), json!(name));
    }
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
            "cluster": cluster,
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
    render(names, cluster.endpoint(), &cluster.authorities(), credentials)
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
    let ca = cluster.authorities();
    render_named(names, &cluster.server(), cluster.server_name(), &ca, &Credentials::Token(token))
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
    render(names, &server, &cluster.authorities(), credentials)
}

fn encode(pem: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_asks_the_balancer_of_its_node() {
        let of = |features: &str| {
            let text = format!(
                "version: v1alpha1\nmachine: {{type: worker, token: a.b}}\ncluster: {{token: abcdef.0123456789abcdef, \
                 controlPlane: {{endpoint: 'https://10.0.0.3:6443'}}}}\n{features}"
            );
            let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
            let text = bootstrap(&Cluster::new(&loaded.config).unwrap()).unwrap();
            let read: Value = serde_saphyr::from_str(text.expose_secret()).unwrap();
            let cluster = &read["clusters"][0]["cluster"];
            (cluster["server"].clone(), cluster["tls-server-name"].clone())
        };
        assert_eq!(of(""), (json!("https://10.0.0.3:6443"), Value::Null));
        let document = "---\napiVersion: v1alpha1\nkind: KubePrismConfig\nport: 7445\n";
        assert_eq!(of(document), (json!("https://127.0.0.1:7445"), Value::Null));
        let named = format!("{document}tlsServerName: demo.example.org\n");
        assert_eq!(of(&named), (json!("https://127.0.0.1:7445"), json!("demo.example.org")));
    }
}
