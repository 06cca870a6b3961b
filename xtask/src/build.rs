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

use anyhow::{Context, Result};
use installer::kernel::Given;
use ondisk::bzimage;
use ondisk::manifest::Layer;

pub(crate) use artefacts::Artefacts;

use crate::cache::Cache;
use crate::host::{self, Need};
use crate::image;
use crate::inputs::Freshness;
use crate::kernel;
use crate::place;
use crate::programs;
use artefacts::relative;
use boot::Images;
use layers::LayerStore;
use materials::Materials;
use output::Output;

/// The initramfs profile that is built.
const PROFILE: &str = "default";

/// What the kernel of a node is told, unless the one who boots it says otherwise. Each word is explained in
/// docs/users/kernel-parameters.md.
const COMMAND_LINE: &str = "console=ttyS0 panic=10 oops=panic gpt init_on_alloc=1 slab_nomerge pti=on consoleblank=0 \
    cryptomgr.notests=1 printk.devkmsg=on talos.platform=metal billet.config=metal-iso";

/// `--kernel` for the image's own, which is the default.
const DEBIAN: &str = "debian";

/// `--kernel` for the hardened one.
const SOURCE: &str = "source";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Ask the mirror for newer packages.
    #[arg(long)]
    update: bool,
    /// `debian`, `source` (hardened, compiled from Debian's source), or a kernel of your own (a bzImage).
    #[arg(long, value_name = "KIND|FILE")]
    kernel: Option<PathBuf>,
    /// Its modules: lib/modules/RELEASE, or a folder with that in it.
    #[arg(long, value_name = "FOLDER", requires = "kernel")]
    modules: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    host::ensure_packages(Need::Build)?;
    let freshness = if options.update { Freshness::Now } else { Freshness::Day };
    let kernel = chosen(options.kernel.as_deref(), options.modules.as_deref(), freshness)?;
    let artefacts = build(freshness, kernel.as_ref(), Client::Released)?;
    sizes::print(&artefacts)
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

/// Which billetctl lies beside the images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// The one that users get.
    Released,
    /// The same sources without optimisation: what of it runs on no node need not keep tests waiting.
    Dev,
}

/// Builds all there is to build and writes `build.json`. `kernel`: one of the user's.
pub(crate) fn build(freshness: Freshness, kernel: Option<&Given>, client: Client) -> Result<Artefacts> {
    let output = Output::open(&place::artefacts())?;
    let cache = Cache::open(&place::cache()?)?;
    let init = programs::compile(&programs::INIT)?;
    programs::check_init(&init)?;
    let machined = programs::compile(&programs::MACHINED)?;
    let agent = programs::compile(&programs::TEST_AGENT)?;
    let billetctl = match client {
        Client::Released => programs::compile(&programs::BILLETCTL)?,
        Client::Dev => programs::dev_billetctl()?,
    };
    let materials = Materials::gather(&cache, freshness)?;
    let sets = kernel::ModuleSets::read(PROFILE)?;
    let store = LayerStore::open(&cache, &output)?;
    let boot = boot::parts(&cache, &materials, &sets, &init)?;
    let grub = materials.grub(&cache)?;
    let base = store.layer(&materials.base(&machined, &boot)?, "base", None)?;
    let modules = kernel::modules(&cache, &materials.kernel, &sets.layer)?;
    let sbom = materials.kernel_sbom()?;
    let tree = image::kernel_layer::assemble(&materials.kernel, &modules, &sbom, &boot, &grub)?;
    let kernel_layer = store.layer(&tree, "kernel", Some(&materials.kernel.release))?;
    let agent_layer = store.layer(&image::agent::assemble(&agent)?, image::agent::NAME, None)?;

    let (boot, production) = match kernel {
        Some(kernel) => own_kernel::swap(kernel, boot, [base, kernel_layer], &output)?,
        None => (boot, vec![base, kernel_layer]),
    };
    let kernel_release = bzimage::release(&boot.kernel).unwrap_or(&materials.kernel.release).to_owned();
    let vmlinuz = output.bytes("vmlinuz", &boot.kernel)?;
    let images = Images::new(&output, boot)?;
    let test: Vec<Layer> = production.iter().cloned().chain([agent_layer]).collect();
    let artefacts = Artefacts {
        version: version().to_owned(),
        kernel_release,
        vmlinuz: relative(&vmlinuz)?,
        sbom: relative(&output.text("sbom.spdx.json", &materials.whole_sbom()?)?)?,
        cmdline: COMMAND_LINE.to_owned(),
        init: relative(&output.copy("init", &init)?)?,
        machined: relative(&output.copy("machined", &machined)?)?,
        billetctl: relative(&output.copy("billetctl", &billetctl)?)?,
        grub_boot: relative(&output.bytes(installer::grub::BOOT_NAME, &grub.boot)?)?,
        grub_core: relative(&output.bytes(installer::grub::CORE_NAME, &grub.core)?)?,
        production: images.image("", &production)?,
        test: images.image("test-", &test)?,
    };
    output.text("build.json", &artefacts.to_json()?)?;
    output.forget_other_layers(&test).context("remove layers of earlier builds")?;
    Ok(artefacts)
}
