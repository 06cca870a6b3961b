//! What a customisation asks for, as a TOML file says it.
//!
//! Owns: the file's keys; paths in it count from its directory.
//! Fails by: line and column with the keys that there are; all files that are not there, with theirs.
//! Source: docs/users/customising.md.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use oci::tarball;
use serde::Deserialize;
use toml::Spanned;

use super::unpack;
use crate::Error;
use crate::kernel::Given;
use crate::platform::Platform;

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
    /// Directories of firmware.
    pub firmware: Vec<PathBuf>,
    /// The machine config that the image brings.
    pub config: Option<PathBuf>,
    /// The public key that configs of single machines are signed with, in PEM.
    pub config_key: Option<PathBuf>,
    /// Another kernel than the image's.
    pub kernel: Option<Given>,
    /// System extensions: directories, tar files or container images.
    pub extensions: Vec<PathBuf>,
}

/// Files from somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// Where they come from.
    pub from: From,
    /// The directory that they go to; empty for the root.
    pub to: String,
}

/// Where files come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// A directory of this machine.
    Directory(PathBuf),
    /// The same, with the files' own modes.
    Stage(PathBuf),
    /// A tar file, also packed by gzip or zstd.
    Tar(PathBuf),
    /// A container image in a tar file, an OCI layout or of `docker save`, or in a directory with a layout.
    Image(PathBuf),
    /// One file, which keeps its name.
    File(PathBuf),
}

impl Addition {
    /// What a path of this machine is, by its content: a directory, a tar file, or one file if it is said where that goes. Whether
    /// a packed one is a tar file, what is in it tells; what is packed otherwise is only the user's to know.
    pub fn found(path: PathBuf, to: String) -> Result<Self, Error> {
        if path.is_dir() {
            return Ok(Self { from: From::Directory(path), to });
        }
        let (head, is_unpacked) = unpack::head(&path)?;
        if to.is_empty() || tarball::is_tar(&head) {
            return Ok(Self { from: From::Tar(path), to });
        }
        match tarball::advice(&head) {
            Some((found, advice)) if !is_unpacked || tarball::is_damaged(&head) => {
                Err(Error::FileOrTar { path, to, found, advice })
            }
            _ => Ok(Self { from: From::File(path), to }),
        }
    }
}

impl From {
    /// The directory or file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory(path)
            | Self::Stage(path)
            | Self::Tar(path)
            | Self::Image(path)
            | Self::File(path) => path,
        }
    }
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Text {
    platform: Option<Spanned<String>>,
    #[serde(default)]
    add: Vec<Spanned<Added>>,
    #[serde(default)]
    remove: Removed,
    #[serde(default)]
    kernel_arguments: Vec<String>,
    #[serde(default)]
    certificates: Vec<Named>,
    #[serde(default)]
    firmware: Vec<Named>,
    config: Option<Named>,
    config_key: Option<Named>,
    kernel: Option<KernelFiles>,
    #[serde(default)]
    extensions: Vec<Named>,
}

/// A path, and where it stands.
type Named = Spanned<PathBuf>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelFiles {
    path: Named,
    modules: Option<Named>,
    config: Option<Named>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    /// Profiles of before call it so.
    #[serde(alias = "folder")]
    directory: Option<Named>,
    tar: Option<Named>,
    image: Option<Named>,
    file: Option<Named>,
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

/// What a path must lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Either,
}

/// The text with what is wrong in it.
struct Checker<'t> {
    text: &'t str,
    directory: &'t Path,
    faults: Vec<(usize, String)>,
    /// A path counted from the wrong directory is the likely cause.
    is_missing: bool,
}

impl Checker<'_> {
    /// The path from here, with a fault if it does not lead to what it should.
    fn path(&mut self, named: Named, kind: Kind) -> PathBuf {
        let at = named.span().start;
        let path = self.directory.join(named.into_inner());
        let fault = match (kind, path.metadata()) {
            (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.is_missing = true;
                "is not there".to_owned()
            }
            (_, Err(error)) => format!("cannot be looked at: {error}"),
            (Kind::Directory, Ok(status)) if !status.is_dir() => "is no directory".to_owned(),
            (Kind::File, Ok(status)) if status.is_dir() => "is a directory, and a file is wanted".to_owned(),
            _ => return path,
        };
        self.faults.push((at, format!("{} {fault}", path.display())));
        path
    }

    fn paths(&mut self, named: Vec<Named>, kind: Kind) -> Vec<PathBuf> {
        named.into_iter().map(|named| self.path(named, kind)).collect()
    }

    fn platform(&mut self, named: &Spanned<String>) -> Option<Platform> {
        let fault = |reason| (named.span().start, format!("platform: {reason}"));
        Platform::named(named.get_ref()).map_err(|reason| self.faults.push(fault(reason))).ok()
    }

    fn addition(&mut self, added: Spanned<Added>) -> Option<Addition> {
        let at = added.span().start;
        let Added { directory, tar, image, file, to } = added.into_inner();
        let given: Vec<&str> = [("directory", &directory), ("tar", &tar), ("image", &image), ("file", &file)]
            .into_iter()
            .filter_map(|(key, path)| path.as_ref().map(|_| key))
            .collect();
        if given.len() != 1 {
            let has = if given.is_empty() { "none of them".to_owned() } else { given.join(" and ") };
            let what = format!("[[add]] must have one of directory, tar, image, file, and has {has}");
            self.faults.push((at, what));
            return None;
        }
        if file.is_some() && to.is_empty() {
            self.faults.push((
                at,
                "[[add]] with a file must say to which directory it goes: to = \"/…\"".to_owned(),
            ));
        }
        let from = directory.map(|path| From::Directory(self.path(path, Kind::Directory)));
        let from = from.or_else(|| tar.map(|path| From::Tar(self.path(path, Kind::File))));
        let from = from.or_else(|| image.map(|path| From::Image(self.path(path, Kind::Either))));
        let from = from.or_else(|| file.map(|path| From::File(self.path(path, Kind::File))));
        from.map(|from| Addition { from, to })
    }

    /// All faults in the order of their places.
    fn report(mut self) -> String {
        self.faults.sort();
        let line = |(at, fault): &(usize, String)| format!("{}: {fault}", place(self.text, *at));
        let lines: Vec<String> = self.faults.iter().map(line).collect();
        let hint = match (self.is_missing, self.directory == Path::new("")) {
            (false, _) => String::new(),
            (true, true) => "\npaths count from the profile's directory, which is this one".to_owned(),
            (true, false) => {
                format!("\npaths count from the profile's directory, {}", self.directory.display())
            }
        };
        lines.join("\n") + &hint
    }
}

