//! Traces as Debian's 6.12 kernel prints them.

use super::parse::{Event, line};
use super::*;

const START: &str = "Run /init as init process";

/// init starts `sh`, which makes a thread; a kernel thread and idle take turns.
const DUMP: &str = "\
[    9.0]   <idle>-0         0d..2. 100us : sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=swapper/0 next_pid=1 next_prio=120
[    9.0]  busybox-1         0..... 110us : task_newtask: pid=2 comm=swapper/0 clone_flags=800700 oom_score_adj=0
[    9.0] kthreadd-2         0..... 120us!: task_newtask: pid=20 comm=kthreadd clone_flags=800711 oom_score_adj=0
[    9.0]  busybox-1         0d.... 200us : console: Run /init as init process
[    9.0]  busybox-1         0..... 210us : sched_process_exec: filename=/init pid=1 old_pid=1
[    9.0]  busybox-1         0..... 220us : task_newtask: pid=30 comm=init clone_flags=4100 oom_score_adj=0
[    9.0]  busybox-1         0d..2. 300us+: sched_switch: prev_comm=init prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=init next_pid=30 next_prio=120
[    9.0]  a sh-d-30         0..... 330us : sched_process_exec: filename=/bin/sh pid=30 old_pid=30
[    9.0]  a sh-d-30         0..... 340us : task_newtask: pid=31 comm=a sh-d clone_flags=3d0f00 oom_score_adj=0
[    9.0]  a sh-d-30         0d..2. 400us : sched_switch: prev_comm=a sh-d prev_pid=30 prev_prio=120 prev_state=S ==> next_comm=kworker/0:1 next_pid=20 next_prio=120
[    9.0] kworker/-20        0d..2. 450us : sched_switch: prev_comm=kworker/0:1 prev_pid=20 prev_prio=120 prev_state=I ==> next_comm=worker next_pid=31 next_prio=120
[    9.0]  worker-31         0d..2. 500us : sched_switch: prev_comm=worker prev_pid=31 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
[    9.0]   <idle>-0         0d..2. 900us : sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a sh-d next_pid=30 next_prio=120
[    9.0]  a sh-d-30         0d.... 950us : console: bench: 127.0.0.1:80 open
[    9.0]  a sh-d-30         0d..2. 990us : sched_switch: prev_comm=a sh-d prev_pid=30 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
";

#[test]
fn all_time_is_somebodys() {
    let schedule = Schedule::parse(DUMP).unwrap();
    let (from, to) = (schedule.logged_at(START).unwrap(), schedule.logged_at("bench:").unwrap());
    let usage = schedule.usage(from, to).unwrap();
    let expected =
        [("idle", 400), ("init", 120), ("kernel: kworker", 50), ("kernel: start", 10), ("sh", 170)];
    let usage: Vec<(&str, u64)> = usage.iter().map(|(name, us)| (name.as_str(), *us)).collect();
    assert_eq!(usage, expected);
    assert_eq!(usage.iter().map(|(_, us)| us).sum::<u64>(), to - from);
    assert_eq!(schedule.executions().get("sh"), Some(&330));
}

#[test]
fn a_trace_that_ends_too_early_is_refused() {
    let cut = DUMP.lines().take(9).collect::<Vec<_>>().join("\n");
    let schedule = Schedule::parse(&cut).unwrap();
    assert!(schedule.logged_at("bench:").unwrap_err().to_string().contains("no log line"));
    assert!(schedule.usage(200, 950).unwrap_err().to_string().contains("too small"));
    assert!(Schedule::parse("(ftrace buffer empty)\n").is_err());
}

#[test]
fn threads_are_told_from_processes() {
    let thread = |flags: &str| {
        let text = format!(
            "[ 1.0]  a b-7  0..... 5us : task_newtask: pid=8 comm=x clone_flags={flags} oom_score_adj=0"
        );
        line(&text).unwrap().event
    };
    assert_eq!(thread("3d0f00"), Event::New { parent: 7, child: 8, thread: true });
    assert_eq!(thread("4100"), Event::New { parent: 7, child: 8, thread: false });
}

#[test]
fn a_program_is_named_by_its_file() {
    let program = |path: &str| {
        let text = format!("[ 1.0]  a-7  0..... 5us : sched_process_exec: filename={path} pid=7 old_pid=7");
        let Event::Executed { program, .. } = line(&text).unwrap().event else { panic!("another event") };
        program
    };
    assert_eq!(program("/usr/bin/apid"), "apid");
    assert_eq!(program("/proc/self/fd/9"), "executed by descriptor");
}
