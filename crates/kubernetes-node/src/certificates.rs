//! The certificates of a control plane node, and the files beside them.
//!
//! Owns: when one is made: where its inputs changed, or half of its life is over; and which programs have to start again with it.
//! A new machined keeps what an earlier one made, so that no program has to start again.
//! Order: files first, then the record of what was made: cut off in between, they are made once more.
//! Fails by: [`Error`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::pki::{Authority, Identity, Leaf, Lifetime, PrivateKey, Usage};
use config::{CertificateAndKey, Secret};
use kubernetes::certificates::{self, Issuer, Place, Profile};
use kubernetes::kubeconfig::{self, Credentials};
use kubernetes::{Cluster, File, Node, Owner, api_server, controller_manager, paths, scheduler};
use ondisk::Digest;
use serde::{Deserialize, Serialize};

use crate::{Error, files};

/// What belongs together: it is made before what reads it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// etcd.
    Etcd,
    /// API server, controller manager, scheduler.
    ControlPlane,
}

impl Part {
    fn has(self, profile: &Profile) -> bool {
        let is_etcd = matches!(profile.place, Place::Files { directory: paths::ETCD_SECRETS, .. });
        match self {
            Self::Etcd => is_etcd,
            Self::ControlPlane => !is_etcd && profile.place != Place::Memory,
        }
    }

    /// What was made, by this node.
    fn record(self) -> &'static str {
        match self {
            Self::Etcd => "/system/secrets/issued-etcd.json",
            Self::ControlPlane => "/system/secrets/issued-control-plane.json",
        }
    }
}

/// What is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Current {
    /// Grows with each certificate that is made and with other authorities or keys.
    pub version: u64,
    /// When the next one has to be made.
    pub renew_at: SystemTime,
    /// By the name of a program.
    needed: BTreeMap<String, u64>,
}

impl Current {
    /// Grows with what this program reads at its start alone: it has to start again.
    pub fn needed_by(&self, program: &str) -> u64 {
        self.needed.get(program).copied().unwrap_or_default()
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    version: u64,
    /// Digest of the authorities' certificates and of the keys that come from the configuration, by who reads them.
    given: BTreeMap<String, String>,
    issued: BTreeMap<String, Issued>,
    /// [`Current::needed_by`].
    needed: BTreeMap<String, u64>,
}

impl Record {
    /// Something else is there, and this program has to start again with it.
    fn changed(&mut self, program: Option<&str>) {
        self.version = self.version.saturating_add(1);
        if let Some(program) = program {
            let needed = self.needed.entry(program.to_owned()).or_default();
            *needed = needed.saturating_add(1);
        }
    }
}

/// The program that reads this certificate at its start alone. etcd reads its own at each handshake, and so do clients of etcd;
/// the API server takes another certificate for its clients within a minute.
fn read_at_start(profile: &Profile) -> Option<&'static str> {
    match profile.place {
        Place::Kubeconfig { directory: paths::CONTROLLER_MANAGER_SECRETS, .. } => {
            Some(controller_manager::NAME)
        }
        Place::Kubeconfig { directory: paths::SCHEDULER_SECRETS, .. } => Some(scheduler::NAME),
        Place::Files { directory: paths::API_SERVER_SECRETS, .. } => {
            let is_read_again =
                profile.usage == certificates::Usage::Server || profile.issuer == Issuer::Etcd;
            (!is_read_again).then_some(api_server::NAME)
        }
        Place::Kubeconfig { .. } | Place::Files { .. } | Place::Memory => None,
    }
}

