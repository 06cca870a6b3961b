//! `OSRootSecrets` and `CertSANs`: what the node API's certificates are made from and for. `os:admin` alone sees them.
//!
//! Source: docs/decisions/0006: an administrator holds the machine config, in which both stand.

use std::net::IpAddr;

use runtime::store::{
    API_CERTIFICATE, CERT_SAN, CertSans, Fact, HOSTNAME_STATUS, MACHINE_CONFIG, OS_ROOT_SECRET, OsRoot, Spec,
};

use super::controller::{Action, Controller, Snapshot};

pub(crate) static ROOT: Controller = Controller {
    name: "secrets.RootOSController",
    inputs: &[&MACHINE_CONFIG],
    outputs: &[&OS_ROOT_SECRET],
    reconcile: root,
};

pub(crate) static NAMES: Controller = Controller {
    name: "secrets.APICertSANsController",
    inputs: &[&API_CERTIFICATE, &HOSTNAME_STATUS],
    outputs: &[&CERT_SAN],
    reconcile: names,
};

fn root(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let document = snapshot.machine_config().cloned();
    let put = |document| {
        let spec = Spec::Fact(Box::new(Fact::OsRoot(OsRoot(document))));
        Action::Put(&OS_ROOT_SECRET, "os", spec)
    };
    Ok(document.map(put).into_iter().collect())
}

fn names(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let all = snapshot.list(&API_CERTIFICATE).find_map(|resource| match &resource.spec {
        Spec::ApiCertificate(names) => Some(names),
        _ => None,
    });
    let Some(all) = all else { return Ok(Vec::new()) };
    let (ips, dns_names) = all.iter().cloned().partition(|name| name.parse::<IpAddr>().is_ok());
    let fqdn = snapshot.list(&HOSTNAME_STATUS).find_map(|resource| match &resource.spec {
        Spec::HostnameStatus(name) if name.domainname.is_empty() => Some(name.hostname.clone()),
        Spec::HostnameStatus(name) => Some(format!("{}.{}", name.hostname, name.domainname)),
        _ => None,
    });
    let sans = CertSans { ips, dns_names, fqdn: fqdn.unwrap_or_default() };
    Ok(vec![Action::Put(&CERT_SAN, "api", Spec::Fact(Box::new(Fact::CertSans(sans))))])
}

#[cfg(test)]
mod tests {
    use api::proto::talos::resource::definitions::secrets;
    use prost::Message;
    use runtime::store::Sensitivity;

    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    #[test]
    fn an_administrator_gets_the_ca_and_the_token() {
        assert_eq!(OS_ROOT_SECRET.sensitivity, Sensitivity::Sensitive);
        assert_eq!(CERT_SAN.sensitivity, Sensitivity::Sensitive);
        let store = store_with_config("  ca: {crt: YQo=, key: Ygo=}\n  certSANs: [10.0.0.9, n1.example]\n");
        let actions = root(&snapshot(&store, &Default::default())).unwrap();
        let [Action::Put(kind, "os", spec)] = actions.as_slice() else { panic!("{actions:?}") };
        let found = secrets::OsRootSpec::decode(spec.binary(kind.kind).unwrap().as_slice()).unwrap();
        let ca = found.issuing_ca.unwrap();
        assert_eq!((ca.crt.as_slice(), ca.key.as_slice()), (&b"a\n"[..], &b"b\n"[..]));
        assert_eq!(found.token, "aaaaaa.bbbbbbbbbbbbbbbb");
        assert_eq!(found.accepted_c_as[0].crt, b"a\n");
        assert_eq!(
            (found.cert_sani_ps.len(), found.cert_sandns_names.as_slice()),
            (1, &["n1.example".to_owned()][..])
        );
        assert_eq!(format!("{spec:?}"), "Spec", "nothing of it is printed");
    }

    #[test]
    fn names_and_addresses_are_apart() {
        let store = store_with_config("");
        let all = vec!["10.0.0.7".to_owned(), "::1".to_owned(), "n1".to_owned()];
        store.put(API_CERTIFICATE.writer, &API_CERTIFICATE, "api", Spec::ApiCertificate(all)).unwrap();
        let actions = names(&snapshot(&store, &Default::default())).unwrap();
        let [Action::Put(kind, "api", spec)] = actions.as_slice() else { panic!("{actions:?}") };
        let found = secrets::CertSanSpec::decode(spec.binary(kind.kind).unwrap().as_slice()).unwrap();
        assert_eq!((found.i_ps.len(), found.dns_names.as_slice()), (2, &["n1".to_owned()][..]));
    }
}
