//! What documents say, read from the sections into which it is put.

use crate::{Loaded, v1alpha1::Config};

fn folded(documents: &[&str]) -> Config {
    let mut text = "version: v1alpha1\nmachine: {network: {interfaces: [{interface: eth0, mtu: 1400, addresses: [10.0.0.1/8]}]}}\n".to_owned();
    for document in documents {
        text.push_str(&format!("---\napiVersion: v1alpha1\n{document}\n"));
    }
    let Loaded { config, .. } = crate::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    config
}

#[test]
fn names_reach_the_section() {
    let config = folded(&[
        "kind: HostnameConfig\nhostname: one",
        "kind: ResolverConfig\nnameservers: [{address: 10.0.0.3}, {address: 'fd00::3'}]\nsearchDomains: {domains: [a.example], disableDefault: true}",
        "kind: StaticHostConfig\nname: 10.0.0.9\nhostnames: [nine, neuf]",
    ]);
    let network = &config.machine.network;
    assert_eq!(network.hostname, "one");
    assert_eq!(
        network.nameservers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.0.0.3", "fd00::3"]
    );
    assert_eq!(
        (network.search_domains.as_slice(), network.disable_search_domain),
        (["a.example".to_owned()].as_slice(), Some(true))
    );
    let entry = &network.extra_host_entries[0];
    assert_eq!(entry.ip.map(|ip| ip.to_string()).as_deref(), Some("10.0.0.9"));
    assert_eq!(entry.aliases, ["nine", "neuf"]);
    let stable = |word: &str| {
        folded(&[&format!("kind: HostnameConfig\nauto: {word}")])
            .machine
            .features
            .and_then(|f| f.stable_hostname)
    };
    assert_eq!((stable("stable"), stable("off")), (Some(true), Some(false)));
}

#[test]
fn a_link_is_one_with_its_section() {
    let config = folded(&[
        "kind: LinkConfig\nname: eth0\nmtu: 9000\naddresses: [{address: 10.0.0.2/8}, {address: 10.0.0.1/8}]\nroutes: [{destination: 10.9.0.0/16, gateway: 10.0.0.3}, {gateway: 10.0.0.4, metric: 7}]",
        "kind: LinkConfig\nname: eth1\naddresses: [{address: 'fd00::1/64'}]",
    ]);
    let [first, second] = config.machine.network.interfaces.as_slice() else { panic!("two interfaces") };
    assert_eq!((first.interface.as_str(), first.mtu), ("eth0", 9000));
    assert_eq!(first.addresses, ["10.0.0.1/8", "10.0.0.2/8"]);
    let routes: Vec<_> =
        first.routes.iter().map(|r| (r.network.as_str(), r.gateway.as_str(), r.metric)).collect();
    assert_eq!(routes, [("10.9.0.0/16", "10.0.0.3", 1024), ("", "10.0.0.4", 7)]);
    assert_eq!(
        (second.interface.as_str(), second.addresses.as_slice()),
        ("eth1", ["fd00::1/64".to_owned()].as_slice())
    );
}

#[test]
fn environment_and_time_reach_the_sections() {
    let config = folded(&[
        "kind: EnvironmentConfig\nvariables: {A: b}",
        "kind: TimeSyncConfig\nenabled: false\nbootTimeout: 2m\nntp: {servers: [time.example]}",
    ]);
    assert_eq!(config.machine.env.get("A").map(String::as_str), Some("b"));
    let time = &config.machine.time;
    assert!(time.disabled && time.servers == ["time.example"]);
    assert_eq!(time.boot_timeout.map(|t| t.0.as_secs()), Some(120));
}

#[test]
fn registries_reach_the_section() {
    let config = folded(&[
        "kind: RegistryMirrorConfig\nname: r.example\nendpoints: [{url: 'https://m.example', overridePath: true}]\nskipFallback: true",
        "kind: RegistryAuthConfig\nname: m.example\nusername: me\npassword: hidden\nauth: bWU6aGlkZGVu\nidentityToken: token",
        "kind: RegistryTLSConfig\nname: m.example\nclientIdentity: {cert: CRT, key: KEY}\nca: CA\ninsecureSkipVerify: true",
    ]);
    let registries = &config.machine.registries;
    let mirror = &registries.mirrors["r.example"];
    assert_eq!(mirror.endpoints, ["https://m.example"]);
    assert_eq!((mirror.override_path, mirror.skip_fallback), (Some(true), Some(true)));
    let host = &registries.config["m.example"];
    let auth = host.auth.as_ref().expect("a sign-in");
    let text = |secret: &Option<crate::Secret>| secret.as_ref().map(|s| s.expose_secret().to_owned());
    assert_eq!(auth.username, "me");
    let secrets = [&auth.password, &auth.auth, &auth.identity_token].map(text);
    assert_eq!(secrets, ["hidden", "bWU6aGlkZGVu", "token"].map(|s| Some(s.to_owned())));
    let tls = host.tls.as_ref().expect("certificates");
    assert_eq!((tls.ca.0.as_str(), tls.insecure_skip_verify), ("CA", Some(true)));
    let identity = tls.client_identity.as_ref().expect("our own");
    assert_eq!((identity.crt.0.as_str(), identity.key.0.expose_secret()), ("CRT", "KEY"));
}