/// The program that authorities and keys of this owner are for.
fn program_of(owner: Owner) -> &'static str {
    match owner {
        Owner::ApiServer => api_server::NAME,
        Owner::ControllerManager => controller_manager::NAME,
        Owner::Scheduler => scheduler::NAME,
        Owner::Etcd => "etcd",
        Owner::Root => "kubelet",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Issued {
    /// Digest of what it says and of who signed it.
    inputs: String,
    /// Half of its life, in seconds of Unix time.
    renew_at: u64,
}

/// Held while files of a part are written: a key of one call never stands beside the certificate of another.
static WRITING: Mutex<()> = Mutex::new(());

/// Has every certificate and file of a part be there, below `root`.
///
/// # Errors
/// [`Error::Config`], [`Error::Authority`], [`Error::Certificate`], [`Error::Key`], [`Error::File`].
pub fn bring(root: &Path, cluster: &Cluster<'_>, node: &Node, part: Part) -> Result<Current, Error> {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    write(root, cluster, node, part, read(root, part))
}

/// Makes every certificate of a part anew that was made before; answers their ids. Cut off in between, [`bring`] goes on.
///
/// # Errors
/// As [`bring`].
pub fn renew(root: &Path, cluster: &Cluster<'_>, node: &Node, part: Part) -> Result<Vec<String>, Error> {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut record = read(root, part);
    let ids: Vec<String> = record.issued.keys().cloned().collect();
    if ids.is_empty() {
        return Ok(ids);
    }
    for issued in record.issued.values_mut() {
        issued.renew_at = 0;
    }
    keep(root, part, &record)?;
    write(root, cluster, node, part, record)?;
    Ok(ids)
}

fn write(
    root: &Path,
    cluster: &Cluster<'_>,
    node: &Node,
    part: Part,
    mut record: Record,
) -> Result<Current, Error> {
    let mut given: BTreeMap<&str, Vec<File>> = BTreeMap::new();
    for file in authorities(cluster, part)? {
        files::write(root, &file)?;
        given.entry(program_of(file.owner)).or_default().push(file);
    }
    for (program, files) in given {
        let parts: Vec<&[u8]> = files.iter().map(|file| file.contents.expose_secret().as_bytes()).collect();
        let digest = Digest::sha256(&parts).to_string();
        if record.given.get(program) != Some(&digest) {
            record.changed(Some(program));
            record.given.insert(program.to_owned(), digest);
        }
    }
    let mut next = BTreeMap::new();
    for profile in certificates::all(cluster, node)?.iter().filter(|profile| part.has(profile)) {
        let inputs = inputs(cluster, profile);
        let made = record.issued.get(profile.id);
        let issued = match made.filter(|issued| issued.inputs == inputs && is_good(root, profile, issued)) {
            Some(issued) => issued.clone(),
            None => {
                let made = put(root, cluster, profile, inputs)?;
                record.changed(read_at_start(profile));
                made
            }
        };
        next.insert(profile.id.to_owned(), issued);
    }
    let renew_at = next.values().map(|issued| issued.renew_at).min().unwrap_or(u64::MAX >> 1);
    record.issued = next;
    keep(root, part, &record)?;
    let renew_at = UNIX_EPOCH.checked_add(Duration::from_secs(renew_at)).unwrap_or(UNIX_EPOCH);
    Ok(Current { version: record.version, renew_at, needed: record.needed })
}

/// A certificate that no file keeps.
///
/// # Errors
/// [`Error::Authority`], [`Error::Certificate`].
pub fn issue(cluster: &Cluster<'_>, profile: &Profile) -> Result<Identity, Error> {
    let (field, pair) = pair(cluster, profile.issuer);
    let absent = Secret::new("");
    let authority = Authority::from_pem(&pair.crt.0, pair.key().unwrap_or(&absent));
    let authority = authority.map_err(|source| Error::Authority { field, source })?;
    let usage = match profile.usage {
        certificates::Usage::Server => Usage::Server,
        certificates::Usage::Client => Usage::Client,
        certificates::Usage::Both => Usage::Both,
    };
    let leaf = Leaf {
        organizations: profile.organizations.clone(),
        names: profile.names.clone(),
        usage,
        lifetime: Lifetime::from_now(profile.lifetime),
    };
    let issued = authority.issue_to(&profile.common_name, &leaf);
    issued.map_err(|source| Error::Certificate { id: profile.id, source })
}

fn pair<'c>(cluster: &Cluster<'c>, issuer: Issuer) -> (&'static str, &'c CertificateAndKey) {
    let config = &cluster.config().cluster;
    match issuer {
        Issuer::Kubernetes => ("cluster.ca", &config.ca),
        Issuer::Aggregator => ("cluster.aggregatorCA", &config.aggregator_ca),
        Issuer::Etcd => ("cluster.etcd.ca", &config.etcd.ca),
    }
}

