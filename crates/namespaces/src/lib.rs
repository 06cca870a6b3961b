//! Namespaces of tests: a test runs in some of its own, and may have a neighbour in another. For tests of every crate.
//!
//! Owns: the second process, which runs the same test, and the wire to a neighbour.
//! Does not: need root, but where the namespaces or the test itself do.
//! Fails by: panics with what the program said.
//! Source: unshare(1), nsenter(1), ip-link(8).
#![warn(missing_docs)]

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Set in the process that has namespaces of its own.
const INSIDE: &str = "BILLET_TEST_INSIDE";
/// Does nothing more than run the test.
const BARE: &str = "exec \"$@\"";

/// Whether this process is the one inside. If it is not, runs the named test (`module::function`) once more in a network namespace,
/// waits for it, and returns false: the caller then returns too.
///
/// # Panics
/// When the test inside fails.
#[must_use]
pub fn is_inside(test: &str) -> bool {
    is_inside_of(test, &["--map-root-user", "--net"], BARE)
}

/// The same in namespaces that unshare(1) makes by these flags. `script` is for sh(1), and ends with `exec "$@"`.
///
/// # Panics
/// When the test inside fails.
#[must_use]
pub fn is_inside_of(test: &str, flags: &[&str], script: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let output = Command::new("unshare")
        .args(flags)
        .args(["--", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().expect("find this program"))
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("run unshare; install it with: apt-get install util-linux");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // Lines of the runner inside must not be taken for those of the runner outside, by which failures are counted and cut out. The
    // test's own words stand last, where a report of the failure ends.
    let quoted = |bytes: &[u8]| said(bytes).lines().map(|line| format!("| {line}\n")).collect::<String>();
    assert!(
        output.status.success(),
        "{test} in namespaces: {}\n{}{}",
        output.status,
        quoted(&output.stdout),
        quoted(&output.stderr)
    );
    // What it measured; a test runner shows it where it is asked to.
    eprint!("{}", said(&output.stderr));
    false
}

/// Runs a program to its end; answers what it printed.
///
/// # Panics
/// When it fails.
pub fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs ip(8) with the words of this text.
///
/// # Panics
/// When it refuses them.
pub fn ip(arguments: &str) -> String {
    done(Command::new("ip").args(arguments.split(' ')))
}

/// A machine at the other end of a wire: a namespace that lives as long as this.
pub struct Neighbour(Child);

impl Neighbour {
    /// `eth0` here and `srv0` there, both up.
    ///
    /// # Panics
    /// When the namespace or the wire cannot be made.
    #[must_use]
    pub fn start() -> Self {
        // It says a word when it has its namespace.
        let mut namespace = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run unshare; install it with: apt-get install util-linux");
        let mut word = [0; 6];
        let mut output = namespace.stdout.take().expect("invariant: its output is a pipe");
        output.read_exact(&mut word).expect("a namespace for the neighbour");
        let neighbour = Self(namespace);
        neighbour.wire("eth0", "52:54:00:01:02:03", "srv0");
        neighbour
    }

    /// One more wire: a card here with this hardware address, and one there, both up.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn wire(&self, here: &str, hardware: &str, there: &str) {
        ip(&format!("link add {here} address {hardware} type veth peer name {there}"));
        ip(&format!("link set {there} netns {}", self.0.id()));
        ip(&format!("link set {here} up"));
        self.ip(&format!("link set {there} up"));
    }

    /// Runs this in a thread whose network is that of the neighbour.
    ///
    /// # Panics
    /// When the namespace cannot be opened; the thread when it cannot be entered.
    pub fn thread<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let network = File::open(format!("/proc/{}/ns/net", self.0.id())).expect("open the namespace");
        thread::spawn(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("enter the namespace");
            act()
        })
    }

    /// A program that runs there.
    #[must_use]
    pub fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.id().to_string(), "--", program]);
        command
    }

    /// The same as [`ip`] there.
    ///
    /// # Panics
    /// When ip(8) refuses the words.
    pub fn ip(&self, arguments: &str) -> String {
        done(self.inside("ip").args(arguments.split(' ')))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
