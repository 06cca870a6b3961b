//! Documents for the control plane's parts: API server, controller manager, scheduler, proxy.

use super::cluster::AuthorizerType;
use crate::{
    schema::{Arguments, Value, section},
    v1alpha1::Resources,
};
use std::collections::BTreeMap;

section! {
    /// The API server.
    KubeAPIServerConfig {
        /// Its image.
        image "image": String { newer true, example "registry.example.org/kube-apiserver:v1.36.3" };
        /// Additional arguments.
        extra_args "extraArgs": BTreeMap<String, Arguments> { newer true, example "{feature-gates: ServerSideApply=true}" };
        /// Its environment.
        env "env": BTreeMap<String, String> { newer true, secret true, example "{NAME: value}" };
        /// Processor time and memory.
        resources "resources": Option<Resources> { newer true };
        /// Its port on each control plane node.
        api_port "apiPort": Option<u16> { newer true, default "6443", example "6443" };
        /// Additional names and addresses of its certificate.
        cert_extra_sans "certExtraSANs": Vec<String> { newer true, example "[demo.example.org]" };
        /// Wait with liveness probes until it has started.
        startup_probes "startupProbes": Option<bool> { newer true };
    }
}

section! {
    /// The controller manager.
    KubeControllerManagerConfig {
        /// Whether it runs.
        enabled "enabled": Option<bool> { newer true, default "true" };
        /// Its image.
        image "image": String { newer true, example "registry.example.org/kube-controller-manager:v1.36.3" };
        /// Additional arguments.
        extra_args "extraArgs": BTreeMap<String, Arguments> { newer true, example "{v: \"2\"}" };
        /// Its environment.
        env "env": BTreeMap<String, String> { newer true, secret true, example "{NAME: value}" };
        /// Processor time and memory.
        resources "resources": Option<Resources> { newer true };
    }
}

section! {
    /// The scheduler.
    KubeSchedulerConfig {
        /// Whether it runs.
        enabled "enabled": Option<bool> { newer true, default "true" };
        /// Its image.
        image "image": String { newer true, example "registry.example.org/kube-scheduler:v1.36.3" };
        /// A KubeSchedulerConfiguration without its header.
        config "config": Option<Value> { newer true, example "{profiles: []}" };
        /// Additional arguments.
        extra_args "extraArgs": BTreeMap<String, Arguments> { newer true, example "{v: \"2\"}" };
        /// Its environment.
        env "env": BTreeMap<String, String> { newer true, secret true, example "{NAME: value}" };
        /// Processor time and memory.
        resources "resources": Option<Resources> { newer true };
    }
}

section! {
    /// kube-proxy.
    KubeProxyConfig {
        /// Whether it runs.
        enabled "enabled": Option<bool> { newer true, default "true" };
        /// Its image.
        image "image": String { newer true, example "registry.example.org/kube-proxy:v1.36.3" };
        /// How it directs packets.
        mode "mode": String { newer true, default "nftables", example "nftables" };
        /// A KubeProxyConfiguration without its header.
        config "config": Option<Value> { newer true, example "{conntrack: {maxPerCore: 1024}}", later "the configuration file of kube-proxy" };
        /// Additional arguments.
        extra_args "extraArgs": BTreeMap<String, Arguments> { newer true, example "{v: \"2\"}" };
        /// Processor time and memory.
        resources "resources": Option<Resources> { newer true };
    }
}

section! {
    /// A plugin that admits objects.
    KubeAdmissionControlConfig {
        /// Its name.
        name "name": String { newer true, example "PodSecurity" };
        /// Its configuration.
        configuration "configuration": Option<Value> { newer true, example "{kind: PodSecurityConfiguration}" };
    }
}

section! {
    /// What is written to the audit log.
    KubeAuditPolicyConfig {
        /// A Policy.
        configuration "configuration": Option<Value> { newer true, example "{rules: [{level: Metadata}]}" };
    }
}

section! {
    /// Who clients of the API server are.
    KubeAuthenticationConfig {
        /// An AuthenticationConfiguration.
        configuration "configuration": Option<Value> { newer true, example "{jwt: []}" };
    }
}

section! {
    /// One that decides what clients of the API server may do.
    KubeAuthorizerConfig {
        /// Its name.
        name "name": String { newer true, example "webhook" };
        /// Its kind.
        kind "type": Option<AuthorizerType> { newer true };
        /// Where it is asked.
        webhook "webhook": Option<Value> { newer true, example "{timeout: 3s}" };
    }
}

section! {
    /// How the API server encrypts what it keeps in etcd.
    KubeEtcdEncryptionConfig {
        /// An EncryptionConfiguration without its header.
        config "config": Option<Value> { newer true, secret true, example "{resources: [{resources: [secrets], providers: [{identity: {}}]}]}" };
    }
}
