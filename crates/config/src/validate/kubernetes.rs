//! Rules of the documents of Kubernetes and of discovery.
//!
//! Source: `crates/config/testdata/documents-v1.14.txt` (`!`: what is required).

use super::{Problems, static_pods, text};
use crate::{
    documents::{ClientIdentity, Document, KubeNetworkConfig, KubeServiceAccountConfig},
    schema::Value,
};

pub(super) fn check(document: &Document, problems: &mut Problems) {
    if let Some(image) = image(document)
        && image.is_empty()
    {
        problems.add("image", "missing; write the image: registry.example.org/kubelet:v1.36.3");
    }
    if let Some((field, value)) = body(document)
        && value.as_ref().is_none_or(|value| *value == Value::Null)
    {
        problems.add(field, format!("missing; write what this {} is about", document.kind()));
    }
    match document {
        Document::KubeStaticPodConfig(d) => {
            let pod = d.pod.as_ref().filter(|pod| **pod != Value::Null);
            for (field, message) in pod.into_iter().flat_map(|pod| static_pods::faults("pod", pod)) {
                problems.add(field, message);
            }
        }
        Document::KubeClusterConfig(d) => {
            if d.cluster_name.is_empty() {
                problems.add("clusterName", "missing; write the cluster's name");
            }
            problems.expect("endpoint", text::api_endpoint(&d.endpoint));
        }
        Document::KubeNetworkConfig(d) => networks(d, problems),
        Document::KubePrismConfig(d) if d.port.unwrap_or_default() == 0 => {
            problems.add("port", "missing; write a port from 1 to 65535: 7445");
        }
        Document::KubeAuthorizerConfig(d) if d.kind.is_none() => {
            problems.add("type", "missing; one of Node, RBAC and Webhook");
        }
        Document::KubeExternalManifestConfig(d) => problems.expect("url", text::http_url(&d.url)),
        Document::KubeInlineManifestConfig(d) if d.manifest.is_empty() => {
            problems.add("manifest", "missing; write the manifest as text");
        }
        Document::KubeAPIServerCAConfig(d) => {
            if d.issuing_ca.is_none() && d.accepted_cas.is_empty() {
                problems.add("acceptedCAs", "missing; write the PEM of the cluster's CA");
            }
            authorities(d.issuing_ca.as_ref(), &d.accepted_cas, problems);
        }
        Document::KubeAggregatorCAConfig(d) => {
            authorities(d.issuing_ca.as_ref(), &d.accepted_cas, problems);
        }
        Document::KubeServiceAccountConfig(d) => service_account(d, problems),
        Document::DiscoveryIdentityConfig(d)
            if d.cluster_id.is_empty() || d.cluster_secret.as_ref().is_none_or(crate::Secret::is_empty) =>
        {
            problems.add("clusterID", "clusterID and clusterSecret are needed");
        }
        Document::DiscoveryServiceConfig(d) => {
            let scheme = d.endpoint.split_once("://").map(|(scheme, _)| scheme);
            if !matches!(scheme, Some("http" | "https" | "grpc")) {
                let message = format!("`{}` begins with none of https://, http:// and grpc://", d.endpoint);
                problems.add("endpoint", message);
            }
        }
        _ => {}
    }
}

/// The image of a part that cannot run without one.
fn image(document: &Document) -> Option<&str> {
    Some(match document {
        Document::KubeletConfig(d) => &d.image,
        Document::KubeAPIServerConfig(d) => &d.image,
        Document::KubeControllerManagerConfig(d) => &d.image,
        Document::KubeSchedulerConfig(d) => &d.image,
        Document::KubeProxyConfig(d) => &d.image,
        _ => return None,
    })
}

/// The field that a document is made for.
fn body(document: &Document) -> Option<(&'static str, &Option<Value>)> {
    Some(match document {
        Document::KubeAdmissionControlConfig(d) => ("configuration", &d.configuration),
        Document::KubeAuditPolicyConfig(d) => ("configuration", &d.configuration),
        Document::KubeAuthenticationConfig(d) => ("configuration", &d.configuration),
        Document::KubeCredentialProviderConfig(d) => ("configuration", &d.configuration),
        Document::KubeEtcdEncryptionConfig(d) => ("config", &d.config),
        Document::KubeStaticPodConfig(d) => ("pod", &d.pod),
        _ => return None,
    })
}

fn networks(document: &KubeNetworkConfig, problems: &mut Problems) {
    for (key, subnets) in
        [("podSubnets", &document.pod_subnets), ("serviceSubnets", &document.service_subnets)]
    {
        if subnets.is_empty() {
            problems.add(key, "missing; at least one network is needed: [10.244.0.0/16]");
        }
        for (index, subnet) in subnets.iter().enumerate() {
            problems.expect(format!("{key}[{index}]"), text::cidr(subnet));
        }
    }
    for (key, size, most) in [
        ("nodeCIDRMaskSizeIPv4", document.node_cidr_mask_size_ipv4, 32),
        ("nodeCIDRMaskSizeIPv6", document.node_cidr_mask_size_ipv6, 128),
    ] {
        if let Some(size) = size.filter(|size| *size == 0 || *size > most) {
            problems.add(key, format!("{size} is no length of a prefix: 1 to {most}"));
        }
    }
}

fn authorities(issuing: Option<&ClientIdentity>, accepted: &[String], problems: &mut Problems) {
    if let Some(identity) = issuing {
        problems.expect("issuingCA.cert", text::certificates(&identity.cert));
        if !identity.key.expose_secret().contains("-----BEGIN ") {
            problems.add("issuingCA.key", "not PEM of a private key; leave `issuingCA` out on a worker");
        }
    }
    for (index, pem) in accepted.iter().enumerate() {
        problems.expect(format!("acceptedCAs[{index}]"), text::certificates(pem));
    }
}

fn service_account(document: &KubeServiceAccountConfig, problems: &mut Problems) {
    match &document.issuer {
        Some(issuer) => {
            if !issuer.private_key.expose_secret().contains("-----BEGIN ") {
                problems.add("issuer.privateKey", "not PEM of a private key");
            }
            problems.expect("issuer.issuerURL", text::http_url(&issuer.issuer_url));
        }
        None => problems.add("issuer", "missing; write the key that signs tokens, and the issuer's URL"),
    }
    let accepted = document.accepted.as_ref();
    for (index, url) in accepted.iter().flat_map(|accepted| &accepted.issuers).enumerate() {
        problems.expect(format!("accepted.issuers[{index}]"), text::http_url(url));
    }
}
