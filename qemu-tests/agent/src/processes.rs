//! Processes, read from /proc and signalled by pid.
//!
//! Source: proc_pid_stat(5), proc_pid_smaps(5).

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// One line of `/proc/<pid>/stat`, the parts that tests need.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    pid: i32,
    name: String,
    state: String,
    ppid: i32,
    start_ticks: u64,
}

pub(crate) fn list() -> Result<Value, String> {
    let processes: Vec<Value> = all()?
        .into_iter()
        .map(|stat| {
            json!({
                "pid": stat.pid, "name": stat.name, "state": stat.state, "ppid": stat.ppid,
                "start_ticks": stat.start_ticks,
            })
        })
        .collect();
    Ok(json!({ "processes": processes }))
}

pub(crate) fn kill(pid: Option<i32>, name: Option<&str>, signal: i32) -> Result<Value, String> {
    let targets: Vec<i32> = match (pid, name) {
        (Some(pid), None) => vec![pid],
        (None, Some(name)) => {
            all()?.into_iter().filter(|stat| stat.name == name).map(|stat| stat.pid).collect()
        }
        _ => return Err("give either pid or name".into()),
    };
    if targets.is_empty() {
        return Err(format!("no process is named {}", name.unwrap_or_default()));
    }
    let signal = Signal::from_named_raw(signal).ok_or_else(|| format!("no signal {signal}"))?;
    for &target in &targets {
        let pid = Pid::from_raw(target).ok_or("pid 0")?;
        kill_process(pid, signal).map_err(|errno| format!("kill {target}: {errno}"))?;
    }
    Ok(json!({ "pids": targets }))
}

pub(crate) fn pss_kib(pid: i32) -> Result<Value, String> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(|error| format!("read {path}: {error}"))?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let pss = field("Pss:").ok_or_else(|| format!("{path} has no Pss"))?;
    Ok(json!({ "pss_kib": pss, "anonymous_kib": field("Anonymous:").unwrap_or(0) }))
}

fn all() -> Result<Vec<Stat>, String> {
    let entries = fs::read_dir("/proc").map_err(|error| format!("list /proc: {error}"))?;
    let is_pid = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let mut found: Vec<Stat> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_pid))
        // A process may end between the listing and the reading.
        .filter_map(|entry| parse(&fs::read_to_string(entry.path().join("stat")).ok()?))
        .collect();
    found.sort_by_key(|stat| stat.pid);
    Ok(found)
}

/// The name stands in parentheses and may hold any byte, so the last `)` ends it.
fn parse(line: &str) -> Option<Stat> {
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    Some(Stat {
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        state: (*words.first()?).to_owned(),
        ppid: words.get(1)?.parse().ok()?,
        start_ticks: words.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_are_read() {
        let line = "42 (a) b) S 1 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        let stat = parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.ppid, stat.start_ticks), ("a) b", 1, 777));
        assert_eq!(parse("42 (x"), None);
    }

    #[test]
    fn this_process_is_listed_and_has_memory() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(all().unwrap().iter().any(|stat| stat.pid == pid && stat.start_ticks > 0));
        assert!(pss_kib(pid).unwrap()["pss_kib"].as_u64().unwrap() > 0);
    }

    #[test]
    fn killing_nobody_is_an_error() {
        assert!(kill(None, Some("no such name"), 9).is_err());
        assert!(kill(None, None, 9).is_err());
    }
}
