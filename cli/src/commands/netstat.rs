//! `netstat`: sockets of the node and of its pods.
//!
//! Owns: the flags of `ss`, the table. Source: crates/api/proto/machine/machine.proto (messages).

use crate::{
    output::{self, Cell, Table},
    session::Session,
};
use anyhow::Result;
use api::proto::machine::{
    ConnectRecord, Netstat, NetstatRequest,
    connect_record::{State, TimerActive},
    netstat_request::{Feature, Filter, L4proto, NetNs},
};

#[derive(Debug, Clone, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Flags {
    /// Sockets of one pod, as `namespace/pod`
    #[arg(value_name = "NAMESPACE/POD")]
    pod: Option<String>,
    /// Connected and listening sockets
    #[arg(short, long)]
    all: bool,
    /// Listening sockets only
    #[arg(short, long)]
    listening: bool,
    /// Numbers and memory addresses of the sockets too
    #[arg(short = 'x', long)]
    extend: bool,
    /// The program behind each socket
    #[arg(short, long)]
    programs: bool,
    /// Timers; `-o` is the format here as everywhere
    #[arg(long)]
    timers: bool,
    /// Sockets of all pods too
    #[arg(short = 'k', long)]
    pods: bool,
    /// TCP
    #[arg(short, long)]
    tcp: bool,
    /// UDP
    #[arg(short, long)]
    udp: bool,
    /// UDP-Lite
    #[arg(short = 'U', long)]
    udplite: bool,
    /// Raw sockets
    #[arg(short = 'w', long)]
    raw: bool,
    /// IPv4
    #[arg(short = '4', long)]
    ipv4: bool,
    /// IPv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Print numbers and addresses as they are: always so
    #[arg(short = 'v', long, hide = true)]
    verbose: bool,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let request = session.request(request(&flags));
    let answers = session.answers(session.client.machine().netstat(request).await, |r| r.messages)?;
    output::print_table(&table(answers, &flags), session.global.output)
}

fn request(flags: &Flags) -> NetstatRequest {
    let filter = match (flags.all, flags.listening) {
        (true, _) => Filter::All,
        (_, true) => Filter::Listening,
        _ => Filter::Connected,
    };
    let any_protocol = flags.tcp || flags.udp || flags.udplite || flags.raw;
    let (v4, v6) = (flags.ipv4 || !flags.ipv6, flags.ipv6 || !flags.ipv4);
    let wanted = |flag: bool| flag || !any_protocol;
    let l4proto = L4proto {
        tcp: wanted(flags.tcp) && v4,
        tcp6: wanted(flags.tcp) && v6,
        udp: wanted(flags.udp) && v4,
        udp6: wanted(flags.udp) && v6,
        udplite: wanted(flags.udplite) && v4,
        udplite6: wanted(flags.udplite) && v6,
        raw: wanted(flags.raw) && v4,
        raw6: wanted(flags.raw) && v6,
    };
    let netns = NetNs {
        hostnetwork: flags.pod.is_none(),
        netns: flags.pod.clone().into_iter().collect(),
        allnetns: flags.pods,
    };
    NetstatRequest {
        filter: filter.into(),
        feature: Some(Feature { pid: flags.programs }),
        l4proto: Some(l4proto),
        netns: Some(netns),
    }
}

fn table(answers: Vec<(String, Netstat)>, flags: &Flags) -> Table {
    let mut columns = vec![
        ("NODE", "node"),
        ("Proto", "proto"),
        ("Recv-Q", "recvQueue"),
        ("Send-Q", "sendQueue"),
        ("Local Address", "local"),
        ("Foreign Address", "remote"),
        ("State", "state"),
    ];
    if flags.extend {
        columns.extend([("Uid", "uid"), ("Inode", "inode")]);
    }
    if flags.programs {
        columns.push(("PID/Program name", "program"));
    }
    if flags.pods || flags.pod.is_some() {
        columns.push(("Pod", "netns"));
    }
    if flags.timers {
        columns.push(("Timer", "timer"));
    }
    let mut table = Table::new(&columns);
    for (node, answer) in answers {
        for record in &answer.connectrecord {
            table.push(row(&node, record, flags));
        }
    }
    table
}

