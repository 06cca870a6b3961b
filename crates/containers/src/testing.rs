//! A containerd for tests: the one that goes into the image, with directories of its own.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ondisk::Digest;

use crate::Client;

pub struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The containerd that goes into the image, else the one on the path.
fn program() -> PathBuf {
    let unpacked = unpacked().map(|directory| directory.join("usr/bin/containerd"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<_> =
        std::env::split_paths(&path).map(|directory| directory.join("containerd")).collect();
    // The cache has those of images for other processors, too.
    let own = machine(&std::env::current_exe().unwrap());
    let found = unpacked.chain(on_path).find(|path| path.exists() && machine(path) == own);
    found.expect("there is no containerd: `cargo xtask build` unpacks the image's")
}

/// The path with containerd's shim, which goes into images, behind this machine's programs: runc wants this machine's libc.
fn path_with_shim() -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let shim = program().parent().map(Path::to_owned);
    std::env::join_paths(std::env::split_paths(&path).chain(shim)).unwrap()
}

/// What the build unpacked.
fn unpacked() -> impl Iterator<Item = PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let cache = cache.map(PathBuf::from).or_else(home).map(|cache| cache.join("billet/unpacked"));
    let unpacked = cache.and_then(|cache| std::fs::read_dir(cache).ok()).into_iter().flatten().flatten();
    unpacked.map(|entry| entry.path())
}

/// For which processor an ELF file is (`e_machine`).
fn machine(program: &Path) -> [u8; 2] {
    let mut header = [0; 20];
    std::fs::File::open(program).unwrap().read_exact(&mut header).unwrap();
    [header[18], header[19]]
}

impl Daemon {
    /// Starts it with these lines besides the usual ones; `dir` is for its files, `ca` is trusted alone.
    pub async fn start(dir: tempfile::TempDir, config: &str, ca: &str) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "containerd mounts file systems: run this test as root"
        );
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("config.toml"), config).unwrap();
        std::fs::write(path("ca.crt"), ca).unwrap();
        let log = std::fs::File::create(path("containerd.log")).unwrap();
        let child = Command::new(program())
            .env("SSL_CERT_FILE", path("ca.crt"))
            .env("PATH", path_with_shim())
            .args(["--config".as_ref(), path("config.toml").as_os_str()])
            .args(["--root".as_ref(), path("root").as_os_str()])
            .args(["--state".as_ref(), path("state").as_os_str()])
            .args(["--address".as_ref(), path("sock").as_os_str()])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self { child, dir };
        let begin = std::time::Instant::now();
        while daemon.client("system").health().await.is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "containerd does not serve within 60 s: {}",
                daemon.log()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        daemon
    }

    pub fn client(&self, namespace: &'static str) -> Client {
        Client::new(&self.dir.path().join("sock"), namespace)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("containerd.log")).unwrap_or_default()
    }
}

/// Without Kubernetes' interface.
pub const PLAIN: &str =
    "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.nri.v1.nri\"]\n";

pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Digest::sha256(&[bytes]))
}
