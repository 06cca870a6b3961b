//! What a service is: its program, what it needs, how it is watched; and the definitions that come with an image.
//!
//! Source of the file format: `/usr/lib/billet/services.d/<id>.json`, docs of the image layout.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use serde::Deserialize;

use super::machine::Restart;

/// PATH of every service (as in Talos' services).
const PATH: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/cni/bin";

/// `RLIMIT_NOFILE` of services (as in Talos' services).
const OPEN_FILES: u64 = 1_048_576;

/// Work of an internal service: runs until it fails or is dropped.
pub type Work = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// User and group of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// A program to run.
#[derive(Debug, Clone)]
pub struct Program {
    /// Path and arguments.
    pub argv: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Root when absent.
    pub identity: Option<Identity>,
    /// A listening socket that it finds at descriptor 3.
    pub listener: Option<Arc<OwnedFd>>,
    /// Files and sockets that it sees beside itself, read-only, in a root of its own and without any rights; the system's root
    /// when absent.
    pub sees: Option<Vec<String>>,
    /// What else of its group ends with it. containerd leaves its shims running.
    pub ends_group: bool,
}

/// What an engine answers: why not, for people.
pub type Step<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// A program that an engine runs for a service. Its process is no child of machined's, and outlives it.
///
/// Each step may be dropped at any point, and all are begun again by a machined that takes over.
pub trait Container: Send + Sync {
    /// Has everything here that the program needs: its image, its files. What fails is tried again after a pause.
    fn prepare(&self) -> Step<()>;

    /// Makes the program's process, which waits, with both streams to a FIFO; answers its process id. One that runs already
    /// stays; what else an earlier run left is removed.
    fn create(&self, log: PathBuf) -> Step<i32>;

    /// Lets the process run the program, once its end is watched.
    fn start(&self) -> Step<()>;

    /// How the program ended, once its process has; what is left of it is removed. `Ok` is exit status 0.
    fn ended(&self) -> Step<()>;
}

/// How a service runs.
#[derive(Clone)]
pub enum Runner {
    /// As a process.
    Process(Program),
    /// As a container of this name.
    Container(String, Arc<dyn Container>),
    /// As a task of machined.
    Internal(Arc<dyn Fn() -> Work + Send + Sync>),
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(program) => program.fmt(f),
            Self::Container(name, _) => write!(f, "Container({name:?})"),
            Self::Internal(_) => f.write_str("Internal"),
        }
    }
}

/// An answer to a question about health: why not, for people.
pub type Answer = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// How health is asked.
#[derive(Clone)]
pub enum Check {
    /// A connection to this address opens.
    Tcp(SocketAddr),
    /// A connection to this socket opens.
    Unix(PathBuf),
    /// The service says that it serves, in answer to a call of its own.
    Call {
        /// Where it is asked, for people.
        place: String,
        /// Asks it once.
        ask: Arc<dyn Fn() -> Answer + Send + Sync>,
    },
    /// The clock is synchronised.
    Clock,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
            Self::Call { place, .. } => f.write_str(place),
            Self::Clock => f.write_str("the clock"),
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Place and share of a service in the cgroup tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Path below the root of the tree.
    pub group: String,
    /// `cpu.weight`, 1 to 10000; 100 is the kernel's default.
    pub cpu_weight: u32,
    /// `oom_score_adj`: lower is killed later. Lowering it below machined's own takes privilege.
    pub oom_score_adj: Option<i16>,
    /// Open files (as in Talos' services).
    pub open_files: Option<u64>,
    /// `pids.max`: bounds a service that forks without end.
    pub most_processes: u32,
}

/// A service.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Its id.
    pub id: String,
    /// How it runs.
    pub runner: Runner,
    /// Services that must be up before it starts.
    pub depends_on: Vec<String>,
    /// Whether it is started again.
    pub restart: Restart,
    /// How health is asked.
    pub check: Option<Check>,
    /// Whether clients may start and stop it.
    pub api_control: bool,
    /// Its share of the machine.
    pub share: Share,
}

impl Definition {
    /// An internal service.
    pub fn internal(id: &str, work: impl Fn() -> Work + Send + Sync + 'static) -> Self {
        Self {
            id: id.to_owned(),
            runner: Runner::Internal(Arc::new(work)),
            depends_on: Vec::new(),
            restart: Restart::Forever,
            check: None,
            api_control: false,
            share: Share {
                group: String::new(),
                cpu_weight: 100,
                oom_score_adj: None,
                open_files: None,
                most_processes: 0,
            },
        }
    }

    /// A container, in this control group.
    pub fn container(id: &str, group: &str, container: impl Container + 'static) -> Self {
        Self {
            runner: Runner::Container(id.to_owned(), Arc::new(container)),
            share: Share { group: group.to_owned(), ..Self::process(id, &[]).share },
            ..Self::process(id, &[])
        }
    }

