//! Versions of Kubernetes and etcd, and ranges of them.
//!
//! Owns: reading a version from an image's tag; [`Minors`], by which tables say what a version has.
//! Source: the version skew policy of Kubernetes; tags of published images.

use std::fmt;

/// Versions of Kubernetes that are rendered: minors of major version 1.
pub const KUBERNETES_MINORS: std::ops::RangeInclusive<u32> = 19..=37;
/// Versions of etcd that are rendered: minors of major version 3.
pub const ETCD_MINORS: std::ops::RangeInclusive<u32> = 4..=7;

/// A released version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number; 0 where a tag leaves it out.
    pub patch: u32,
}

/// Why an image's tag is no version.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum VersionError {
    /// The image has a digest alone, or nothing.
    #[error("the image {image:?} has no tag; write the version as its tag, also beside a digest")]
    NoTag {
        /// The image.
        image: String,
    },
    /// The tag is not a version.
    #[error("the tag {tag:?} of {image:?} is not a version; write one such as v1.34.1")]
    NotAVersion {
        /// The image.
        image: String,
        /// Its tag.
        tag: String,
    },
    /// Older or newer than what is rendered.
    #[error("version {found} is not supported; use {major}.{first} to {major}.{last}")]
    Unsupported {
        /// The version.
        found: Version,
        /// The major version that is supported.
        major: u32,
        /// Its first minor.
        first: u32,
        /// Its last minor.
        last: u32,
    },
}

impl Version {
    /// The version of Kubernetes in an image's tag, which may have a suffix: `v1.34.1-amd64`.
    ///
    /// # Errors
    /// [`VersionError`] for an image without a version, or with one that is not in [`KUBERNETES_MINORS`].
    pub fn of_kubernetes(image: &str) -> Result<Self, VersionError> {
        Self::supported(Self::of_image(image)?, 1, &KUBERNETES_MINORS)
    }

    /// The version of etcd in an image's tag.
    ///
    /// # Errors
    /// As [`Version::of_kubernetes`], for [`ETCD_MINORS`].
    pub fn of_etcd(image: &str) -> Result<Self, VersionError> {
        Self::supported(Self::of_image(image)?, 3, &ETCD_MINORS)
    }

    fn supported(
        found: Self,
        major: u32,
        minors: &std::ops::RangeInclusive<u32>,
    ) -> Result<Self, VersionError> {
        if found.major == major && minors.contains(&found.minor) {
            return Ok(found);
        }
        Err(VersionError::Unsupported { found, major, first: *minors.start(), last: *minors.end() })
    }

    fn of_image(image: &str) -> Result<Self, VersionError> {
        let named = image.split_once('@').map_or(image, |(named, _)| named);
        let last = named.rsplit_once('/').map_or(named, |(_, last)| last);
        let Some((_, tag)) = last.split_once(':') else {
            return Err(VersionError::NoTag { image: image.to_owned() });
        };
        Self::parse(tag)
            .ok_or_else(|| VersionError::NotAVersion { image: image.to_owned(), tag: tag.to_owned() })
    }

    /// Reads `v1.34.1`, `1.34` or `v3.4.15-arm64`.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let numbers = numbers.split(['-', '+']).next()?;
        let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok());
        let (major, minor) = (parts.next()??, parts.next()??);
        let patch = parts.next().unwrap_or(Some(0))?;
        parts.next().is_none().then_some(Self { major, minor, patch })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// From which minor version on, and until which, something holds. Both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minors {
    since: u32,
    until: u32,
}

/// Every version.
pub const ALWAYS: Minors = Minors { since: 0, until: u32::MAX };

/// From this minor version on.
#[must_use]
pub const fn since(minor: u32) -> Minors {
    Minors { since: minor, until: u32::MAX }
}

/// Up to this minor version.
#[must_use]
pub const fn until(minor: u32) -> Minors {
    Minors { since: 0, until: minor }
}

impl Minors {
    /// Whether a version is one of these.
    #[must_use]
    pub const fn contain(self, version: Version) -> bool {
        self.since <= version.minor && version.minor <= self.until
    }

    /// The same, but not before this minor version.
    #[must_use]
    pub const fn and_since(self, minor: u32) -> Self {
        Self { since: minor, until: self.until }
    }

    /// The first of these rows whose versions have this one.
    pub fn pick<T: Copy>(rows: &[(Self, T)], version: Version) -> Option<T> {
        rows.iter().find(|(minors, _)| minors.contain(version)).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read() {
        let read = |image| Version::of_image(image).map(|version| version.to_string());
        for (image, version) in [
            ("registry.example.org/kube-apiserver:v1.34.1", "1.34.1"),
            ("registry.example.org:5000/kubelet:v1.20.6-arm64", "1.20.6"),
            ("kubelet:1.37", "1.37.0"),
            ("kubelet:v1.36.3@sha256:0123", "1.36.3"),
            ("kubelet:v1.36.3-rc.1+abc", "1.36.3"),
        ] {
            assert_eq!(read(image).as_deref(), Ok(version), "{image}");
        }
        for image in ["kubelet", "registry.example.org:5000/kubelet", "kubelet@sha256:0123"] {
            assert!(matches!(read(image), Err(VersionError::NoTag { .. })), "{image}");
        }
        for image in ["kubelet:latest", "kubelet:v1", "kubelet:v1.2.3.4", "kubelet:v1.x", "kubelet:"] {
            assert!(matches!(read(image), Err(VersionError::NotAVersion { .. })), "{image}");
        }
    }

    #[test]
    fn versions_outside_the_range_are_refused_with_it() {
        assert!(Version::of_kubernetes("kubelet:v1.19.16").is_ok());
        assert!(Version::of_etcd("etcd:v3.4.15").is_ok());
        let refused = Version::of_kubernetes("kubelet:v1.18.0").unwrap_err().to_string();
        assert_eq!(refused, "version 1.18.0 is not supported; use 1.19 to 1.37");
        assert!(Version::of_kubernetes("kubelet:v2.20.0").is_err());
        assert!(Version::of_etcd("etcd:v3.8.0").is_err());
    }

    #[test]
    fn ranges_have_both_ends() {
        let version = |minor| Version { major: 1, minor, patch: 0 };
        assert!(since(22).contain(version(22)) && !since(22).contain(version(21)));
        assert!(until(22).contain(version(22)) && !until(22).contain(version(23)));
        let rows = [(until(21), "old"), (ALWAYS, "new")];
        assert_eq!(Minors::pick(&rows, version(21)), Some("old"));
        assert_eq!(Minors::pick(&rows, version(22)), Some("new"));
    }
}
