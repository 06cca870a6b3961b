//! Which mirror to ask: the environment's, else the one that the host itself uses.
//!
//! Owns: telling a Debian archive from other sources by its suites, so that no host name need be known here.
//! Fails by: naming the variable to set.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::sources::{Source, parse_deb822, parse_list};

const MAIN_VARIABLE: &str = "BILLET_DEBIAN_MIRROR";
const SECURITY_VARIABLE: &str = "BILLET_DEBIAN_SECURITY_MIRROR";

/// Suites of Debian's main archive: a source that serves one of them also serves ours.
const DEBIAN_SUITES: [&str; 10] =
    ["bullseye", "bookworm", "trixie", "forky", "duke", "oldstable", "stable", "testing", "unstable", "sid"];

/// Base addresses of the archives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirrors {
    pub(super) main: String,
    /// Absent when neither the host nor the environment names one.
    pub(super) security: Option<String>,
}

/// The mirrors for this build; `apt` is the host's directory of apt configuration.
pub(super) fn find(apt: &Path) -> Result<Mirrors> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    choose(variable(MAIN_VARIABLE), variable(SECURITY_VARIABLE), &host_sources(apt)?)
}

fn choose(main: Option<String>, security: Option<String>, sources: &[Source]) -> Result<Mirrors> {
    let serving = |wanted: fn(&str) -> bool| {
        let mut serving = sources.iter().filter(|source| source.suites.iter().any(|suite| wanted(suite)));
        serving.find(|source| !source.uri.starts_with("cdrom:")).map(|source| source.uri.clone())
    };
    let main = main.or_else(|| serving(is_main)).with_context(|| {
        format!(
            "the host's apt configuration names no Debian mirror: set {MAIN_VARIABLE} to the address of one \
             (the directory that contains dists/ and pool/)"
        )
    })?;
    Ok(Mirrors { main, security: security.or_else(|| serving(is_security)) })
}

fn is_main(suite: &str) -> bool {
    DEBIAN_SUITES.contains(&suite)
}

fn is_security(suite: &str) -> bool {
    suite.strip_suffix("-security").or_else(|| suite.strip_suffix("/updates")).is_some_and(is_main)
}

fn host_sources(apt: &Path) -> Result<Vec<Source>> {
    let mut files = vec![apt.join("sources.list")];
    if let Ok(items) = fs::read_dir(apt.join("sources.list.d")) {
        let mut parts: Vec<_> = items.filter_map(|item| Some(item.ok()?.path())).collect();
        parts.sort();
        files.extend(parts);
    }
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => sources.extend(parse_list(&text)),
            Some("sources") => sources.extend(parse_deb822(&text)),
            _ => {}
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let apt = tempfile::tempdir().unwrap();
        fs::create_dir(apt.path().join("sources.list.d")).unwrap();
        for (name, text) in files {
            fs::write(apt.path().join(name), text).unwrap();
        }
        apt
    }

    #[test]
    fn a_debian_host_lends_its_mirrors_of_any_release() {
        let apt = host(&[
            ("sources.list", "deb cdrom:[Debian]/ bookworm main\n"),
            ("sources.list.d/a.list", "deb http://tools.example/apt stable-tools main\n"),
            ("sources.list.d/b.list.disabled", "deb http://off.example/debian sid main\n"),
            (
                "sources.list.d/debian.sources",
                "Types: deb\nURIs: http://m.example/debian\nSuites: bookworm bookworm-updates\n\nTypes: deb\nURIs: http://s.example/security\nSuites: bookworm-security\n",
            ),
        ]);
        let mirrors = choose(None, None, &host_sources(apt.path()).unwrap()).unwrap();
        assert_eq!(mirrors.main, "http://m.example/debian");
        assert_eq!(mirrors.security.as_deref(), Some("http://s.example/security"));
    }

    #[test]
    fn the_environment_goes_first() {
        let sources = [Source { uri: "http://m.example/".into(), suites: vec!["sid".into()] }];
        let mirrors = choose(Some("file:/own".into()), None, &sources).unwrap();
        assert_eq!(mirrors, Mirrors { main: "file:/own".into(), security: None });
    }

    #[test]
    fn a_host_of_another_kind_is_told_what_to_set() {
        let apt = host(&[(
            "sources.list",
            "deb http://u.example/ubuntu noble main\ndeb http://u.example/ubuntu noble-security main\n",
        )]);
        let error = choose(None, None, &host_sources(apt.path()).unwrap()).unwrap_err().to_string();
        assert!(error.contains(MAIN_VARIABLE), "{error}");
    }
}