    /// A process of the base system.
    pub fn process(id: &str, argv: &[&str]) -> Self {
        let program = Program {
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            env: vec![PATH.to_owned()],
            identity: None,
            listener: None,
            sees: None,
            ends_group: true,
        };
        Self {
            id: id.to_owned(),
            runner: Runner::Process(program),
            depends_on: Vec::new(),
            restart: Restart::Forever,
            check: None,
            api_control: false,
            share: Share {
                group: format!("system/{id}"),
                cpu_weight: 300,
                oom_score_adj: Some(-998),
                open_files: Some(OPEN_FILES),
                most_processes: 512,
            },
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    id: String,
    argv: Vec<String>,
    #[serde(default)]
    depends_on: Vec<String>,
    #[serde(default = "forever")]
    restart: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    health: Option<FileHealth>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileHealth {
    tcp: SocketAddr,
}

fn forever() -> String {
    "forever".to_owned()
}

/// Reads a definition that an image layer brings.
pub fn parse(text: &[u8]) -> Result<Definition, String> {
    let file: File = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if !is_id(&file.id) {
        return Err(format!("id {:?}: use lower-case letters, digits and dashes", file.id));
    }
    let program = file.argv.first().ok_or("argv is empty")?;
    if !program.starts_with('/') {
        return Err(format!("argv[0] {program:?} is no absolute path"));
    }
    let restart = match file.restart.as_str() {
        "forever" => Restart::Forever,
        "never" => Restart::Never,
        other => return Err(format!("restart {other:?}: use \"forever\" or \"never\"")),
    };
    let mut env = vec![PATH.to_owned()];
    env.extend(file.env.iter().map(|(name, value)| format!("{name}={value}")));
    let program =
        Program { argv: file.argv, env, identity: None, listener: None, sees: None, ends_group: true };
    Ok(Definition {
        runner: Runner::Process(program),
        depends_on: file.depends_on,
        restart,
        check: file.health.map(|health| Check::Tcp(health.tcp)),
        api_control: true,
        share: Share {
            group: format!("system/extensions/{}", file.id),
            cpu_weight: 50,
            oom_score_adj: Some(100),
            open_files: Some(OPEN_FILES),
            most_processes: 2048,
        },
        id: file.id,
    })
}

fn is_id(id: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=40).contains(&id.len()) && id.chars().all(fits)
}

/// All definitions of a directory, sorted by file name; files that do not parse are reported beside them.
pub fn read_directory(directory: &Path) -> (Vec<Definition>, Vec<String>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return (Vec::new(), Vec::new()) };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for path in paths {
        let read = std::fs::read(&path).map_err(|e| e.to_string()).and_then(|text| parse(&text));
        match read {
            Ok(definition) => found.push(definition),
            Err(error) => wrong.push(format!("service definition {}: {error}", path.display())),
        }
    }
    (found, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_a_definition() {
        let text =
            br#"{"id":"agent","argv":["/usr/bin/agent","-v"],"depends_on":["networkd"],"restart":"never",
                        "env":{"A":"b"},"health":{"tcp":"127.0.0.1:50099"}}"#;
        let definition = parse(text).unwrap();
        assert_eq!(
            (definition.id.as_str(), definition.restart, definition.api_control),
            ("agent", Restart::Never, true)
        );
        let Runner::Process(program) = &definition.runner else { panic!("not a process") };
        assert_eq!(program.argv, ["/usr/bin/agent", "-v"]);
        assert!(program.env.contains(&"A=b".to_owned()));
        assert!(matches!(definition.check, Some(Check::Tcp(address)) if address.port() == 50099));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert!(error(r#"{"id":"../x","argv":["/a"]}"#).contains("lower-case"));
        assert!(error(r#"{"id":"x","argv":[]}"#).contains("empty"));
        assert!(error(r#"{"id":"x","argv":["a"]}"#).contains("absolute"));
        assert!(error(r#"{"id":"x","argv":["/a"],"restart":"often"}"#).contains("often"));
        assert!(error(r#"{"id":"x","argv":["/a"],"shell":true}"#).contains("shell"));
    }

    #[test]
    fn a_bad_file_does_not_hide_the_good_ones() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.json"), "{").unwrap();
        std::fs::write(dir.path().join("b.json"), r#"{"id":"b","argv":["/b"]}"#).unwrap();
        std::fs::write(dir.path().join("readme.txt"), "x").unwrap();
        let (found, wrong) = read_directory(dir.path());
        assert_eq!((found.len(), wrong.len()), (1, 1));
        assert!(wrong[0].contains("a.json"));
    }
}
