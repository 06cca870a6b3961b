//! The names that the API's certificate must carry.
//!
//! Source: docs/users/pki.md.

use config::own::Vrrp;
use runtime::store::{ADDRESS_STATUS, API_CERTIFICATE, HOSTNAME_STATUS, MACHINE_CONFIG, OPERATOR_SPEC, Spec};

use super::controller::{Action, Controller, Snapshot};
use crate::material::reaches_others;

pub(crate) static CONTROLLER: Controller = Controller {
    name: "secrets.APICertificateController",
    inputs: &[&ADDRESS_STATUS, &HOSTNAME_STATUS, &MACHINE_CONFIG, &OPERATOR_SPEC],
    outputs: &[&API_CERTIFICATE],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let mut names = vec!["127.0.0.1".to_owned(), "::1".to_owned()];
    // Without a config these are the names of maintenance mode's certificate.
    let config = snapshot.machine_config();
    names.extend(config.iter().flat_map(|document| document.config.machine.cert_sans.iter().cloned()));
    if let Some(document) = config.filter(|document| document.config.machine.machine_type.is_control_plane())
    {
        // Clients and workers reach a control plane by the cluster's name, too.
        let host = config::endpoint_host(&document.config.cluster.control_plane.endpoint);
        names.extend(host.map(str::to_owned));
    }
    for resource in snapshot.list(&ADDRESS_STATUS) {
        if let Spec::AddressStatus(status) = &resource.spec {
            names.extend(
                status.address.split('/').next().filter(|text| reaches_others(text)).map(str::to_owned),
            );
        }
    }
    // These addresses are this node's at times.
    let documents = config.map(|document| document.documents.as_slice()).unwrap_or_default();
    names.extend(Vrrp::of(documents).into_iter().map(|router| router.address.to_string()));
    for resource in snapshot.list(&OPERATOR_SPEC) {
        names.extend(resource.spec.shared_address().map(|(_, address)| address.to_string()));
    }
    for resource in snapshot.list(&HOSTNAME_STATUS) {
        if let Spec::HostnameStatus(status) = &resource.spec {
            names.push(status.hostname.clone());
            if !status.domainname.is_empty() {
                names.push(format!("{}.{}", status.hostname, status.domainname));
            }
        }
    }
    names.sort();
    names.dedup();
    Ok(vec![Action::Put(&API_CERTIFICATE, "api", Spec::ApiCertificate(names))])
}

#[cfg(test)]
mod tests {
    use runtime::store::{AddressStatus, HostnameStatus, NetworkSpec, OperatorSpec, Store, Vip};

    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    #[test]
    fn names_are_those_a_client_may_type() {
        let store = store_with_config("  certSANs: [node.example, localhost]\n");
        for address in ["127.0.0.1/8", "10.0.2.15/24", "fe80::1/64"] {
            let status = AddressStatus {
                address: address.into(),
                link_index: 1,
                link_name: "x".into(),
                family: "inet4",
                scope: "global".into(),
            };
            store.put(ADDRESS_STATUS.writer, &ADDRESS_STATUS, address, Spec::AddressStatus(status)).unwrap();
        }
        let status = HostnameStatus { hostname: "n1".into(), domainname: "lan".into() };
        store
            .put(HOSTNAME_STATUS.writer, &HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(status))
            .unwrap();
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        let expected = ["10.0.2.15", "127.0.0.1", "::1", "localhost", "n1", "n1.lan", "node.example"];
        let expected = Spec::ApiCertificate(expected.map(str::to_owned).to_vec());
        assert_eq!(actions, [Action::Put(&API_CERTIFICATE, "api", expected)]);
    }

    #[test]
    fn the_host_of_the_endpoint_is_a_name_of_the_api() {
        let store =
            store_with_config("cluster:\n  controlPlane: {endpoint: 'https://cluster.example:6443'}\n");
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        let [Action::Put(_, _, Spec::ApiCertificate(names))] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert!(names.iter().any(|name| name == "cluster.example"), "{names:?}");
    }

    #[test]
    fn a_shared_address_is_a_name_of_the_api_on_each_node() {
        let store = store_with_config("");
        let operator = OperatorSpec {
            operator: "vip",
            link_name: "eth0".into(),
            require_up: true,
            dhcp4: None,
            dhcp6: None,
            vip: Some(Vip { ip: "10.0.0.100".into(), gratuitous_arp: true }),
            layer: "configuration",
        };
        let spec = Spec::Network(Box::new(NetworkSpec::Operator(operator)));
        store.put(OPERATOR_SPEC.writer, &OPERATOR_SPEC, "configuration/vip/eth0/10.0.0.100", spec).unwrap();
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        let [Action::Put(_, _, Spec::ApiCertificate(names))] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert!(names.iter().any(|name| name == "10.0.0.100"), "{names:?}");
    }

    #[test]
    fn an_address_of_vrrp_is_a_name_of_the_api_too() {
        let store = store_with_config(
            "---\napiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: billet-vrrp\nenvironment: \
             [ADDRESS=10.0.0.101, LINK=eth0, ROUTER_ID=51]\n",
        );
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        let [Action::Put(_, _, Spec::ApiCertificate(names))] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert!(names.iter().any(|name| name == "10.0.0.101"), "{names:?}");
    }

    #[test]
    fn without_a_config_the_node_is_known_by_its_addresses() {
        let actions = reconcile(&snapshot(&Store::new(), &Default::default())).unwrap();
        let names = Spec::ApiCertificate(vec!["127.0.0.1".into(), "::1".into()]);
        assert_eq!(actions, [Action::Put(&API_CERTIFICATE, "api", names)]);
    }
}
