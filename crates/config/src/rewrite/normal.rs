//! Which configurations mean the same though their fields differ.
//!
//! Owns: defaults that one form writes and the other leaves out; orders that do not count; two fields of which one is
//! the other's older name. Does not: judge values.
//! Source: the defaults of the reference (`docs/users/configuration.md`).

use crate::{
    documents::{SECTION_METRIC, SECTION_NETWORKS, SECTION_PRISM_PORT, SECTION_PROXY_MODE, device_of},
    schema::is_default,
    v1alpha1::{Cluster, ClusterNetwork, Config, Features, Interface, Machine, MachineControlPlane, Switch},
};

/// `config` with every default that the forms treat differently in one spelling.
pub(super) fn normal(config: &Config) -> Config {
    let mut config = config.clone();
    name_device(&mut config);
    let is_control_plane = config.machine.machine_type.is_control_plane();
    machine(&mut config.machine);
    cluster(&mut config.cluster, is_control_plane);
    config
}

/// An expression that is true for one device is that device.
pub(super) fn name_device(config: &mut Config) {
    let install = &mut config.machine.install;
    if let Some(device) = device_of(&install.disk_expression).map(str::to_owned) {
        install.disk = device;
        install.disk_expression.clear();
    }
}

fn machine(machine: &mut Machine) {
    let network = &mut machine.network;
    network.interfaces.iter_mut().for_each(interface);
    // Each is about a link of its own.
    network.interfaces.sort_by(|a, b| a.interface.cmp(&b.interface));
    off(&mut network.disable_search_domain);
    // Several entries for one path are written one after the other.
    machine.files.sort_by(|a, b| a.path.cmp(&b.path));
    for file in &mut machine.files {
        file.op.get_or_insert_default();
    }
    machine.time.boot_timeout.take_if(|time| is_default(time));
    for mirror in machine.registries.mirrors.values_mut() {
        off(&mut mirror.override_path);
        off(&mut mirror.skip_fallback);
    }
    for registry in machine.registries.config.values_mut() {
        if let Some(tls) = &mut registry.tls {
            off(&mut tls.insecure_skip_verify);
        }
    }
    machine.registries.config.retain(|_, registry| registry.tls.is_some() || registry.auth.is_some());
    off(&mut machine.kubelet.skip_node_registration);
    empty(&mut machine.kernel);
    empty(&mut machine.udev);
    if let Some(features) = &mut machine.features {
        self::features(features, !network.hostname.is_empty());
    }
    empty(&mut machine.features);
    if let Some(MachineControlPlane { controller_manager, scheduler }) = &mut machine.control_plane {
        empty::<Switch>(controller_manager);
        empty::<Switch>(scheduler);
    }
    empty(&mut machine.control_plane);
}

fn interface(interface: &mut Interface) {
    interface.addresses = interface.static_addresses().map(str::to_owned).collect();
    interface.cidr.clear();
    off(&mut interface.dhcp);
    for route in interface.routes.iter_mut().filter(|route| route.metric == 0) {
        route.metric = SECTION_METRIC;
    }
}

fn features(features: &mut Features, has_name: bool) {
    // A name that is given is never made.
    features.stable_hostname.take_if(|_| has_name);
    features.kube_prism.take_if(|prism| prism.enabled != Some(true));
    if let Some(prism) = &mut features.kube_prism {
        prism.port.get_or_insert(SECTION_PRISM_PORT);
    }
    features.kubernetes_talos_api_access.take_if(|access| access.enabled != Some(true));
}

fn cluster(cluster: &mut Cluster, is_control_plane: bool) {
    let schedules = cluster.schedules_on_control_planes() && is_control_plane;
    cluster.allow_scheduling_on_control_planes = schedules.then_some(true);
    cluster.allow_scheduling_on_masters = None;
    empty(&mut cluster.network);
    if let Some(network) = &mut cluster.network {
        self::network(network);
    }
    let account = &mut cluster.service_account;
    if account.issuer.is_empty() && !account.key.0.is_empty() {
        account.issuer.clone_from(&cluster.control_plane.endpoint);
    }
    empty(&mut cluster.api_server);
    empty(&mut cluster.controller_manager);
    empty(&mut cluster.scheduler);
    empty(&mut cluster.proxy);
    if let Some(proxy) = cluster.proxy.as_mut().filter(|proxy| proxy.mode.is_empty()) {
        SECTION_PROXY_MODE.clone_into(&mut proxy.mode);
    }
    if let Some(dns) = &mut cluster.core_dns {
        off(&mut dns.disabled);
    }
    empty(&mut cluster.core_dns);
    cluster.discovery.take_if(|discovery| discovery.enabled != Some(true));
    if let Some(service) =
        cluster.discovery.as_mut().and_then(|d| d.registries.as_mut()).and_then(|r| r.service.as_mut())
    {
        off(&mut service.disabled);
    }
}

fn network(network: &mut ClusterNetwork) {
    let (domain, pods, services) = SECTION_NETWORKS;
    if network.dns_domain.is_empty() {
        domain.clone_into(&mut network.dns_domain);
    }
    for (subnets, default) in [(&mut network.pod_subnets, pods), (&mut network.service_subnets, services)] {
        if subnets.is_empty() {
            subnets.push(default.to_owned());
        }
    }
    let cni = network.cni.get_or_insert_default();
    if cni.name.is_empty() {
        "flannel".clone_into(&mut cni.name);
    }
    empty(&mut cni.flannel);
}

/// `false` is what holds without a word.
fn off(switch: &mut Option<bool>) {
    switch.take_if(|on| !*on);
}

/// A section without content is none.
fn empty<T: Default + PartialEq>(section: &mut Option<T>) {
    section.take_if(|section| is_default(section));
}
