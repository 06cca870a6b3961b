//! The `cluster` section.

use super::*;
use crate::{
    CertificateAndKey, EncodedSecret, Secret,
    schema::{GoDuration, section},
};
use std::collections::BTreeMap;

section! {
    /// What concerns the cluster.
    Cluster {
        /// Identifier of the cluster, base64 of 32 bytes.
        id "id": String { newer true, example "c2FtcGxlLWNsdXN0ZXItaWRlbnRpZmllci0wMDAwMDA=" };
        /// Shared secret of cluster discovery.
        secret "secret": Option<Secret> { newer true, later "discovery" };
        /// Where the Kubernetes API answers.
        control_plane "controlPlane": ControlPlane {};
        /// The cluster's name.
        cluster_name "clusterName": String { example "demo" };
        /// Pod and service networks.
        network "network": Option<ClusterNetwork> {};
        /// Bootstrap token with which a kubelet joins.
        token "token": Option<Secret> {};
        /// Key that encrypts secrets in etcd, AES-CBC.
        aescbc_encryption_secret "aescbcEncryptionSecret": Option<Secret> {};
        /// Key that encrypts secrets in etcd, secretbox; preferred.
        secretbox_encryption_secret "secretboxEncryptionSecret": Option<Secret> { newer true };
        /// CA of Kubernetes.
        ca "ca": CertificateAndKey {};
        /// Additional CAs that clients of Kubernetes may come from.
        accepted_cas "acceptedCAs": Vec<CertificateAndKey> { newer true };
        /// CA of the aggregation layer.
        aggregator_ca "aggregatorCA": CertificateAndKey {};
        /// Key that signs service account tokens.
        service_account "serviceAccount": ServiceAccount {};
        /// The API server.
        api_server "apiServer": Option<ApiServer> {};
        /// The controller manager.
        controller_manager "controllerManager": Option<ControllerManager> {};
        /// kube-proxy.
        proxy "proxy": Option<Proxy> {};
        /// The scheduler.
        scheduler "scheduler": Option<Scheduler> {};
        /// How nodes find each other.
        discovery "discovery": Option<Discovery> { newer true, later "discovery" };
        /// The etcd cluster.
        etcd "etcd": Etcd {};
        /// The cluster's DNS.
        core_dns "coreDNS": Option<CoreDns> {};
        /// A controller manager of the cloud.
        external_cloud_provider "externalCloudProvider": Option<ExternalCloudProvider> { newer true };
        /// A dead setting of the first generation.
        pod_checkpointer "podCheckpointer": Option<Image> { later "the pod checkpointer" };
        /// Addresses of manifests to apply.
        extra_manifests "extraManifests": Vec<String> { example "[\"https://example.org/extra.yaml\"]" };
        /// HTTP headers for these.
        extra_manifest_headers "extraManifestHeaders": BTreeMap<String, String> { secret true, example "{Accept: text/yaml}" };
        /// Manifests to apply.
        inline_manifests "inlineManifests": Vec<InlineManifest> { newer true };
        /// The administrator's kubeconfig.
        admin_kubeconfig "adminKubeconfig": Option<AdminKubeconfig> {};
        /// Let pods run on control plane nodes: the first generation's field.
        allow_scheduling_on_masters "allowSchedulingOnMasters": Option<bool> { default "false" };
        /// Let pods run on control plane nodes.
        allow_scheduling_on_control_planes "allowSchedulingOnControlPlanes": Option<bool> { newer true, default "false" };
    }
    folded {
        /// How the API server encrypts what it keeps in etcd: an EncryptionConfiguration without its header.
        etcd_encryption: Option<crate::schema::Value>;
        /// Additional CAs (PEM) of the aggregation layer.
        accepted_aggregator_cas: Vec<String>;
    }
}

impl Cluster {
    /// The domain of services.
    pub fn dns_domain(&self) -> &str {
        self.network
            .as_ref()
            .map(|n| n.dns_domain.as_str())
            .filter(|d| !d.is_empty())
            .unwrap_or("cluster.local")
    }

    /// Whether pods may run on control plane nodes, in either generation's field.
    pub fn schedules_on_control_planes(&self) -> bool {
        self.allow_scheduling_on_control_planes.or(self.allow_scheduling_on_masters) == Some(true)
    }
}

