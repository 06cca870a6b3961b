//! The bill of materials: every input of an image with version, hash and licence, as an SPDX 2.3 JSON document.
//!
//! Owns: Debian packages that files are taken from and crates that are compiled into our programs.
//! Does not: carry the time of the build or a random name; the same inputs give the same bytes.
//! Source: SPDX specification 2.3 (clauses 6 to 11); package URLs ("purl", types deb and cargo).

mod crates;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

pub(crate) use crates::compiled_in;

use crate::cache::KeyBuilder;
use crate::inputs::{self, DEBIAN_SUITE, Package};

/// One thing that an image is made of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Component {
    name: String,
    version: String,
    /// SHA-256 of what was fetched; our own crates have none.
    sha256: Option<String>,
    /// An SPDX expression.
    licence: Option<String>,
    purl: Option<String>,
    /// What it is for: `debian` or `cargo`.
    origin: &'static str,
}

/// Debian packages with the licences that their copyright files name.
pub(crate) fn debian(
    packages: &[Package],
    directories: &BTreeMap<String, PathBuf>,
) -> Result<Vec<Component>> {
    packages
        .iter()
        .map(|package| {
            let directory = directories
                .get(&package.name)
                .with_context(|| format!("{} was not unpacked", package.name))?;
            Ok(debian_one(package, directory))
        })
        .collect()
}

fn debian_one(package: &Package, directory: &Path) -> Component {
    let copyright = directory.join("usr/share/doc").join(&package.name).join("copyright");
    // A package may lend the directory of another one (a link): then its licence is not known here.
    let text = std::fs::read(&copyright).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let version = package.version.replace('+', "%2B").replace(':', "%3A");
    Component {
        name: package.name.clone(),
        version: package.version.clone(),
        sha256: Some(package.sha256.clone()),
        licence: text.ok().and_then(|text| inputs::licences(&text)),
        purl: Some(format!(
            "pkg:deb/debian/{}@{version}?arch={}&distro={DEBIAN_SUITE}",
            package.name, package.arch
        )),
        origin: "debian",
    }
}

/// The document. `name` says which image part it describes, `epoch` is the one time of the build.
pub(crate) fn document(name: &str, version: &str, epoch: u64, components: &[Component]) -> Result<String> {
    let mut components = components.to_vec();
    components.sort();
    components.dedup();
    let packages: Vec<Value> = components.iter().map(package).collect();
    let describes: Vec<Value> = components.iter().map(relationship).collect();
    let digest = components.iter().fold(KeyBuilder::new(name), |key, component| {
        key.part(&component.name)
            .part(&component.version)
            .part(component.sha256.as_deref().unwrap_or_default())
    });
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("{name}-{version}"),
        "documentNamespace": format!("urn:billet:sbom:{name}:{}", digest.finish().short()),
        "creationInfo": { "created": timestamp(epoch), "creators": ["Tool: billet-xtask"] },
        "packages": packages,
        "relationships": describes,
        "hasExtractedLicensingInfos": extracted(&components),
    });
    let mut text = serde_json::to_string_pretty(&document).context("serialise the bill of materials")?;
    text.push('\n');
    Ok(text)
}

fn package(component: &Component) -> Value {
    let licence = component.licence.as_deref().unwrap_or("NOASSERTION");
    let mut package = json!({
        "SPDXID": identifier(component),
        "name": component.name,
        "versionInfo": component.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    });
    if let Some(sha256) = &component.sha256 {
        package["checksums"] = json!([{ "algorithm": "SHA256", "checksumValue": sha256 }]);
    }
    if let Some(purl) = &component.purl {
        package["externalRefs"] = json!([{
            "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl,
        }]);
    }
    package
}

fn relationship(component: &Component) -> Value {
    json!({
        "spdxElementId": "SPDXRef-DOCUMENT",
        "relationshipType": "DESCRIBES",
        "relatedSpdxElement": identifier(component),
    })
}

/// Letters, digits, dots and hyphens are all that an SPDX identifier may hold.
fn identifier(component: &Component) -> String {
    let text = format!("{}-{}-{}", component.origin, component.name, component.version);
    let clean = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' });
    format!("SPDXRef-{}", clean.collect::<String>())
}

/// Licences that SPDX has no name for are explained where they are used.
fn extracted(components: &[Component]) -> Vec<Value> {
    let mut found = BTreeMap::new();
    for component in components {
        let words = component.licence.iter().flat_map(|text| text.split([' ', '(', ')']));
        for word in words.filter(|word| word.starts_with("LicenseRef-")) {
            found.entry(word.to_owned()).or_insert_with(|| component.name.clone());
        }
    }
    let explain = |(word, name): (String, String)| {
        let text = format!("See /usr/share/doc/{name}/copyright in the Debian package {name}.");
        json!({ "licenseId": word, "extractedText": text })
    };
    found.into_iter().map(explain).collect()
}

/// `1970-01-01T00:00:00Z` and on. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn timestamp(epoch: u64) -> String {
    let (days, rest) = (epoch / 86_400, epoch % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str, licence: Option<&str>) -> Component {
        Component {
            name: name.into(),
            version: "1+2".into(),
            sha256: Some("00".into()),
            licence: licence.map(str::to_owned),
            purl: None,
            origin: "debian",
        }
    }

    #[test]
    fn the_same_inputs_in_any_order_give_the_same_document() {
        let (a, b) = (component("a", Some("MIT AND LicenseRef-odd")), component("b", None));
        let one = document("base", "1", 0, &[a.clone(), b.clone()]).unwrap();
        let other = document("base", "1", 0, &[b, a.clone(), a]).unwrap();
        assert_eq!(one, other);
        let value: Value = serde_json::from_str(&one).unwrap();
        assert_eq!(value["packages"][0]["SPDXID"], "SPDXRef-debian-a-1-2");
        assert_eq!(value["packages"][1]["licenseDeclared"], "NOASSERTION");
        assert_eq!(value["hasExtractedLicensingInfos"][0]["licenseId"], "LicenseRef-odd");
        assert_eq!(value["relationships"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn times_are_right() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(timestamp(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(timestamp(1_735_689_600), "2025-01-01T00:00:00Z");
    }
}
