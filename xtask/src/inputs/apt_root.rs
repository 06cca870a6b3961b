//! An apt of our own: configuration, index and state below the cache, used with the host's apt programs.
//!
//! Owns: `<cache>/apt/` (for other machines than those that build `apt-<architecture>/`, with backports `apt-backports/`, of the release before `apt-earlier/`), a whole apt root; the versions that the last index offered (`resolved.json`).
//! Does not: read the host's apt state or write outside the cache. The host lends mirror address, proxy settings
//! and the archive's public keys.
//! Fails by: refusing an index that the Debian archive keys did not sign.
//! Source: apt.conf(5), apt-get(8), apt-secure(8).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::control::{self, Package, Upstream};
use super::mirror::{self, Mirrors};
use super::{Archive, Freshness};
use crate::cache::{Cache, file_digest};
use crate::command::Cmd;
use crate::step::{step, warn};
use crate::target::Architecture;

/// An index younger than this is used as it is.
const INDEX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Public keys of the archive; the second name is the one newer packages use.
const KEYRINGS: [&str; 2] =
    ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];

pub(super) struct AptRoot {
    directory: PathBuf,
    architecture: Architecture,
    suite: &'static str,
    resolved: Resolved,
    /// One run at a time changes index and versions.
    _lock: File,
}

/// What one index offered; builds use these versions until the index is renewed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Resolved {
    /// Seconds since 1970 at which the index was fetched.
    fetched: u64,
    /// The source list that it was fetched with.
    sources: String,
    packages: BTreeMap<String, Package>,
    /// Source packages.
    #[serde(default)]
    upstreams: BTreeMap<String, Upstream>,
}

impl AptRoot {
    pub(super) fn open(
        cache: &Cache,
        freshness: Freshness,
        architecture: Architecture,
        archive: Archive,
    ) -> Result<Self> {
        let mut name = match architecture {
            Architecture::Amd64 => "apt".to_owned(),
            other => format!("apt-{}", other.name()),
        };
        name.push_str(match archive {
            Archive::Release => "",
            Archive::Backports => "-backports",
            Archive::Earlier => "-earlier",
        });
        let lock = cache.lock(&name)?;
        let directory = cache.root().join(name);
        let sources = source_list(&mirror::find(Path::new("/etc/apt"))?, &keyring()?, archive);
        let (resolved, suite) = (Resolved::read(&directory), archive.suite());
        let mut root = Self { resolved, directory, architecture, suite, _lock: lock };
        root.set_up(&sources)?;
        root.renew_if_due(freshness, &sources)?;
        Ok(root)
    }

    /// Versions of packages, from the index when an earlier build did not ask for them.
    pub(super) fn resolve(&mut self, names: &[&str]) -> Result<&BTreeMap<String, Package>> {
        let unknown: BTreeSet<&str> =
            names.iter().copied().filter(|name| !self.resolved.packages.contains_key(*name)).collect();
        if !unknown.is_empty() {
            let show = self.apt("apt-cache").args(["show", "--no-all-versions"]).args(&unknown);
            for package in control::parse(&show.read()?)? {
                self.resolved.packages.insert(package.name.clone(), package);
            }
            self.resolved.write(&self.directory)?;
        }
        Ok(&self.resolved.packages)
    }

    /// Fetches the packages' files into `directory`.
    pub(super) fn download(&self, packages: &[&Package], directory: &Path) -> Result<()> {
        let wanted = packages.iter().map(|package| format!("{}={}", package.name, package.version));
        let fetch = self.apt("apt-get").args(["download", "-q"]).args(wanted).directory(directory);
        fetch.run().context(
            "fetch Debian packages (a version that the mirror no longer has: run again with --update)",
        )
    }

    /// Fetches one package and stores it in a cache entry.
    pub(super) fn fetch_one(&self, package: &Package, entry: &Path) -> Result<()> {
        let scratch = tempfile::tempdir_in(&self.directory)
            .with_context(|| format!("create a directory in {}", self.directory.display()))?;
        step(&format!("fetch {} {}", package.name, package.version), || {
            self.download(&[package], scratch.path())
        })?;
        take(package, scratch.path(), entry)
    }

