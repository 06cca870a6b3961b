//! The wire contract, held still: every service, message, field and enum value against a golden listing.
//!
//! `BILLET_BLESS=1 cargo test -p api --test wire` writes the listing anew; its difference in review is the change
//! of the contract. Numbers may be added, never changed.

use prost::Message;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use std::{env, fs};

const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wire.bin"));
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/wire.txt");

#[test]
fn the_wire_contract_is_the_golden_listing() {
    let listing = listing();
    if env::var_os("BILLET_BLESS").is_some() {
        fs::write(GOLDEN, &listing).expect("write the golden listing");
    }
    let golden = fs::read_to_string(GOLDEN).expect("read the golden listing");
    let missing: Vec<_> = golden.lines().filter(|line| !listing.lines().any(|l| l == *line)).collect();
    let added: Vec<_> = listing.lines().filter(|line| !golden.lines().any(|l| l == *line)).collect();
    assert!(
        missing.is_empty() && added.is_empty(),
        "the wire contract changed\ngone:  {missing:#?}\nadded: {added:#?}"
    );
}

/// Facts copied by hand from the spec, so that a slip in the golden file does not go unseen.
#[test]
fn spot_checks_from_the_spec() {
    let listing = listing();
    for fact in [
        "rpc /machine.MachineService/Reboot(machine.RebootRequest) -> machine.RebootResponse",
        "rpc /machine.MachineService/EtcdRecover(stream common.Data) -> machine.EtcdRecoverResponse",
        "rpc /machine.MachineService/Events(machine.EventsRequest) -> stream machine.Event",
        "rpc /securityapi.SecurityService/Certificate(securityapi.CertificateRequest) -> securityapi.CertificateResponse",
        "rpc /cosi.resource.State/Watch(cosi.resource.WatchRequest) -> stream cosi.resource.WatchResponse",
        "machine.ApplyConfigurationRequest 3 immediate bool",
        "machine.ApplyConfigurationRequest 4 mode machine.ApplyConfigurationRequest.Mode",
        "machine.Stat 7 name string",
        "machine.EtcdMembers 2 legacy_members repeated string",
        "machine.EtcdMember 2 id uint64",
        "machine.ServiceStateEvent.Action 8 STARTING",
        "machine.MemInfo 48 directmap1g uint64",
        "machine.ImageServicePullRequest 3 image_ref string",
        "machine.FileInfo 12 xattrs repeated machine.Xattr",
        "network.AddressFamily 10 IPV6",
        "cosi.resource.LabelTerm 5 invert bool",
        "cosi.resource.meta.ResourceDefinitionSpec 5 all_aliases repeated string",
        "common.Metadata 3 status google.rpc.Status",
    ] {
        assert!(listing.lines().any(|line| line == fact), "missing: {fact}");
    }
}

fn listing() -> String {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("decode the descriptors");
    let mut lines = Vec::new();
    for file in &set.file {
        for service in &file.service {
            for m in &service.method {
                let stream = |on: bool| if on { "stream " } else { "" };
                lines.push(format!(
                    "rpc /{}.{}/{}({}{}) -> {}{}",
                    file.package(),
                    service.name(),
                    m.name(),
                    stream(m.client_streaming()),
                    m.input_type().trim_start_matches('.'),
                    stream(m.server_streaming()),
                    m.output_type().trim_start_matches('.'),
                ));
            }
        }
        file.enum_type.iter().for_each(|e| enumeration(file.package(), e, &mut lines));
        file.message_type.iter().for_each(|m| message(file.package(), m, &mut lines));
    }
    lines.join("\n") + "\n"
}

fn message(scope: &str, m: &DescriptorProto, lines: &mut Vec<String>) {
    let name = format!("{scope}.{}", m.name());
    lines.push(format!("message {name}"));
    lines.extend(m.field.iter().map(|f| format!("{name} {} {} {}", f.number(), f.name(), field_type(f))));
    m.enum_type.iter().for_each(|e| enumeration(&name, e, lines));
    m.nested_type.iter().for_each(|n| message(&name, n, lines));
}

fn enumeration(scope: &str, e: &EnumDescriptorProto, lines: &mut Vec<String>) {
    lines.extend(e.value.iter().map(|v| format!("{scope}.{} {} {}", e.name(), v.number(), v.name())));
}

fn field_type(f: &FieldDescriptorProto) -> String {
    let repeated = if f.label() == Label::Repeated { "repeated " } else { "" };
    let named = match f.r#type() {
        Type::Message | Type::Enum => f.type_name().trim_start_matches('.').to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    };
    format!("{repeated}{named}")
}
