//! The `machine.features` section.

use crate::schema::section;

section! {
    /// Switches of single features.
    Features {
        /// Roles in client certificates; always on here.
        rbac "rbac": Option<bool> { newer true, default "true" };
        /// A host name made from the machine's identity where no other is given.
        stable_hostname "stableHostname": Option<bool> { newer true };
        /// The node API for pods.
        kubernetes_talos_api_access "kubernetesTalosAPIAccess": Option<ApiAccess> { newer true, later "access to the API from pods" };
        /// Refuse client certificates that are not for clients; always on here.
        apid_check_ext_key_usage "apidCheckExtKeyUsage": Option<bool> { newer true, default "true" };
        /// Count the disk space of pods.
        disk_quota_support "diskQuotaSupport": Option<bool> { newer true, later "disk quotas" };
        /// A balancer on each node before the Kubernetes API.
        kube_prism "kubePrism": Option<KubePrism> { newer true };
        /// A resolver on each node.
        host_dns "hostDNS": Option<HostDns> { newer true };
        /// Images kept in the boot image.
        image_cache "imageCache": Option<ImageCache> { newer true, later "the image cache" };
        /// In which order addresses are listed.
        node_address_sort_algorithm "nodeAddressSortAlgorithm": String { newer true, later "sorting of addresses", example "v2" };
    }
}

section! {
    /// The node API for pods.
    ApiAccess {
        /// Whether pods may use it.
        enabled "enabled": Option<bool> { newer true, default "false" };
        /// Roles that a pod may get.
        allowed_roles "allowedRoles": Vec<String> { newer true, example "[\"os:reader\"]" };
        /// Namespaces whose pods may.
        allowed_kubernetes_namespaces "allowedKubernetesNamespaces": Vec<String> { newer true, example "[kube-system]" };
    }
}

section! {
    /// A balancer on each node before the Kubernetes API.
    KubePrism {
        /// Whether it runs.
        enabled "enabled": Option<bool> { newer true };
        /// Its port on the loopback interface.
        port "port": Option<u16> { newer true, default "7445", example "7445" };
    }
    folded {
        /// Name in the server's certificate, where it is another than the endpoint's.
        tls_server_name: String;
    }
}

section! {
    /// A resolver on each node.
    HostDns {
        /// Whether it runs.
        enabled "enabled": Option<bool> { newer true };
        /// Let the cluster's DNS ask it.
        forward_kube_dns_to_host "forwardKubeDNSToHost": Option<bool> { newer true };
        /// Answer for the names of the cluster's machines.
        resolve_member_names "resolveMemberNames": Option<bool> { newer true };
    }
}

impl HostDns {
    /// Whether the resolver runs.
    pub fn runs(&self) -> bool {
        self.enabled == Some(true)
    }

    /// Whether it runs, and pods ask it.
    pub fn serves_pods(&self) -> bool {
        self.runs() && self.forward_kube_dns_to_host == Some(true)
    }
}

section! {
    /// Images kept in the boot image.
    ImageCache {
        /// Whether they are used.
        local_enabled "localEnabled": Option<bool> { newer true };
    }
}