    /// What there is of a source package, from the index when an earlier build did not ask for it.
    pub(super) fn resolve_source(&mut self, name: &str) -> Result<Upstream> {
        if let Some(known) = self.resolved.upstreams.get(name) {
            return Ok(known.clone());
        }
        let show = self.apt("apt-cache").args(["showsrc", "--only-source", name]);
        let found = control::parse_source(&show.read()?)?;
        let found = found.with_context(|| format!("the archive ({}) has no source of {name}", self.suite))?;
        self.resolved.upstreams.insert(name.to_owned(), found.clone());
        self.resolved.write(&self.directory)?;
        Ok(found)
    }

    /// Fetches what upstream published of a source package, without Debian's changes.
    pub(super) fn fetch_source(&self, source: &Upstream, to: &Path) -> Result<()> {
        let scratch = tempfile::tempdir_in(&self.directory)
            .with_context(|| format!("create a directory in {}", self.directory.display()))?;
        let what = format!("{}={}", source.name, source.version);
        step(&format!("fetch the source of {}, {} MiB", source.name, source.bytes >> 20), || {
            let fetch = self.apt("apt-get").args(["source", "-q", "--download-only", "--tar-only", &what]);
            fetch.directory(scratch.path()).run().context("fetch a source package of Debian")
        })?;
        keep(&source.name, &source.sha256, &scratch.path().join(&source.file), to)
    }

    fn set_up(&self, sources: &str) -> Result<()> {
        let parts =
            ["etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/lib/dpkg"];
        for part in parts.iter().chain(&["var/cache/apt/archives/partial"]) {
            let directory = self.directory.join(part);
            fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        }
        self.place("var/lib/dpkg/status", "")?;
        self.place("etc/apt/sources.list", sources)?;
        self.place("apt.conf", &configuration(&self.directory, self.architecture, &host_proxies()))
    }

