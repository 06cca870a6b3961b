//! Everything that builds, runs, tests and measures Billet: one command, one module.
#![allow(clippy::print_stdout, reason = "a command line tool talks to its user")]
#![allow(dead_code)]
mod cache;
mod command;
mod image;
mod inputs;
mod kernel;
mod place;
mod sbom;
mod step;
fn main() -> anyhow::Result<()> {
    use kernel::Provider;
    step::set_verbose(true);
    let cache = cache::Cache::open(&place::cache()?)?;
    let mut inputs = inputs::Inputs::open(&cache, inputs::Freshness::Day)?;
    let kernel = kernel::Debian.kernel(&mut inputs)?;
    kernel::check(&kernel)?;
    let sets = kernel::ModuleSets::read("default")?;
    let a = kernel::modules(&cache, &kernel, &sets.initramfs)?;
    let b = kernel::modules(&cache, &kernel, &sets.layer)?;
    println!("{} {}", a.folder.display(), b.folder.display());
    Ok(())
}
