//! Roles of clients, and which call needs which.
//!
//! Owns: the table. Does not: read certificates (`pki`) or decide which resource types are sensitive (machined).
//! A call that is not in the table needs `os:admin`. A certificate of `machine.ca` without any role counts as admin, since
//! the first client generation has no roles; so only administrators' certificates may be usable as a client without one.
//! Source: docs/users/pki.md, crates/api/testdata/roles.txt and maintenance.txt.

use crate::pki::CertificateFacts;
use std::fmt;

/// A role, as it stands in a certificate's subject O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Everything.
    Admin,
    /// Reading, and running the node without changing its configuration.
    Operator,
    /// Reading what is not secret.
    Reader,
    /// Taking etcd snapshots.
    EtcdBackup,
    /// Verifying image signatures.
    ImageVerifier,
    /// Writing META values.
    MetaWriter,
    /// A node that forwards a request on behalf of its client.
    Impersonator,
}

/// Every role with its name.
const NAMES: [(Role, &str); 7] = [
    (Role::Admin, "os:admin"),
    (Role::Operator, "os:operator"),
    (Role::Reader, "os:reader"),
    (Role::EtcdBackup, "os:etcd:backup"),
    (Role::ImageVerifier, "os:image:verifier"),
    (Role::MetaWriter, "os:meta:writer"),
    (Role::Impersonator, "os:impersonator"),
];

impl Role {
    /// `os:admin` and so on.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(role, _)| *role == self).map_or("", |(_, name)| name)
    }

    /// The role of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, n)| *n == name).map(|(role, _)| *role)
    }
}

/// What a node is to its callers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// It has a config: callers have certificates.
    #[default]
    Configured,
    /// It waits for its first config: whoever reaches it is a reader, and may give it one.
    Open,
    /// It has a config that it cannot open now: whoever reaches it learns why, and may unlock it.
    Locked,
}

/// The roles of one client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleSet {
    roles: Vec<Role>,
    /// Names that are no role here: they allow nothing, but whoever is refused should read them.
    unknown: Vec<String>,
}

impl RoleSet {
    /// The roles named; unknown names allow nothing.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut set = Self::default();
        for name in names {
            match Role::from_name(name) {
                Some(role) => set.roles.push(role),
                None => set.unknown.push(name.to_owned()),
            }
        }
        set
    }

    /// The roles of a client that showed this certificate. One that names nothing in subject O is an admin's if
    /// `machine.ca` signed it (`is_own`), and has no role if another accepted CA did: such a CA may sign for other ends.
    pub fn of_certificate(facts: &CertificateFacts, is_own: bool) -> Self {
        if facts.organizations.is_empty() {
            return if is_own { Self::one(Role::Admin) } else { Self::default() };
        }
        Self::from_names(facts.organizations.iter().map(String::as_str))
    }

    /// One role.
    pub fn one(role: Role) -> Self {
        Self { roles: vec![role], unknown: Vec::new() }
    }

    /// Whether `role` is in it.
    pub fn contains(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// The names, for the `talos-role` header.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.roles.iter().map(|role| role.name())
    }

    /// Whether a client with these roles may call `path` (`/machine.MachineService/Version`).
    ///
    /// # Errors
    /// [`Denied`] names the call and the roles that may.
    pub fn authorize(&self, path: &str, mode: Mode) -> Result<(), Denied> {
        let allowed = allowed(path, mode);
        if self.roles.iter().any(|role| allowed.contains(role)) {
            return Ok(());
        }
        Err(Denied { path: path.to_owned(), have: self.clone(), allowed })
    }
}

impl fmt::Display for RoleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        match (names.as_slice(), self.unknown.as_slice()) {
            ([], []) => f.write_str("no role"),
            ([], unknown) => write!(f, "only unknown roles: {unknown:?}"),
            (names, _) => f.write_str(&names.join(", ")),
        }
    }
}

/// A call that the client's roles do not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    path: String,
    have: RoleSet,
    allowed: &'static [Role],
}

impl std::error::Error for Denied {}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed: Vec<_> = self.allowed.iter().map(|role| role.name()).collect();
        // The first two words are what Talos clients look for.
        write!(
            f,
            "not authorized: {} needs one of [{}], the certificate has {}",
            self.path,
            allowed.join(", "),
            self.have
        )
    }
}

const ADMIN: &[Role] = &[Role::Admin];
const OPERATOR: &[Role] = &[Role::Admin, Role::Operator];
const READER: &[Role] = &[Role::Admin, Role::Operator, Role::Reader];
const READER_ONLY: &[Role] = &[Role::Admin, Role::Reader];
const ETCD_READER: &[Role] = &[Role::Admin, Role::Operator, Role::Reader, Role::EtcdBackup];
const ETCD_BACKUP: &[Role] = &[Role::Admin, Role::Operator, Role::EtcdBackup];
const VERIFIER: &[Role] = &[Role::Admin, Role::Operator, Role::Reader, Role::ImageVerifier];
const META: &[Role] = &[Role::Admin, Role::MetaWriter];

