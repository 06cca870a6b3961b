//! How far the network is: an address, a way out, a name, the files that programs read.

use runtime::store::{
    ADDRESS_STATUS, Addressing, HOSTNAME_STATUS, NETWORK_STATUS, NetworkStatus, RESOLVER_STATUS,
    ROUTE_STATUS, Spec,
};

use super::{Action, Controller, Snapshot};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "network.NetworkStatusController",
    inputs: &[&ADDRESS_STATUS, &ROUTE_STATUS, &HOSTNAME_STATUS, &RESOLVER_STATUS],
    outputs: &[&NETWORK_STATUS],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let has_name = snapshot.list(&HOSTNAME_STATUS).next().is_some();
    let leads_out = snapshot.list(&ROUTE_STATUS).any(|resource| match &resource.spec {
        Spec::RouteStatus(route) => {
            &*route.table == "main" && route.dst.is_empty() && !route.gateway.is_empty()
        }
        _ => false,
    });
    let status = NetworkStatus {
        address_ready: !super::addresses::current(snapshot).is_empty(),
        connectivity_ready: leads_out,
        hostname_ready: has_name,
        etc_files_ready: has_name && snapshot.list(&RESOLVER_STATUS).next().is_some(),
    };
    Ok(vec![Action::Put(&NETWORK_STATUS, "status", Spec::Addressing(Addressing::Status(status)))])
}

#[cfg(test)]
mod tests {
    use runtime::store::{HostnameStatus, RouteStatus, Store};

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
        store.put(ROUTE_STATUS.writer, &ROUTE_STATUS, "r", Spec::RouteStatus(route)).unwrap();
        let name = HostnameStatus { hostname: "n".into(), domainname: String::new() };
        store.put(HOSTNAME_STATUS.writer, &HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(name)).unwrap();
        let expected =
            "addressReady: false\nconnectivityReady: true\nhostnameReady: true\netcFilesReady: false\n";
        assert_eq!(status(&store), expected);
    }
}
