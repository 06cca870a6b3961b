//! Requests of every call of the node's API: bytes into the decoded types, and what the node says of them without looking at
//! itself.
//!
//! An input is a call or a type, and the message: as bytes, or as fields that are put together here, so that lengths are right
//! and a field may be there many times.
//! What must hold: nothing panics; memory is bounded by the message's length; what is decoded is encoded and decoded the same; a
//! refusal fits the header that it goes into.

use std::sync::OnceLock;

use api::pki::{Authority, CA_LIFETIME, Leaf, Lifetime, PrivateKey, Usage, certificate_request};
use api::proto::{billet, cluster, common, cosi, health, machine, resource, securityapi, storage, time};
use api::roles::Role;
use prost::Message;
use service_manager::server::reading::{self, CALLS};

use crate::check;
use crate::input::{Fields, sized};
use crate::shape;
use crate::target::{Outcome, Target};

pub(super) const TARGET: Target =
    Target { name: "requests", about: "requests of every call of the node's API", seeds, words: WORDS, run };

const WORDS: &[&str] = &[
    "runtime",
    "network",
    "MachineStatuses.runtime.talos.dev",
    "^(a|b)+[[:alpha:]]{2,}$",
    "x{999}{999}",
    "https://10.0.0.5:6443",
    "registry.invalid/a:1",
    "STATE",
    "v1alpha1",
    "os:reader",
    "\u{7f}\u{7f}\u{7f}",
];

/// The message is fields that are put together here.
const BUILT: u8 = 0x80;

/// Bytes held for each of a message: two bytes of an empty part become a value of some hundred, and a list that grows is there
/// twice.
const HELD_PER_BYTE: usize = 256;
/// A pattern may be compiled to 1 MiB, and is parsed before; a config is put together of a patch.
const MOST_BYTES: usize = 8 << 20;
/// What a message that is put together has at most.
const LONGEST: usize = 64 << 10;
const DEEPEST: usize = 120;
/// tonic's client takes 16 KiB of headers; percent-encoding makes three bytes of one.
const MOST_STATUS: usize = 4 << 10;

/// Decodes as a type; encodes and decodes again.
type Decode = fn(&[u8]) -> Result<usize, String>;

fn decoded<M: Message + Default + PartialEq>(bytes: &[u8]) -> Result<usize, String> {
    let message = M::decode(bytes).map_err(|error| error.to_string())?;
    let written = message.encode_to_vec();
    let again = M::decode(written.as_slice());
    assert!(again.as_ref() == Ok(&message), "a message changed: {:?}", again.err());
    Ok(written.len())
}

