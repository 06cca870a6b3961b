//! `etcd`: the members of the cluster's etcd, their state, snapshots.
//!
//! Owns: that a snapshot is whole before it has its name. It holds every secret of the cluster: its file is private.
//! Does not: decide which member may go; the node does.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use api::proto::machine as proto;
use clap::Subcommand;
use kubernetes::snapshot::Verifier;

use crate::output::{self, Cell, Table};
use crate::private_file::Beside;
use crate::session::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Alarms: while there is one, etcd refuses to write
    #[command(subcommand)]
    Alarm(Alarm),
    /// Rewrite a member's database without what is no longer used; it does not answer meanwhile
    Defrag,
    /// An older version of etcd for the cluster
    #[command(subcommand)]
    Downgrade(Downgrade),
    /// Have another member lead
    ForfeitLeadership,
    /// Have the node's member leave the cluster; its data is removed
    Leave,
    /// Members, as the etcd of each node lists them
    #[command(alias = "member")]
    Members,
    /// Remove a member that does not come back; one that runs is asked to leave
    RemoveMember {
        /// Its id as `etcd members` shows it, or its host name
        #[arg(value_name = "ID")]
        member: String,
    },
    /// Write a snapshot of the database to a file
    Snapshot {
        /// The file
        #[arg(value_name = "FILE")]
        path: PathBuf,
    },
    /// State of the nodes' members
    Status,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Alarm {
    /// Alarms of the cluster
    List,
    /// End all alarms; one whose cause stays comes back
    Disarm,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Downgrade {
    /// Whether the cluster could run this version
    Validate {
        /// Such as 3.5
        version: String,
    },
    /// Prepare the cluster for this version
    Enable {
        /// Such as 3.5
        version: String,
    },
    /// Take that back
    Cancel,
}

pub(crate) async fn run(session: &Session, command: Command) -> Result<()> {
    match command {
        Command::Alarm(command) => alarm(session, &command).await,
        Command::Defrag => {
            let response = session.client.machine().etcd_defragment(session.request(())).await;
            session.answers(response, |r| r.messages).map(drop)
        }
        Command::Downgrade(command) => downgrade(session, command).await,
        Command::ForfeitLeadership => forfeit(session).await,
        Command::Leave => {
            let request = session.request(proto::EtcdLeaveClusterRequest::default());
            let response = session.client.machine().etcd_leave_cluster(request).await;
            session.answers(response, |r| r.messages).map(drop)
        }
        Command::Members => members(session).await,
        Command::RemoveMember { member } => remove(session, member).await,
        Command::Snapshot { path } => snapshot(session, &path).await,
        Command::Status => status(session).await,
    }
}

async fn members(session: &Session) -> Result<()> {
    let request = session.request(proto::EtcdMemberListRequest::default());
    let response = session.client.machine().etcd_member_list(request).await;
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("ID", "id"),
        ("HOSTNAME", "hostname"),
        ("PEER URLS", "peerUrls"),
        ("CLIENT URLS", "clientUrls"),
        ("LEARNER", "learner"),
    ]);
    for (node, list) in session.answers(response, |r| r.messages)? {
        for member in list.members {
            table.push(vec![
                node.as_str().into(),
                hex(member.id),
                member.hostname.into(),
                Cell::new(member.peer_urls.join(","), member.peer_urls),
                Cell::new(member.client_urls.join(","), member.client_urls),
                Cell::new(member.is_learner.to_string(), member.is_learner),
            ]);
        }
    }
    output::print_table(&table, session.global.output)
}

fn hex(id: u64) -> Cell {
    format!("{id:016x}").into()
}

async fn remove(session: &Session, member: String) -> Result<()> {
    let is_id = member.len() == 16;
    if let Some(member_id) = is_id.then(|| u64::from_str_radix(&member, 16).ok()).flatten() {
        let request = session.request(proto::EtcdRemoveMemberByIdRequest { member_id });
        let response = session.client.machine().etcd_remove_member_by_id(request).await;
        return session.answers(response, |r| r.messages).map(drop);
    }
    let request = session.request(proto::EtcdRemoveMemberRequest { member });
    let response = session.client.machine().etcd_remove_member(request).await;
    session.answers(response, |r| r.messages).map(drop)
}

async fn forfeit(session: &Session) -> Result<()> {
    let request = session.request(proto::EtcdForfeitLeadershipRequest::default());
    let response = session.client.machine().etcd_forfeit_leadership(request).await;
    for (node, forfeited) in session.answers(response, |r| r.messages)? {
        let text = match forfeited.member.as_str() {
            "" => format!("{node}: does not lead\n"),
            member => format!("{node}: {member} leads now\n"),
        };
        output::print(text)?;
    }
    Ok(())
}

