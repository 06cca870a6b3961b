//! The hardened kernel, compiled from Debian's linux-source with kernel-config/hardened.config.
//!
//! Owns: its configuration, which must come out as it is written; the cache entry with what `make` left.
//! Does not: compile twice what did not change: source package, configuration and compiler name the entry.
//! Order: unpack, configure, compare, compile. An hour on two cores; a second when it is in the cache.
//! Fails by: the options that make changed or the kernel lacks, before anything is compiled.
//! Source: kernel Documentation/kbuild/kbuild.rst, kconfig.rst (KCONFIG_ALLCONFIG), reproducible-builds.rst.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use installer::kernel::{Given, Required};

use crate::cache::{Cache, Key, KeyBuilder};
use crate::command::Cmd;
use crate::host;
use crate::inputs::{Freshness, Inputs, Package};
use crate::place;
use crate::step::step;
use crate::target::Architecture;

/// Depends on the source of the release's current kernel.
const META: &str = "linux-source";

/// Source packages are `linux-source-<version>`, and hold an archive of that name.
const PREFIX: &str = "linux-source-";

/// Every option that is on, in groups.
const CONFIGURATION: &str = "kernel-config/hardened.config";

/// What would otherwise be of the machine and the hour.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("KBUILD_BUILD_TIMESTAMP", "2025-01-01"),
    ("KBUILD_BUILD_USER", "billet"),
    ("KBUILD_BUILD_HOST", "billet"),
    ("KBUILD_BUILD_VERSION", "1"),
];

/// The kernel as files in the cache, compiled if it is not there.
pub(crate) fn source(cache: &Cache, freshness: Freshness) -> Result<Given> {
    host::ensure_kernel_packages()?;
    let mut inputs = Inputs::open(cache, freshness)?;
    let package = package(&mut inputs)?;
    let path = place::repository().join(CONFIGURATION);
    let wanted = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let key = key(&package, &wanted)?;
    let entry = cache.entry("kernel", &key, |entry| {
        let unpacked = inputs.unpack(std::slice::from_ref(&package))?;
        let directory = unpacked.get(&package.name).context("the kernel's source was not unpacked")?;
        let archive = directory.join("usr/src").join(format!("{}.tar.xz", package.name));
        let scratch = cache.scratch()?;
        let tree = step("unpack the kernel's source", || unpack(&archive, scratch.path(), &package.name))?;
        step("configure the kernel", || configure(&tree, &path, &wanted))?;
        step("compile the kernel", || compile(&tree, entry))
    })?;
    Ok(Given {
        path: entry.join("vmlinuz"),
        modules: Some(entry.join("lib/modules")),
        config: Some(entry.join("config")),
    })
}

fn package(inputs: &mut Inputs<'_>) -> Result<Package> {
    let meta = inputs.resolve(&[META])?;
    let named = meta.iter().flat_map(|package| &package.depends).find(|name| name.starts_with(PREFIX));
    let named = named.with_context(|| format!("{META} depends on no kernel source"))?.clone();
    inputs.resolve(&[&named])?.pop().with_context(|| format!("no package {named}"))
}

/// Other compilers make other code.
fn key(package: &Package, configuration: &str) -> Result<Key> {
    let tools = Cmd::new("cc").arg("--version").read()? + &Cmd::new("ld").arg("--version").read()?;
    let key = KeyBuilder::new("kernel from source 1").part(&package.sha256).part(configuration).part(tools);
    Ok(ENVIRONMENT.iter().fold(key, |key, (name, value)| key.part(name).part(value)).finish())
}

fn unpack(archive: &Path, into: &Path, name: &str) -> Result<std::path::PathBuf> {
    Cmd::new("tar").arg("-xf").arg(archive).arg("-C").arg(into).run()?;
    Ok(into.join(name))
}

