//! How far the network is: an address, a way out, a name, the files that programs read.
//!
//! Where the config has probes, they say whether there is a way out, and not a default route. Why something is missing is
//! said in words (`network_reasons`); a gateway that is silent is told of, and takes nothing back: it may be asked in vain by a
//! link that the node does not need.

use runtime::store::{
    Addressing, DEFAULT_ROUTE, Definition, HOSTNAME_STATUS, NETWORK_STATUS, NetworkSpec, NetworkStatus,
    PROBE_STATUS, RESOLVER_STATUS, Spec,
};

use super::controller::{Action, Controller, Snapshot};
use super::network_reasons;

static INPUTS: [&Definition; 8] = {
    let [addresses, links, clients, gateways] = network_reasons::INPUTS;
    [addresses, links, clients, gateways, &DEFAULT_ROUTE, &HOSTNAME_STATUS, &RESOLVER_STATUS, &PROBE_STATUS]
};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "network.NetworkStatusController",
    inputs: &INPUTS,
    outputs: &[&NETWORK_STATUS],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let has_name = snapshot.list(&HOSTNAME_STATUS).next().is_some();
    let leads_out = snapshot.list(&DEFAULT_ROUTE).any(|resource| match &resource.spec {
        Spec::RouteStatus(route) => {
            &*route.table == "main" && route.dst.is_empty() && !route.gateway.is_empty()
        }
        _ => false,
    });
    let succeeded = |spec: &Spec| match spec {
        Spec::Network(spec) => matches!(&**spec, NetworkSpec::ProbeStatus(status) if status.success),
        _ => false,
    };
    let probes: Vec<bool> = snapshot.list(&PROBE_STATUS).map(|resource| succeeded(&resource.spec)).collect();
    let is_connected = if probes.is_empty() { leads_out } else { probes.iter().all(|found| *found) };
    let has_address = !super::addresses::current(snapshot).is_empty();
    let is_well = has_address && is_connected && network_reasons::silent_gateways(snapshot).is_empty();
    let status = NetworkStatus {
        address_ready: has_address,
        connectivity_ready: is_connected,
        hostname_ready: has_name,
        etc_files_ready: has_name && snapshot.list(&RESOLVER_STATUS).next().is_some(),
        reasons: if is_well { Vec::new() } else { network_reasons::sentences(snapshot) },
    };
    Ok(vec![Action::Put(&NETWORK_STATUS, "status", Spec::Addressing(Addressing::Status(status)))])
}

#[cfg(test)]
mod tests {
    use runtime::store::{HostnameStatus, ProbeStatus, RouteStatus, Store};

    use super::*;
    use crate::controllers::testing::snapshot;

    fn status(store: &Store) -> String {
        match reconcile(&snapshot(store, &Default::default())).unwrap().remove(0) {
            Action::Put(_, "status", spec) => spec.yaml().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_part_is_ready_by_itself() {
        let store = Store::new();
        assert!(!status(&store).contains("true"));
        let route = RouteStatus {
            family: "inet4",
            dst: String::new(),
            src: String::new(),
            gateway: "10.0.0.1".into(),
            out_link_name: "eth0".into(),
            table: "main".into(),
            priority: 1024,
            scope: "global".into(),
            kind: "unicast".into(),
            protocol: "static".into(),
        };
        store.put(DEFAULT_ROUTE.writer, &DEFAULT_ROUTE, "r", Spec::RouteStatus(route)).unwrap();
        let name = HostnameStatus { hostname: "n".into(), domainname: String::new() };
        store.put(HOSTNAME_STATUS.writer, &HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(name)).unwrap();
        let expected =
            "addressReady: false\nconnectivityReady: true\nhostnameReady: true\netcFilesReady: false\n";
        assert_eq!(status(&store), expected);
        let probe = |id, success| {
            let found = ProbeStatus { success, last_error: String::new() };
            let spec = Spec::Network(Box::new(NetworkSpec::ProbeStatus(found)));
            store.put(PROBE_STATUS.writer, &PROBE_STATUS, id, spec).unwrap();
            status(&store).contains("connectivityReady: true")
        };
        assert!(probe("a", true) && !probe("b", false) && probe("b", true));
    }
}
