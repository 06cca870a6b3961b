//! The parts of the Kubernetes control plane: settings of their images and arguments.

use crate::{
    CertificateAndKey,
    schema::{Arguments, Value, section},
};
use std::collections::BTreeMap;

section! {
    /// The API server.
    ApiServer {
        /// Its image.
        image "image": String { default "kube-apiserver:v1.20.6 of the usual registry", example "registry.example.org/kube-apiserver:v1.34.1" };
        /// Additional arguments.
        extra_args "extraArgs": BTreeMap<String, Arguments> { example "{feature-gates: ServerSideApply=true}" };
        /// Additional directories of the host.
        extra_volumes "extraVolumes": Vec<ExtraVolume> {};
        /// Its environment.
        env "env": BTreeMap<String, String> { newer true, secret true, example "{NAME: value}" };
        /// Additional names and addresses of its certificate.
        cert_sans "certSANs": Vec<String> { example "[demo.example.org]" };
        /// Do without pod security policies.
        disable_pod_security_policy "disablePodSecurityPolicy": Option<bool> { newer true };
        /// Plugins that admit objects.
        admission_control "admissionControl": Vec<AdmissionPlugin> { newer true };
        /// What is written to the audit log.
        audit_policy "auditPolicy": Option<Value> { newer true, example "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}" };
        /// Processor time and memory.
        resources "resources": Option<Resources> { newer true };
        /// Who decides what is allowed, in order.
        authorization_config "authorizationConfig": Vec<Authorizer> { newer true };
    }
    folded {
        /// Who clients are: an AuthenticationConfiguration without its header.
        authentication: Option<Value>;
        /// Whether the pod has startup probes.
        startup_probes: Option<bool>;
    }
}

section! {
    /// The controller manager.
    ControllerManager {
        /// Its image.
        image "image": String { default "kube-controller-manager:v1.20.6 of the usual registry", example "registry.example.org/kube-controller-manager:v1.34.1" };
        /// Additional arguments.
        extra_args "extraArgs": BTreeMap<String, Arguments> { example "{v: \"2\"}" };
        /// Additional directories of the host.
        extra_volumes "extraVolumes": Vec<ExtraVolume> {};
        /// Its environment.
        env "env": BTreeMap<String, String> { newer true, secret true, example "{NAME: value}" };
        /// Processor time and memory.
        resources "resources": Option<Resources> { newer true };
    }
}

section! {
    /// The scheduler.
    Scheduler {
        /// Its image.
        image "image": String { default "kube-scheduler:v1.20.6 of the usual registry", example "registry.example.org/kube-scheduler:v1.34.1" };
        /// Additional arguments.
        extra_args "extraArgs": BTreeMap<String, Arguments> { example "{v: \"2\"}" };
        /// Additional directories of the host.
        extra_volumes "extraVolumes": Vec<ExtraVolume> {};
        /// Its environment.
        env "env": BTreeMap<String, String> { newer true, secret true, example "{NAME: value}" };
        /// Processor time and memory.
        resources "resources": Option<Resources> { newer true };
        /// A KubeSchedulerConfiguration.
        config "config": Option<Value> { newer true, example "{profiles: []}" };
    }
}

section! {
    /// kube-proxy.
    Proxy {
        /// Do not run it.
        disabled "disabled": bool { default "false" };
        /// Its image.
        image "image": String { default "kube-proxy:v1.20.6 of the usual registry", example "registry.example.org/kube-proxy:v1.34.1" };
        /// How it directs packets.
        mode "mode": String { default "iptables", example "ipvs" };
        /// Additional arguments.
        extra_args "extraArgs": BTreeMap<String, Arguments> { example "{proxy-mode: iptables}" };
    }
    folded {
        /// A KubeProxyConfiguration without its header.
        config: Option<Value>;
        /// Processor time and memory.
        resources: Option<Resources>;
    }
}

section! {
    /// The etcd cluster.
    Etcd {
        /// Its image.
        image "image": String { default "etcd of the API server's version, of the usual registry", example "registry.example.org/etcd:v3.6.5" };
        /// CA of etcd.
        ca "ca": CertificateAndKey {};
        /// Additional arguments; built-in ones cannot be replaced.
        extra_args "extraArgs": BTreeMap<String, Arguments> { example "{election-timeout: \"5000\"}" };
        /// Network of its address; `advertisedSubnets` is the field of today.
        subnet "subnet": String { newer true, example "10.0.0.0/8", later "the choice of etcd's addresses" };
        /// Networks of addresses that are announced.
        advertised_subnets "advertisedSubnets": Vec<String> { newer true, example "[10.0.0.0/8]", later "the choice of etcd's addresses" };
        /// Networks of addresses that are listened on.
        listen_subnets "listenSubnets": Vec<String> { newer true, example "[10.0.0.0/8]", later "the choice of etcd's addresses" };
    }
}

section! {
    /// The cluster's DNS.
    CoreDns {
        /// Do not run it.
        disabled "disabled": Option<bool> { newer true, default "false" };
        /// Its image.
        image "image": String { default "coredns:1.8.0 of the usual registry", example "registry.example.org/coredns:v1.12.4" };
    }
}

section! {
    /// A container image.
    Image {
        /// Its name.
        image "image": String {};
    }
}

section! {
    /// A directory of the host in a pod.
    ExtraVolume {
        /// On the host.
        host_path "hostPath": String { example "/var/lib/auth" };
        /// In the pod.
        mount_path "mountPath": String { example "/etc/kubernetes/auth" };
        /// Without leave to write.
        readonly "readonly": bool { default "false" };
    }
}

section! {
    /// A plugin that admits objects.
    AdmissionPlugin {
        /// Its name.
        name "name": String { newer true, example "PodSecurity" };
        /// Its configuration.
        configuration "configuration": Option<Value> { newer true, example "{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration}" };
    }
}

section! {
    /// One that decides what is allowed.
    Authorizer {
        /// `Node`, `RBAC`, `Webhook` or `AlwaysAllow`.
        kind "type": String { newer true, example "Webhook" };
        /// Its name.
        name "name": String { newer true, example "webhook" };
        /// Where it is asked.
        webhook "webhook": Option<Value> { newer true, example "{timeout: 3s}" };
    }
}

section! {
    /// Processor time and memory.
    Resources {
        /// What is set aside.
        requests "requests": BTreeMap<String, String> { newer true, example "{cpu: 100m, memory: 1Gi}" };
        /// What is the most.
        limits "limits": BTreeMap<String, String> { newer true, example "{memory: 2500Mi}" };
    }
}
