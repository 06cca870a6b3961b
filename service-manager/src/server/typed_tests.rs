//! A client that reads binary forms only: every registered type over the wire, by the definitions alone.

use api::definitions::{decode, published, shown};
use api::proto::cosi::resource as proto;
use api::proto::cosi::resource::state_client::StateClient;
use prost::Message;
use runtime::store::{
    ALL, Definition, MACHINE_CONFIG, MACHINE_TYPE, OURS, STATIC_POD, STATIC_POD_STATUS, Sensitivity, samples,
};
use serde_json::Value;
use tonic::Code;
use tonic::transport::Channel;

use super::tests::fixture;

type Client = StateClient<Channel>;

/// Every resource of a type, as a client of this role gets it.
async fn list(
    client: &mut Client,
    kind: &Definition,
    role: Option<&'static str>,
) -> Result<Vec<proto::Resource>, tonic::Status> {
    let message =
        proto::ListRequest { namespace: kind.namespace.into(), r#type: kind.kind.into(), options: None };
    let mut request = tonic::Request::new(message);
    if let Some(role) = role {
        request.metadata_mut().insert("talos-role", role.parse().unwrap());
    }
    let mut stream = client.list(request).await?.into_inner();
    let mut found = Vec::new();
    while let Some(answer) = stream.message().await? {
        found.push(answer.resource.unwrap());
    }
    Ok(found)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(found) => !found,
        Value::Number(found) => found.as_f64() == Some(0.0),
        Value::String(found) => found.is_empty(),
        Value::Array(found) => found.is_empty(),
        Value::Object(found) => found.is_empty(),
    }
}

/// Words that are an enum's zero, which the binary form leaves out: the client has it all the same.
const ZEROS: [(&str, &str, &str); 1] = [("OperatorSpecs.net.talos.dev", "operator", "dhcp4")];

/// Keys of the YAML form whose value did not reach the typed client.
fn missing(kind: &str, yaml: &Value, tree: &Value, path: &str, out: &mut Vec<String>) {
    let Value::Object(map) = yaml else { return };
    for (key, value) in map.iter().filter(|(_, value)| !is_empty(value)) {
        let is_ours = path.is_empty() && OURS.contains(&(kind, key.as_str()));
        match tree.get(key) {
            _ if is_ours => {}
            None if ZEROS.iter().any(|zero| (zero.0, zero.1) == (kind, key) && value == zero.2) => {}
            None => out.push(format!("{kind}{path}.{key}: {value}")),
            // Of a free-form object its length alone is told here; the next test compares what is in it.
            Some(Value::String(length)) if value.is_object() && length.ends_with(" bytes") => {
                assert_ne!(length, "0 bytes", "{kind}{path}.{key}");
            }
            Some(inner) => missing(kind, value, inner, &format!("{path}.{key}"), out),
        }
    }
}

/// What a typed client does not see of a resource.
fn unseen(kind: &'static Definition, resource: &proto::Resource) -> Vec<String> {
    let spec = resource.spec.as_ref().unwrap();
    if spec.proto_spec.is_empty() {
        return vec![format!("{}: nothing for a typed client", kind.kind)];
    }
    let known = published().iter().find(|known| known.kind == kind.kind);
    let Some(message) = known.and_then(|known| known.message) else {
        // Definitions and namespaces are messages of the state API itself.
        return match proto::meta::ResourceDefinitionSpec::decode(spec.proto_spec.as_slice()) {
            Ok(_) => Vec::new(),
            Err(error) => vec![format!("{}: {error}", kind.kind)],
        };
    };
    let tree = decode(message, &spec.proto_spec).unwrap_or_else(|e| panic!("{}: {e}", kind.kind));
    let mut out = Vec::new();
    match kind.kind {
        _ if kind.kind == MACHINE_TYPE.kind => assert_eq!(tree["machineType"], 2),
        // Free-form objects, which the next test compares.
        _ if [STATIC_POD.kind, STATIC_POD_STATUS.kind].contains(&kind.kind) => {}
        _ if kind.kind == MACHINE_CONFIG.kind => {
            let bytes: Vec<u8> = spec.yaml_spec.bytes().collect();
            let tree: Vec<u8> = tree
                .as_object()
                .unwrap()
                .values()
                .next()
                .unwrap()
                .as_array()
                .unwrap()
                .iter()
                .map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap())
                .collect();
            assert_eq!(tree, bytes);
        }
        _ => {
            let yaml: Value = serde_saphyr::from_str(&spec.yaml_spec).unwrap();
            missing(kind.kind, &yaml, &tree, "", &mut out);
        }
    }
    out
}

