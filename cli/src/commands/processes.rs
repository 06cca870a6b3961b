//! `processes`: sorted by memory or CPU time, once or again each second.

use crate::{
    output::{self, Cell, Format, Table, bytes_si},
    session::Session,
};
use anyhow::Result;
use api::proto::machine::{Process, ProcessInfo};
use clap::ValueEnum;
use std::time::Duration;

/// Between two pictures of `--watch`.
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Column to sort by
    #[arg(short, long, value_enum, default_value_t = Sort::Rss)]
    sort: Sort,
    /// Again each second
    #[arg(short, long)]
    watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    Rss,
    Cpu,
}

pub(crate) async fn run(session: &Session, flags: &Flags) -> Result<()> {
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        let answers =
            session.answers(session.client.machine().processes(session.request(())).await, |r| r.messages)?;
        if flags.watch && session.global.output == Format::Table {
            output::clear_screen()?;
        }
        output::print_table(&table(answers, flags.sort), session.global.output)?;
        if !flags.watch {
            return Ok(());
        }
    }
}

pub(super) fn table(answers: Vec<(String, Process)>, sort: Sort) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("PID", "pid"),
        ("STATE", "state"),
        ("THREADS", "threads"),
        ("CPU-TIME", "cpuTime"),
        ("VIRTMEM", "virtualMemory"),
        ("RESMEM", "residentMemory"),
        ("COMMAND", "command"),
    ]);
    for (node, mut answer) in answers {
        answer.processes.sort_by(|a, b| match sort {
            Sort::Rss => b.resident_memory.cmp(&a.resident_memory).then(a.pid.cmp(&b.pid)),
            Sort::Cpu => b.cpu_time.total_cmp(&a.cpu_time).then(a.pid.cmp(&b.pid)),
        });
        for p in &answer.processes {
            table.push(vec![
                node.as_str().into(),
                Cell::new(p.pid.to_string(), p.pid),
                p.state.as_str().into(),
                Cell::new(p.threads.to_string(), p.threads),
                Cell::new(format!("{:.2}", p.cpu_time), p.cpu_time),
                Cell::new(bytes_si(p.virtual_memory), p.virtual_memory),
                Cell::new(bytes_si(p.resident_memory), p.resident_memory),
                command(p).into(),
            ]);
        }
    }
    table
}

/// The arguments, with the executable's path for its bare name; a kernel thread has its name only.
fn command(p: &ProcessInfo) -> String {
    if p.executable.is_empty() {
        return if p.args.is_empty() { p.command.clone() } else { p.args.clone() };
    }
    let first = p.args.split_whitespace().next();
    let base = p.executable.rsplit('/').next();
    match (first, base) {
        (Some(first), Some(base)) if first == base => p.args.replacen(first, &p.executable, 1),
        (None, _) => p.executable.clone(),
        _ => p.args.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, rss: u64, cpu: f64, names: [&str; 3]) -> ProcessInfo {
        let [command, executable, args] = names.map(str::to_owned);
        ProcessInfo {
            pid,
            state: "S".into(),
            threads: 1,
            cpu_time: cpu,
            virtual_memory: 0,
            resident_memory: rss,
            command,
            executable,
            args,
            ..Default::default()
        }
    }

    #[test]
    fn sorted_rows() {
        let processes = vec![
            process(2, 0, 9.0, ["kthreadd", "", ""]),
            process(1, 900_000, 0.5, ["init", "/init", "init"]),
            process(7, 12_345_678, 1.25, ["machined", "/usr/bin/machined", "machined --x machined"]),
        ];
        let answers = || vec![("n".to_owned(), Process { metadata: None, processes: processes.clone() })];
        assert_eq!(
            table(answers(), Sort::Rss).to_string(),
            "NODE   PID   STATE   THREADS   CPU-TIME   VIRTMEM   RESMEM   COMMAND\n\
             n      7     S       1         1.25       0 B       12 MB    /usr/bin/machined --x machined\n\
             n      1     S       1         0.50       0 B       900 kB   /init\n\
             n      2     S       1         9.00       0 B       0 B      kthreadd\n"
        );
        assert!(table(answers(), Sort::Cpu).to_string().lines().nth(1).unwrap().starts_with("n      2"));
    }
}