/// Calls that others than administrators may make: service, methods, roles.
const TABLE: &[(&str, &[&str], &[Role])] = &[
    (
        "machine.MachineService",
        &[
            "CPUInfo",
            "CPUFreqStats",
            "Containers",
            "DiskStats",
            "DiskUsage",
            "Dmesg",
            "Events",
            "Hostname",
            "ImageList",
            "List",
            "LoadAvg",
            "Logs",
            "LogsContainers",
            "Memory",
            "Mounts",
            "NetworkDeviceStats",
            "Netstat",
            "Processes",
            "ServiceList",
            "Stats",
            "SystemStat",
            "Version",
        ],
        READER,
    ),
    ("billet.MachineService", &["EarlierDmesg"], READER),
    ("billet.MachineService", &["RecoveryKeys", "RenewCertificates", "Unlock"], OPERATOR),
    ("machine.MachineService", &["EtcdAlarmList", "EtcdMemberList", "EtcdStatus"], ETCD_READER),
    ("machine.MachineService", &["EtcdSnapshot"], ETCD_BACKUP),
    (
        "machine.MachineService",
        &[
            "EtcdAlarmDisarm",
            "EtcdDefragment",
            "ImagePull",
            "PacketCapture",
            "Reboot",
            "Restart",
            "ServiceStart",
            "ServiceStop",
            "ServiceRestart",
            "Shutdown",
        ],
        OPERATOR,
    ),
    ("machine.MachineService", &["MetaWrite", "MetaDelete"], META),
    ("machine.ImageService", &["List"], READER),
    ("machine.ImageService", &["Verify"], VERIFIER),
    ("machine.ImageService", &["Pull"], OPERATOR),
    ("cluster.ClusterService", &["HealthCheck"], READER),
    ("inspect.InspectService", &["ControllerRuntimeDependencies"], READER),
    ("cosi.resource.State", &["Get", "List", "Watch"], READER),
    ("resource.ResourceService", &["Get", "List", "Watch"], READER),
    ("network.NetworkService", &["Routes", "Interfaces"], READER),
    ("storage.StorageService", &["Disks"], READER),
    ("time.TimeService", &["Time", "TimeCheck"], READER),
];

/// Calls that a reader may make while the node waits for its first config.
const OPEN: &[&str] = &[
    // Of a node that `billet.maintenance=open` leaves open although STATE is locked.
    "/billet.MachineService/RecoveryKeys",
    "/billet.MachineService/Unlock",
    "/machine.MachineService/ApplyConfiguration",
    "/machine.MachineService/GenerateConfiguration",
    "/storage.StorageService/BlockDeviceWipe",
];

/// The calls that there are while the node is locked. Which resources may be read then is machined's to say.
const LOCKED: &[&str] = &[
    // What is offered is encrypted, and who has the key may open.
    "/billet.MachineService/RecoveryKeys",
    "/billet.MachineService/Unlock",
    "/machine.MachineService/Version",
    "/cosi.resource.State/Get",
    "/cosi.resource.State/List",
    "/cosi.resource.State/Watch",
    "/resource.ResourceService/Get",
    "/resource.ResourceService/List",
    "/resource.ResourceService/Watch",
];

/// Whether there is this call while the node is locked: for nobody there is another.
pub fn is_offered_locked(path: &str) -> bool {
    LOCKED.contains(&path)
}

