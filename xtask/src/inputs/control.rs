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

/// What upstream published of a source package, as the signed index describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upstream {
    /// Name of the source package.
    pub(crate) name: String,
    pub(crate) version: String,
    /// The file's name in the archive.
    pub(crate) file: String,
    /// SHA-256 of it, lower-case hex.
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
}

/// The first version in an `apt-cache showsrc`; None where there is none.
pub(super) fn parse_source(text: &str) -> Result<Option<Upstream>> {
    let mut stanzas = text.split("\n\n").filter(|stanza| !stanza.trim().is_empty());
    stanzas.next().map(parse_upstream).transpose()
}

fn parse_upstream(stanza: &str) -> Result<Upstream> {
    let name = field(stanza, "Package")?;
    let lines = stanza.lines().skip_while(|line| !line.starts_with("Checksums-Sha256:")).skip(1);
    let found = lines.take_while(|line| line.starts_with(' ')).find_map(|line| {
        let mut words = line.split_whitespace();
        let (sha256, bytes, file) = (words.next()?, words.next()?, words.next()?);
        // Not a signature of it, `.orig.tar.gz.asc`.
        (file.contains(".orig.tar.") && !file.ends_with(".asc")).then_some((sha256, bytes, file))
    });
    let inner = || -> Result<Upstream> {
        let (sha256, bytes, file) = found.context("no .orig.tar file in Checksums-Sha256")?;
        Ok(Upstream {
            name: name.clone(),
            version: field(stanza, "Version")?,
            file: file.to_owned(),
            sha256: sha256.to_owned(),
            bytes: bytes.parse().context("a size is not a number")?,
        })
    };
    inner().with_context(|| format!("index entry of the source of {name}"))
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
    fn upstreams_file_is_found_by_its_checksum_line() {
        let text = "Package: runc\nVersion: 1.1-2\nFiles:\n 77 5 runc_1.1.orig.tar.xz\nChecksums-Sha256:\n \
            aa 9 runc_1.1-2.dsc\n bb 1 runc_1.1.orig.tar.xz.asc\n cc 5 runc_1.1.orig.tar.xz\nDirectory: x\n\n\
            Package: runc\nVersion: 1.0-1\n";
        let found = parse_source(text).unwrap().unwrap();
        assert_eq!(
            (found.name.as_str(), found.version.as_str(), found.file.as_str()),
            ("runc", "1.1-2", "runc_1.1.orig.tar.xz")
        );
        assert_eq!((found.sha256.as_str(), found.bytes), ("cc", 5));
        assert_eq!(parse_source("\n").unwrap(), None);
        let error =
            parse_source("Package: x\nVersion: 1\nChecksums-Sha256:\n aa 1 x_1.tar.xz\n").unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "index entry of the source of x: no .orig.tar file in Checksums-Sha256"
        );
    }

    #[test]
    fn a_missing_field_is_named_with_its_package() {
        let error = parse("Package: x\nVersion: 1\nArchitecture: all\nSize: 2\n").unwrap_err();
        assert_eq!(format!("{error:#}"), "index entry of x: no field SHA256");
    }
}
