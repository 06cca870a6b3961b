//! Documents for the cluster: its name and networks, its nodes, how they find each other, what is deployed.

use super::registry::ClientIdentity;
use crate::{
    Secret,
    schema::{Arguments, Value, choice, section},
    v1alpha1::{NodeIp, Resources},
};
use std::collections::BTreeMap;

section! {
    /// The cluster's name, and where the Kubernetes API answers.
    KubeClusterConfig {
        /// The name.
        cluster_name "clusterName": String { newer true, example "demo" };
        /// `https://host:port`, from every node.
        endpoint "endpoint": String { newer true, example "https://demo.example.org:6443" };
    }
}

section! {
    /// Pod and service networks. Without a KubeFlannelCNIConfig beside it nothing connects pods.
    KubeNetworkConfig {
        /// The domain of services.
        dns_domain "dnsDomain": String { newer true, default "cluster.local", example "cluster.local" };
        /// Networks of pods.
        pod_subnets "podSubnets": Vec<String> { newer true, example "[10.244.0.0/16]" };
        /// Networks of services.
        service_subnets "serviceSubnets": Vec<String> { newer true, example "[10.96.0.0/12]" };
        /// Prefix length of each node's part of the IPv4 pod subnets.
        node_cidr_mask_size_ipv4 "nodeCIDRMaskSizeIPv4": Option<u8> { newer true, default "24", example "24" };
        /// The same of IPv6.
        node_cidr_mask_size_ipv6 "nodeCIDRMaskSizeIPv6": Option<u8> { newer true, default "64", example "64" };
    }
}

section! {
    /// Flannel, which connects pods.
    KubeFlannelCNIConfig {
        /// How packets get from node to node.
        backend_type "backendType": String { newer true, default "vxlan", example "vxlan" };
        /// UDP port of the backend.
        backend_port "backendPort": Option<u16> { newer true, example "4789" };
        /// Largest packet, bytes.
        backend_mtu "backendMTU": Option<u32> { newer true, example "1450" };
        /// Additional settings of the backend.
        backend_extra_config "backendExtraConfig": Option<Value> { newer true, example "{DirectRouting: true}" };
        /// Processor time and memory.
        resources "resources": Option<Resources> { newer true };
        /// Additional arguments.
        extra_args "extraArgs": Vec<String> { newer true, example "[--iface-can-reach=192.168.1.1]" };
        /// Enforce network policies.
        kube_network_policies_enabled "kubeNetworkPoliciesEnabled": Option<bool> { newer true, later "network policies of flannel" };
    }
}

section! {
    /// This machine as a node of Kubernetes.
    KubeNodeConfig {
        /// Do not register the node.
        skip_node_registration "skipNodeRegistration": Option<bool> { newer true };
        /// Register with the full name, `host.domain`.
        register_with_fqdn "registerWithFQDN": Option<bool> { newer true };
        /// Which address the node announces.
        node_ip "nodeIP": Option<NodeIp> { newer true };
        /// Its labels.
        labels "labels": BTreeMap<String, String> { newer true, example "{zone: a}" };
        /// Its annotations.
        annotations "annotations": BTreeMap<String, String> { newer true };
        /// Its taints: `key: value:Effect`. Without `node-role.kubernetes.io/control-plane` pods run on a control plane node.
        taints "taints": BTreeMap<String, String> { newer true, example "{dedicated: \"db:NoSchedule\"}" };
    }
}

section! {
    /// The kubelet.
    KubeletConfig {
        /// Its image.
        image "image": String { newer true, example "registry.example.org/kubelet:v1.36.3" };
        /// Fields of the KubeletConfiguration.
        config "config": Option<Value> { newer true, example "{serverTLSBootstrap: true}" };
        /// Additional arguments; built-in ones cannot be replaced.
        extra_args "extraArgs": BTreeMap<String, Arguments> { newer true, example "{feature-gates: ServerSideApply=true}" };
        /// Addresses of the cluster's DNS, instead of the tenth of each service subnet.
        cluster_dns "clusterDNS": Vec<std::net::IpAddr> { newer true };
        /// Give each pod the runtime's seccomp profile.
        default_runtime_seccomp_profile_enabled "defaultRuntimeSeccompProfileEnabled": Option<bool> { newer true };
    }
}

section! {
    /// How the kubelet gets the passwords of registries: a CredentialProviderConfig.
    KubeCredentialProviderConfig {
        /// The configuration, without its header.
        configuration "configuration": Option<Value> { newer true, example "{providers: []}" };
    }
}

section! {
    /// A balancer on each node before the Kubernetes API.
    KubePrismConfig {
        /// Its port on the loopback interface.
        port "port": Option<u16> { newer true, example "7445" };
        /// Name in the API server's certificate, where it is another than the endpoint's.
        tls_server_name "tlsServerName": String { newer true, example "demo.example.org" };
    }
}