/// `line 3, column 1`.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
    format!("line {}, column {column}", before.matches('\n').count() + 1)
}

impl Profile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::read(path))?;
        let bad = |reason: String| Error::BadProfile { path: path.to_owned(), reason };
        let parsed: Text = toml::from_str(&text).map_err(|error| {
            // Without the line itself: what is no profile may be a secret.
            let at = error.span().map_or(text.len(), |span| span.start);
            bad(format!("{}: {}", place(&text, at), error.message()))
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut checker = Checker { text: &text, directory, faults: Vec::new(), is_missing: false };
        let profile = Self::of(parsed, &mut checker);
        if checker.faults.is_empty() { Ok(profile) } else { Err(bad(checker.report())) }
    }

    fn of(text: Text, checker: &mut Checker<'_>) -> Self {
        let remove = match text.remove {
            Removed::List(list) => list,
            Removed::Words(words) => words.split_whitespace().map(str::to_owned).collect(),
        };
        Self {
            platform: text.platform.and_then(|name| checker.platform(&name)),
            additions: text.add.into_iter().filter_map(|added| checker.addition(added)).collect(),
            remove,
            kernel_arguments: text.kernel_arguments,
            certificates: checker.paths(text.certificates, Kind::File),
            firmware: checker.paths(text.firmware, Kind::Directory),
            config: text.config.map(|path| checker.path(path, Kind::File)),
            config_key: text.config_key.map(|path| checker.path(path, Kind::File)),
            kernel: text.kernel.map(|kernel| Given {
                path: checker.path(kernel.path, Kind::File),
                modules: kernel.modules.map(|path| checker.path(path, Kind::Directory)),
                config: kernel.config.map(|path| checker.path(path, Kind::File)),
            }),
            extensions: checker.paths(text.extensions, Kind::Either),
        }
    }

    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
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
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("files")).unwrap();
        fs::write(directory.path().join("profile.toml"), text).unwrap();
        Profile::read(&directory.path().join("profile.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_profile_is_read() {
        let profile = read(
            "remove = '/lib/modules  /a'\nkernel-arguments = ['quiet']\n[[add]]\ndirectory = 'files'\nto = '/usr/local'\n",
        )
        .unwrap();
        assert_eq!(profile.remove, ["/lib/modules", "/a"]);
        assert_eq!(profile.additions.len(), 1);
        assert_eq!(profile.additions[0].to, "/usr/local");
        assert_eq!(read("").unwrap(), Profile::default());
        let of_before = read("[[add]]\nfolder = 'files'\n").unwrap();
        assert_eq!(of_before.additions.len(), 1, "profiles of before are read");
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, wanted) in [
            ("kernel-arguments = []\nremoves = []\n", "line 2, column 1"),
            ("removes = []\n", "unknown field `removes`"),
            ("certificates = ['ca.pem']\n", "ca.pem is not there"),
            (
                "\n[[add]]\nto = '/'\n",
                "line 2, column 1: [[add]] must have one of directory, tar, image, file, and has none",
            ),
            (
                "[[add]]\ndirectory = 'files'\ntar = 'x'\n",
                "must have one of directory, tar, image, file, and has directory and tar",
            ),
            (
                "[[add]]\nfile = 'profile.toml'\n",
                "line 1, column 1: [[add]] with a file must say to which directory",
            ),
            ("[[add]]\ntar = 'files'\n", "line 2, column 7: "),
            ("[[add]]\ndirectory = 'profile.toml'\n", "profile.toml is no directory"),
            ("token: abc.secret\n", "line 1, column "),
            ("config = [", "line 1"),
            ("config-key = 'a.pub'\n", "a.pub is not there"),
            ("[kernel]\npath = 'vmlinuz'\n", "vmlinuz is not there"),
            ("platform = 'amazon'\n", "\"amazon\" is no platform that is known: use one of akamai, aws"),
            ("[kernel]\nmodules = 'files'\n", "missing field `path`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{wanted:?} is not in {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn all_missing_files_are_told_at_once_with_their_places() {
        let error = read(
            "certificates = ['files', 'ä.pem', 'b.pem']\n[kernel]\npath = 'vmlinuz'\n[[add]]\n  tar = 'x.tar'\n",
        )
        .unwrap_err();
        let mut lines = error.lines();
        for (place, name) in [
            ("line 1, column 17: ", "files is a directory, and a file is wanted"),
            ("line 1, column 26: ", "ä.pem is not there"),
            ("line 1, column 35: ", "b.pem is not there"),
            ("line 3, column 8: ", "vmlinuz is not there"),
            ("line 5, column 9: ", "x.tar is not there"),
            ("paths count from the profile's directory, ", ""),
        ] {
            let line = lines.next().unwrap();
            assert!(line.contains(place) && line.ends_with(name), "{place}{name:?} is not in {error}");
        }
    }
}