/// The roles that may call `path`.
pub fn allowed(path: &str, mode: Mode) -> &'static [Role] {
    match mode {
        Mode::Locked if is_offered_locked(path) => return READER_ONLY,
        Mode::Locked => return &[],
        Mode::Open if OPEN.contains(&path) => return READER_ONLY,
        Mode::Open | Mode::Configured => {}
    }
    let Some((service, method)) = path.strip_prefix('/').and_then(|p| p.split_once('/')) else {
        return ADMIN;
    };
    let row = TABLE.iter().find(|(s, methods, _)| *s == service && methods.contains(&method));
    row.map_or(ADMIN, |(_, _, roles)| roles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Role::{Admin, EtcdBackup, ImageVerifier, MetaWriter, Operator, Reader};

    #[test]
    fn who_may_call_what() {
        let machine =
            |method: &str| allowed(&format!("/machine.MachineService/{method}"), Mode::Configured).to_vec();
        assert_eq!(machine("Version"), [Admin, Operator, Reader]);
        assert_eq!(machine("Reboot"), [Admin, Operator]);
        assert_eq!(machine("EtcdSnapshot"), [Admin, Operator, EtcdBackup]);
        assert_eq!(machine("MetaWrite"), [Admin, MetaWriter]);
        for admin in [
            "Read",
            "Copy",
            "Kubeconfig",
            "Reset",
            "Upgrade",
            "ApplyConfiguration",
            "Bootstrap",
            "NoSuchCall",
        ] {
            assert_eq!(machine(admin), [Admin], "{admin}");
        }
        assert_eq!(
            allowed("/machine.ImageService/Verify", Mode::Configured),
            [Admin, Operator, Reader, ImageVerifier]
        );
        assert_eq!(allowed("/cosi.resource.State/Update", Mode::Configured), [Admin]);
        assert_eq!(allowed("nonsense", Mode::Configured), [Admin]);
        for path in [
            "/machine.MachineService/ApplyConfiguration",
            "/billet.MachineService/RecoveryKeys",
            "/billet.MachineService/Unlock",
        ] {
            assert_eq!(allowed(path, Mode::Open), [Admin, Reader]);
        }
    }

    #[test]
    fn a_locked_node_offers_nine_calls_and_no_other_to_anybody() {
        let calls = include_str!("../testdata/wire.txt").lines().filter_map(|line| line.strip_prefix("rpc "));
        let calls: Vec<_> = calls.filter_map(|line| line.split_once('(')).map(|(path, _)| path).collect();
        let offered: Vec<_> = calls.iter().filter(|path| !allowed(path, Mode::Locked).is_empty()).collect();
        assert_eq!(offered.len(), LOCKED.len(), "{offered:?}");
        for path in calls {
            let (may, offered) = (allowed(path, Mode::Locked).contains(&Reader), LOCKED.contains(&path));
            assert_eq!(may, offered, "{path}");
            // Nothing that is refused to readers at other times is let through here but what unlocks.
            let reads = allowed(path, Mode::Configured).contains(&Reader);
            assert!(!may || reads || path.starts_with("/billet.MachineService/"), "{path}");
        }
        assert_eq!(allowed("nonsense", Mode::Locked), []);
    }

    /// testdata/roles.txt was written from the spec's table, not from ours. A new RPC fails here until somebody has
    /// decided who may call it and has written it down there.
    #[test]
    fn every_call_has_exactly_the_roles_of_the_matrix() {
        let matrix = include_str!("../testdata/roles.txt");
        let calls = include_str!("../testdata/wire.txt").lines().filter_map(|line| line.strip_prefix("rpc "));
        let calls: Vec<_> = calls.filter_map(|line| line.split_once('(')).map(|(path, _)| path).collect();
        assert_eq!(matrix.lines().count(), calls.len(), "a call without a row, or a row without a call");
        for path in calls {
            let row = matrix.lines().find_map(|line| line.strip_prefix(path)?.strip_prefix(' '));
            let row = row.unwrap_or_else(|| panic!("{path}: decide who may call it, in testdata/roles.txt"));
            let names: Vec<_> = allowed(path, Mode::Configured).iter().map(|role| role.name()).collect();
            assert_eq!(names.join(" "), row, "{path}");
        }
    }

    #[test]
    fn maintenance_offers_the_calls_of_its_list() {
        let list = include_str!("../testdata/maintenance.txt");
        let listed = |mode: &str, path: &str| list.lines().any(|line| line == format!("{mode} {path}"));
        let calls = include_str!("../testdata/roles.txt").lines().filter_map(|row| row.split_once(' '));
        for (path, _) in calls {
            assert_eq!(is_offered_locked(path), listed("locked", path), "{path}");
            let is_a_readers = allowed(path, Mode::Configured).contains(&Reader);
            let is_offered = allowed(path, Mode::Open).contains(&Reader);
            assert_eq!(is_offered, is_a_readers || listed("open", path), "{path}");
        }
    }

    #[test]
    fn every_method_in_the_table_exists_on_the_wire() {
        let wire = include_str!("../testdata/wire.txt");
        for (service, methods, _) in TABLE {
            for method in *methods {
                assert!(wire.contains(&format!("rpc /{service}/{method}(")), "{service}/{method}");
            }
        }
    }

    #[test]
    fn no_role_is_admin_and_an_unknown_role_is_nothing() {
        let set = |names: &[&str]| {
            let mut facts =
                CertificateFacts::from_pem("it", include_str!("../testdata/client-multi-role.crt")).unwrap();
            facts.organizations = names.iter().map(ToString::to_string).collect();
            RoleSet::of_certificate(&facts, true)
        };
        assert!(set(&[]).authorize("/machine.MachineService/Reset", Mode::Configured).is_ok());
        assert!(set(&["os:reader"]).authorize("/machine.MachineService/Version", Mode::Configured).is_ok());
        let denied = set(&["acme"])
            .authorize("/machine.MachineService/Version", Mode::Configured)
            .unwrap_err()
            .to_string();
        assert!(
            denied.starts_with("not authorized: ")
                && denied.ends_with("the certificate has only unknown roles: [\"acme\"]"),
            "{denied}"
        );
    }
}
