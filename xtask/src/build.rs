//! `xtask build`: from sources and packages to everything that boots.
//!
//! Order: programs, packages, kernel, bills of materials, boot parts, layers, initramfs, UKI, disk: for the production image and
//! for the test image, which has one layer more.
//! Owns: `target/billet/`, with `build.json` as the list of what is in it.
//! Does not: make anything again whose inputs are as they were (cache by content, see [`crate::cache`]).
//! Same inputs, same bytes: no time, no owner, no path of this machine gets into an artefact.

mod artefacts;
mod boot;
mod grub;
mod layers;
mod materials;
mod output;
mod own_kernel;
mod sizes;

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};
use installer::kernel::Given;
use installer::layer::Spec;
use ondisk::manifest::Layer;

pub(crate) use artefacts::Artefacts;

use crate::cache::Cache;
use crate::host::{self, Need};
use crate::image;
use crate::inputs::Freshness;
use crate::kernel;
use crate::place;
use crate::programs;
use crate::target::{self, Architecture};
use crate::toolchain::Toolchain;
use artefacts::relative;
use boot::Images;
use layers::LayerStore;
use materials::Materials;
use output::Output;

/// The initramfs profile that is built.
const PROFILE: &str = "default";

/// What the kernel of a node is told, unless the one who boots it says otherwise. Each word is explained in
/// docs/users/kernel-parameters.md.
const COMMAND_LINE: &str = "panic=10 oops=panic gpt init_on_alloc=1 slab_nomerge pti=on consoleblank=0 \
    cryptomgr.notests=1 printk.devkmsg=on talos.platform=metal billet.config=metal-iso";

/// The whole line, which names the console first.
fn command_line(architecture: Architecture) -> String {
    format!("console={} {COMMAND_LINE}", target::console(architecture))
}

/// `--kernel` for the image's own, which is the default.
const DEBIAN: &str = "debian";

/// `--kernel` for the hardened one.
const SOURCE: &str = "source";

/// The same for images that are not optimised.
const DEVELOPMENT: &str = "dev";

/// zstd level of what is squashed for a look at a node: 1.4 instead of 23 seconds here.
const FAST_ZSTD_LEVEL: u32 = 1;

/// What the directory of images with it is called, behind `billet-`.
const HARDENED: &str = "hardened";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Ask the mirror for newer packages.
    #[arg(long)]
    update: bool,
    /// Take the package index that was fetched last, however old.
    #[arg(long, conflicts_with = "update")]
    as_fetched: bool,
    /// `debian`, `source` (hardened, compiled from Debian's source), or a kernel of your own (a bzImage).
    #[arg(long, value_name = "KIND|FILE")]
    kernel: Option<PathBuf>,
    /// Its modules: lib/modules/RELEASE, or a directory with that in it.
    #[arg(long, value_name = "DIRECTORY", requires = "kernel")]
    modules: Option<PathBuf>,
    /// The machines that the images are for: `amd64` or `arm64`, whose images go to target/billet-arm64.
    #[arg(long, value_name = "NAME", default_value = "amd64", value_parser = target::parse, conflicts_with = "kernel")]
    arch: Architecture,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    host::ensure_packages(Need::Build)?;
    let freshness = match (options.update, options.as_fetched) {
        (true, _) => Freshness::Now,
        (false, true) => Freshness::AsFetched,
        (false, false) => Freshness::Day,
    };
    if options.arch == Architecture::Arm64 {
        let artefacts = build_for_arm64(freshness)?;
        return sizes::print(&artefacts, &place::artefacts_for(options.arch));
    }
    let kernel = chosen(options.kernel.as_deref(), options.modules.as_deref(), freshness)?;
    let artefacts = build(freshness, kernel.as_ref(), Purpose::Release)?;
    sizes::print(&artefacts, &place::artefacts())
}

/// The kernel that `--kernel` and `--modules` name; the one from source is compiled here. `None`: Debian's.
pub(crate) fn chosen(
    kernel: Option<&Path>,
    modules: Option<&Path>,
    freshness: Freshness,
) -> Result<Option<Given>> {
    let Some(path) = kernel.filter(|path| *path != Path::new(DEBIAN)) else { return Ok(None) };
    if path == Path::new(SOURCE) {
        return kernel::source(&Cache::open(&place::cache()?)?, freshness).map(Some);
    }
    Ok(Some(Given { path: path.to_owned(), modules: modules.map(Path::to_owned), config: None }))
}

/// Whether `--kernel` names one that this program makes, and no file.
pub(crate) fn is_name(kernel: &Path) -> bool {
    [DEBIAN, SOURCE].iter().any(|name| kernel == Path::new(name))
}

/// Version of the operating system: the workspace's.
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// What images are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Users and measurements: every program is as small as it can be.
    Release,
    /// Tests: the same images, but billetctl, which runs on no node, is not optimised.
    Tests,
    /// A look at a node, soon: machined is not optimised either, and there is no image with the tests' agent.
    Development,
}

impl Purpose {
    /// Where amd64 images for this purpose go.
    pub(crate) fn directory(self) -> PathBuf {
        match self {
            Self::Release | Self::Tests => place::artefacts(),
            Self::Development => place::artefacts_beside(DEVELOPMENT),
        }
    }
}

/// What is built.
struct Order<'o> {
    architecture: Architecture,
    /// One of the user's.
    kernel: Option<&'o Given>,
    purpose: Purpose,
    freshness: Freshness,
    /// Where the artefacts go.
    directory: PathBuf,
}

/// Builds all there is to build and writes `build.json`. `kernel`: one of the user's.
pub(crate) fn build(freshness: Freshness, kernel: Option<&Given>, purpose: Purpose) -> Result<Artefacts> {
    let directory = purpose.directory();
    make(&Order { architecture: Architecture::Amd64, kernel, purpose, freshness, directory })
}

