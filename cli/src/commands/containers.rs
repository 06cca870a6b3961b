//! `containers`, `stats` and `restart`: what containerd runs.
//!
//! Owns: the namespace and driver that the flags of both generations mean, the order and indent of pods.
//! Source: docs/users/commands.md; crates/api/proto/common/common.proto (namespaces).

use crate::{
    output::{self, Cell, Table},
    session::Session,
};
use anyhow::Result;
use api::proto::{
    common::ContainerDriver,
    machine::{Container, ContainersRequest, RestartRequest, Stats, StatsRequest},
};
use clap::ValueEnum;

/// Which containers a command is about.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Where {
    /// Those of Kubernetes
    #[arg(short, long)]
    kubernetes: bool,
    /// Those of this namespace: `cri` is --kubernetes
    #[arg(long, value_enum, conflicts_with = "kubernetes", value_name = "NAME")]
    namespace: Option<Namespace>,
    /// Has no effect; kept for old scripts
    #[arg(short = 'c', long, hide = true)]
    use_cri: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Namespace {
    System,
    Inmem,
    Cri,
}

impl Where {
    /// Namespace and driver as the node knows them.
    pub(crate) fn on_the_wire(&self) -> (String, i32) {
        let cri = self.kubernetes || self.namespace == Some(Namespace::Cri);
        let (namespace, driver) =
            if cri { ("k8s.io", ContainerDriver::Cri) } else { ("system", ContainerDriver::Containerd) };
        (namespace.to_owned(), driver.into())
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestartFlags {
    /// The container
    id: String,
    #[command(flatten)]
    place: Where,
}

pub(crate) async fn containers(session: &Session, flags: &Flags) -> Result<()> {
    let (namespace, driver) = flags.place.on_the_wire();
    let request = session.request(ContainersRequest { namespace, driver });
    let answers = session.answers(session.client.machine().containers(request).await, |r| r.messages)?;
    output::print_table(&container_table(answers), session.global.output)
}

pub(crate) async fn stats(session: &Session, flags: &Flags) -> Result<()> {
    let (namespace, driver) = flags.place.on_the_wire();
    let request = session.request(StatsRequest { namespace, driver });
    let answers = session.answers(session.client.machine().stats(request).await, |r| r.messages)?;
    output::print_table(&stats_table(answers), session.global.output)
}

pub(crate) async fn restart(session: &Session, flags: RestartFlags) -> Result<()> {
    let (namespace, driver) = flags.place.on_the_wire();
    let request = session.request(RestartRequest { namespace, id: flags.id, driver });
    session.answers(session.client.machine().restart(request).await, |r| r.messages).map(drop)
}

pub(super) fn container_table(answers: Vec<(String, Container)>) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("NAMESPACE", "namespace"),
        ("ID", "id"),
        ("IMAGE", "image"),
        ("PID", "pid"),
        ("STATUS", "status"),
    ]);
    for (node, mut answer) in answers {
        answer.containers.sort_by(|a, b| a.id.cmp(&b.id));
        for c in answer.containers {
            table.push(vec![
                node.as_str().into(),
                c.namespace.into(),
                indented(c.id, &c.pod_id),
                c.image.into(),
                if c.pid == 0 { Cell::new("", 0) } else { Cell::new(c.pid.to_string(), c.pid) },
                c.status.into(),
            ]);
        }
    }
    table
}

fn stats_table(answers: Vec<(String, Stats)>) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("NAMESPACE", "namespace"),
        ("ID", "id"),
        ("MEMORY(MB)", "memory"),
        ("CPU", "cpu"),
    ]);
    for (node, mut answer) in answers {
        answer.stats.sort_by(|a, b| a.id.cmp(&b.id));
        for s in answer.stats {
            table.push(vec![
                node.as_str().into(),
                s.namespace.into(),
                indented(s.id, &s.pod_id),
                Cell::new(megabytes(s.memory_usage), s.memory_usage),
                Cell::new(s.cpu_usage.to_string(), s.cpu_usage),
            ]);
        }
    }
    table
}

/// A container stands below its pod.
fn indented(id: String, pod: &str) -> Cell {
    let text = if id == pod || pod.is_empty() { id.clone() } else { format!("└─ {id}") };
    Cell::new(text, id)
}

/// Millions of bytes with two decimals.
fn megabytes(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) + 5_000) / 10_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::proto::machine::{ContainerInfo, Stat};

    #[test]
    fn pods_come_before_their_containers() {
        let info = |id: &str, pid, status: &str| ContainerInfo {
            namespace: "k8s.io".into(),
            id: id.into(),
            image: "pause".into(),
            pid,
            status: status.into(),
            pod_id: "kube-system/a".into(),
            ..Default::default()
        };
        let containers =
            vec![info("kube-system/a:c", 0, "CONTAINER_EXITED"), info("kube-system/a", 7, "SANDBOX_READY")];
        assert_eq!(
            container_table(vec![("n".into(), Container { metadata: None, containers })]).to_string(),
            "NODE   NAMESPACE   ID                   IMAGE   PID   STATUS\n\
             n      k8s.io      kube-system/a        pause   7     SANDBOX_READY\n\
             n      k8s.io      └─ kube-system/a:c   pause         CONTAINER_EXITED\n"
        );
    }

    #[test]
    fn memory_is_in_megabytes() {
        let stat = Stat { id: "apid".into(), memory_usage: 12_345_678, cpu_usage: 42, ..Default::default() };
        let text = stats_table(vec![("n".into(), Stats { metadata: None, stats: vec![stat] })]).to_string();
        assert!(text.ends_with("n                  apid   12.35        42\n"), "{text}");
    }

    #[test]
    fn the_flags_of_both_generations() {
        let place = |kubernetes, namespace| Where { kubernetes, namespace, use_cri: false }.on_the_wire();
        assert_eq!(place(false, None), ("system".to_owned(), 0));
        assert_eq!(place(true, None), ("k8s.io".to_owned(), 1));
        assert_eq!(place(false, Some(Namespace::Cri)), ("k8s.io".to_owned(), 1));
        assert_eq!(place(false, Some(Namespace::Inmem)), ("system".to_owned(), 0));
    }
}