fn inputs(cluster: &Cluster<'_>, profile: &Profile) -> String {
    let (_, pair) = pair(cluster, profile.issuer);
    // A kubeconfig names the server and who is trusted, too.
    let server = cluster.api_port().to_string();
    let trusted = match profile.place {
        Place::Kubeconfig { .. } if !cluster.config().cluster.accepted_cas.is_empty() => {
            cluster.authorities()
        }
        _ => String::new(),
    };
    let parts = [format!("{profile:?}"), pair.crt.0.clone(), server, trusted];
    Digest::sha256(&parts.each_ref().map(String::as_bytes)).to_string()
}

fn is_good(root: &Path, profile: &Profile, issued: &Issued) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let is_there = |path: String| root.join(path.trim_start_matches('/')).is_file();
    let all_there = match profile.place {
        Place::Files { directory, name, .. } => {
            is_there(format!("{directory}/{name}.crt")) && is_there(format!("{directory}/{name}.key"))
        }
        Place::Kubeconfig { directory, .. } => is_there(format!("{directory}/kubeconfig")),
        Place::Memory => false,
    };
    all_there && now < issued.renew_at
}

/// Makes a certificate and writes it where it belongs.
fn put(root: &Path, cluster: &Cluster<'_>, profile: &Profile, inputs: String) -> Result<Issued, Error> {
    let identity = issue(cluster, profile)?;
    let key = identity.key.to_pem();
    let file = |directory: &str, name: &str, owner, contents| File {
        path: format!("{directory}/{name}"),
        owner,
        contents,
    };
    match profile.place {
        Place::Files { directory, name, owner } => {
            // The key first: a certificate never stands beside a key that is not its own for longer than this.
            files::write(root, &file(directory, &format!("{name}.key"), owner, key))?;
            let certificate = Secret::new(identity.certificate);
            files::write(root, &file(directory, &format!("{name}.crt"), owner, certificate))?;
        }
        Place::Kubeconfig { directory, owner } => {
            let credentials = Credentials::Certificate { certificate: &identity.certificate, key: &key };
            let text = kubeconfig::of_control_plane(cluster, &profile.common_name, &credentials)?;
            files::write(root, &file(directory, "kubeconfig", owner, text))?;
        }
        Place::Memory => {}
    }
    let half = SystemTime::now().checked_add(profile.lifetime / 2).unwrap_or(UNIX_EPOCH);
    Ok(Issued { inputs, renew_at: half.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() })
}

/// Certificates of authorities, and keys that come from the configuration as they are.
fn authorities(cluster: &Cluster<'_>, part: Part) -> Result<Vec<File>, Error> {
    let config = &cluster.config().cluster;
    let file = |directory: &str, name: &str, owner, text: &str| File {
        path: format!("{directory}/{name}"),
        owner,
        contents: Secret::new(text),
    };
    let etcd = file(paths::ETCD_SECRETS, "ca.crt", Owner::Etcd, &config.etcd.ca.crt.0);
    if part == Part::Etcd {
        return Ok(vec![etcd]);
    }
    const FIELD: &str = "cluster.serviceAccount.key";
    let account = config.service_account.key.0.expose_secret();
    let key = PrivateKey::from_pem(FIELD, account).map_err(|source| Error::Key { field: FIELD, source })?;
    let public = key.public_pem(FIELD).map_err(|source| Error::Key { field: FIELD, source })?;
    let public = [&[public][..], &config.service_account.accepted_public_keys].concat().join("\n");
    let server = |name, text: &str| file(paths::API_SERVER_SECRETS, name, Owner::ApiServer, text);
    let manager =
        |name, text: &str| file(paths::CONTROLLER_MANAGER_SECRETS, name, Owner::ControllerManager, text);
    let signing = config.ca.key().map_or("", Secret::expose_secret);
    Ok(vec![
        server("ca.crt", &cluster.authorities()),
        server("etcd-client-ca.crt", &config.etcd.ca.crt.0),
        server("aggregator-ca.crt", &cluster.aggregator_authorities()),
        server("service-account.pub", &public),
        server("service-account.key", account),
        manager("ca.crt", &config.ca.crt.0),
        manager("root-ca.crt", &cluster.authorities()),
        manager("ca.key", signing),
        manager("service-account.key", account),
    ])
}

/// What cannot be read was never written whole: everything is made anew.
/// The version of what is there of a part, where it was made.
pub(crate) fn version(root: &Path, part: Part) -> Option<u64> {
    Some(read(root, part).version).filter(|version| *version > 0)
}