async fn alarm(session: &Session, command: &Alarm) -> Result<()> {
    let alarms: Vec<(String, Vec<proto::EtcdMemberAlarm>)> = match command {
        Alarm::List => {
            let response = session.client.machine().etcd_alarm_list(session.request(())).await;
            let answers = session.answers(response, |r| r.messages)?;
            answers.into_iter().map(|(node, list)| (node, list.member_alarms)).collect()
        }
        Alarm::Disarm => {
            let response = session.client.machine().etcd_alarm_disarm(session.request(())).await;
            let answers = session.answers(response, |r| r.messages)?;
            answers.into_iter().map(|(node, list)| (node, list.member_alarms)).collect()
        }
    };
    let mut table = Table::new(&[("NODE", "node"), ("MEMBER", "member"), ("ALARM", "alarm")]);
    for (node, alarms) in alarms {
        for alarm in alarms {
            table.push(vec![node.as_str().into(), hex(alarm.member_id), alarm.alarm().as_str_name().into()]);
        }
    }
    output::print_table(&table, session.global.output)
}

async fn downgrade(session: &Session, command: Downgrade) -> Result<()> {
    let client = &session.client;
    match command {
        Downgrade::Validate { version } => {
            let request = session.request(proto::EtcdDowngradeValidateRequest { version });
            let response = client.machine().etcd_downgrade_validate(request).await;
            for (node, answer) in session.answers(response, |r| r.messages)? {
                tell(&node, "the downgrade is possible", answer.cluster_downgrade)?;
            }
        }
        Downgrade::Enable { version } => {
            let request = session.request(proto::EtcdDowngradeEnableRequest { version });
            let response = client.machine().etcd_downgrade_enable(request).await;
            for (node, answer) in session.answers(response, |r| r.messages)? {
                tell(&node, "the downgrade is enabled", answer.cluster_downgrade)?;
            }
        }
        Downgrade::Cancel => {
            let response = client.machine().etcd_downgrade_cancel(session.request(())).await;
            for (node, answer) in session.answers(response, |r| r.messages)? {
                tell(&node, "the downgrade is cancelled", answer.cluster_downgrade)?;
            }
        }
    }
    Ok(())
}

fn tell(node: &str, what: &str, cluster: Option<proto::EtcdClusterDowngrade>) -> Result<()> {
    let version = cluster.unwrap_or_default().cluster_version;
    Ok(output::print(format!("{node}: {what}; the cluster's version is {version}\n"))?)
}

async fn status(session: &Session) -> Result<()> {
    let response = session.client.machine().etcd_status(session.request(())).await;
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("MEMBER", "member"),
        ("DB SIZE", "dbSize"),
        ("IN USE", "inUse"),
        ("LEADER", "leader"),
        ("RAFT INDEX", "raftIndex"),
        ("RAFT TERM", "raftTerm"),
        ("RAFT APPLIED INDEX", "raftAppliedIndex"),
        ("LEARNER", "learner"),
        ("PROTOCOL", "protocol"),
        ("STORAGE", "storage"),
        ("ERRORS", "errors"),
    ]);
    for (node, status) in session.answers(response, |r| r.messages)? {
        let status = status.member_status.unwrap_or_default();
        let bytes = |count: i64| Cell::new(output::bytes_si(u64::try_from(count).unwrap_or_default()), count);
        let number = |number: u64| Cell::new(number.to_string(), number);
        table.push(vec![
            node.as_str().into(),
            hex(status.member_id),
            bytes(status.db_size),
            bytes(status.db_size_in_use),
            hex(status.leader),
            number(status.raft_index),
            number(status.raft_term),
            number(status.raft_applied_index),
            Cell::new(status.is_learner.to_string(), status.is_learner),
            status.protocol_version.into(),
            status.storage_version.into(),
            Cell::new(status.errors.join(", "), status.errors),
        ]);
    }
    output::print_table(&table, session.global.output)
}

async fn snapshot(session: &Session, path: &std::path::Path) -> Result<()> {
    let node = session.single_node("etcd snapshot")?;
    let request = api::client::to_nodes(proto::EtcdSnapshotRequest::default(), node.as_slice());
    let stream = session.client.machine().etcd_snapshot(request).await;
    let beside = Beside::of(path)?;
    let mut verifier = Verifier::default();
    let written = receive(session, stream, beside.file(), &mut verifier).await;
    let size = written.with_context(|| format!("write {}", path.display()))?;
    beside.keep()?;
    output::print(format!(
        "snapshot of {} bytes written to {}; its digest is right\n",
        size,
        path.display()
    ))?;
    Ok(())
}

async fn receive(
    session: &Session,
    stream: Result<tonic::Response<tonic::Streaming<api::proto::common::Data>>, tonic::Status>,
    mut file: &File,
    verifier: &mut Verifier,
) -> Result<u64> {
    let mut size = 0;
    session
        .each(stream, |_, data| {
            size += data.bytes.len() as u64;
            verifier.take(&data.bytes);
            Ok(file.write_all(&data.bytes)?)
        })
        .await?;
    std::mem::take(verifier).finish()?;
    Ok(size)
}
