//! Client configurations that the node signs: `config new`.
//!
//! Owns: which roles and lifetimes a new certificate may have. Does not: decide who may ask (apid: administrators).
//! Source: docs/users/pki.md.

use std::time::Duration;

use api::generate::{Request, talosconfig};
use api::pki::{Authority, CA_LIFETIME, Leaf, Lifetime, Usage};
use api::proto::machine as proto;
use api::roles::Role;
use tonic::Status;

use crate::configuration::duration;
use crate::node::Node;

/// Signs a fresh key and answers with it, once bare and once as a talosconfig.
pub(super) fn generate(
    node: &Node,
    request: &proto::GenerateClientConfigurationRequest,
) -> Result<proto::GenerateClientConfigurationResponse, Status> {
    let organizations = roles(&request.roles)?;
    let lifetime = Lifetime::from_now(lifetime(request)?);
    let failed = |e: api::pki::PkiError| Status::internal(format!("sign a client certificate: {e}"));
    let (authority, cluster) = authority(node)?;
    let wanted = Request {
        cluster_name: context_name(&organizations, &cluster),
        endpoint: String::new(),
        cert_sans: Vec::new(),
        hostname: None,
        // The client knows by which address it reached this node.
        api_endpoints: Vec::new(),
        api_nodes: Vec::new(),
    };
    let leaf = Leaf { organizations, names: Vec::new(), usage: Usage::Client, lifetime };
    let identity = authority.issue(&leaf).map_err(failed)?;
    let config = talosconfig(&wanted, authority.certificate(), &identity);
    let answer = proto::GenerateClientConfiguration {
        metadata: None,
        ca: authority.certificate().as_bytes().to_vec(),
        crt: identity.certificate.as_bytes().to_vec(),
        key: identity.key.to_pem().expose_secret().as_bytes().to_vec(),
        talosconfig: config.to_yaml().expose_secret().as_bytes().to_vec(),
    };
    Ok(proto::GenerateClientConfigurationResponse { messages: vec![answer] })
}

/// The API's authority and the cluster's name; only control plane nodes have its key.
fn authority(node: &Node) -> Result<(Authority, String), Status> {
    let config = node.runtime.config().ok_or_else(|| {
        Status::failed_precondition(
            "this node has no configuration yet, so there is no authority to sign with",
        )
    })?;
    let key = config.machine.ca.key().ok_or_else(|| {
        Status::failed_precondition(
            "this node does not have the authority's key: ask a control plane node (-n) instead of a worker",
        )
    })?;
    let authority = Authority::from_pem(&config.machine.ca.crt.0, key)
        .map_err(|e| Status::internal(format!("read machine.ca: {e}")))?;
    Ok((authority, config.cluster.cluster_name.clone()))
}

/// Known roles only. A certificate without any would count as an administrator's, so it must not come from an
/// empty list.
fn roles(asked: &[String]) -> Result<Vec<String>, Status> {
    if let Some(unknown) = asked.iter().find(|name| Role::from_name(name).is_none()) {
        let unknown = super::query::quoted(unknown);
        return Err(Status::invalid_argument(format!("role {unknown} does not exist")));
    }
    let mut roles = asked.to_vec();
    roles.sort();
    roles.dedup();
    if roles.is_empty() {
        return Err(Status::invalid_argument("name at least one role: os:admin, os:operator, os:reader, …"));
    }
    Ok(roles)
}

/// What of a request needs no node.
pub(super) fn check(request: &proto::GenerateClientConfigurationRequest) -> Result<(), Status> {
    context_name(&roles(&request.roles)?, "cluster");
    lifetime(request).map(drop)
}

fn lifetime(request: &proto::GenerateClientConfigurationRequest) -> Result<Duration, Status> {
    match duration(request.crt_ttl.as_ref()) {
        Some(ttl) if ttl > CA_LIFETIME => {
            let hours = CA_LIFETIME.as_secs() / 3600;
            Err(Status::invalid_argument(format!("crt_ttl is at most the life of an authority: {hours} h")))
        }
        Some(ttl) => Ok(ttl),
        None => Err(Status::invalid_argument("crt_ttl must be longer than nothing: 8760 h is a year")),
    }
}

