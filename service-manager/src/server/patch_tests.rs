//! `patch mc` as each generation of clients does it, by its calls on the wire: read the resource, change the text, apply.

use api::proto::cosi::resource as cosi;
use api::proto::cosi::resource::state_client::StateClient;
use api::proto::machine as proto;
use api::proto::machine::apply_configuration_request::Mode;
use api::proto::resource as old;
use api::proto::resource::resource_service_client::ResourceServiceClient;
use api::proto::talos::resource::definitions::config::MachineConfigSpec;
use prost::Message;
use tonic::Request;
use zeroize::Zeroizing;

use super::tests::{Fixture, fixture};
use crate::configuration::put_into_force;

const CONFIG: &str = "version: v1alpha1\n\
    cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n\
    machine:\n  type: worker\n  token: a.b\n  install: {disk: /dev/vda}\n  sysctls:\n    vm.start: '1'\n";

fn as_admin<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("talos-role", "os:admin".parse().unwrap());
    request
}

/// The text as `talosctl` v1.13 and v1.14 read it: the resource's binary form, which must say what its YAML says.
async fn read_new(f: &Fixture) -> String {
    let get = cosi::GetRequest {
        namespace: "config".into(),
        r#type: "MachineConfigs.config.talos.dev".into(),
        id: "v1alpha1".into(),
        options: None,
    };
    let answer = StateClient::new(f.channel.clone()).get(as_admin(get)).await.unwrap().into_inner();
    let spec = answer.resource.unwrap().spec.unwrap();
    let text = MachineConfigSpec::decode(spec.proto_spec.as_slice()).unwrap().yaml_marshalled;
    assert_eq!(text, spec.yaml_spec.as_bytes());
    String::from_utf8(text).unwrap()
}

/// The text as `talosctl` v0.9.3 reads it: the resource's YAML itself.
async fn read_old(f: &Fixture) -> String {
    let get = old::GetRequest { namespace: String::new(), r#type: "mc".into(), id: "v1alpha1".into() };
    let answer = ResourceServiceClient::new(f.channel.clone()).get(as_admin(get)).await.unwrap();
    let resource = answer.into_inner().messages.remove(0).resource.unwrap();
    String::from_utf8(resource.spec.unwrap().yaml).unwrap()
}

/// One more sysctl, as a patch of the text would add it.
fn with_sysctl(text: &str, name: &str) -> Vec<u8> {
    let patch = format!("machine: {{sysctls: {{vm.{name}: '1'}}}}");
    let patches = config::patch::load_patches(&patch).unwrap();
    config::patch::apply(text, &patches).unwrap().into_bytes()
}

async fn patch_new(f: &Fixture, name: &str, mode: Mode) {
    let data = with_sysctl(&read_new(f).await, name);
    let request = proto::ApplyConfigurationRequest { data, mode: mode.into(), ..Default::default() };
    f.machine().apply_configuration(as_admin(request)).await.unwrap();
}

async fn patch_old(f: &Fixture, name: &str) {
    let data = with_sysctl(&read_old(f).await, name);
    let request = proto::ApplyConfigurationRequest { data, immediate: true, ..Default::default() };
    f.machine().apply_configuration(as_admin(request)).await.unwrap();
}

/// Modes in which a change of a kernel parameter takes effect at once. The one that waits for the restart is tested by the change that
/// follows it: `configuration::apply`.
const MODES: [Mode; 3] = [Mode::NoReboot, Mode::Auto, Mode::Try];

/// `patch mc -p A; patch mc -p B`: two hundred pairs, of each generation and mixed, in each mode.
#[tokio::test]
async fn no_update_is_lost_by_the_calls_of_either_generation() {
    let f = fixture().await;
    put_into_force(&f.node.configuration, Zeroizing::new(CONFIG.to_owned())).unwrap();
    for pair in 0..200 {
        let (first, second) = (format!("a{pair}"), format!("b{pair}"));
        let mode = MODES[pair % MODES.len()];
        match pair % 4 {
            0 => (patch_new(&f, &first, mode).await, patch_new(&f, &second, mode).await),
            1 => (patch_old(&f, &first).await, patch_old(&f, &second).await),
            2 => (patch_new(&f, &first, mode).await, patch_old(&f, &second).await),
            _ => (patch_old(&f, &first).await, patch_new(&f, &second, mode).await),
        };
    }
    for text in [read_new(&f).await, read_old(&f).await] {
        let config = config::parse(&text).unwrap();
        assert_eq!(config.machine.sysctls.len(), 401);
    }
}
