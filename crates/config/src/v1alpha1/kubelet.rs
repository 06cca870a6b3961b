//! The `machine.kubelet` section.

use crate::schema::{Arguments, Value, section};
use std::collections::BTreeMap;

section! {
    /// The kubelet.
    Kubelet {
        /// Its image.
        image "image": String { default "kubelet:v1.20.6 of the usual registry", example "registry.example.org/kubelet:v1.34.1" };
        /// Addresses of the cluster's DNS, instead of the tenth of each service subnet.
        cluster_dns "clusterDNS": Vec<std::net::IpAddr> { newer true };
        /// Additional arguments; built-in ones cannot be replaced.
        extra_args "extraArgs": BTreeMap<String, Arguments> { example "{feature-gates: ServerSideApply=true}" };
        /// Additional mounts, as the OCI runtime specification has them.
        extra_mounts "extraMounts": Vec<Mount> {};
        /// Fields of the KubeletConfiguration.
        extra_config "extraConfig": Option<Value> { newer true, example "{serverTLSBootstrap: true}" };
        /// A CredentialProviderConfig.
        credential_provider_config "credentialProviderConfig": Option<Value> { newer true };
        /// Give each pod the runtime's seccomp profile.
        default_runtime_seccomp_profile_enabled "defaultRuntimeSeccompProfileEnabled": Option<bool> { newer true };
        /// Register with the full name, `host.domain`.
        register_with_fqdn "registerWithFQDN": bool { default "false" };
        /// Which address the node announces.
        node_ip "nodeIP": Option<NodeIp> { newer true };
        /// Do not register the node.
        skip_node_registration "skipNodeRegistration": Option<bool> { newer true };
        /// Run the node's own static pods and no other files of /etc/kubernetes/manifests.
        disable_manifests_directory "disableManifestsDirectory": Option<bool> { newer true };
    }
}

section! {
    /// Which address the node announces.
    NodeIp {
        /// Networks of which it is one; `!` before one excludes it.
        valid_subnets "validSubnets": Vec<String> { newer true, example "[10.0.0.0/8, \"!10.0.0.3/32\"]" };
    }
}

section! {
    /// A mount, as the OCI runtime specification has it.
    Mount {
        /// Where it appears.
        destination "destination": String { example "/var/lib/example" };
        /// Kind of file system, or `bind`.
        kind "type": String { example "bind" };
        /// What appears there.
        source "source": String { example "/var/lib/example" };
        /// Mount options.
        options "options": Vec<String> { example "[bind, rshared, rw]" };
        /// User ids that are mapped.
        uid_mappings "uidMappings": Vec<IdMapping> { newer true, later "user mappings of mounts" };
        /// Group ids that are mapped.
        gid_mappings "gidMappings": Vec<IdMapping> { newer true, later "user mappings of mounts" };
    }
}

section! {
    /// A range of ids.
    IdMapping {
        /// First id in the container.
        container_id "containerID": u32 { newer true };
        /// First id on the host.
        host_id "hostID": u32 { newer true };
        /// How many.
        size "size": u32 { newer true };
    }
}