/// `reader@demo`; the cluster alone where there are several roles.
fn context_name(roles: &[String], cluster: &str) -> String {
    match roles {
        [role] => format!("{}@{cluster}", role.trim_start_matches("os:")),
        _ => cluster.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::generate::Secrets;
    use api::pki::CertificateFacts;
    use api::talosconfig::Talosconfig;
    use config::MachineType;
    use tonic::Code;

    use super::*;
    use crate::server::tests::{Fixture, fixture};

    async fn node(kind: MachineType) -> (Fixture, Secrets) {
        let f = fixture().await;
        let secrets = Secrets::generate().unwrap();
        let request = Request {
            cluster_name: "demo".into(),
            endpoint: "https://10.0.0.5:6443".into(),
            cert_sans: vec![],
            hostname: None,
            api_endpoints: vec![],
            api_nodes: vec![],
        };
        let text = secrets.machine_config(&request, kind).unwrap();
        let config = config::parse(text.expose_secret()).unwrap_or_else(|e| panic!("{e}"));
        f.node.runtime.config.send_replace(Some(Arc::new(config)));
        (f, secrets)
    }

    async fn ask(
        f: &Fixture,
        roles: &[&str],
        seconds: i64,
    ) -> Result<proto::GenerateClientConfiguration, Status> {
        let request = proto::GenerateClientConfigurationRequest {
            roles: roles.iter().map(ToString::to_string).collect(),
            crt_ttl: Some(prost_types::Duration { seconds, nanos: 0 }),
        };
        let answer = f.machine().generate_client_configuration(request).await?;
        Ok(answer.into_inner().messages.remove(0))
    }

    #[tokio::test]
    async fn a_client_gets_the_roles_and_the_time_it_asked_for() {
        let (f, secrets) = node(MachineType::ControlPlane).await;
        let answer = ask(&f, &["os:reader", "os:etcd:backup", "os:reader"], 3600).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let facts = CertificateFacts::from_pem("it", &text(&answer.crt)).unwrap();
        assert_eq!(facts.organizations.len(), 2);
        assert!(facts.client_auth && !facts.server_auth && !facts.is_ca);
        let remaining = facts.remaining().unwrap();
        assert!(remaining <= Duration::from_secs(3600) && remaining > Duration::from_secs(3000));
        assert_eq!(text(&answer.ca), secrets.authority.certificate());
        let config = Talosconfig::parse(&text(&answer.talosconfig)).unwrap();
        let (name, context) = config.choose(None).unwrap();
        assert_eq!(name, "demo");
        let identity = context.identity().unwrap().unwrap();
        assert_eq!(identity.certificate, text(&answer.crt));
        assert_eq!(identity.key.to_pem().expose_secret().as_bytes(), answer.key);
        assert!(context.endpoints.is_empty());
        let one = ask(&f, &["os:admin"], 60).await.unwrap();
        assert_eq!(Talosconfig::parse(&text(&one.talosconfig)).unwrap().context, "admin@demo");
    }

    #[tokio::test]
    async fn what_cannot_be_signed_is_refused() {
        let (f, _) = node(MachineType::ControlPlane).await;
        for (roles, seconds, why) in [
            (&["os:root"][..], 60, "role \"os:root\" does not exist"),
            (&[], 60, "name at least one role"),
            (&["os:reader"], 0, "crt_ttl must be longer than nothing"),
            (&["os:reader"], -5, "crt_ttl must be longer than nothing"),
            (&["os:reader"], i64::MAX, "crt_ttl is at most"),
        ] {
            let status = ask(&f, roles, seconds).await.unwrap_err();
            assert!(status.code() == Code::InvalidArgument && status.message().contains(why), "{status}");
        }
        let (worker, _) = node(MachineType::Worker).await;
        let status = ask(&worker, &["os:reader"], 60).await.unwrap_err();
        assert!(status.code() == Code::FailedPrecondition && status.message().contains("worker"), "{status}");
        let status = ask(&fixture().await, &["os:reader"], 60).await.unwrap_err();
        assert!(status.message().contains("no configuration yet"), "{status}");
    }
}
