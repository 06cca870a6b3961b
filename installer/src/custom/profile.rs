//! What a customisation asks for, as a TOML file says it.
//!
//! Owns: the file's keys; paths in it count from its folder.
//! Fails by: line and column with the keys that there are; the name of a file that is not there.
//! Source: docs/users/customising.md.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Error;
use crate::image::Platform;
use crate::kernel::Given;

/// What is changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Where the image runs.
    pub platform: Option<Platform>,
    /// Files that are added.
    pub additions: Vec<Addition>,
    /// Paths that are removed.
    pub remove: Vec<String>,
    /// Behind the image's kernel arguments; `-name` takes one away.
    pub kernel_arguments: Vec<String>,
    /// Authorities in PEM.
    pub certificates: Vec<PathBuf>,
    /// Folders of firmware.
    pub firmware: Vec<PathBuf>,
    /// The machine config that the image brings.
    pub config: Option<PathBuf>,
    /// The public key that configs of single machines are signed with, in PEM.
    pub config_key: Option<PathBuf>,
    /// Another kernel than the image's.
    pub kernel: Option<Given>,
    /// System extensions: folders, tar files or container images.
    pub extensions: Vec<PathBuf>,
}

/// Files from somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// Where they come from.
    pub from: From,
    /// The folder that they go to; empty for the root.
    pub to: String,
}

/// Where files come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// A folder of this machine.
    Folder(PathBuf),
    /// The same, with the files' own modes.
    Stage(PathBuf),
    /// A tar file, also packed by gzip.
    Tar(PathBuf),
    /// A container image in a tar file: an OCI layout or of `docker save`.
    Image(PathBuf),
}

impl From {
    /// The folder or file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Folder(path) | Self::Stage(path) | Self::Tar(path) | Self::Image(path) => path,
        }
    }
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Text {
    platform: Option<String>,
    #[serde(default)]
    add: Vec<Added>,
    #[serde(default)]
    remove: Removed,
    #[serde(default)]
    kernel_arguments: Vec<String>,
    #[serde(default)]
    certificates: Vec<PathBuf>,
    #[serde(default)]
    firmware: Vec<PathBuf>,
    config: Option<PathBuf>,
    config_key: Option<PathBuf>,
    kernel: Option<KernelFiles>,
    #[serde(default)]
    extensions: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelFiles {
    path: PathBuf,
    modules: Option<PathBuf>,
    config: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    folder: Option<PathBuf>,
    tar: Option<PathBuf>,
    image: Option<PathBuf>,
    #[serde(default)]
    to: String,
}

/// A list, or words in one text as the guides' `RM`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Removed {
    List(Vec<String>),
    Words(String),
}

impl Default for Removed {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Profile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::read(path))?;
        let bad = |reason: String| Error::BadProfile { path: path.to_owned(), reason };
        let text: Text = toml::from_str(&text).map_err(|error| bad(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let here = |path: PathBuf| folder.join(path);
        let mut additions = Vec::new();
        for (number, added) in (1..).zip(text.add) {
            let from = match (added.folder, added.tar, added.image) {
                (Some(path), None, None) => From::Folder(here(path)),
                (None, Some(path), None) => From::Tar(here(path)),
                (None, None, Some(path)) => From::Image(here(path)),
                _ => return Err(bad(format!("the {number}. [[add]] must have one of folder, tar, image"))),
            };
            additions.push(Addition { from, to: added.to });
        }
        let remove = match text.remove {
            Removed::List(list) => list,
            Removed::Words(words) => words.split_whitespace().map(str::to_owned).collect(),
        };
        let platform = text.platform.map(|name| Platform::named(&name)).transpose();
        let profile = Self {
            platform: platform.map_err(|reason| bad(format!("platform: {reason}")))?,
            additions,
            remove,
            kernel_arguments: text.kernel_arguments,
            certificates: text.certificates.into_iter().map(here).collect(),
            firmware: text.firmware.into_iter().map(here).collect(),
            config: text.config.map(here),
            config_key: text.config_key.map(here),
            kernel: text.kernel.map(|kernel| Given {
                path: here(kernel.path),
                modules: kernel.modules.map(here),
                config: kernel.config.map(here),
            }),
            extensions: text.extensions.into_iter().map(here).collect(),
        };
        let named = profile
            .certificates
            .iter()
            .chain(&profile.firmware)
            .chain(&profile.config)
            .chain(&profile.config_key);
        let named = named.chain(&profile.extensions);
        let kernel = profile.kernel.iter();
        let named = named.chain(kernel.flat_map(|kernel| {
            [Some(&kernel.path), kernel.modules.as_ref(), kernel.config.as_ref()].into_iter().flatten()
        }));
        let sources = profile.additions.iter().map(|addition| addition.from.path());
        let missing = named.map(PathBuf::as_path).chain(sources).find(|path| !path.exists());
        match missing {
            Some(missing) => {
                Err(bad(format!("{} is not there; paths count from the profile's folder", missing.display())))
            }
            None => Ok(profile),
        }
    }

    /// What another one asks for besides.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.platform = other.platform.or(self.platform);
        self.additions.extend(other.additions);
        self.remove.extend(other.remove);
        self.kernel_arguments.extend(other.kernel_arguments);
        self.certificates.extend(other.certificates);
        self.firmware.extend(other.firmware);
        self.config = other.config.or(self.config);
        self.config_key = other.config_key.or(self.config_key);
        self.kernel = other.kernel.or(self.kernel);
        self.extensions.extend(other.extensions);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("files")).unwrap();
        fs::write(folder.path().join("profile.toml"), text).unwrap();
        Profile::read(&folder.path().join("profile.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_profile_is_read() {
        let profile = read(
            "remove = '/lib/modules  /a'\nkernel-arguments = ['quiet']\n[[add]]\nfolder = 'files'\nto = '/usr/local'\n",
        )
        .unwrap();
        assert_eq!(profile.remove, ["/lib/modules", "/a"]);
        assert_eq!(profile.additions.len(), 1);
        assert_eq!(profile.additions[0].to, "/usr/local");
        assert_eq!(read("").unwrap(), Profile::default());
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, wanted) in [
            ("kernel-arguments = []\nremoves = []\n", "line 2, column 1"),
            ("removes = []\n", "unknown field `removes`"),
            ("certificates = ['ca.pem']\n", "ca.pem is not there"),
            ("[[add]]\nto = '/'\n", "the 1. [[add]] must have one of folder, tar, image"),
            ("[[add]]\nfolder = 'files'\ntar = 'x'\n", "must have one of"),
            ("config = [", "line 1"),
            ("config-key = 'a.pub'\n", "a.pub is not there"),
            ("[kernel]\npath = 'vmlinuz'\n", "vmlinuz is not there"),
            ("platform = 'amazon'\n", "\"amazon\" is no platform that is known: use one of akamai, aws"),
            ("[kernel]\nmodules = 'files'\n", "missing field `path`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{wanted:?} is not in {error}");
        }
    }
}
