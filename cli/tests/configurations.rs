//! Making, changing and sending configurations with the real program, against a node on loopback and with openssl as
//! the judge of certificates.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod fake;

use api::{
    generate::{Request, Secrets},
    pki::{CA_LIFETIME, Lifetime},
    roles::Role,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};
use tokio::{task::spawn_blocking, time::timeout};

const DEADLINE: Duration = Duration::from_secs(60);

/// A directory in which commands run.
struct Rig {
    dir: tempfile::TempDir,
    editor: Option<String>,
}

struct Output {
    success: bool,
    stdout: String,
    stderr: String,
}

impl Rig {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), editor: None }
    }

    /// With a node and a client configuration for it.
    async fn with_node() -> Self {
        let (rig, secrets) = (Self::new(), Secrets::generate().unwrap());
        let endpoint = fake::serve(&secrets, true).await.0;
        let request = Request {
            cluster_name: "test".into(),
            endpoint: "https://10.0.2.15:6443".into(),
            cert_sans: vec![],
            hostname: None,
            api_endpoints: vec![endpoint],
            api_nodes: vec![],
        };
        let config =
            secrets.talosconfig(&request, Some(Role::Admin), Lifetime::from_now(CA_LIFETIME)).unwrap();
        config.save(&rig.path("talosconfig")).unwrap();
        rig.write("node.yaml", fake::CONFIG);
        rig
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs the words; a word may hold spaces.
    async fn words(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_billetctl"));
        command
            .args(words)
            .current_dir(self.dir.path())
            .env("TALOSCONFIG", self.path("talosconfig"))
            .env("TMPDIR", self.dir.path())
            .env_remove("EDITOR")
            .env("TALOS_EDITOR", self.editor.as_deref().unwrap_or("false"))
            .stdin(Stdio::null());
        let output = timeout(DEADLINE, spawn_blocking(move || command.output().unwrap()));
        let output = output.await.expect("billetctl ends in time").unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Output { success: output.status.success(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    async fn run(&self, line: &str) -> Output {
        self.words(&line.split_whitespace().collect::<Vec<_>>()).await
    }

    async fn succeeds(&self, line: &str) -> Output {
        let output = self.run(line).await;
        assert!(output.success, "{line}: {}{}", output.stdout, output.stderr);
        output
    }

    async fn fails(&self, line: &str) -> String {
        let output = self.run(line).await;
        assert!(!output.success, "{line} succeeded: {}", output.stdout);
        output.stderr
    }

    async fn node_config(&self) -> String {
        // The reader's own table form of a document is another test's; a patch that fits shows it as it is kept.
        let output = self.succeeds("edit mc").await;
        assert_eq!(output.stdout, "Apply was skipped: no changes detected.\n");
        self.read("seen")
    }
}

fn is_private(path: &Path) -> bool {
    fs::metadata(path).unwrap().permissions().mode() & 0o777 == 0o600
}

/// Whether openssl is here, and then whether it is content; its absence is told, not passed over in silence.
fn openssl(dir: &Path, line: &str) -> Option<String> {
    match Command::new("openssl").args(line.split_whitespace()).current_dir(dir).output() {
        Ok(output) => {
            assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            eprintln!("openssl was not asked: {error}");
            None
        }
    }
}

#[tokio::test]
async fn an_administrator_s_certificate_is_made_and_renewed_as_the_guide_does() {
    let rig = Rig::new();
    rig.succeeds("gen config demo https://10.0.0.1:6443").await;
    let node = config::load(rig.read("controlplane.yaml").as_bytes()).map_err(|e| e.to_string()).unwrap();
    // "Save the CA public key, and CA private key as ca.crt, and ca.key respectively."
    let ca = &node.config.machine.ca;
    rig.write("ca.crt", &ca.crt.0);
    rig.write("ca.key", ca.key().unwrap().expose_secret());
    rig.succeeds("gen key --name admin").await;
    for hours in ["", " --hours 48"] {
        rig.succeeds("gen csr --key admin.key --ip 127.0.0.1").await;
        let made = rig.succeeds(&format!("gen crt --ca ca --csr admin.csr --name admin{hours}")).await;
        assert!(made.stdout.starts_with("created admin.crt, valid until 20"), "{}", made.stdout);
        if let Some(text) = openssl(rig.dir.path(), "verify -CAfile ca.crt admin.crt") {
            assert_eq!(text, "admin.crt: OK\n");
        }
        if let Some(text) = openssl(rig.dir.path(), "x509 -in admin.crt -noout -text") {
            assert!(text.contains("IP Address:127.0.0.1") && text.contains("O = os:admin"), "{text}");
        }
    }
    assert!(is_private(&rig.path("admin.key")) && is_private(&rig.path("admin.crt")));
    assert!(rig.fails("gen key --name admin").await.contains("already exists, use --force to overwrite"));
    // `cat admin.crt | base64` breaks lines after 76 characters.
    let broken = |name: &str| {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(rig.read(name));
        text.as_bytes()
            .chunks(76)
            .map(|c| format!("      {}\n", std::str::from_utf8(c).unwrap()))
            .collect::<String>()
    };
    let text = format!(
        "context: demo\ncontexts:\n  demo:\n    endpoints: [127.0.0.1]\n    ca: |\n{}    crt: |\n{}    key: |\n{}",
        broken("ca.crt"),
        broken("admin.crt"),
        broken("admin.key")
    );
    rig.write("talosconfig", &text);
    let info = rig.succeeds("config info").await;
    assert!(info.stdout.contains("Roles:               os:admin\n"), "{}", info.stdout);
    rig.succeeds("config add second --ca ca.crt --crt admin.crt --key admin.key").await;
    assert!(rig.succeeds("config contexts").await.stdout.contains("second"));
    assert!(
        rig.fails("config add third --ca ca.crt --crt ca.crt --key admin.key")
            .await
            .contains("does not belong")
    );
}

#[tokio::test]
async fn secrets_are_taken_over_from_a_kubernetes_cluster() {
    let rig = Rig::new();
    fs::create_dir_all(rig.path("pki/etcd")).unwrap();
    for name in ["ca", "front-proxy-ca", "etcd/ca"] {
        // As kubeadm makes them: RSA.
        let line = format!(
            "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=kubernetes -keyout pki/{name}.key -out pki/{name}.crt"
        );
        openssl(rig.dir.path(), &line).expect("openssl is there");
    }
    openssl(rig.dir.path(), "genrsa -out pki/sa.key 2048").expect("openssl is there");
    let take = "gen secrets --from-kubernetes-pki pki --kubernetes-bootstrap-token abcdef.0123456789abcdef";
    rig.succeeds(&format!("{take} -o taken.yaml")).await;
    rig.succeeds("gen config demo https://10.0.0.1:6443 --with-secrets taken.yaml").await;
    let node = config::load(rig.read("controlplane.yaml").as_bytes()).map_err(|e| e.to_string()).unwrap();
    let cluster = &node.config.cluster;
    assert_eq!(cluster.ca.crt.0, rig.read("pki/ca.crt"));
    assert_eq!(cluster.ca.key().unwrap().expose_secret(), rig.read("pki/ca.key"));
    assert_eq!(cluster.token.as_ref().unwrap().expose_secret(), "abcdef.0123456789abcdef");
    let text = rig.read("taken.yaml");
    let holds = |name: &str| {
        use base64::Engine as _;
        text.contains(&base64::engine::general_purpose::STANDARD.encode(rig.read(name)))
    };
    for name in ["pki/front-proxy-ca.key", "pki/etcd/ca.crt", "pki/etcd/ca.key", "pki/sa.key"] {
        assert!(holds(name), "{name}");
    }
    assert!(is_private(&rig.path("taken.yaml")));
    assert!(rig.fails(&format!("{take} -o taken.yaml")).await.contains("already exists"));
    assert!(rig.fails("gen secrets --kubernetes-bootstrap-token x").await.contains("6 and 16"));
    rig.write("pki/ca.key", &rig.read("pki/etcd/ca.key"));
    assert!(rig.fails(&format!("{take} -o other.yaml")).await.contains("certs.k8s"));
    fs::remove_file(rig.path("pki/sa.key")).unwrap();
    assert!(rig.fails(&format!("{take} -o other.yaml")).await.contains("read pki/sa.key"));
    assert!(!rig.path("other.yaml").exists());
}

#[tokio::test]
async fn a_certificate_may_have_several_roles() {
    let rig = Rig::new();
    rig.succeeds("gen ca --organization ca").await;
    rig.succeeds("gen key --name two").await;
    rig.succeeds("gen csr --key two.key --roles os:reader,os:etcd:backup").await;
    rig.succeeds("gen crt --ca ca --csr two.csr --name two --hours 48").await;
    rig.succeeds("config add two --ca ca.crt --crt two.crt --key two.key").await;
    let info = rig.succeeds("config info").await.stdout;
    let roles = info.lines().find(|line| line.starts_with("Roles:")).unwrap();
    assert!(roles.contains("os:reader") && roles.contains("os:etcd:backup"), "{roles}");
    for (command, wanted) in [
        ("req -in two.csr -noout -verify -subject", "os:etcd:backup"),
        ("verify -CAfile ca.crt two.crt", "two.crt: OK"),
        ("x509 -in two.crt -noout -subject", "os:reader"),
    ] {
        if let Some(text) = openssl(rig.dir.path(), command) {
            assert!(text.contains(wanted), "{command}: {text}");
        }
    }
}

#[tokio::test]
async fn an_expiring_certificate_is_told() {
    let rig = Rig::new();
    rig.succeeds("gen ca --organization ca").await;
    rig.succeeds("gen key --name admin").await;
    rig.succeeds("gen csr --key admin.key").await;
    rig.succeeds("gen crt --ca ca --csr admin.csr --name admin --hours 0").await;
    rig.succeeds("config add old --ca ca.crt --crt admin.crt --key admin.key").await;
    let info = rig.succeeds("config info").await;
    assert!(
        info.stdout.contains("(expired)") && info.stderr.contains("expired on 20"),
        "{}{}",
        info.stdout,
        info.stderr
    );
    assert!(
        rig.succeeds("config contexts")
            .await
            .stderr
            .contains("WARNING: the client certificate of context `old`")
    );
}

#[tokio::test]
async fn authorities_are_of_the_kind_asked_for() {
    let rig = Rig::new();
    rig.succeeds("gen ca --organization one").await;
    rig.succeeds("gen ca --organization two --ecdsa --hours 1").await;
    rig.succeeds("gen keypair --organization pair --ip ::1").await;
    assert!(
        rig.fails("gen ca --organization three --rsa").await.contains("RSA keys are read, but not made here")
    );
    for (name, label) in [("one", "ED25519"), ("two", "EC"), ("pair", "ED25519")] {
        let key = rig.read(&format!("{name}.key"));
        assert!(key.starts_with(&format!("-----BEGIN {label} PRIVATE KEY-----")), "{name}");
    }
    if let Some(text) = openssl(rig.dir.path(), "x509 -in two.crt -noout -text") {
        assert!(
            text.contains("prime256v1") && text.contains("CA:TRUE") && text.contains("O = two"),
            "{text}"
        );
    }
    // The first generation's label for Ed25519 is unknown to openssl; the SEC1 form is not.
    openssl(rig.dir.path(), "ec -in two.key -noout -check");
    let hash = rig.read("one.sha256");
    assert!(hash.starts_with("sha256:") && hash.len() == 7 + 64, "{hash}");
}

#[tokio::test]
async fn generated_configurations_are_taken_in_every_generation() {
    let rig = Rig::new();
    for (version, files) in [
        ("v0.9", "init.yaml controlplane.yaml join.yaml talosconfig"),
        ("v1.0", "controlplane.yaml worker.yaml talosconfig"),
        ("v1.7", "controlplane.yaml worker.yaml talosconfig"),
        ("v1.13", "controlplane.yaml worker.yaml talosconfig"),
    ] {
        let line = format!(
            "gen config demo https://10.0.0.1:6443 --talos-version {version} --output-dir {version} \
             --additional-sans k8s.example.org --registry-mirror registry.example.org=http://10.0.0.1:5000 \
             --kubernetes-version v1.30.0 --install-image registry.example.org/installer:v1"
        );
        let output = rig.succeeds(&line).await;
        assert_eq!(
            output.stderr.contains("machine.ca: no certificate of the API's CA"),
            version == "v0.9",
            "{}",
            output.stderr
        );
        let created = output.stdout;
        let expected: String = files.split(' ').map(|f| format!("created {version}/{f}\n")).collect();
        assert_eq!(created, expected);
        for file in files.split(' ').filter(|f| f.ends_with(".yaml")) {
            assert!(is_private(&rig.path(&format!("{version}/{file}"))));
            if file == "join.yaml" {
                // The first generation gives workers no CA.
                let told = rig.succeeds(&format!("validate -c {version}/{file} -m metal")).await.stderr;
                assert!(told.contains("machine.ca: no certificate of the API's CA"), "{told}");
            }
            let valid = rig.succeeds(&format!("validate -c {version}/{file} -m metal")).await;
            assert_eq!(valid.stdout, format!("{version}/{file} is valid for metal mode\n"));
        }
    }
    assert!(
        rig.fails("gen config demo https://10.0.0.1:6443 --output-dir v1.13").await.contains("use --force")
    );
    assert!(
        rig.fails("gen config demo 209.202.254.14.8172")
            .await
            .contains("try: \"https://209.202.254.14:8172\"")
    );
    assert!(rig.fails("gen config a_b https://a:1").await.contains("is not a DNS name"));
    assert!(rig.fails("gen config a https://a:1 --talos-version v0.8").await.contains("need RSA keys"));
    assert!(
        rig.fails("gen config a https://a:1 --registry-mirror x")
            .await
            .contains("invalid registry mirror spec: \"x\"")
    );
}

#[tokio::test]
async fn secrets_and_patches_make_the_same_cluster_again() {
    let rig = Rig::new();
    rig.succeeds("gen secrets").await;
    assert!(is_private(&rig.path("secrets.yaml")));
    rig.write("both.yaml", "machine: {network: {nameservers: [10.0.0.53]}}");
    let make = "gen config demo https://10.0.0.1:6443 --with-secrets secrets.yaml -o - -t";
    let one = rig.succeeds(&format!("{make} controlplane")).await.stdout;
    assert_eq!(rig.succeeds(&format!("{make} controlplane")).await.stdout, one);
    rig.write("cp.yaml", &one);
    rig.succeeds("gen secrets --from-control-plane-config cp.yaml -o again.yaml").await;
    let again = rig
        .succeeds("gen config demo https://10.0.0.1:6443 --with-secrets again.yaml -o - -t controlplane")
        .await;
    assert_eq!(again.stdout, one);
    let patch = "--config-patch @both.yaml --config-patch-worker [{\"op\":\"replace\",\"path\":\"/machine/install/disk\",\"value\":\"/dev/vda\"}]";
    let worker = rig.succeeds(&format!("{make} worker {patch}")).await.stdout;
    assert!(worker.contains("disk: /dev/vda\n") && worker.contains("- 10.0.0.53\n"), "{worker}");
    let control = rig.succeeds(&format!("{make} controlplane {patch}")).await.stdout;
    assert!(control.contains("disk: /dev/sda\n") && control.contains("- 10.0.0.53\n"), "{control}");
    let error = rig.fails(&format!("{make} worker --config-patch {{machine:{{nothing:1}}}}")).await;
    assert!(error.contains("worker.yaml would be refused") || error.contains("patch"), "{error}");
    let both = rig.fails("gen config demo https://10.0.0.1:6443 -o -").await;
    assert!(both.contains("only one type of output fits the standard output"), "{both}");
}

#[tokio::test]
async fn files_are_patched_and_checked() {
    let rig = Rig::new();
    rig.write("node.yaml", fake::CONFIG);
    let patched = rig
        .words(&["machineconfig", "patch", "node.yaml", "-p", "machine: {network: {hostname: two}}"])
        .await;
    assert!(patched.success && patched.stdout.contains("hostname: two\n"), "{}", patched.stderr);
    let wrong =
        rig.words(&["mc", "patch", "node.yaml", "-p", "[{op: remove, path: /machine/kubelet}]"]).await;
    assert!(
        wrong.stderr.contains("patch 1, operation 1 (remove /machine/kubelet): there is no `kubelet`"),
        "{}",
        wrong.stderr
    );
    // A list in YAML begins like a flag.
    let listed = "- op: add\n  path: /machine/network/hostname\n  value: three";
    let patched = rig.words(&["mc", "patch", "node.yaml", "-p", listed]).await;
    assert!(patched.success && patched.stdout.contains("hostname: three\n"), "{}", patched.stderr);
    rig.write("bad.yaml", "version: v1alpha1\nmachine:\n  typo: 1\n");
    let error = rig.fails("validate -c bad.yaml -m cloud").await;
    assert!(error.contains("line 3, column 3") && error.contains("typo"), "{error}");
    assert!(rig.fails("validate -c none.yaml -m cloud").await.contains("read none.yaml"));
}

#[tokio::test]
async fn a_file_is_rewritten_into_its_other_form() {
    let rig = Rig::new();
    rig.succeeds("gen config demo https://10.0.0.1:6443 --talos-version v1.13 --kubernetes-version 1.36.3")
        .await;
    let told = rig.succeeds("machineconfig rewrite --to documents controlplane.yaml -o new.yaml").await;
    assert!(told.stdout.is_empty(), "{}", told.stdout);
    assert!(
        told.stderr
            .contains("cluster.secretboxEncryptionSecret stays: KubeEtcdEncryptionConfig names the key"),
        "{}",
        told.stderr
    );
    let new = fs::read_to_string(rig.dir.path().join("new.yaml")).unwrap();
    assert!(
        new.contains("kind: KubeNetworkConfig\n") && new.contains("kind: UnattendedInstallConfig\n"),
        "{new}"
    );
    rig.succeeds("validate -c new.yaml -m metal").await;
    let old = rig.succeeds("mc rewrite --to v1alpha1 new.yaml").await;
    assert!(!old.stdout.contains("\nkind:") && old.stdout.contains("disk: /dev/sda\n"), "{}", old.stdout);
    assert!(old.stderr.is_empty(), "{}", old.stderr);
    rig.write("bad.yaml", "version: v1alpha1\nmachine:\n  token: hidden-word\n  typo: 1\n");
    let error = rig.fails("machineconfig rewrite --to documents bad.yaml").await;
    assert!(
        error.contains("bad.yaml") && error.contains("typo") && !error.contains("hidden-word"),
        "{error}"
    );
}

#[tokio::test]
async fn a_configuration_is_applied_in_every_mode() {
    let rig = Rig::with_node().await;
    for (flags, told) in [
        ("", "mode Reboot, immediate false, on reboot false, dry run false, try 60, confirm 0"),
        ("--immediate", "mode NoReboot, immediate true, on reboot false"),
        ("--on-reboot", "mode Staged, immediate false, on reboot true"),
        ("--no-reboot", "mode Staged"),
        ("-m auto --dry-run", "mode Auto, immediate false, on reboot false, dry run true"),
        ("--mode try --timeout 2m", "mode Try, immediate false, on reboot false, dry run false, try 120"),
    ] {
        let output = rig.succeeds(&format!("apply machineconfig -f node.yaml {flags}")).await;
        assert!(
            output.stderr.contains(told) && output.stderr.contains("WARNING: a warning\\x1b[2J\n"),
            "{flags}: {}",
            output.stderr
        );
        assert_eq!(output.stdout, "");
    }
    for (line, told) in [
        ("apply-config", "no filename supplied for configuration"),
        ("apply-config -f none.yaml", "failed to read configuration from \"none.yaml\""),
        ("apply-config -f node.yaml --mode interactive", "there is no interactive mode"),
        ("apply-config -f node.yaml --interactive", "there is no interactive mode"),
        ("apply-config -f node.yaml --insecure -n a,b", "--insecure is for one node, but 2 are given"),
        ("apply-config -f node.yaml -m try --confirm 1m", "--confirm is for the other modes"),
        ("patch mc", "either --patch or --patch-file should be defined"),
        ("edit services", "only the machineconfig resource can be edited"),
    ] {
        let error = rig.fails(line).await;
        assert!(error.contains(told), "{line}: {error}");
    }
    let refused =
        rig.words(&["apply", "-f", "node.yaml", "-p", "machine: {network: {hostname: refused}}"]).await;
    assert!(
        refused.stderr.contains("error applying new configuration") && !refused.success,
        "{}",
        refused.stderr
    );
}

#[tokio::test]
async fn a_change_is_confirmed_once_the_node_is_back() {
    let rig = Rig::with_node().await;
    for mode in ["reboot", "no-reboot"] {
        let output = rig.succeeds(&format!("apply-config -f node.yaml --confirm 30s --mode {mode}")).await;
        assert!(
            output.stderr.contains("confirm 30") && output.stderr.ends_with("127.0.0.1: confirmed\n"),
            "{}",
            output.stderr
        );
    }
    let staged = rig.succeeds("apply-config -f node.yaml --confirm 30s --mode staged").await;
    assert!(staged.stderr.contains("billetctl confirm-config"), "{}", staged.stderr);
    rig.succeeds("confirm-config").await;
    assert!(rig.fails("confirm-config").await.contains("no configuration waits"));
}

#[tokio::test]
async fn patches_change_the_node_s_configuration() {
    let mut rig = Rig::with_node().await;
    let replace = r#"[{"op": "replace", "path": "/machine/network/hostname", "value": "two"}]"#;
    let patched = rig.words(&["patch", "machineconfig", "-p", replace]).await;
    assert_eq!(patched.stdout, "patched machineconfig at the node 127.0.0.1\n", "{}", patched.stderr);
    rig.editor = Some("cp \"$1\" seen; true".into());
    assert!(rig.node_config().await.contains("hostname: two\n"));
    rig.write("patch.yaml", "machine: {network: {hostname: three}}");
    assert_eq!(
        rig.succeeds("-n a,b patch mc --patch-file patch.yaml --immediate").await.stdout,
        "patched mc at the node a\nApply was skipped: no changes detected.\n"
    );
    let wrong = rig
        .words(&[
            "patch",
            "mc",
            "-p",
            r#"[{"op": "replace", "path": "/machine/kubelet/image", "value": "x"}]"#,
        ])
        .await;
    assert!(
        wrong.stderr.contains("127.0.0.1: failure applying patches")
            && wrong.stderr.contains("there is no `kubelet` at /machine"),
        "{}",
        wrong.stderr
    );
}

#[tokio::test]
async fn a_change_that_another_client_overtook_is_made_anew_or_kept() {
    let patch = ["patch", "mc", "-p", "machine: {network: {hostname: overtaken}}"];
    let mut rig = Rig::with_node().await;
    let patched = rig.words(&patch).await;
    assert_eq!(patched.stdout, "patched mc at the node 127.0.0.1\n", "{}", patched.stderr);
    rig.editor = Some("cp \"$1\" seen; true".into());
    let seen = rig.node_config().await;
    assert!(seen.contains("hostname: overtaken") && seen.contains(fake::services::OTHER_CHANGE), "{seen}");
    // A person decides what becomes of an edit.
    let mut rig = Rig::with_node().await;
    rig.editor = Some("sed -i s/one/overtaken/".into());
    let error = rig.fails("edit mc").await;
    assert!(error.contains("the configuration has changed since it was read"), "{error}");
    let kept = error.trim_end().rsplit(' ').next().unwrap();
    assert!(
        error.contains("your changes are kept in ")
            && fs::read_to_string(kept).unwrap().contains("overtaken")
    );
}

#[tokio::test]
async fn an_edit_is_applied_skipped_or_kept() {
    let mut rig = Rig::with_node().await;
    rig.editor = Some("sed -i s/one/two/".into());
    let output = rig.succeeds("edit mc --immediate").await;
    assert!(output.stderr.contains("mode NoReboot"), "{}", output.stderr);
    rig.editor = Some("cp \"$1\" seen; true".into());
    let seen = rig.node_config().await;
    assert!(
        seen.contains("hostname: two") && seen.contains("# a comment"),
        "a person's comments are kept: {seen}"
    );
    rig.editor = Some("truncate -s 0".into());
    assert_eq!(rig.succeeds("edit mc").await.stdout, "Apply was skipped: empty file.\n");
    // The second call of this editor finds the reasons and puts it right.
    rig.editor = Some("cp \"$1\" seen; if grep -q refused \"$1\"; then sed -i s/hostnam:/hostname:/ \"$1\"; else sed -i s/hostname:/hostnam:/ \"$1\"; fi; true".into());
    rig.succeeds("edit mc").await;
    let seen = rig.read("seen");
    assert!(seen.contains("#| It was refused:\n#|   line ") && seen.contains("hostnam"), "{seen}");
    // One that does not put it right keeps the work.
    rig.editor = Some("sed -i 's/name: two/name: refused/'".into());
    let error = rig.fails("edit mc").await;
    assert!(error.contains("hostname is refused") && error.contains("your changes are kept in "), "{error}");
    let kept = error.trim_end().rsplit(' ').next().unwrap();
    assert!(fs::read_to_string(kept).unwrap().contains("refused") && is_private(Path::new(kept)));
    rig.editor = Some("false".into());
    assert!(rig.fails("edit mc").await.contains("the editor `false` ended with"));
}
