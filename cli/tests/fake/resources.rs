//! The fake node's resources: a few types, each with enough to see what billetctl asks and prints.

use super::{Answer, Answers, Node, stream};
use api::proto::{
    cosi::resource::{self as cosi, meta, state_server},
    talos::resource::definitions::{enums, runtime, v1alpha1},
};
use prost::Message;
use std::{future::Future, pin::Pin};
use tonic::{Request, Response, Status};

const KIND: &str = "Services.v1alpha1.talos.dev";

fn resource(kind: &str, id: &str, yaml: &str, proto_spec: Vec<u8>) -> cosi::Resource {
    let metadata = cosi::Metadata {
        namespace: "runtime".into(),
        r#type: kind.into(),
        id: id.into(),
        version: "3".into(),
        phase: "running".into(),
        ..Default::default()
    };
    cosi::Resource { metadata: Some(metadata), spec: Some(cosi::Spec { proto_spec, yaml_spec: yaml.into() }) }
}

fn definition() -> cosi::Resource {
    let spec = meta::ResourceDefinitionSpec {
        resource_type: KIND.into(),
        display_type: "Service".into(),
        default_namespace: "runtime".into(),
        all_aliases: vec!["services".into(), "svc".into()],
        print_columns: vec![meta::PrintColumn { name: "Running".into(), json_path: "{.running}".into() }],
        ..Default::default()
    };
    resource("ResourceDefinitions.meta.cosi.dev", "services.v1alpha1.talos.dev", "{}", spec.encode_to_vec())
}

fn sensitive() -> cosi::Resource {
    let spec = meta::ResourceDefinitionSpec {
        resource_type: "MachineConfigs.config.talos.dev".into(),
        display_type: "MachineConfig".into(),
        default_namespace: "config".into(),
        sensitivity: meta::resource_definition_spec::Sensitivity::Sensitive.into(),
        ..Default::default()
    };
    let id = "machineconfigs.config.talos.dev";
    resource("ResourceDefinitions.meta.cosi.dev", id, "{}", spec.encode_to_vec())
}

const EARLIER: &str = "EarlierBoots.runtime.billet.dev";

fn earlier_boot_definition() -> cosi::Resource {
    let spec = meta::ResourceDefinitionSpec {
        resource_type: EARLIER.into(),
        display_type: "EarlierBoot".into(),
        default_namespace: "runtime".into(),
        ..Default::default()
    };
    let id = "earlierboots.runtime.billet.dev";
    resource("ResourceDefinitions.meta.cosi.dev", id, "{}", spec.encode_to_vec())
}

/// Resources come by their ids, which say nothing of the order.
fn earlier_boots() -> Vec<cosi::Resource> {
    let boot = |back: u32, end: &str| {
        let text = format!(
            "back: {back}\nversion: 1.{back}\nslot: ROOT-A\nstarted: \"2026-11-20T00:00:0{back}Z\"\n\
             lastHeardOf: \"2026-11-20T00:00:09Z\"\nstage: running\nend: {end}\nmachinedEnds: 0\nlastLines: []\n"
        );
        resource(EARLIER, &format!("id-{end}"), &text, vec![])
    };
    vec![boot(2, "rebooted"), boot(1, "cut off")]
}

fn apid() -> cosi::Resource {
    let spec = v1alpha1::ServiceSpec { running: true, ..Default::default() }.encode_to_vec();
    resource(KIND, "apid", "running: true\nhealthy: false\n", spec)
}

#[tonic::async_trait]
impl state_server::State for Node {
    type ListStream = Answers<cosi::ListResponse>;
    type WatchStream = Answers<cosi::WatchResponse>;

    async fn get(&self, request: Request<cosi::GetRequest>) -> Answer<cosi::GetResponse> {
        match request.get_ref() {
            r if r.r#type == "MachineConfigs.config.talos.dev"
                && r.namespace == "config"
                && r.id == "v1alpha1" =>
            {
                let text = self.config.lock().unwrap().clone();
                Ok(Response::new(cosi::GetResponse {
                    resource: Some(resource(&r.r#type, &r.id, &text, vec![])),
                }))
            }
            // Only the binary form, as a client with types reads it.
            r if r.r#type == "MachineStatuses.runtime.talos.dev"
                && r.namespace == "runtime"
                && r.id == "machine" =>
            {
                let status = runtime::MachineStatusStatus { ready: true, ..Default::default() };
                let stage = enums::RuntimeMachineStage::Running.into();
                let spec = runtime::MachineStatusSpec { stage, status: Some(status) }.encode_to_vec();
                let resource = resource(&r.r#type, &r.id, "", spec);
                Ok(Response::new(cosi::GetResponse { resource: Some(resource) }))
            }
            r if r.r#type == KIND && r.id == "apid" => {
                Ok(Response::new(cosi::GetResponse { resource: Some(apid()) }))
            }
            r => Err(Status::not_found(format!(
                "resource {}({}/{}) doesn't exist",
                r.r#type, r.namespace, r.id
            ))),
        }
    }

    async fn list(&self, request: Request<cosi::ListRequest>) -> Answer<Self::ListStream> {
        let resources = match request.get_ref().r#type.as_str() {
            KIND => vec![apid()],
            EARLIER => earlier_boots(),
            _ => vec![definition(), sensitive(), earlier_boot_definition()],
        };
        let item = |resource| cosi::ListResponse { resource: Some(resource) };
        Ok(stream(resources.into_iter().map(item).collect()))
    }

    async fn watch(&self, request: Request<cosi::WatchRequest>) -> Answer<Self::WatchStream> {
        assert_eq!(request.get_ref().api_version, 1);
        let event = |kind: cosi::EventType| {
            let event = cosi::Event { resource: Some(apid()), event_type: kind.into(), ..Default::default() };
            cosi::WatchResponse { event: vec![event] }
        };
        let kinds = [
            cosi::EventType::Created,
            cosi::EventType::Bootstrapped,
            cosi::EventType::Updated,
            cosi::EventType::Destroyed,
        ];
        let first = cosi::WatchResponse::default();
        Ok(stream(std::iter::once(first).chain(kinds.map(event)).collect()))
    }

    not_served! {
        create(cosi::CreateRequest) -> cosi::CreateResponse;
        update(cosi::UpdateRequest) -> cosi::UpdateResponse;
        destroy(cosi::DestroyRequest) -> cosi::DestroyResponse;
    }
}