/// Everything that is not named is off; what is named must come out as it is written.
fn configure(tree: &Path, configuration: &Path, wanted: &str) -> Result<()> {
    make(tree).env("KCONFIG_ALLCONFIG", configuration).arg("allnoconfig").run()?;
    let path = tree.join(".config");
    let got = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let changed = changed(wanted, &got);
    if !changed.is_empty() {
        bail!("{CONFIGURATION} cannot be had as it is written:\n  {}", changed.join("\n  "));
    }
    Ok(Required::list(Architecture::Amd64)?.check("from source", &got)?)
}

/// Lines that a configuration has otherwise than asked for, and options that are modules.
fn changed(wanted: &str, got: &str) -> Vec<String> {
    let lines: Vec<&str> = got.lines().collect();
    let value = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let mut changed = Vec::new();
    for line in wanted.lines() {
        if let Some((name, value_wanted)) = line.split_once('=').filter(|_| line.starts_with("CONFIG_")) {
            let is = value(name).unwrap_or("not set");
            if is != value_wanted {
                changed.push(format!("{name} should be {value_wanted} and is {is}"));
            }
        }
        let off = line.strip_prefix("# ").and_then(|line| line.strip_suffix(" is not set"));
        if let Some((name, is)) = off.and_then(|name| Some((name, value(name)?))) {
            changed.push(format!("{name} should not be set and is {is}"));
        }
    }
    let modular = lines.iter().filter(|line| line.starts_with("CONFIG_") && line.ends_with("=m"));
    changed.extend(modular.map(|line| format!("{line}: nothing is to be modular")));
    changed
}

fn compile(tree: &Path, entry: &Path) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    make(tree).arg(format!("-j{cores}")).args(["bzImage", "modules"]).run()?;
    // No module is there: this leaves the list of what is built in.
    let directory = format!("INSTALL_MOD_PATH={}", entry.display());
    make(tree).arg(directory).arg("modules_install").run()?;
    for (from, to) in [("arch/x86/boot/bzImage", "vmlinuz"), (".config", "config")] {
        let from = tree.join(from);
        fs::copy(&from, entry.join(to)).with_context(|| format!("copy {}", from.display()))?;
    }
    forget_links(&entry.join("lib/modules"))
}

/// Links to where the modules were compiled, which is gone.
fn forget_links(modules: &Path) -> Result<()> {
    for release in fs::read_dir(modules).with_context(|| format!("list {}", modules.display()))? {
        let release = release.with_context(|| format!("list {}", modules.display()))?.path();
        for link in ["build", "source"].map(|name| release.join(name)).iter().filter(|link| link.is_symlink())
        {
            fs::remove_file(link).with_context(|| format!("remove {}", link.display()))?;
        }
    }
    Ok(())
}

fn make(tree: &Path) -> Cmd {
    let make = Cmd::new("make").arg("ARCH=x86_64").directory(tree);
    ENVIRONMENT.iter().fold(make, |make, (name, value)| make.env(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_make_changed_is_named() {
        let wanted =
            "# Why.\nCONFIG_A=y\nCONFIG_B=\"\"\n# CONFIG_C is not set\n# CONFIG_D is not set\nCONFIG_E=y\n";
        let got = "CONFIG_A=y\nCONFIG_AB=y\nCONFIG_B=\"x\"\n# CONFIG_C is not set\nCONFIG_D=y\nCONFIG_F=m\n";
        let expected = [
            "CONFIG_B should be \"\" and is \"x\"",
            "CONFIG_D should not be set and is y",
            "CONFIG_E should be y and is not set",
            "CONFIG_F=m: nothing is to be modular",
        ];
        assert_eq!(changed(wanted, got), expected);
        assert!(changed("CONFIG_A=y\n", got.trim_end_matches("CONFIG_F=m\n")).is_empty());
    }

    #[test]
    fn the_configuration_asks_for_what_a_node_needs() {
        let text = fs::read_to_string(place::repository().join(CONFIGURATION)).unwrap();
        Required::list(Architecture::Amd64).unwrap().check("hardened", &text).unwrap();
        assert!(!text.contains("=m\n"));
        // Each group has its reason above it.
        let groups = text.split("\n\n").skip(1);
        assert!(
            groups
                .into_iter()
                .all(|group| group.starts_with("# ") && group.lines().next().unwrap().contains(':'))
        );
    }
}
