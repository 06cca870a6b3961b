//! The multi-call binary: machined, apid and trustd, told apart by the name they are called by; flannel, the network plugin that
//! containerd starts for each pod; and modprobe, which the kernel starts.

use std::process::ExitCode;

use service_manager::modprobe;
use service_manager::volumes::opening;

// A request that panics must not end the node's API for everyone (docs/decisions/0021).
#[cfg(all(panic = "abort", not(test)))]
compile_error!("machined needs unwinding: compile it with the profile image-machined");

/// Stack of a runtime thread. Its pages take no memory before they are touched; code without optimisation touches more than
/// half a megabyte of them.
const STACK_BYTES: usize = 2048 * 1024;
/// Threads for file work: one walk of a large directory must not stop another call.
const BLOCKING_THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let name = arguments.next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    runtime::request::end_on_other_panics(name);
    if name == "machined" && arguments.next().as_deref() == Some(opening::ARGUMENT) {
        // Without a runtime: it has one thing to do, and memory is what its keys cost.
        return code(name, opening::serve());
    }
    match name {
        "flannel" => return cni_flannel::run(),
        "modprobe" => return modprobe::run(std::env::args().skip(1)),
        _ => {}
    }
    let runtime = match runtime(name) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = match name {
        "machined" => runtime.block_on(service_manager::machined::run()),
        "apid" => runtime.block_on(service_manager::apid::run()),
        "trustd" => runtime.block_on(service_manager::trustd::run()),
        other => {
            Err(format!("called as {other:?}; this program is machined, apid, trustd, flannel or modprobe"))
        }
    };
    code(name, result)
}

fn code(name: &str, result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn runtime(name: &str) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match name {
        "machined" => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    builder
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
}