section! {
    /// The node API for pods.
    KubeTalosAPIAccessConfig {
        /// Roles that a pod may get.
        allowed_roles "allowedRoles": Vec<String> { newer true, example "[\"os:reader\"]" };
        /// Namespaces whose pods may.
        allowed_kubernetes_namespaces "allowedKubernetesNamespaces": Vec<String> { newer true, example "[kube-system]" };
    }
}

section! {
    /// The cluster's DNS.
    KubeCoreDNSConfig {
        /// Whether it runs.
        enabled "enabled": Option<bool> { newer true, default "true" };
        /// Its image.
        image "image": String { newer true, example "registry.example.org/coredns:v1.14.6" };
    }
}

section! {
    /// A manifest in this document.
    KubeInlineManifestConfig {
        /// Its name.
        name "name": String { newer true, example "namespace-ci" };
        /// The manifest, as text.
        manifest "manifest": String { newer true, secret true, example "\"kind: Namespace\"" };
    }
}

section! {
    /// A manifest to fetch.
    KubeExternalManifestConfig {
        /// Its name.
        name "name": String { newer true, example "metrics" };
        /// HTTP headers of the request.
        headers "headers": BTreeMap<String, String> { newer true, secret true, example "{Accept: text/yaml}" };
        /// Where it is.
        url "url": String { newer true, example "\"https://example.org/extra.yaml\"" };
    }
}

section! {
    /// A static pod that the kubelet runs.
    KubeStaticPodConfig {
        /// Its name.
        name "name": String { newer true, example "nginx" };
        /// The pod, as a Kubernetes manifest.
        pod "pod": Option<Value> { newer true, example "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: []}}" };
    }
}

section! {
    /// Who this cluster is to the discovery service.
    DiscoveryIdentityConfig {
        /// Identifier of the cluster, base64 of 32 bytes.
        cluster_id "clusterID": String { newer true, example "c2FtcGxlLWNsdXN0ZXItaWRlbnRpZmllci0wMDAwMDA=" };
        /// Shared secret of cluster discovery.
        cluster_secret "clusterSecret": Option<Secret> { newer true };
    }
}

section! {
    /// A server by which nodes find each other.
    DiscoveryServiceConfig {
        /// Its name.
        name "name": String { newer true, example "default" };
        /// Where it answers.
        endpoint "endpoint": String { newer true, example "https://discovery.example.org/" };
    }
}

section! {
    /// CA of Kubernetes.
    KubeAPIServerCAConfig {
        /// What signs: of control plane nodes only.
        issuing_ca "issuingCA": Option<ClientIdentity> { newer true };
        /// PEM of each CA that is trusted.
        accepted_cas "acceptedCAs": Vec<String> { newer true, example "[\"-----BEGIN CERTIFICATE-----\"]" };
    }
}

section! {
    /// CA of the aggregation layer.
    KubeAggregatorCAConfig {
        /// What signs.
        issuing_ca "issuingCA": Option<ClientIdentity> { newer true };
        /// PEM of each further CA that is trusted.
        accepted_cas "acceptedCAs": Vec<String> { newer true, example "[\"-----BEGIN CERTIFICATE-----\"]" };
    }
}

section! {
    /// Tokens of service accounts.
    KubeServiceAccountConfig {
        /// What signs new ones.
        issuer "issuer": Option<ServiceAccountIssuer> { newer true };
        /// Older ones that hold too.
        accepted "accepted": Option<AcceptedServiceAccounts> { newer true };
    }
}

section! {
    /// What signs tokens of service accounts.
    ServiceAccountIssuer {
        /// PEM of the private key.
        private_key "privateKey": Secret { newer true };
        /// URL that tokens name as their issuer.
        issuer_url "issuerURL": String { newer true, example "https://demo.example.org:6443" };
    }
}

section! {
    /// Tokens of service accounts that hold though something else signs new ones.
    AcceptedServiceAccounts {
        /// PEM of public keys.
        public_keys "publicKeys": Vec<String> { newer true, example "[\"-----BEGIN PUBLIC KEY-----\"]" };
        /// URLs that these tokens name as their issuers.
        issuers "issuers": Vec<String> { newer true, example "[\"https://old.example.org:6443\"]" };
        /// For whom these tokens are.
        audiences "audiences": Vec<String> { newer true, example "[\"https://old.example.org:6443\"]" };
    }
}

choice! {
    /// Kinds of those that decide what is allowed.
    AuthorizerType {
        /// What a node may read of its own pods.
        Node "Node";
        /// Roles.
        Rbac "RBAC";
        /// A server.
        Webhook "Webhook";
    }
}
