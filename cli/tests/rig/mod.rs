//! A node on loopback and billetctl as a process against it.
#![allow(dead_code, reason = "each test program uses a part")]

use crate::fake;
use api::{
    generate::{Request, Secrets},
    pki::{CA_LIFETIME, CertificateFacts, Identity, Lifetime},
    roles::Role,
};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use std::{
    fs::File,
    io::Read,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};
use tokio::{task::spawn_blocking, time::timeout};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A terminal: the end that the test reads and types at, and the one that a program has.
pub(crate) fn terminal() -> (File, File) {
    let far = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&far).unwrap();
    let near = ptsname(&far, Vec::new()).unwrap();
    let near = File::options().read(true).write(true).open(near.to_str().unwrap()).unwrap();
    (far.into(), near)
}

/// A node, and a directory with the talosconfig for it.
pub(crate) struct Rig {
    dir: tempfile::TempDir,
    secrets: Secrets,
    server: Identity,
    /// Where the node listens.
    pub(crate) endpoint: String,
}

/// What a command did.
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::with(true).await
    }

    /// As a node in maintenance: nobody needs a certificate.
    pub(crate) async fn start_without_clients() -> Self {
        Self::with(false).await
    }

    async fn with(clients: bool) -> Self {
        let secrets = Secrets::generate().unwrap();
        let (endpoint, server) = fake::serve(&secrets, clients).await;
        let rig = Self { dir: tempfile::tempdir().unwrap(), secrets, server, endpoint };
        rig.write_config(&rig.endpoint);
        rig
    }

    /// A file or directory of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Fingerprint of the node's certificate.
    pub(crate) fn fingerprint(&self) -> String {
        CertificateFacts::from_pem("the node's certificate", &self.server.certificate).unwrap().fingerprint
    }

    /// The node was asked for this.
    pub(crate) async fn asked(&self, part: &str) {
        let asked = self.prints("read /asked").await;
        assert!(asked.contains(part), "{part} was not asked, but {asked}");
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("talosconfig")
    }

    pub(crate) fn write_config(&self, endpoint: &str) {
        let request = Request {
            cluster_name: "test".into(),
            endpoint: "https://10.0.2.15:6443".into(),
            cert_sans: vec![],
            hostname: None,
            api_endpoints: vec![endpoint.into()],
            api_nodes: vec![],
        };
        let config =
            self.secrets.talosconfig(&request, Some(Role::Admin), Lifetime::from_now(CA_LIFETIME)).unwrap();
        config.save(&self.config()).unwrap();
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_billetctl"));
        command
            .args(line.split_whitespace())
            .env("TALOSCONFIG", self.config())
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    /// What a command printed, as bytes.
    pub(crate) async fn output(&self, line: &str) -> std::process::Output {
        let mut command = self.command(line);
        let running = spawn_blocking(move || command.output().unwrap());
        timeout(DEADLINE, running).await.expect("billetctl ends in time").unwrap()
    }

    /// What a command writes to a terminal.
    pub(crate) async fn on_terminal(&self, line: &str) -> String {
        let (mut far, near) = terminal();
        let mut command = self.command(line);
        command.stdout(near).stderr(Stdio::null());
        let run = move || {
            let mut child = command.spawn().unwrap();
            // The child has the last open end: when it is closed, reading ends by an error.
            drop(command);
            let mut shown = Vec::new();
            let _ = far.read_to_end(&mut shown);
            assert!(child.wait().unwrap().success());
            String::from_utf8(shown).unwrap()
        };
        timeout(DEADLINE, spawn_blocking(run)).await.expect("billetctl ends in time").unwrap()
    }

    pub(crate) async fn run(&self, line: &str) -> Output {
        let output = self.output(line).await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Output { success: output.status.success(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// What a command prints that must succeed without a word on stderr.
    pub(crate) async fn prints(&self, line: &str) -> String {
        let output = self.run(line).await;
        assert!(output.success && output.stderr.is_empty(), "{line}: {}{}", output.stdout, output.stderr);
        output.stdout
    }

    pub(crate) async fn fails(&self, line: &str) -> String {
        let output = self.run(line).await;
        assert!(!output.success, "{line} succeeded: {}", output.stdout);
        output.stderr
    }
}
