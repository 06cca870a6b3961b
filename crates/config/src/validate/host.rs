//! Rules of the documents for the host: kernel, files, installation.
//!
//! Source: `crates/config/testdata/documents-v1.14.txt` (what is required); the second generation's refusals, worded as there.

use super::{Problems, machine};
use crate::{
    documents::{Document, UnattendedInstallConfig},
    selector::Expression,
};
use std::path::{Component, Path};

/// Files of /etc that the node writes itself, by their path from there, and what is to be used instead.
pub const NODE_ETC_FILES: [(&str, &str); 3] = [
    ("hosts", "add names with StaticHostConfig or machine.network.extraHostEntries"),
    ("os-release", "it says which system this is"),
    ("resolv.conf", "name servers with ResolverConfig or machine.network.nameservers"),
];

pub(super) fn check(document: &Document, problems: &mut Problems) {
    match document {
        Document::SysctlConfig(d) => machine::parameters(&d.params, "params", problems),
        Document::SysfsConfig(d) => machine::parameters(&d.params, "params", problems),
        Document::KernelModuleConfig(d) if !d.name.is_empty() => {
            machine::module_name(&d.name, "name".to_owned(), problems);
        }
        Document::CRICustomizationConfig(d) if !d.name.is_empty() => customization(&d.name, problems),
        Document::EtcFileConfig(d) if !d.name.is_empty() => {
            let path = Path::new(&d.name);
            let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
            if !is_below || d.name.ends_with('/') {
                problems
                    .add("name", format!("`{}` is not the path of a file from /etc: nfsmount.conf", d.name));
            } else if let Some((name, instead)) = NODE_ETC_FILES.iter().find(|(name, _)| *name == d.name) {
                problems.add("name", format!("the node writes /etc/{name} itself: {instead}"));
            }
        }
        Document::UnattendedInstallConfig(d) => install(d, problems),
        _ => {}
    }
}

/// The name becomes that of a file. The older generation's file has one of these names.
fn customization(name: &str, problems: &mut Problems) {
    if name == "customization" {
        problems.add("name", "name \"customization\" is reserved; choose another one");
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
        problems.add("name", format!("`{name}` is not a name: letters, digits, `-` and `_`"));
    }
}

fn install(document: &UnattendedInstallConfig, problems: &mut Problems) {
    const FIELD: &str = "provisioning.diskSelector.match";
    let selector = document.provisioning.as_ref().and_then(|target| target.disk_selector.as_ref());
    match selector.map(|selector| selector.expression.as_str()).unwrap_or_default() {
        "" => {
            let message = "provisioning.diskSelector.match is required: `disk.dev_path == \"/dev/sda\"`";
            problems.add(FIELD, message);
        }
        expression => {
            if let Err(fault) = Expression::read(expression) {
                problems.add(FIELD, format!("disk selector is invalid: {fault}"));
            }
        }
    }
}