/// The same for machines of another kind, for which all programs are compiled here, billetctl too.
pub(crate) fn build_for_arm64(freshness: Freshness) -> Result<Artefacts> {
    host::ensure_arm64_packages()?;
    let (architecture, purpose) = (Architecture::Arm64, Purpose::Release);
    make(&Order {
        architecture,
        kernel: None,
        purpose,
        freshness,
        directory: place::artefacts_for(architecture),
    })
}

/// The same with the hardened kernel, beside the image that there is, for the tests of the long run.
pub(crate) fn build_hardened(freshness: Freshness) -> Result<Artefacts> {
    let kernel = chosen(Some(Path::new(SOURCE)), None, freshness)?;
    let (architecture, purpose, directory) =
        (Architecture::Amd64, Purpose::Tests, place::artefacts_beside(HARDENED));
    make(&Order { architecture, kernel: kernel.as_ref(), purpose, freshness, directory })
}

/// Our programs but init.
struct Compiled {
    machined: PathBuf,
    agent: Option<PathBuf>,
    billetctl: PathBuf,
}

fn compile(purpose: Purpose, toolchain: &Toolchain) -> Result<Compiled> {
    Ok(match purpose {
        Purpose::Release | Purpose::Tests => Compiled {
            machined: programs::compile(&programs::MACHINED, toolchain)?,
            agent: Some(programs::compile(&programs::TEST_AGENT, toolchain)?),
            billetctl: match purpose {
                Purpose::Release => programs::compile(&programs::BILLETCTL, toolchain)?,
                _ => programs::dev_billetctl()?,
            },
        },
        Purpose::Development => Compiled {
            machined: programs::dev_machined()?,
            agent: None,
            billetctl: programs::dev(&programs::BILLETCTL)?,
        },
    })
}

fn compile_init(toolchain: &Toolchain) -> Result<PathBuf> {
    let init = programs::compile(&programs::INIT, toolchain)?;
    programs::check_init(&init).map(|()| init)
}

fn make(order: &Order<'_>) -> Result<Artefacts> {
    let &Order { architecture, kernel, purpose, freshness, ref directory } = order;
    let output = Output::open(directory)?;
    let cache = Cache::open(&place::cache()?)?;
    let toolchain = Toolchain::find(&cache, freshness, architecture)?;
    // init is linked on one core for half a minute, and its profile has a directory of its own, with a lock of its own.
    let (init, compiled, materials) = thread::scope(|scope| -> Result<_> {
        let init = scope.spawn(|| compile_init(&toolchain));
        let compiled = compile(purpose, &toolchain)?;
        let materials = Materials::gather(&cache, freshness, architecture)?;
        Ok((
            init.join().map_err(|_| anyhow!("the thread that compiles init panicked"))??,
            compiled,
            materials,
        ))
    })?;
    let Compiled { machined, agent, billetctl } = compiled;
    let sets = kernel::ModuleSets::read(PROFILE, architecture)?;
    let store = LayerStore::open(&cache, &output)?;
    let boot = boot::parts(&cache, &materials, &sets, &init, architecture)?;
    let grub = materials.grub(&cache)?;
    let usual = Spec::new("base", version());
    let zstd_level = if purpose == Purpose::Development { FAST_ZSTD_LEVEL } else { usual.zstd_level };
    let base = store.layer(&materials.base(&machined, &boot)?, &Spec { zstd_level, ..usual })?;
    let modules = kernel::modules(&cache, &materials.kernel, &sets.layer)?;
    let sbom = materials.kernel_sbom()?;
    let tree = image::kernel_layer::assemble(&materials.kernel, &modules, &sbom, &boot, grub.as_ref())?;
    let release = Some(materials.kernel.release.as_str());
    let kernel_layer =
        store.layer(&tree, &Spec { kernel_release: release, ..Spec::new("kernel", version()) })?;
    let agent_layer = agent
        .map(|agent| store.layer(&image::agent::assemble(&agent)?, &Spec::new(image::agent::NAME, version())))
        .transpose()?;

    let (boot, production) = match kernel {
        Some(kernel) => own_kernel::swap(kernel, boot, [base, kernel_layer], &output)?,
        None => (boot, vec![base, kernel_layer]),
    };
    let kernel_release =
        ondisk::kernel::release(&boot.kernel).unwrap_or(&materials.kernel.release).to_owned();
    let vmlinuz = output.bytes("vmlinuz", &boot.kernel)?;
    let images = Images::new(&output, boot)?;
    let layers: Vec<Layer> = production.iter().cloned().chain(agent_layer.clone()).collect();
    let test = agent_layer.map(|_| images.image("test-", &layers)).transpose()?;
    let (grub_boot, grub_core) = match &grub {
        Some(grub) => (
            Some(relative(&output.bytes(installer::grub::BOOT_NAME, &grub.boot)?)?),
            Some(relative(&output.bytes(installer::grub::CORE_NAME, &grub.core)?)?),
        ),
        None => (None, None),
    };
    let artefacts = Artefacts {
        version: version().to_owned(),
        kernel_release,
        vmlinuz: relative(&vmlinuz)?,
        sbom: relative(&output.text("sbom.spdx.json", &materials.whole_sbom()?)?)?,
        cmdline: command_line(architecture),
        init: relative(&output.copy("init", &init)?)?,
        machined: relative(&output.copy("machined", &machined)?)?,
        billetctl: relative(&output.copy("billetctl", &billetctl)?)?,
        grub_boot,
        grub_core,
        production: images.image("", &production)?,
        test,
    };
    output.text("build.json", &artefacts.to_json()?)?;
    output.forget_other_layers(&layers).context("remove layers of earlier builds")?;
    Ok(artefacts)
}