/// Every type that a call takes.
const TYPES: &[(&str, Decode)] = &[
    ("EarlierDmesg", decoded::<billet::EarlierDmesgRequest>),
    ("HealthCheck", decoded::<cluster::HealthCheckRequest>),
    ("cosi Create", decoded::<cosi::resource::CreateRequest>),
    ("cosi Destroy", decoded::<cosi::resource::DestroyRequest>),
    ("cosi Get", decoded::<cosi::resource::GetRequest>),
    ("cosi List", decoded::<cosi::resource::ListRequest>),
    ("cosi Update", decoded::<cosi::resource::UpdateRequest>),
    ("cosi Watch", decoded::<cosi::resource::WatchRequest>),
    ("HealthWatch", decoded::<health::HealthWatchRequest>),
    ("ApplyConfiguration", decoded::<machine::ApplyConfigurationRequest>),
    ("Bootstrap", decoded::<machine::BootstrapRequest>),
    ("Containers", decoded::<machine::ContainersRequest>),
    ("Copy", decoded::<machine::CopyRequest>),
    ("DebugContainerRun", decoded::<machine::DebugContainerRunRequest>),
    ("DiskUsage", decoded::<machine::DiskUsageRequest>),
    ("Dmesg", decoded::<machine::DmesgRequest>),
    ("EtcdDowngradeEnable", decoded::<machine::EtcdDowngradeEnableRequest>),
    ("EtcdDowngradeValidate", decoded::<machine::EtcdDowngradeValidateRequest>),
    ("EtcdForfeitLeadership", decoded::<machine::EtcdForfeitLeadershipRequest>),
    ("EtcdLeaveCluster", decoded::<machine::EtcdLeaveClusterRequest>),
    ("EtcdMemberList", decoded::<machine::EtcdMemberListRequest>),
    ("EtcdRemoveMemberByID", decoded::<machine::EtcdRemoveMemberByIdRequest>),
    ("EtcdRemoveMember", decoded::<machine::EtcdRemoveMemberRequest>),
    ("EtcdSnapshot", decoded::<machine::EtcdSnapshotRequest>),
    ("Events", decoded::<machine::EventsRequest>),
    ("GenerateClientConfiguration", decoded::<machine::GenerateClientConfigurationRequest>),
    ("GenerateConfiguration", decoded::<machine::GenerateConfigurationRequest>),
    ("ImageList", decoded::<machine::ImageListRequest>),
    ("ImagePull", decoded::<machine::ImagePullRequest>),
    ("ImageServiceImport", decoded::<machine::ImageServiceImportRequest>),
    ("ImageServiceList", decoded::<machine::ImageServiceListRequest>),
    ("ImageServicePull", decoded::<machine::ImageServicePullRequest>),
    ("ImageServiceRemove", decoded::<machine::ImageServiceRemoveRequest>),
    ("ImageServiceVerify", decoded::<machine::ImageServiceVerifyRequest>),
    ("LifecycleServiceInstall", decoded::<machine::LifecycleServiceInstallRequest>),
    ("LifecycleServiceUpgrade", decoded::<machine::LifecycleServiceUpgradeRequest>),
    ("List", decoded::<machine::ListRequest>),
    ("Logs", decoded::<machine::LogsRequest>),
    ("MetaDelete", decoded::<machine::MetaDeleteRequest>),
    ("MetaWrite", decoded::<machine::MetaWriteRequest>),
    ("Netstat", decoded::<machine::NetstatRequest>),
    ("PacketCapture", decoded::<machine::PacketCaptureRequest>),
    ("Read", decoded::<machine::ReadRequest>),
    ("Reboot", decoded::<machine::RebootRequest>),
    ("Recover", decoded::<machine::RecoverRequest>),
    ("Reset", decoded::<machine::ResetRequest>),
    ("Restart", decoded::<machine::RestartRequest>),
    ("Rollback", decoded::<machine::RollbackRequest>),
    ("ServiceRestart", decoded::<machine::ServiceRestartRequest>),
    ("ServiceStart", decoded::<machine::ServiceStartRequest>),
    ("ServiceStop", decoded::<machine::ServiceStopRequest>),
    ("Shutdown", decoded::<machine::ShutdownRequest>),
    ("Stats", decoded::<machine::StatsRequest>),
    ("Upgrade", decoded::<machine::UpgradeRequest>),
    ("Data", decoded::<common::Data>),
    ("resource Get", decoded::<resource::GetRequest>),
    ("resource List", decoded::<resource::ListRequest>),
    ("resource Watch", decoded::<resource::WatchRequest>),
    ("Certificate", decoded::<securityapi::CertificateRequest>),
    ("ReadFile", decoded::<securityapi::ReadFileRequest>),
    ("WriteFile", decoded::<securityapi::WriteFileRequest>),
    ("BlockDeviceWipe", decoded::<storage::BlockDeviceWipeRequest>),
    ("Time", decoded::<time::TimeRequest>),
];

/// Calls; then the request of a certificate, and `Unlock`, whose type has a key in it and is not compared; then types.
const CERTIFICATE: usize = CALLS.len();
const UNLOCK: usize = CERTIFICATE + 1;
const FIRST_TYPE: usize = UNLOCK + 1;

