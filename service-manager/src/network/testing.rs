//! Network namespaces of tests: each test runs in one of its own, and may have a neighbour in another.

use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Set in the process that has a network namespace of its own.
const INSIDE: &str = "BILLET_TEST_INSIDE";

/// Whether this is the process with a namespace of its own. The other one starts it and waits; `test` is the test's full name.
pub(crate) fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let status = Command::new("unshare")
        .args(["--map-root-user", "--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    false
}

/// Runs a program to its end; answers what it printed.
pub(crate) fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn ip(arguments: &str) -> String {
    done(Command::new("ip").args(arguments.split(' ')))
}

/// A machine at the other end of a wire: a namespace that lives as long as this.
pub(crate) struct Neighbour(Child);

impl Neighbour {
    /// `eth0` here and `srv0` there, both up.
    pub(crate) fn start() -> Self {
        ip("link add eth0 address 52:54:00:01:02:03 type veth peer name srv0");
        // It says a word when it has its namespace.
        let mut namespace = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 6];
        namespace.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
        let neighbour = Self(namespace);
        ip(&format!("link set srv0 netns {}", neighbour.0.id()));
        ip("link set eth0 up");
        neighbour.ip("link set srv0 up");
        neighbour
    }

    pub(crate) fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.id().to_string(), "--", program]);
        command
    }

    pub(crate) fn ip(&self, arguments: &str) {
        done(self.inside("ip").args(arguments.split(' ')));
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