    fn place(&self, name: &str, text: &str) -> Result<()> {
        let path = self.directory.join(name);
        if fs::read_to_string(&path).is_ok_and(|present| present == text) {
            return Ok(());
        }
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    fn renew_if_due(&mut self, freshness: Freshness, sources: &str) -> Result<()> {
        let same = self.resolved.sources == sources;
        let age = Duration::from_secs(now().saturating_sub(self.resolved.fetched));
        let is_fresh = match freshness {
            Freshness::Day => age < INDEX_AGE,
            Freshness::Now => false,
            Freshness::AsFetched => true,
        };
        if same && is_fresh {
            return Ok(());
        }
        match step("fetch the Debian package index", || self.renew(sources)) {
            Ok(()) => Ok(()),
            Err(fault) if same && freshness == Freshness::Day => {
                let hours = age.as_secs() / 3600;
                warn(&format!("building with the package index of {hours} hours ago: {fault:#}"));
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    fn renew(&mut self, sources: &str) -> Result<()> {
        // `any`: a mirror that does not answer is an error, not an old index silently used again.
        let update = self.apt("apt-get").args(["update", "-q", "--error-on=any"]).read();
        if let Err(fault) = update {
            let hint = if format!("{fault:#}").contains("NO_PUBKEY") { OLD_KEYRING } else { "" };
            return Err(fault.context(format!("fetch the index of Debian {}{hint}", self.suite)));
        }
        self.resolved = Resolved { fetched: now(), sources: sources.to_owned(), ..Resolved::default() };
        self.resolved.write(&self.directory)
    }

    fn apt(&self, program: &str) -> Cmd {
        Cmd::new(program).env("APT_CONFIG", self.directory.join("apt.conf"))
    }
}

impl Resolved {
    fn read(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join("resolved.json")).unwrap_or_default();
        // Unreadable is as good as absent: the index is fetched again.
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join("resolved.json");
        let fresh = directory.join("resolved.json.new");
        let text = serde_json::to_string_pretty(self).context("serialise package versions")?;
        fs::write(&fresh, text).with_context(|| format!("write {}", fresh.display()))?;
        fs::rename(&fresh, &path).with_context(|| format!("rename to {}", path.display()))
    }
}

const OLD_KEYRING: &str = ": the host's archive keys are older than this release; \
    upgrade its package debian-archive-keyring";

/// Copies a fetched package into its cache entry if it is what the signed index promised.
pub(super) fn take(package: &Package, fetched: &Path, entry: &Path) -> Result<()> {
    keep(&package.name, &package.sha256, &find_deb(fetched, package)?, &entry.join("package.deb"))
}

fn keep(name: &str, promised: &str, file: &Path, to: &Path) -> Result<()> {
    let digest = file_digest(file)?;
    if digest != promised {
        bail!("{name}: the index promises SHA-256 {promised}, the file has {digest}");
    }
    fs::copy(file, to).with_context(|| format!("copy {}", file.display())).map(drop)
}

fn find_deb(directory: &Path, package: &Package) -> Result<PathBuf> {
    let prefix = format!("{}_", package.name);
    for item in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let path = item.with_context(|| format!("list {}", directory.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(&prefix) && name.ends_with(".deb") {
            return Ok(path);
        }
    }
    bail!("apt-get fetched no file for {} {}", package.name, package.version)
}

fn source_list(mirrors: &Mirrors, keyring: &Path, archive: Archive) -> String {
    let release = archive.suite();
    let line = |kind: &str, uri: &str, suite: &str| {
        format!("{kind} [signed-by={}] {uri} {suite} main\n", keyring.display())
    };
    let of_kind = |kind: &str| {
        let mut text =
            line(kind, &mirrors.main, release) + &line(kind, &mirrors.main, &format!("{release}-updates"));
        if let Some(security) = &mirrors.security {
            text += &line(kind, security, &format!("{release}-security"));
        }
        text
    };
    let mut text = of_kind("deb");
    match archive {
        Archive::Release => {}
        Archive::Backports => text += &line("deb", &mirrors.main, &format!("{release}-backports")),
        Archive::Earlier => text += &of_kind("deb-src"),
    }
    text
}

fn configuration(root: &Path, architecture: Architecture, proxies: &str) -> String {
    let architecture = architecture.name();
    let root = root.display();
    format!(
        "Dir \"{root}\";\nDir::State::status \"{root}/var/lib/dpkg/status\";\nDir::Log \"{root}/var\";\n\
         APT::Architecture \"{architecture}\";\nAPT::Architectures \"{architecture}\";\nAPT::Sandbox::User \"\";\n\
         Acquire::Languages \"none\";\nAcquire::Retries \"3\";\n{proxies}"
    )
}

/// The host's way to the network, as configuration lines. None when there is no apt-config.
fn host_proxies() -> String {
    let dump = Cmd::new("apt-config").args(["dump", "Acquire"]).read().unwrap_or_default();
    let wanted =
        ["Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::https::CA", "Acquire::http::Proxy-Auto"];
    let lines = dump.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    lines.map(|line| format!("{line}\n")).collect()
}

fn keyring() -> Result<PathBuf> {
    KEYRINGS.iter().map(PathBuf::from).find(|path| path.is_file()).with_context(|| {
        "the Debian archive's public keys are not on this machine: install the package debian-archive-keyring"
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::super::DEBIAN_SUITE;
    use super::*;

    fn root_for(sources: &str) -> (tempfile::TempDir, AptRoot) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        let lock = cache.lock("apt").unwrap();
        let root = AptRoot {
            directory: directory.path().join("apt"),
            architecture: Architecture::Amd64,
            suite: DEBIAN_SUITE,
            resolved: Resolved::default(),
            _lock: lock,
        };
        root.set_up(sources).unwrap();
        (directory, root)
    }

    /// A mirror whose index nobody signed.
    fn unsigned_mirror() -> tempfile::TempDir {
        let mirror = tempfile::tempdir().unwrap();
        let directory = mirror.path().join("dists").join(DEBIAN_SUITE);
        fs::create_dir_all(directory.join("main/binary-amd64")).unwrap();
        fs::write(directory.join("main/binary-amd64/Packages"), "").unwrap();
        let release = "Origin: Debian\nSuite: stable\nCodename: trixie\nComponents: main\nArchitectures: amd64\n\
            Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n \
            e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 main/binary-amd64/Packages\n";
        fs::write(directory.join("Release"), release).unwrap();
        mirror
    }

    #[test]
    fn an_unsigned_index_is_refused() {
        let mirror = unsigned_mirror();
        let keyring = keyring().unwrap();
        let uri = format!("file:{}", mirror.path().display());
        let line = format!("deb [signed-by={}] {uri} {DEBIAN_SUITE} main\n", keyring.display());
        let (_directory, mut root) = root_for(&line);
        let error = format!("{:#}", root.renew(&line).unwrap_err());
        assert!(error.contains("is not signed"), "{error}");
        assert_eq!(root.resolved.fetched, 0);
        // The same mirror, trusted by hand, is accepted: it was the signature that was missed.
        let trusted = format!("deb [trusted=yes] {uri} {DEBIAN_SUITE} main\n");
        root.set_up(&trusted).unwrap();
        root.renew(&trusted).unwrap();
    }

    #[test]
    fn a_package_of_another_content_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x_1_all.deb"), "not what was promised").unwrap();
        let package = control::parse(&format!(
            "Package: x\nVersion: 1\nArchitecture: all\nSize: 2\nSHA256: {}\n",
            "0".repeat(64)
        ));
        let package = package.unwrap().remove(0);
        let error = take(&package, directory.path(), directory.path()).unwrap_err().to_string();
        assert!(error.starts_with("x: the index promises SHA-256 000"), "{error}");
    }

    #[test]
    fn the_release_before_has_its_own_suites_and_sources() {
        let mirrors =
            Mirrors { main: "http://m.example/d".into(), security: Some("http://s.example".into()) };
        let list = |archive| source_list(&mirrors, Path::new("/k"), archive);
        let line = |kind, rest| format!("{kind} [signed-by=/k] http://{rest} main\n");
        let of = |kind| {
            ["m.example/d bookworm", "m.example/d bookworm-updates", "s.example bookworm-security"]
                .map(|rest| line(kind, rest))
                .concat()
        };
        assert_eq!(list(Archive::Earlier), of("deb") + &of("deb-src"));
        assert_eq!(list(Archive::Release), of("deb").replace("bookworm", DEBIAN_SUITE));
        let backports = line("deb", "m.example/d trixie-backports");
        assert_eq!(list(Archive::Backports), list(Archive::Release) + &backports);
    }

    #[test]
    fn an_index_is_kept_for_a_day_and_used_longer_without_a_mirror() {
        let sources = "deb [signed-by=/none] file:/no/such/mirror trixie main\n";
        let (_directory, mut root) = root_for(sources);
        assert!(root.renew_if_due(Freshness::Day, sources).is_err(), "there is no index at all");
        root.resolved = Resolved { fetched: now() - 1, sources: sources.into(), ..Resolved::default() };
        root.renew_if_due(Freshness::Day, sources).unwrap();
        assert!(root.renew_if_due(Freshness::Now, sources).is_err(), "--update must ask the mirror");
        root.resolved.fetched -= 2 * INDEX_AGE.as_secs();
        root.renew_if_due(Freshness::Day, sources).unwrap();
        root.renew_if_due(Freshness::AsFetched, sources).unwrap();
        assert!(
            root.renew_if_due(Freshness::AsFetched, "deb other").is_err(),
            "another mirror, another index"
        );
        assert!(root.renew_if_due(Freshness::Day, "deb other").is_err(), "another mirror, another index");
    }
}
