//! Debian control stanzas: the fields of a package that a build needs.
//!
//! Source: Debian Policy §5 (control files and their fields).

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One version of a package, as the signed index describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) arch: String,
    /// Name of the source package.
    pub(crate) source: String,
    /// SHA-256 of the `.deb` file, lower-case hex.
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    /// Names in `Depends`, alternatives and version limits left out.
    pub(crate) depends: Vec<String>,
}

/// Every stanza of an `apt-cache show`.
pub(super) fn parse(text: &str) -> Result<Vec<Package>> {
    text.split("\n\n").filter(|stanza| !stanza.trim().is_empty()).map(parse_one).collect()
}

fn parse_one(stanza: &str) -> Result<Package> {
    let name = field(stanza, "Package")?;
    let inner = || -> Result<Package> {
        let source = field(stanza, "Source").unwrap_or_else(|_| name.clone());
        Ok(Package {
            name: name.clone(),
            version: field(stanza, "Version")?,
            arch: field(stanza, "Architecture")?,
            source: first_word(&source),
            sha256: field(stanza, "SHA256")?,
            bytes: field(stanza, "Size")?.parse().context("Size is not a number")?,
            depends: field(stanza, "Depends").map(|list| dependencies(&list)).unwrap_or_default(),
        })
    };
    inner().with_context(|| format!("index entry of {name}"))
}

fn field(stanza: &str, name: &str) -> Result<String> {
    stanza
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(|value| value.trim().to_owned())
        .with_context(|| format!("no field {name}"))
}

fn dependencies(list: &str) -> Vec<String> {
    list.split(',').map(first_word).filter(|name| !name.is_empty()).collect()
}

fn first_word(text: &str) -> String {
    text.split([' ', '(', '|', ':']).find(|word| !word.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "Package: runc\nVersion: 1.1.15+ds1-2+b4\nArchitecture: amd64\nSource: runc (1.1.15+ds1-2)\n\
        Depends: libc6 (>= 2.38), libseccomp2 (>= 2.5.0) | other, python3:any\nSize: 3229748\nSHA256: 00ff\n\
        Description: a\n Depends: not this\n\nPackage: netbase\nVersion: 6.5\nArchitecture: all\nSize: 1\nSHA256: 01\n";

    #[test]
    fn fields_are_read() {
        let packages = parse(TWO).unwrap();
        let [runc, netbase] = packages.as_slice() else { panic!("two stanzas") };
        assert_eq!(
            (runc.version.as_str(), runc.source.as_str(), runc.bytes),
            ("1.1.15+ds1-2+b4", "runc", 3_229_748)
        );
        assert_eq!(runc.depends, ["libc6", "libseccomp2", "python3"]);
        assert_eq!((netbase.source.as_str(), netbase.depends.len()), ("netbase", 0));
    }

    #[test]
    fn a_missing_field_is_named_with_its_package() {
        let error = parse("Package: x\nVersion: 1\nArchitecture: all\nSize: 2\n").unwrap_err();
        assert_eq!(format!("{error:#}"), "index entry of x: no field SHA256");
    }
}
