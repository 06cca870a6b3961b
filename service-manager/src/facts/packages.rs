//! Packages of the image, from its bill of materials (SPDX 2.3).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;

use runtime::Runtime;
use runtime::store::{Fact, SbomItem, Spec};
use serde::Deserialize;

const SBOM: &str = "/usr/share/billet/sbom.spdx.json";
/// What SPDX says where it says nothing.
const UNKNOWN: &str = "NOASSERTION";

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Package {
    name: String,
    #[serde(default)]
    version_info: String,
    #[serde(default)]
    license_declared: String,
    #[serde(default)]
    external_refs: Vec<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    reference_type: String,
    reference_locator: String,
}

/// Items by name; of several versions of one package the second has its version in the name.
pub(super) fn items(runtime: &Runtime) -> Vec<(String, Spec)> {
    let document = match File::open(runtime.path(SBOM)) {
        Ok(file) => serde_json::from_reader::<_, Document>(BufReader::new(file)).map_err(|e| e.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match document {
        Ok(document) => named(document).into_iter().collect(),
        Err(error) => {
            runtime.journal.warn(&format!("read {SBOM}: {error}; packages are not listed"));
            Vec::new()
        }
    }
}

fn named(document: Document) -> BTreeMap<String, Spec> {
    let mut items = BTreeMap::new();
    for package in document.packages {
        let purls = package.external_refs.into_iter().filter(|found| found.reference_type == "purl");
        let known = |text: String| if text == UNKNOWN { String::new() } else { text };
        let item = SbomItem {
            name: package.name,
            version: package.version_info,
            license: known(package.license_declared),
            purls: purls.map(|found| found.reference_locator).collect(),
        };
        let id = match items.contains_key(&item.name) {
            true => format!("{}-{}", item.name, item.version),
            false => item.name.clone(),
        };
        items.insert(id, Spec::Fact(Box::new(Fact::SbomItem(item))));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_versions_are_two_items() {
        let text = r#"{"packages": [
            {"name": "rand", "versionInfo": "0.8.5", "licenseDeclared": "MIT", "externalRefs":
                [{"referenceType": "purl", "referenceLocator": "pkg:cargo/rand@0.8.5"}]},
            {"name": "rand", "versionInfo": "0.9.0", "licenseDeclared": "NOASSERTION"}]}"#;
        let items = named(serde_json::from_str(text).unwrap());
        assert_eq!(items.keys().collect::<Vec<_>>(), ["rand", "rand-0.9.0"]);
        let text = items["rand"].yaml().unwrap();
        assert!(text.contains("license: MIT\n") && text.contains("pkg:cargo/rand@0.8.5"), "{text}");
        assert!(!items["rand-0.9.0"].yaml().unwrap().contains("license"));
    }
}
