//! `ImageVerificationConfig`, applied to the images that the node fetches.
//!
//! Owns: the rules of the config as a policy, and what becomes of an image by its rule.
//! Does not: look at what Kubernetes' containerd pulls by itself.
//! Order: a rule that refuses does so before a registry is asked; a signature is checked before anything of the image is
//! read but its documents, and what is read afterwards is bound to the digest that was signed.
//! Source: the public reference of Talos 1.13, `ImageVerificationConfig`.

use config::Document;
use config::documents::{ImageVerificationConfig, VerificationRule};
use oci::Reference;
use oci::registry::{Client, Image};
use oci::signature::{Action, Key, Policy, Rule};
use runtime::Runtime;

use super::failure::Failure;

/// What the rules say of one image.
#[derive(Debug)]
pub(super) struct Ruling(Option<Rule>);

impl Ruling {
    /// The rule for an image, or why it may not be used whatever it holds.
    pub(super) fn of(runtime: &Runtime, reference: &Reference) -> Result<Self, Failure> {
        let documents = runtime.document().map(|document| document.documents.clone()).unwrap_or_default();
        let policy = policy(&documents).map_err(Failure::Refused)?;
        let Some(rule) = policy.rule_for(reference) else { return Ok(Self(None)) };
        let refusal = match &rule.action {
            Action::Skip | Action::Signed(_) => return Ok(Self(Some(rule.clone()))),
            Action::Deny => "refuses it".to_owned(),
            Action::Keyless => {
                "wants a keyless signature, which this version cannot check: sign the image with a key and name it \
                 under publicKey"
                    .to_owned()
            }
        };
        Err(Failure::Refused(format!("{reference}: {rule} {refusal}")))
    }

    /// Whether a signature is needed.
    pub(super) fn wants_signature(&self) -> bool {
        self.0.as_ref().is_some_and(|rule| matches!(rule.action, Action::Signed(_)))
    }

    /// Checks the signature that is needed, if one is.
    pub(super) async fn check(&self, client: &Client, image: &Image) -> Result<(), Failure> {
        match &self.0 {
            Some(Rule { action: Action::Signed(key), .. }) => Ok(client.check_signed(image, key).await?),
            _ => Ok(()),
        }
    }

    /// The ruling on an image from a file: no signature comes with it.
    pub(super) fn check_import(&self, reference: &Reference) -> Result<(), Failure> {
        match &self.0 {
            Some(rule) if self.wants_signature() => {
                let text = format!(
                    "{reference}: {rule} wants a signature, and an image from a file has none: take it from a \
                     registry, or put a rule with `skip: true` for its name before that one"
                );
                Err(Failure::Refused(text))
            }
            _ => Ok(()),
        }
    }

    /// What was found, for people.
    pub(super) fn describe(&self) -> String {
        match &self.0 {
            None => {
                "no rule of ImageVerificationConfig fits this image: its signatures were not looked at".into()
            }
            Some(rule) if self.wants_signature() => format!("signed with the key of {rule}"),
            Some(rule) => format!("{rule} leaves its signatures unchecked"),
        }
    }
}

fn policy(documents: &[Document]) -> Result<Policy, String> {
    let mut rules = Vec::new();
    for document in documents {
        let Document::ImageVerificationConfig(ImageVerificationConfig { rules: given }) = document else {
            continue;
        };
        for (index, rule) in given.iter().enumerate() {
            let action =
                action(rule).map_err(|what| format!("ImageVerificationConfig rules[{index}]{what}"))?;
            rules.push(Rule { images: rule.image.clone(), action });
        }
    }
    Ok(Policy { rules })
}

fn action(rule: &VerificationRule) -> Result<Action, String> {
    if let Some(signer) = &rule.public_key {
        let key = Key::from_pem(&signer.certificate);
        return key.map(Action::Signed).map_err(|error| format!(".publicKey.certificate: {error}"));
    }
    if rule.keyless.is_some() {
        return Ok(Action::Keyless);
    }
    if rule.deny == Some(true) {
        return Ok(Action::Deny);
    }
    Ok(Action::Skip)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
        -----END PUBLIC KEY-----\n";

    fn documents(rules: &str) -> Vec<Document> {
        let text = format!(
            "machine: {{}}\n---\napiVersion: v1alpha1\nkind: ImageVerificationConfig\nrules: {rules}\n"
        );
        config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}")).documents
    }

    #[test]
    fn each_rule_becomes_what_it_says() {
        let key = KEY.replace('\n', "\\n");
        let text = format!(
            "[{{image: a/*, skip: true}}, {{image: b/*, deny: true}}, {{image: c/*, keyless: {{subject: x}}}}, \
             {{image: d/*, publicKey: {{certificate: \"{key}\"}}}}]"
        );
        let rules = policy(&documents(&text)).unwrap().rules;
        let images: Vec<&str> = rules.iter().map(|rule| rule.images.as_str()).collect();
        assert_eq!(images, ["a/*", "b/*", "c/*", "d/*"]);
        let actions: Vec<Action> = rules.into_iter().map(|rule| rule.action).collect();
        let signed = Action::Signed(Key::from_pem(KEY).unwrap());
        assert_eq!(actions, [Action::Skip, Action::Deny, Action::Keyless, signed]);
    }

    #[test]
    fn a_key_that_is_none_is_named_with_its_rule() {
        let text = "[{image: a/*, skip: true}, {image: b/*, publicKey: {certificate: nothing}}]";
        let error = policy(&documents(text)).unwrap_err();
        let expected = "ImageVerificationConfig rules[1].publicKey.certificate: \
                        no PEM block PUBLIC KEY or CERTIFICATE is in it";
        assert_eq!(error, expected);
    }
}