/// Types that no published client knows, and the one of ours under a published suffix.
fn is_typed(kind: &Definition) -> bool {
    kind.kind.ends_with(".cosi.dev")
        || published().iter().any(|known| known.kind == kind.kind && known.message.is_some())
}

#[tokio::test]
async fn a_client_of_binary_forms_alone_sees_every_value_of_every_type() {
    let f = fixture().await;
    for (kind, spec) in samples() {
        f.node.runtime.store.put(kind.writer, kind, "sample", spec).unwrap();
    }
    let mut client = StateClient::new(f.channel.clone());
    let (mut unread, mut types) = (Vec::new(), 0);
    for kind in ALL.into_iter().filter(|kind| !kind.internal) {
        let found =
            list(&mut client, kind, Some("os:admin")).await.unwrap_or_else(|e| panic!("{}: {e}", kind.kind));
        types += 1;
        let is_published = published().iter().any(|known| known.kind == kind.kind);
        if (is_published || is_typed(kind)) && found.is_empty() != kind.writer.is_empty() {
            unread.push(format!("{}: {} resources, written by {:?}", kind.kind, found.len(), kind.writer));
        }
        if !is_typed(kind) {
            continue;
        }
        unread.extend(found.iter().flat_map(|resource| unseen(kind, resource)));
    }
    assert!(types > 200, "{types}");
    assert!(unread.is_empty(), "{unread:#?}");
}

#[tokio::test]
async fn what_our_own_tables_show_of_the_binary_form_is_what_yaml_says() {
    let f = fixture().await;
    for (kind, spec) in samples() {
        f.node.runtime.store.put(kind.writer, kind, "sample", spec).unwrap();
    }
    let mut client = StateClient::new(f.channel.clone());
    let mut seen = 0;
    for kind in ALL.into_iter().filter(|kind| !kind.internal && kind.kind != MACHINE_CONFIG.kind) {
        let known = published().iter().find(|known| known.kind == kind.kind);
        let Some(message) = known.and_then(|known| known.message) else { continue };
        let found =
            list(&mut client, kind, Some("os:admin")).await.unwrap_or_else(|e| panic!("{}: {e}", kind.kind));
        for spec in found.iter().filter_map(|resource| resource.spec.as_ref()) {
            let options = serde_saphyr::options! { strict_booleans: true };
            let yaml: Value = serde_saphyr::from_str_with_options(&spec.yaml_spec, options).unwrap();
            let shown =
                shown(message, &spec.proto_spec, &yaml).unwrap_or_else(|e| panic!("{}: {e}", kind.kind));
            assert_eq!(shown, yaml, "{}", kind.kind);
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}

#[tokio::test]
async fn sensitive_types_are_read_by_administrators_alone() {
    let f = fixture().await;
    for (kind, spec) in samples() {
        f.node.runtime.store.put(kind.writer, kind, "sample", spec).unwrap();
    }
    let mut client = StateClient::new(f.channel.clone());
    let mut refused = 0;
    for kind in ALL.into_iter().filter(|kind| !kind.internal) {
        for role in [None, Some("os:reader"), Some("os:operator")] {
            let code = list(&mut client, kind, role).await.err().map(|status| status.code());
            let expected = (kind.sensitivity == Sensitivity::Sensitive).then_some(Code::PermissionDenied);
            assert_eq!(code, expected, "{} as {role:?}", kind.kind);
            refused += usize::from(code.is_some());
        }
    }
    // The sheets have this many sensitive types.
    assert_eq!(refused % 3, 0);
    assert!(refused / 3 >= 35, "{refused}");
}