section! {
    /// Where the Kubernetes API answers.
    ControlPlane {
        /// `https://host:port`, from every node.
        endpoint "endpoint": String { example "https://demo.example.org:6443" };
        /// The port on each control plane node.
        local_api_server_port "localAPIServerPort": Option<u16> { default "6443", example "6443" };
    }
}

section! {
    /// Pod and service networks.
    ClusterNetwork {
        /// What connects pods.
        cni "cni": Option<Cni> {};
        /// The domain of services.
        dns_domain "dnsDomain": String { default "cluster.local", example "cluster.local" };
        /// Networks of pods.
        pod_subnets "podSubnets": Vec<String> { default "[10.244.0.0/16]", example "[10.244.0.0/16]" };
        /// Networks of services.
        service_subnets "serviceSubnets": Vec<String> { default "[10.96.0.0/12]", example "[10.96.0.0/12]" };
    }
    folded {
        /// Prefix length of each node's part of the IPv4 pod subnets.
        node_cidr_mask_size_ipv4: Option<u8>;
        /// The same of IPv6.
        node_cidr_mask_size_ipv6: Option<u8>;
    }
}

section! {
    /// What connects pods.
    Cni {
        /// `flannel`, `custom` or `none`.
        name "name": String { default "flannel", example "custom" };
        /// Addresses of manifests, for `custom`.
        urls "urls": Vec<String> { example "[\"https://example.org/calico.yaml\"]" };
        /// Settings of flannel.
        flannel "flannel": Option<Flannel> { newer true };
    }
}

section! {
    /// Settings of flannel.
    Flannel {
        /// Additional arguments.
        extra_args "extraArgs": Vec<String> { newer true, example "[--iface-can-reach=192.168.1.1]" };
        /// Enforce network policies.
        kube_network_policies_enabled "kubeNetworkPoliciesEnabled": Option<bool> { newer true, later "network policies of flannel" };
    }
    folded {
        /// How packets get from node to node: `vxlan` and so on.
        backend_type: String;
        /// UDP port of the backend.
        backend_port: Option<u16>;
        /// Largest packet, bytes.
        backend_mtu: Option<u32>;
        /// Additional settings of the backend.
        backend_extra_config: Option<crate::schema::Value>;
        /// Processor time and memory.
        resources: Option<Resources>;
    }
}

section! {
    /// Key that signs service account tokens.
    ServiceAccount {
        /// The private key.
        key "key": EncodedSecret { secret true };
    }
    folded {
        /// URL that new tokens name as their issuer.
        issuer: String;
        /// Public keys (PEM) with which older tokens were signed.
        accepted_public_keys: Vec<String>;
        /// Issuers of older tokens.
        accepted_issuers: Vec<String>;
        /// Audiences of older tokens.
        accepted_audiences: Vec<String>;
    }
}

section! {
    /// How nodes find each other.
    Discovery {
        /// Whether they do.
        enabled "enabled": Option<bool> { newer true };
        /// Where they look.
        registries "registries": Option<DiscoveryRegistries> { newer true };
    }
}

section! {
    /// Where nodes look for each other.
    DiscoveryRegistries {
        /// Kubernetes.
        kubernetes "kubernetes": Option<Switch> { newer true };
        /// A server on the Internet.
        service "service": Option<DiscoveryService> { newer true };
    }
}

section! {
    /// A server on the Internet.
    DiscoveryService {
        /// Do not use it.
        disabled "disabled": Option<bool> { newer true, default "false" };
        /// Where it answers.
        endpoint "endpoint": String { newer true, example "https://discovery.example.org/" };
    }
}

section! {
    /// A controller manager of the cloud.
    ExternalCloudProvider {
        /// Whether there is one.
        enabled "enabled": Option<bool> { newer true, default "false" };
        /// Addresses of its manifests.
        manifests "manifests": Vec<String> { newer true, example "[\"https://example.org/ccm.yaml\"]" };
    }
}

section! {
    /// A manifest in this document.
    InlineManifest {
        /// Its name.
        name "name": String { newer true, example "namespace-ci" };
        /// The manifest, as text.
        contents "contents": String { newer true, secret true, example "\"kind: Namespace\"" };
    }
}

section! {
    /// The administrator's kubeconfig.
    AdminKubeconfig {
        /// How long its certificate holds.
        cert_lifetime "certLifetime": Option<GoDuration> { default "8760h" };
    }
}
