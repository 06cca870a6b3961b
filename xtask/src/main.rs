//! Everything that builds, runs, tests and measures Billet: one command, one module.

#![allow(clippy::print_stdout, reason = "a command line tool talks to its user")]

mod bench;
mod build;
mod cache;
mod cluster_images;
mod command;
mod commands;
mod host;
mod image;
mod inputs;
mod kernel;
mod place;
mod programs;
mod sbom;
mod step;
mod target;
mod toolchain;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{advisories, certify, clean, cluster, ctl, fuzz, images, plan, run, stop, test, tidy};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, runs, tests and measures Billet")]
struct Arguments {
    /// Show every command that is run.
    #[arg(long, short, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ask whether a known hole is in a crate from outside; needs cargo-deny, and the network.
    Advisories(advisories::Options),
    /// Measure what a boot costs.
    Bench(bench::Options),
    /// Build layers, initramfs, UKI and disk image into target/billet.
    Build(build::Options),
    /// Judge every state that a power cut can leave on a disk.
    Certify(certify::Options),
    /// Remove what builds have made.
    Clean(clean::Options),
    /// Make a Kubernetes cluster on this machine.
    Cluster(cluster::Options),
    /// Call billetctl for the node that `run` started.
    Ctl(ctl::Options),
    /// Call whatever reads a person's text with random inputs until something breaks.
    Fuzz(fuzz::Options),
    /// Make the container images that a cluster pulls.
    Images(images::Options),
    /// Print every sequence of a node: boot, supervision, shutdown and the rest.
    Plan,
    /// Build a node and run it in a virtual machine, with its console here.
    Run(run::Options),
    /// For `cluster --offline`: be the registry.
    #[command(hide = true)]
    ServeImages(cluster::registry::Serve),
    /// For `run`: start the machine and leave it.
    #[command(hide = true)]
    StartMachine(run::machine::Start),
    /// End the node that `run` started.
    Stop,
    /// Run every check and every test, virtual machines included.
    Test(test::Options),
    /// Check the repository's own text: headers, sizes, dependencies, licences.
    Tidy,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    step::set_verbose(arguments.verbose);
    let result = match &arguments.command {
        Command::Advisories(options) => advisories::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Build(options) => build::run(options),
        Command::Certify(options) => certify::run(options),
        Command::Clean(options) => clean::run(options),
        Command::Cluster(options) => cluster::run(options),
        Command::Ctl(options) => ctl::run(options),
        Command::Fuzz(options) => fuzz::run(options),
        Command::Images(options) => images::run(options),
        Command::Plan => plan::run(),
        Command::Run(options) => run::run(options),
        Command::ServeImages(options) => cluster::registry::serve(options),
        Command::StartMachine(options) => run::machine::start(options),
        Command::Stop => stop::run(),
        Command::Test(options) => test::run(options),
        Command::Tidy => tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line a cause; a backtrace would bury them.
            eprintln!("error: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn options_do_not_contradict_each_other() {
        super::Arguments::command().debug_assert();
    }
}
