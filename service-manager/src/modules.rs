//! Kernel modules: loading them by name, those that containers need, and those that the config names with their parameters.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | the config | modules, `KernelModuleSpecs`, the kernel's own list of them | with machined |
//!
//! Order: what a module needs goes before it, without parameters.
//! Does not: unload what leaves the config: something may use it. Load for the kernel: [`crate::modprobe`] does.
//! Fails by: the reason in the resource and a line in the log; nothing else stops. A parameter of a module that is
//! there already is written below /sys where the kernel allows it.
//! Source: kmod(8), Documentation/admin-guide/kernel-parameters.rst.

use std::ffi::{CStr, CString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use config::v1alpha1::KernelModule as Wanted;
use ondisk::kmod::{Index, Module, same_name};
use runtime::Runtime;
use runtime::store::{KERNEL_MODULE_SPEC, KernelModule, RuntimeSpec, Spec};
use sys::Errno;

use crate::facts;

/// What a node with a config has before its containers start: what containerd lays images over one another with, and what
/// kube-proxy and network plugins set parameters of, which does not make the kernel load it.
const FOR_CONTAINERS: [&str; 3] = ["overlay", "br_netfilter", "nf_conntrack"];

/// Modules that make links by themselves when they are loaded, under names that a config may want, and how they do not.
const WITHOUT_LINKS: [(&str, &CStr); 3] =
    [("bonding", c"max_bonds=0"), ("dummy", c"numdummies=0"), ("ifb", c"numifbs=0")];

/// Held while modules are inserted.
static INSERTING: Mutex<()> = Mutex::new(());

/// The module index of the running kernel.
pub(crate) struct Modules {
    directory: PathBuf,
    dep: String,
    alias: String,
    softdep: String,
    builtin: String,
}

impl Modules {
    /// Everything that finds modules by name.
    fn read_names() -> Self {
        let directory = Path::new("/usr/lib/modules").join(sys::system::kernel_release());
        let text = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
        let (alias, builtin) = (String::new(), String::new());
        Self { dep: text("modules.dep"), alias, softdep: text("modules.softdep"), builtin, directory }
    }

    /// Everything that finds modules by name or alias.
    pub(crate) fn read() -> Self {
        let names = Self::read_names();
        let text = |name: &str| fs::read_to_string(names.directory.join(name)).unwrap_or_default();
        let (alias, builtin) = (text("modules.alias"), text("modules.builtin"));
        Self { alias, builtin, ..names }
    }

    /// The text of modules.alias.
    pub(crate) fn aliases(&self) -> &str {
        &self.alias
    }

    pub(crate) fn index(&self) -> Index<'_> {
        Index { dep: &self.dep, alias: &self.alias, softdep: &self.softdep, builtin: &self.builtin }
    }

    /// Loads what a name or an alias stands for, with what it needs; the names of those that were not loaded yet.
    pub(crate) fn load(&self, request: &str) -> Result<Vec<&str>, Missing> {
        let order = self.index().load_order(request).map_err(|_| Missing::NotInImage)?;
        let mut loaded = Vec::new();
        for module in order {
            if self.insert(&[module], of_itself).map_err(Missing::Refused)? > 0 {
                loaded.push(module.name());
            }
        }
        Ok(loaded)
    }

    /// Loads files in this order; says how many were not loaded yet. When this returns, the probing that the
    /// insertions began has ended, also of those that someone else began.
    pub(crate) fn insert<'p>(
        &self,
        modules: &[Module<'_>],
        parameters: impl Fn(Module<'_>) -> &'p CStr,
    ) -> Result<usize, String> {
        // The kernel calls a module loaded before its probing has ended.
        let _one_at_a_time = INSERTING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut loaded = 0;
        for module in modules {
            let path = self.directory.join(module.path);
            match load_file(&path, parameters(*module)) {
                Ok(()) => loaded += 1,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(format!("load {}: {errno}", module.path)),
            }
        }
        Ok(loaded)
    }
}

/// The parameters of a module for which nothing else was said.
fn of_itself(module: Module<'_>) -> &'static CStr {
    let found = WITHOUT_LINKS.iter().find(|(name, _)| *name == module.name());
    found.map_or(c"", |(_, parameters)| *parameters)
}

/// Why a module is not there.
#[derive(Debug)]
pub(crate) enum Missing {
    /// Nothing in the image has the name.
    NotInImage,
    /// The kernel did not take it, or its file cannot be read.
    Refused(String),
}

/// Largest module file; the largest ones of Debian are below 10 MB.
const MAX_MODULE_BYTES: usize = 64 << 20;

fn load_file(path: &Path, parameters: &CStr) -> Result<(), Errno> {
    let name = path.to_str().ok_or(Errno::INVAL)?;
    if name.ends_with(".ko") {
        sys::module::load_file(name, MAX_MODULE_BYTES, parameters)
    } else {
        sys::module::load_compressed_file(name, parameters)
    }
}

/// Loads modules by name, with what they need. What is built in, or missing, is left out.
pub(crate) fn load_modules(names: &[&str]) -> Result<(), String> {
    if names.is_empty() {
        return Ok(());
    }
    let modules = Modules::read_names();
    let index = modules.index();
    let wanted = names.iter().filter_map(|name| index.find(name));
    modules.insert(&index.with_dependencies(wanted), of_itself).map(drop)
}

/// Keeps the modules of the config loaded.
pub(crate) async fn follow(runtime: Arc<Runtime>) {
    let mut config = runtime.config.subscribe();
    while config.changed().await.is_ok() {
        let worker = runtime.clone();
        // Joined, so that two configs are not applied at once; a panic in there is logged by the runtime.
        let _ = tokio::task::spawn_blocking(move || apply(&worker)).await;
    }
}

/// Loads what containers need and what the config names, and publishes how the latter stands.
pub(crate) fn apply(runtime: &Runtime) {
    let Some(config) = runtime.config() else { return };
    // First those of the config: a parameter of one that is there already may need another boot.
    let wanted = config.machine.kernel.iter().flat_map(|kernel| &kernel.modules);
    let statuses = wanted.map(|module| {
        let error = bring(runtime, module).err().unwrap_or_default();
        if !error.is_empty() {
            runtime.journal.warn(&format!("kernel module {}: {error}", module.name));
        }
        let status = KernelModule {
            name: module.name.clone(),
            parameters: module.parameters.clone(),
            loaded: is_there(runtime, &module.name),
            error,
        };
        (module.name.clone(), Spec::Runtime(RuntimeSpec::KernelModule(status)))
    });
    let statuses = statuses.collect();
    if let Err(error) = load_modules(&FOR_CONTAINERS) {
        runtime.journal.warn(&format!("kernel modules for containers: {error}"));
    }
    facts::publish_modules(runtime);
    if let Err(error) = runtime.store.replace(KERNEL_MODULE_SPEC.writer, &KERNEL_MODULE_SPEC, statuses) {
        runtime.journal.warn(&error.to_string());
    }
}

fn bring(runtime: &Runtime, wanted: &Wanted) -> Result<(), String> {
    if is_there(runtime, &wanted.name) {
        return set_parameters(runtime, wanted);
    }
    let modules = Modules::read_names();
    let index = modules.index();
    let module = index.find(&wanted.name).ok_or("the image has no such module")?;
    // Of one that stands there twice the last counts.
    let text = format!("{} {}", of_itself(module).to_string_lossy(), wanted.parameters.join(" "));
    let text = CString::new(text.trim()).map_err(|_| "a parameter holds a zero byte")?;
    let parameters = |file: Module<'_>| match same_name(file.name(), &wanted.name) {
        true => text.as_c_str(),
        false => of_itself(file),
    };
    modules.insert(&index.with_dependencies([module]), parameters).map(drop)
}

/// Whether the kernel has it, loaded or built in.
fn is_there(runtime: &Runtime, name: &str) -> bool {
    directory(runtime, name).exists()
}

/// Its directory below /sys, where its name is written with `_`.
fn directory(runtime: &Runtime, name: &str) -> PathBuf {
    runtime.path("/sys/module").join(name.replace('-', "_"))
}

/// The parameters of a module that is there already.
fn set_parameters(runtime: &Runtime, wanted: &Wanted) -> Result<(), String> {
    let late: Vec<&str> = wanted
        .parameters
        .iter()
        .filter(|parameter| !set_parameter(runtime, wanted, parameter))
        .map(String::as_str)
        .collect();
    if late.is_empty() {
        return Ok(());
    }
    Err(format!(
        "it was there before; these parameters take effect after a reboot at the earliest: {}",
        late.join(" ")
    ))
}

/// Says whether the parameter has the value now.
fn set_parameter(runtime: &Runtime, wanted: &Wanted, parameter: &str) -> bool {
    // A parameter without a value switches something on.
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, "1"));
    let value = value.trim_matches('"');
    if name.is_empty() || name.contains('/') {
        return false;
    }
    let path = directory(runtime, &wanted.name).join("parameters").join(name);
    let same = |text: String| match (text.trim(), value) {
        ("Y", "1" | "y" | "Y" | "on") | ("N", "0" | "n" | "N" | "off") => true,
        (found, wanted) => found == wanted,
    };
    let holds = || fs::read_to_string(&path).is_ok_and(same);
    holds()
        || (fs::OpenOptions::new().write(true).open(&path).is_ok_and(|mut file| {
            use std::io::Write;
            file.write_all(value.as_bytes()).is_ok()
        }) && holds())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;

    fn node_with(machine: &str) -> (tempfile::TempDir, Arc<Node>) {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let text = format!("version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n{machine}");
        node.runtime
            .config
            .send_replace(Some(Arc::new(config::parse(&text).unwrap_or_else(|e| panic!("{e}")))));
        (dir, node)
    }

    fn status(node: &Node, name: &str) -> KernelModule {
        match &node.runtime.store.get(&KERNEL_MODULE_SPEC, name).unwrap().spec {
            Spec::Runtime(RuntimeSpec::KernelModule(status)) => status.clone(),
            _ => panic!("not a module"),
        }
    }

    #[test]
    fn parameters_of_a_module_that_is_there_are_written() {
        let (dir, node) = node_with(
            "  kernel:\n    modules:\n      - {name: br-netfilter, parameters: [limit=12, flag, fixed=3]}\n",
        );
        let directory = dir.path().join("sys/module/br_netfilter/parameters");
        fs::create_dir_all(&directory).unwrap();
        for (name, value) in [("limit", "1\n"), ("flag", "Y\n")] {
            fs::write(directory.join(name), value).unwrap();
        }
        apply(&node.runtime);
        assert_eq!(fs::read_to_string(directory.join("limit")).unwrap(), "12");
        assert_eq!(fs::read_to_string(directory.join("flag")).unwrap(), "Y\n", "it has the value already");
        let status = status(&node, "br-netfilter");
        assert!(status.loaded);
        assert!(status.error.ends_with("at the earliest: fixed=3"), "{}", status.error);
    }

    #[test]
    fn a_module_that_nobody_has_is_told_and_leaves_with_the_config() {
        let (_dir, node) = node_with("  kernel:\n    modules:\n      - {name: no_such_module}\n");
        apply(&node.runtime);
        let found = status(&node, "no_such_module");
        assert_eq!((found.loaded, found.error.as_str()), (false, "the image has no such module"));
        let text = "version: v1alpha1\nmachine: {type: worker, token: a.b}\n";
        node.runtime
            .config
            .send_replace(Some(Arc::new(config::parse(text).unwrap_or_else(|e| panic!("{e}")))));
        apply(&node.runtime);
        assert!(node.runtime.store.list(&KERNEL_MODULE_SPEC).is_empty());
    }
}