fn read(root: &Path, part: Part) -> Record {
    let text = std::fs::read(root.join(part.record().trim_start_matches('/'))).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn keep(root: &Path, part: Part, record: &Record) -> Result<(), Error> {
    let failed = |source: serde_json::Error| Error::File {
        what: "write",
        path: part.record().into(),
        source: source.into(),
    };
    let contents = Secret::new(serde_json::to_string(record).map_err(failed)?);
    files::write(root, &File { path: part.record().to_owned(), owner: Owner::Root, contents })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api::pki::CertificateFacts;

    use super::*;
    use crate::samples;

    fn text(root: &Path, path: &str) -> String {
        std::fs::read_to_string(root.join(path.trim_start_matches('/'))).unwrap()
    }

    #[test]
    fn every_file_that_a_program_is_told_of_is_there() {
        let (config, root) = (samples::control_plane("v1.34.10", "v3.6.4"), tempfile::tempdir().unwrap());
        let (cluster, node) = (Cluster::new(&config).unwrap(), samples::node());
        for part in [Part::Etcd, Part::ControlPlane] {
            bring(root.path(), &cluster, &node, part).unwrap();
        }
        let files = [kubernetes::api_server::files(&cluster), kubernetes::scheduler::files(&cluster)];
        for file in files.into_iter().flat_map(Result::unwrap) {
            files::write(root.path(), &file).unwrap();
        }
        let arguments = [
            kubernetes::etcd::arguments(&cluster, &node, &kubernetes::etcd::Membership::New).unwrap(),
            kubernetes::api_server::arguments(&cluster, &node).unwrap(),
            kubernetes::controller_manager::arguments(&cluster).unwrap(),
            kubernetes::scheduler::arguments(&cluster).unwrap(),
        ];
        let words = arguments.iter().flat_map(|arguments| arguments.to_vec());
        let named: BTreeSet<String> = words
            .filter_map(|word| word.split_once("=/system/").map(|(_, path)| format!("system/{path}")))
            .collect();
        assert!(named.len() > 15, "{named:?}");
        for path in named {
            assert!(root.path().join(&path).exists(), "{path}");
        }
    }

    #[test]
    fn a_certificate_is_kept_until_half_of_its_life_or_other_inputs() {
        let (config, root) = (samples::control_plane("v1.34.10", "v3.6.4"), tempfile::tempdir().unwrap());
        let (cluster, mut node) = (Cluster::new(&config).unwrap(), samples::node());
        let etcd = |node: &Node| bring(root.path(), &cluster, node, Part::Etcd).unwrap();
        let path = format!("{}/server.crt", paths::ETCD_SECRETS);
        let (first, server) = (etcd(&node), text(root.path(), &path));
        let facts = CertificateFacts::from_pem("it", &server).unwrap();
        assert!(facts.names.iter().any(|name| name == "10.0.0.3"), "{facts:?}");
        assert_eq!((etcd(&node), text(root.path(), &path)), (first.clone(), server.clone()));
        // Another address: server and peer say it, what has no names stays.
        node.addresses.push("10.0.0.4".parse().unwrap());
        assert_eq!(etcd(&node).version, first.version + 2);
        let facts = CertificateFacts::from_pem("it", &text(root.path(), &path)).unwrap();
        assert!(facts.names.iter().any(|name| name == "10.0.0.4"), "{facts:?}");
        // Half of its life is over.
        let mut record = read(root.path(), Part::Etcd);
        record.issued.get_mut("etcd-admin").unwrap().renew_at = 1;
        keep(root.path(), Part::Etcd, &record).unwrap();
        let renewed = etcd(&node);
        assert_eq!(renewed.version, first.version + 3);
        assert!(renewed.renew_at > SystemTime::now());
        // A key that is gone.
        std::fs::remove_file(root.path().join("system/secrets/etcd/peer.key")).unwrap();
        assert_eq!(etcd(&node).version, first.version + 4);
    }

    #[test]
    fn all_that_were_made_are_made_anew_when_asked() {
        let (config, root) = (samples::control_plane("v1.34.10", "v3.6.4"), tempfile::tempdir().unwrap());
        let (cluster, node) = (Cluster::new(&config).unwrap(), samples::node());
        assert!(renew(root.path(), &cluster, &node, Part::Etcd).unwrap().is_empty(), "there was none");
        bring(root.path(), &cluster, &node, Part::Etcd).unwrap();
        let files = ["server", "peer", "admin"].map(|name| format!("{}/{name}.crt", paths::ETCD_SECRETS));
        let read = || files.each_ref().map(|path| text(root.path(), path));
        let before = read();
        let ids = renew(root.path(), &cluster, &node, Part::Etcd).unwrap();
        assert_eq!(ids, ["etcd-admin", "etcd-peer", "etcd-server"]);
        let after = read();
        assert!(before.iter().zip(&after).all(|(before, after)| before != after));
        bring(root.path(), &cluster, &node, Part::Etcd).unwrap();
        assert_eq!(read(), after, "once");
    }

    #[test]
    fn a_program_starts_again_for_what_it_reads_at_its_start_alone() {
        let (mut config, root) = (samples::control_plane("v1.34.10", "v3.6.4"), tempfile::tempdir().unwrap());
        let mut node = samples::node();
        let programs = [api_server::NAME, controller_manager::NAME, scheduler::NAME];
        let needed = |config: &config::Config, node: &Node| {
            let current =
                bring(root.path(), &Cluster::new(config).unwrap(), node, Part::ControlPlane).unwrap();
            programs.map(|program| current.needed_by(program))
        };
        let first = needed(&config, &node);
        assert_eq!(needed(&config, &node), first);
        // The API server's certificate for its clients alone.
        node.addresses.push("10.0.0.4".parse().unwrap());
        assert_eq!(needed(&config, &node), first);
        for (id, grows) in
            [("front-proxy-client", [1, 0, 0]), ("controller-manager", [0, 1, 0]), ("scheduler", [0, 0, 1])]
        {
            let before = needed(&config, &node);
            let mut record = read(root.path(), Part::ControlPlane);
            record.issued.get_mut(id).unwrap().renew_at = 1;
            keep(root.path(), Part::ControlPlane, &record).unwrap();
            let after = needed(&config, &node);
            assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), grows, "{id}");
        }
        // Its keys are the API server's and the controller manager's.
        let before = needed(&config, &node);
        config.cluster.service_account.accepted_public_keys = vec!["ANOTHER KEY".into()];
        assert_eq!(needed(&config, &node), [before[0] + 1, before[1], before[2]]);
    }

    #[test]
    fn further_keys_of_service_accounts_are_accepted() {
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        config.cluster.service_account.accepted_public_keys = vec!["ANOTHER KEY".into()];
        let (cluster, root) = (Cluster::new(&config).unwrap(), tempfile::tempdir().unwrap());
        bring(root.path(), &cluster, &samples::node(), Part::ControlPlane).unwrap();
        let keys = text(root.path(), &format!("{}/service-account.pub", paths::API_SERVER_SECRETS));
        assert!(keys.starts_with("-----BEGIN PUBLIC KEY-----") && keys.contains("ANOTHER KEY"), "{keys}");
    }

    #[test]
    fn further_authorities_of_the_aggregation_layer_are_trusted() {
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        let own = config.cluster.aggregator_ca.crt.0.trim().to_owned();
        let other = config.cluster.etcd.ca.crt.0.trim().to_owned();
        let root = tempfile::tempdir().unwrap();
        let trusted = |config: &config::Config| {
            let cluster = Cluster::new(config).unwrap();
            let current = bring(root.path(), &cluster, &samples::node(), Part::ControlPlane).unwrap();
            (current.version, text(root.path(), &format!("{}/aggregator-ca.crt", paths::API_SERVER_SECRETS)))
        };
        let (first, alone) = trusted(&config);
        assert_eq!(alone, format!("{own}\n"));
        // The API server reads the file at its start: it has to start again.
        config.cluster.accepted_aggregator_cas = vec![other.clone(), own.clone()];
        assert_eq!(trusted(&config), (first + 1, format!("{own}\n{other}\n")));
    }

    #[test]
    fn an_authority_without_its_key_is_named() {
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        config.cluster.etcd.ca.key = Default::default();
        let (cluster, root) = (Cluster::new(&config).unwrap(), tempfile::tempdir().unwrap());
        let error = bring(root.path(), &cluster, &samples::node(), Part::Etcd).unwrap_err().to_string();
        assert!(error.starts_with("cluster.etcd.ca: "), "{error}");
    }
}