fn seeds() -> Vec<Vec<u8>> {
    let kind = "MachineStatuses.runtime.talos.dev".to_owned();
    let namespace = "runtime".to_owned();
    let term = cosi::resource::LabelTerm {
        key: "a".into(),
        op: cosi::resource::label_term::Operation::In.into(),
        value: vec!["b".into(), "c".into()],
        invert: true,
    };
    let label_query = vec![cosi::resource::LabelQuery { terms: vec![term] }];
    let id_query = Some(cosi::resource::IdQuery { regexp: "^ma.*e$".into() });
    let list = cosi::resource::ListRequest {
        namespace: namespace.clone(),
        r#type: kind.clone(),
        options: Some(cosi::resource::ListOptions {
            label_query: label_query.clone(),
            id_query: id_query.clone(),
        }),
    };
    let options = cosi::resource::WatchOptions {
        tail_events: i32::MAX,
        start_from_bookmark: Some(vec![7; 16]),
        label_query,
        id_query,
        ..Default::default()
    };
    let watch = cosi::resource::WatchRequest {
        namespace: namespace.clone(),
        r#type: kind.clone(),
        options: Some(options),
        ..Default::default()
    };
    let get = cosi::resource::GetRequest {
        namespace: namespace.clone(),
        r#type: kind.clone(),
        id: "machine".into(),
        ..Default::default()
    };
    let first = resource::GetRequest { namespace, r#type: "ms".into(), id: "machine".into() };
    let seed =
        |number: usize, message: &[u8]| [&[u8::try_from(number).expect("some kinds")], message].concat();
    let mut seeds = vec![
        seed(0, &get.encode_to_vec()),
        seed(1, &list.encode_to_vec()),
        seed(2, &watch.encode_to_vec()),
        seed(3, &first.encode_to_vec()),
        seed(4, &capture().encode_to_vec()),
        seed(5, &reset().encode_to_vec()),
        seed(6, &machine::MetaWriteRequest { key: 12, value: b"v".to_vec() }.encode_to_vec()),
        seed(7, &generate().encode_to_vec()),
        seed(8, &client().encode_to_vec()),
        seed(
            9,
            &machine::ImagePullRequest { reference: "r.invalid/a:1".into(), ..Default::default() }
                .encode_to_vec(),
        ),
        seed(CERTIFICATE, &certificate()),
        seed(UNLOCK, &billet::UnlockRequest { volume: "STATE".into(), key: "k".into() }.encode_to_vec()),
    ];
    // The config and its call as they go together; and each type with a field of each sort.
    let apply = machine::ApplyConfigurationRequest {
        data: b"version: v1alpha1\nmachine: {type: worker}\n".to_vec(),
        mode: 4,
        dry_run: true,
        try_mode_timeout: Some(prost_types::Duration { seconds: i64::MAX, nanos: i32::MAX }),
        ..Default::default()
    };
    seeds.push(seed(FIRST_TYPE + 9, &apply.encode_to_vec()));
    let fields =
        [&[0x08, 1][..], &[0x12], &sized(b"text"), &[0x1b], &sized(&[0x08, 1]), &[0x24, 200], &sized(&[])]
            .concat();
    seeds.extend((0..FIRST_TYPE + TYPES.len()).map(|number| {
        let mut built = seed(number, &fields);
        built[0] |= BUILT;
        built
    }));
    seeds
}

fn capture() -> machine::PacketCaptureRequest {
    let instruction = |op: u32| machine::BpfInstruction { op, jt: 1, jf: 2, k: 0x800 };
    machine::PacketCaptureRequest {
        interface: "eth0".into(),
        bpf_filter: [0x28, 0x15, 0x06].map(instruction).to_vec(),
        ..Default::default()
    }
}

fn reset() -> machine::ResetRequest {
    let spec = machine::ResetPartitionSpec { label: "STATE".into(), wipe: true };
    machine::ResetRequest {
        graceful: true,
        system_partitions_to_wipe: vec![spec],
        user_disks_to_wipe: vec!["/dev/sdb".into()],
        ..Default::default()
    }
}

fn generate() -> machine::GenerateConfigurationRequest {
    let route = machine::RouteConfig { network: "0.0.0.0/0".into(), gateway: "10.0.0.1".into(), metric: 7 };
    let interface = machine::NetworkDeviceConfig {
        interface: "eth0".into(),
        cidr: "10.0.0.5/24".into(),
        routes: vec![route],
        ..Default::default()
    };
    let network = machine::NetworkConfig {
        hostname: "made: here".into(),
        interfaces: vec![interface.clone(), interface],
    };
    let plane = machine::ControlPlaneConfig { endpoint: "https://10.0.0.5:6443".into() };
    machine::GenerateConfigurationRequest {
        config_version: "v1alpha1".into(),
        machine_config: Some(machine::MachineConfig {
            r#type: 2,
            network_config: Some(network),
            ..Default::default()
        }),
        cluster_config: Some(machine::ClusterConfig {
            name: "demo".into(),
            control_plane: Some(plane),
            ..Default::default()
        }),
        override_time: None,
    }
}

fn client() -> machine::GenerateClientConfigurationRequest {
    machine::GenerateClientConfigurationRequest {
        roles: vec!["os:reader".into(), "os:operator".into()],
        crt_ttl: Some(prost_types::Duration { seconds: 3600, nanos: 1 }),
    }
}

fn certificate() -> Vec<u8> {
    let key = PrivateKey::generate().expect("a key");
    certificate_request(&key, &["10.0.0.5".into(), "worker-1".into()]).expect("a request").into_bytes()
}

fn run(input: &[u8]) -> Outcome {
    let Some((kind, message)) = input.split_first() else { return Outcome::refused("nothing") };
    let message = if kind & BUILT == 0 { message.to_vec() } else { built(Fields::of(message), DEEPEST) };
    let number = usize::from(kind & !BUILT) % (FIRST_TYPE + TYPES.len());
    let most = MOST_BYTES + HELD_PER_BYTE * message.len();
    match number {
        CERTIFICATE => check::within(most, || signed(&message)),
        UNLOCK => {
            let read = check::within(most, || billet::UnlockRequest::decode(message.as_slice()));
            let shown = format!("{read:?}");
            let key = read.map(|request| request.key).unwrap_or_default();
            assert!(key.len() < 8 || !shown.contains(&key), "a key is printed");
            Outcome { accepted: !key.is_empty(), shapes: vec!["Unlock".to_owned()] }
        }
        call if call < CERTIFICATE => check::within(most, || called(call, &message)),
        other => {
            let (name, decode) = TYPES[other - FIRST_TYPE];
            match check::within(most, || decode(&message)) {
                Ok(length) => {
                    Outcome { accepted: true, shapes: vec![format!("{name}, long: {}", length > 20)] }
                }
                Err(text) => {
                    check::shown(&text);
                    Outcome::refused(&format!("{name} {text}"))
                }
            }
        }
    }
}

fn called(call: usize, message: &[u8]) -> Outcome {
    let mut shapes = Vec::new();
    for role in [Role::Admin, Role::Reader, Role::MetaWriter] {
        match reading::read(call, message, role) {
            Ok(()) => shapes.push(format!("{} is good", CALLS[call])),
            Err(status) => {
                let text = status.message();
                assert!(!text.is_empty(), "refused without a word: {status:?}");
                assert!(text.len() <= MOST_STATUS, "a status of {} bytes: {:.200}", text.len(), text);
                shapes.push(format!("{} {:?}{}", CALLS[call], status.code(), shape::of(text)));
            }
        }
    }
    Outcome { accepted: shapes.iter().any(|shape| shape.ends_with("good")), shapes }
}

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY
        .get_or_init(|| Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).expect("an authority"))
}