#[test]
fn encryption_of_volumes_reaches_the_section() {
    let config = folded(&[
        "kind: VolumeConfig\nname: STATE\nencryption: {provider: luks2, keys: [{nodeID: {}, slot: 2}]}",
        "kind: VolumeConfig\nname: EPHEMERAL\nencryption: {provider: luks2, cipher: aes-xts-plain64, keySize: 256, \
         blockSize: 4096, options: [same_cpu_crypt], keys: [{static: {passphrase: p}, slot: 1}]}",
        "kind: VolumeConfig\nname: IMAGECACHE\nencryption: {provider: luks2, keys: [{nodeID: {}}]}",
    ]);
    let both = &config.machine.system_disk_encryption;
    assert_eq!(both.state.as_ref().unwrap().keys[0].slot, 2);
    let ephemeral = both.ephemeral.as_ref().unwrap();
    assert_eq!((ephemeral.key_size, ephemeral.block_size, ephemeral.options.len()), (256, 4096, 1));
    assert!(ephemeral.keys[0].static_key.as_ref().unwrap().passphrase.matches("p"));
}

#[test]
fn the_host_s_documents_reach_the_section() {
    let config = folded(&[
        "kind: SysctlConfig\nparams: {a.b: '1'}",
        "kind: SysfsConfig\nparams: {c.d: '2'}",
        "kind: KernelModuleConfig\nname: m\nparameters: [p=1]",
        "kind: UdevRulesConfig\nrules: ['KERNEL==\"a\"']",
        "kind: CRICustomizationConfig\nname: metrics\ncontent: '[metrics]'",
        "kind: CRIBaseRuntimeSpecConfig\noverrides: {a: b}",
        "kind: ImageCacheConfig\nlocal: {enabled: true}",
        "kind: UnattendedInstallConfig\ninstaller: {image: i}\nprovisioning: {diskSelector: {match: disk.rotational}, wipe: true}",
    ]);
    let machine = &config.machine;
    assert_eq!((machine.sysctls["a.b"].as_str(), machine.sysfs["c.d"].as_str()), ("1", "2"));
    let module = &machine.kernel.as_ref().expect("modules").modules[0];
    assert_eq!((module.name.as_str(), module.parameters.as_slice()), ("m", ["p=1".to_owned()].as_slice()));
    assert_eq!(machine.udev.as_ref().expect("rules").rules, ["KERNEL==\"a\""]);
    let file = &machine.files[0];
    assert_eq!((file.path.as_str(), file.content.as_str()), ("/var/cri/conf.d/metrics.toml", "[metrics]"));
    assert!(machine.base_runtime_spec_overrides.is_some());
    let features = machine.features.as_ref().expect("features");
    assert_eq!(features.image_cache.as_ref().and_then(|cache| cache.local_enabled), Some(true));
    let install = &machine.install;
    assert_eq!(
        (install.image.as_str(), install.disk_expression.as_str(), install.wipe),
        ("i", "disk.rotational", true)
    );
}

#[test]
fn the_mesh_and_the_host_s_resolver_reach_the_section() {
    let config = folded(&[
        "kind: KubeSpanConfig\nenabled: true\nmtu: 1400\nfilters: {endpoints: [0.0.0.0/0]}",
        "kind: ResolverConfig\nhostDNS: {enabled: true, forwardKubeDNSToHost: true, resolveMemberNames: true}",
    ]);
    let mesh = config.machine.network.kubespan.as_ref().expect("a mesh");
    assert_eq!((mesh.enabled, mesh.mtu), (Some(true), Some(1400)));
    assert_eq!(mesh.filters.as_ref().map(|filters| filters.endpoints.len()), Some(1));
    let resolver = config.machine.features.as_ref().and_then(|features| features.host_dns.as_ref());
    let resolver = resolver.expect("a resolver");
    let settings = [resolver.enabled, resolver.forward_kube_dns_to_host, resolver.resolve_member_names];
    assert_eq!(settings, [Some(true); 3]);
}