fn row(node: &str, r: &ConnectRecord, flags: &Flags) -> Vec<Cell> {
    let mut row = vec![
        node.into(),
        r.l4proto.as_str().into(),
        Cell::new(r.rxqueue.to_string(), r.rxqueue),
        Cell::new(r.txqueue.to_string(), r.txqueue),
        address(&r.localip, r.localport).into(),
        address(&r.remoteip, r.remoteport).into(),
        state(r).into(),
    ];
    if flags.extend {
        row.extend([Cell::new(r.uid.to_string(), r.uid), Cell::new(r.inode.to_string(), r.inode)]);
    }
    if flags.programs {
        let program = r.process.as_ref().filter(|p| p.pid != 0);
        row.push(program.map_or("-".into(), |p| format!("{}/{}", p.pid, p.name).into()));
    }
    if flags.pods || flags.pod.is_some() {
        row.push(r.netns.as_str().into());
    }
    if flags.timers {
        row.push(timer(r).into());
    }
    row
}

/// Port 0 is any port.
fn address(ip: &str, port: u32) -> String {
    let port = if port == 0 { "*".to_owned() } else { port.to_string() };
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// Protocols without connections have no state unless they are connected.
fn state(record: &ConnectRecord) -> &'static str {
    let state = State::try_from(record.state).unwrap_or(State::Reserved);
    match state {
        State::Reserved => "",
        State::Close if !record.l4proto.starts_with("tcp") => "",
        state => state.as_str_name(),
    }
}

/// Name, time left in hundredths of a second, retransmissions.
fn timer(record: &ConnectRecord) -> String {
    let active = TimerActive::try_from(record.tr).unwrap_or(TimerActive::Off);
    format!(
        "{} ({}.{:02}/{}/{})",
        active.as_str_name().to_lowercase(),
        record.timerwhen / 100,
        record.timerwhen % 100,
        record.retrnsmt,
        record.timeout
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn flags(line: &str) -> Flags {
        Line::parse_from(std::iter::once("x").chain(line.split_whitespace())).flags
    }

    #[test]
    fn flags_choose_protocols() {
        let all = request(&flags("")).l4proto.unwrap();
        assert!(all.tcp && all.tcp6 && all.udp && all.raw6);
        let some = request(&flags("-tu -4")).l4proto.unwrap();
        assert!(some.tcp && some.udp && !some.tcp6 && !some.raw && !some.udplite);
        assert_eq!(request(&flags("-l")).filter, i32::from(Filter::Listening));
        assert_eq!(request(&flags("-la")).filter, i32::from(Filter::All));
        let pod = request(&flags("kube-system/coredns -p"));
        assert_eq!(pod.netns.unwrap().netns, ["kube-system/coredns"]);
        assert!(pod.feature.unwrap().pid);
    }

    #[test]
    fn rows() {
        let record = ConnectRecord {
            l4proto: "tcp6".into(),
            localip: "::".into(),
            localport: 50000,
            remoteip: "::".into(),
            state: State::Listen.into(),
            process: Some(api::proto::machine::connect_record::Process { pid: 9, name: "apid".into() }),
            timerwhen: 1234,
            ..Default::default()
        };
        let answer = Netstat { metadata: None, connectrecord: vec![record] };
        assert_eq!(
            table(vec![("n".into(), answer)], &flags("-lp --timers")).to_string(),
            "NODE   Proto   Recv-Q   Send-Q   Local Address   Foreign Address   State    PID/Program name   Timer\n\
             n      tcp6    0        0        [::]:50000      [::]:*            LISTEN   9/apid             off (12.34/0/0)\n"
        );
    }
}