/// A certificate request as trustd gets it: its names do not matter here.
fn signed(request: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(request);
    let leaf = Leaf {
        organizations: vec![],
        names: vec!["10.0.0.5".into()],
        usage: Usage::Server,
        lifetime: Lifetime::from_now(CA_LIFETIME),
    };
    match authority().sign_request(&text, &leaf) {
        Ok(certificate) => {
            assert!(certificate.contains("BEGIN CERTIFICATE"), "{certificate}");
            Outcome { accepted: true, shapes: vec!["signed".to_owned()] }
        }
        Err(error) => {
            check::shown(&error.to_string());
            Outcome::refused(&error.to_string())
        }
    }
}

/// A message of fields: a byte with number and sort each, and what the sort wants.
fn built(mut fields: Fields<'_>, deep: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while !fields.is_empty() && out.len() < LONGEST {
        let tag = fields.u8();
        let number = u64::from(tag >> 3).max(1) << 3;
        match tag & 7 {
            0 => put(&mut out, number, &varint(fields.u8().into())),
            1 => put(&mut out, number | 1, &fields.u64().to_le_bytes()),
            2 => delimited(&mut out, number | 2, fields.sized()),
            3 if deep > 0 => {
                let inner = built(Fields::of(fields.sized()), deep - 1);
                delimited(&mut out, number | 2, &inner);
            }
            // Many of a kind.
            4 => {
                let count = usize::from(fields.u8()) * 16;
                let content = fields.sized();
                let room = (LONGEST - out.len()) / (content.len() + 4);
                (0..count.min(room)).for_each(|_| delimited(&mut out, number | 2, content));
            }
            5 => {
                put(&mut out, number | 5, &[fields.u16().to_le_bytes(), fields.u16().to_le_bytes()].concat())
            }
            6 => put(&mut out, number, &varint(fields.u64())),
            _ => out.push(fields.u8()),
        }
    }
    out
}

fn put(out: &mut Vec<u8>, tag: u64, value: &[u8]) {
    out.extend(varint(tag));
    out.extend(value);
}

fn delimited(out: &mut Vec<u8>, tag: u64, content: &[u8]) {
    out.extend(varint(tag));
    out.extend(varint(content.len() as u64));
    out.extend(content);
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
    out
}
