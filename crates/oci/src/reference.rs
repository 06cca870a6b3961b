//! The name of an image: registry, repository, tag, digest.
//!
//! Owns: the grammar. Does not: guess a registry: a name without one is refused, since a node has no default of its own.
//! Source: OCI distribution specification, "Pulling manifests"; its grammar of repositories and tags.

use std::fmt;
use std::str::FromStr;

use ondisk::Digest;

use crate::Error;

/// Longest repository (distribution specification) and longest tag.
const MAX_REPOSITORY_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// `registry[:port]/repository[:tag][@sha256:…]`; at least one of tag and digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Host and port.
    pub registry: String,
    /// Path below it.
    pub repository: String,
    /// The tag; with a digest too it only says what a person meant.
    pub tag: Option<String>,
    /// What the manifest must be.
    pub digest: Option<Digest>,
}

impl Reference {
    /// What is asked for: the digest if there is one, else the tag.
    #[must_use]
    pub fn target(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => format!("sha256:{digest}"),
            (None, Some(tag)) => tag.clone(),
            // Not made by parsing.
            (None, None) => "latest".into(),
        }
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fail = |reason| Error::Reference { text: crate::error::shown(text), reason };
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => {
                let digest = crate::digest::parse(digest);
                (name, Some(digest.ok_or_else(|| fail("a digest is sha256: and 64 lower-case hex digits"))?))
            }
            None => (text, None),
        };
        let (registry, path) =
            name.split_once('/').ok_or_else(|| fail("name the registry: host/path:tag"))?;
        if !is_registry(registry) {
            return Err(fail(
                "the part before the first slash is no registry: use registry.example.org/path:tag",
            ));
        }
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (path, None),
        };
        if !is_repository(repository) {
            return Err(fail(
                "a path is lower-case letters and digits, with . _ - between them and / between its parts",
            ));
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(fail("a tag is up to 128 letters, digits and _ . -, not starting with . or -"));
        }
        if tag.is_none() && digest.is_none() {
            return Err(fail("name a tag or digest: host/path:tag or host/path@sha256:…"));
        }
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned(), tag, digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@sha256:{digest}")?;
        }
        Ok(())
    }
}

/// Host and port; a first part of a path is not taken for one.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    let like_a_host = text.contains(['.', ':']) || host == "localhost";
    like_a_host && port_fits && !host.is_empty() && host.chars().all(allowed)
}

fn is_repository(text: &str) -> bool {
    let part = |part: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
        ends(part.chars().next())
            && ends(part.chars().last())
            && part.chars().all(inner)
            && !part.contains("..")
    };
    text.len() <= MAX_REPOSITORY_BYTES && text.split('/').all(part)
}

fn is_tag(text: &str) -> bool {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    first && text.len() <= MAX_TAG_BYTES && text.chars().all(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHA: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn whole_names_are_read_and_written() {
        let digest = format!("localhost/a/b-c_d.e@{SHA}");
        for text in ["registry.example.org/billet/installer:v1.2.3", "10.0.2.2:5000/x:0_-.A", digest.as_str()]
        {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
        let both: Reference = format!("[fd00::1]:5000/a:v1@{SHA}").parse().unwrap();
        assert_eq!((both.registry.as_str(), both.target().as_str()), ("[fd00::1]:5000", SHA));
    }

    #[test]
    fn what_is_missing_is_said() {
        for (text, why) in [
            ("installer", "name the registry"),
            ("library/installer:1", "no registry"),
            ("r.example/installer", "name a tag"),
            ("r.example/Installer:1", "lower-case"),
            ("r.example/a//b:1", "lower-case"),
            ("r.example/../x:1", "lower-case"),
            ("r.example/a:-x", "a tag is"),
            ("r.example/a b:1", "lower-case"),
            ("r.example:0/a:1", "no registry"),
            ("r.example/a@sha256:12", "a digest is"),
            ("r.example/a@md5:12", "a digest is"),
            ("r.example/a?x:1", "lower-case"),
        ] {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        /// What parses is written as it was, and holds nothing that would change a request line.
        #[test]
        fn any_text_is_refused_or_kept(text in "[a-zA-Z0-9./:@_ \r\n%-]{0,60}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(reference.to_string(), text.clone());
                prop_assert!(!text.contains(char::is_whitespace) && !text.contains('%'));
            }
        }
    }
}
