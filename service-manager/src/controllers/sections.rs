//! Parts of the machine config, each shown by itself: the rules for images, extensions' services, containerd's parts, and what the
//! API server takes as proof of an identity.
//!
//! Does not: give them an effect: who does that reads the config.
//! Source: crates/api/tests/data/resources.tsv.

use config::Document;
use config::documents::VerificationRule;
use runtime::store::{
    AUTHENTICATION_CONFIG, CUSTOMIZATION_CONFIG, Definition, EXTENSION_SERVICE_CONFIG,
    IMAGE_VERIFICATION_RULE, MACHINE_CONFIG, Spec,
};
use serde_json::{Value, json};

use super::controller::{Action, Controller, Snapshot};

pub(crate) static CONTROLLER: Controller = Controller {
    name: AUTHENTICATION_CONFIG.writer,
    inputs: &[&MACHINE_CONFIG],
    outputs: &[
        &AUTHENTICATION_CONFIG,
        &CUSTOMIZATION_CONFIG,
        &EXTENSION_SERVICE_CONFIG,
        &IMAGE_VERIFICATION_RULE,
    ],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    Ok(vec![
        replace(snapshot, &AUTHENTICATION_CONFIG, authentication),
        replace(snapshot, &CUSTOMIZATION_CONFIG, customization),
        replace(snapshot, &EXTENSION_SERVICE_CONFIG, extension_service),
        replace(snapshot, &IMAGE_VERIFICATION_RULE, verification),
    ])
}

type Fields = (String, Value);

/// What all documents make of a type.
fn replace(snapshot: &Snapshot<'_>, kind: &'static Definition, of: fn(&Document) -> Vec<Fields>) -> Action {
    let documents = snapshot.machine_config().into_iter().flat_map(|config| &config.documents);
    let wanted = documents.flat_map(of).map(|(id, fields)| (id, Spec::Fields(fields)));
    Action::Replace(kind, wanted.collect())
}

fn authentication(document: &Document) -> Vec<Fields> {
    let Document::KubeAuthenticationConfig(document) = document else { return Vec::new() };
    vec![("authentication".to_owned(), json!({ "config": document.configuration }))]
}

fn customization(document: &Document) -> Vec<Fields> {
    let Document::CRICustomizationConfig(document) = document else { return Vec::new() };
    vec![(document.name.clone(), json!({ "content": document.content }))]
}

fn extension_service(document: &Document) -> Vec<Fields> {
    let Document::ExtensionServiceConfig(document) = document else { return Vec::new() };
    let files = document.config_files.iter();
    let files: Vec<_> =
        files.map(|file| json!({ "content": file.content, "mountPath": file.mount_path })).collect();
    vec![(document.name.clone(), json!({ "files": files, "environment": document.environment }))]
}

/// In the order in which they are tried.
fn verification(document: &Document) -> Vec<Fields> {
    let Document::ImageVerificationConfig(document) = document else { return Vec::new() };
    let rules = document.rules.iter().enumerate();
    rules.map(|(index, rule)| (format!("{index:04}"), rule_fields(rule))).collect()
}

fn rule_fields(rule: &VerificationRule) -> Value {
    let keyless = rule.keyless.as_ref().map(|signer| {
        json!({ "issuer": signer.issuer, "subject": signer.subject, "subjectRegex": signer.subject_regex })
    });
    let public_key = rule.public_key.as_ref().map(|signer| json!({ "certificate": signer.certificate }));
    let mut fields = json!({
        "imagePattern": rule.image,
        "skip": rule.skip.unwrap_or_default(),
        "deny": rule.deny.unwrap_or_default(),
    });
    for (key, signer) in [("keylessVerifier", keyless), ("publicKeyVerifier", public_key)] {
        if let Some(signer) = signer {
            fields[key] = signer;
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    /// The resources of a type, which have a binary form too.
    fn shown(documents: &str, kind: &'static Definition) -> Vec<Fields> {
        let behind = match documents {
            "" => String::new(),
            documents => format!("---\napiVersion: v1alpha1\n{documents}"),
        };
        let store = store_with_config(&behind);
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        let of_kind = |action| match action {
            Action::Replace(of, wanted) if of == kind => Some(wanted),
            _ => None,
        };
        let wanted = actions.into_iter().find_map(of_kind).unwrap_or_else(|| panic!("no {kind:?}"));
        let fields = |(id, spec): (String, Spec)| {
            spec.binary(kind.kind).unwrap_or_else(|error| panic!("{}: {error:?}", kind.kind));
            let Spec::Fields(fields) = spec else { panic!("{id} is no type of fields") };
            (id, fields)
        };
        wanted.into_iter().map(fields).collect()
    }

    #[test]
    fn each_document_is_a_resource_and_none_is_none() {
        for kind in CONTROLLER.outputs {
            assert_eq!(shown("", kind), [], "{kind:?}");
        }
        let text = "kind: CRICustomizationConfig\nname: a\ncontent: '[metrics]'\n";
        let found = shown(text, &CUSTOMIZATION_CONFIG);
        assert_eq!(found, [("a".to_owned(), json!({ "content": "[metrics]" }))]);
        let text = "kind: ExtensionServiceConfig\nname: nut\nconfigFiles: [{content: b, mountPath: /etc/c}]\nenvironment: [A=b]\n";
        let files = json!([{ "content": "b", "mountPath": "/etc/c" }]);
        let found = shown(text, &EXTENSION_SERVICE_CONFIG);
        assert_eq!(found, [("nut".to_owned(), json!({ "files": files, "environment": ["A=b"] }))]);
        let text = "kind: KubeAuthenticationConfig\nconfiguration: {anonymous: {enabled: false}}\n";
        let found = shown(text, &AUTHENTICATION_CONFIG);
        assert_eq!(found[0].1, json!({ "config": { "anonymous": { "enabled": false } } }));
    }

    #[test]
    fn rules_of_images_are_in_their_order() {
        let text = "kind: ImageVerificationConfig\nrules: [{image: a/*, skip: true}, {image: '*', publicKey: {certificate: PEM}}]\n";
        let found = shown(text, &IMAGE_VERIFICATION_RULE);
        let ids: Vec<_> = found.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["0000", "0001"]);
        assert_eq!(found[0].1, json!({ "imagePattern": "a/*", "skip": true, "deny": false }));
        assert_eq!(found[1].1["publicKeyVerifier"], json!({ "certificate": "PEM" }));
    }
}
