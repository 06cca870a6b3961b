//! What is in each image, and how it is called.
//!
//! Owns: names as crates/kubernetes gives them, below whatever registry; layers, and that images share them: all programs of
//! Kubernetes are one file in one layer, which a node fetches, keeps and maps once.
//! Does not: say what a container runs; pods name their programs, the entrypoint serves those that do not.

use std::path::PathBuf;

use anyhow::{Context, Result};
use installer::tree::{Node, Tree};
use oci::archive::{Bytes, Content};

use super::golang::Toolchain;
use super::modules::{Compiler, Module, Program};
use super::packaged::Packaged;
use super::releases::{Origin, Release, minor};
use crate::cache::Cache;
use crate::image::base;
use crate::image::list::FileList;
use crate::inputs::{Archive, Freshness, Inputs};
use crate::place;
use crate::target::{self, Architecture};

/// Part of every image's key: change it when the code below writes the same tree as other bytes.
pub(super) const WRITER: &str = "1";

/// Where all programs of Kubernetes are looked for (crates/kubernetes).
const PROGRAMS: &str = "usr/local/bin";
/// The one file of Kubernetes.
const KUBERNETES: &str = "kubernetes";
/// The names that it goes by: the cases of `programs` in xtask/kubernetes/main.go, and in that of 1.20.
pub(super) const NAMES: [&str; 7] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubeadm",
    "kubectl",
    "kubelet",
];

/// Files out of Debian's packages.
const TOOLS: &str = "xtask/image/kubernetes-tools.toml";

/// Users of the images with tools: the kubelet looks for one of its own, and fails where there is no file.
const PASSWD: &str = "root:x:0:0:root:/root:/nonexistent\nnobody:x:65534:65534:nobody:/:/nonexistent\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";

/// What an image consists of; each is a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layer {
    Kubernetes,
    Tools,
    Etcd,
    Pause,
    CoreDns,
    Flannel,
}

/// An image to be made.
pub(super) struct ImageSpec {
    /// Path below the registry.
    pub(super) repository: &'static str,
    pub(super) tag: String,
    pub(super) layers: &'static [Layer],
    pub(super) entrypoint: Vec<String>,
    pub(super) arguments: Vec<String>,
}

impl ImageSpec {
    fn new(
        repository: &'static str,
        tag: impl Into<String>,
        layers: &'static [Layer],
        program: &str,
    ) -> Self {
        let entrypoint = vec![program.to_owned()];
        Self { repository, tag: tag.into(), layers, entrypoint, arguments: Vec::new() }
    }
}

/// The images of a release.
pub(super) fn images(release: &Release) -> Vec<ImageSpec> {
    let kubernetes = format!("v{}", release.kubernetes);
    let of_kubernetes = |repository, layers, program| {
        ImageSpec::new(repository, &kubernetes, layers, &format!("/{PROGRAMS}/{program}"))
    };
    let plain: &[Layer] = &[Layer::Kubernetes];
    let with_tools: &[Layer] = &[Layer::Kubernetes, Layer::Tools];
    let etcd: &[Layer] = match release.origin {
        Origin::Modules => &[Layer::Etcd],
        // Debian's is for the C library.
        Origin::Packages(_) => &[Layer::Etcd, Layer::Tools],
    };
    vec![
        of_kubernetes("kube-apiserver", plain, "kube-apiserver"),
        of_kubernetes("kube-controller-manager", plain, "kube-controller-manager"),
        of_kubernetes("kube-scheduler", plain, "kube-scheduler"),
        of_kubernetes("kube-proxy", with_tools, "kube-proxy"),
        of_kubernetes("siderolabs/kubelet", with_tools, "kubelet"),
        ImageSpec::new("etcd", release.etcd_tag, etcd, "/usr/local/bin/etcd"),
        ImageSpec::new("pause", "3.10", &[Layer::Pause], "/pause"),
        ImageSpec::new("coredns/coredns", release.core_dns, &[Layer::CoreDns], "/coredns"),
        ImageSpec::new(
            "siderolabs/flannel",
            format!("v{}", release.flannel),
            &[Layer::Flannel, Layer::Tools],
            "/opt/bin/flanneld",
        ),
    ]
}

/// Makes layers.
pub(super) struct LayerBuilder<'a> {
    release: &'static Release,
    inputs: Inputs<'a>,
    /// Where Go comes from, if it is another part of the archive.
    backports: Option<Inputs<'a>>,
    compiler: Compiler<'a>,
    /// Kubernetes and etcd, if they are not made of modules.
    packaged: Option<Packaged<'a>>,
}

impl<'a> LayerBuilder<'a> {
    pub(super) fn open(cache: &'a Cache, freshness: Freshness, release: &'static Release) -> Result<Self> {
        let mut inputs = Inputs::open(cache, freshness)?;
        let mut backports = match release.go.archive {
            Archive::Release => None,
            archive => Some(Inputs::open_part(cache, freshness, archive)?),
        };
        let toolchain = Toolchain::resolve(backports.as_mut().unwrap_or(&mut inputs), release.go.version)?;
        let packaged = match release.origin {
            Origin::Modules => None,
            Origin::Packages(go) => Some(Packaged::open(cache, freshness, release, go)?),
        };
        Ok(Self { release, inputs, backports, compiler: Compiler::new(cache, toolchain), packaged })
    }

    /// The files of a layer.
    pub(super) fn layer(&mut self, layer: Layer) -> Result<Tree> {
        match layer {
            Layer::Kubernetes => self.kubernetes(),
            Layer::Tools => self.tools(),
            Layer::Etcd => self.etcd(),
            Layer::Pause => self.alone(&pause_module(), &pause(), "pause"),
            Layer::CoreDns => self.alone(&core_dns_module(self.release), &core_dns(), "coredns"),
            Layer::Flannel => self.alone(&flannel_module(), &flannel(self.release), "opt/bin/flanneld"),
        }
    }

    /// The one file of Kubernetes.
    pub(super) fn kubernetes_program(&mut self) -> Result<PathBuf> {
        match &mut self.packaged {
            Some(packaged) => packaged.kubernetes(),
            None => self.compiled(&module(self.release), &kubernetes(self.release)),
        }
    }

    /// Kubernetes beside the tools that it calls.
    pub(super) fn with_tools(&mut self) -> Result<Tree> {
        let mut files = self.tools()?;
        self.add_kubernetes(&mut files)?;
        Ok(files)
    }

    fn kubernetes(&mut self) -> Result<Tree> {
        let mut files = Tree::new();
        self.add_kubernetes(&mut files)?;
        Ok(files)
    }

    fn add_kubernetes(&mut self, files: &mut Tree) -> Result<()> {
        files.file(&format!("{PROGRAMS}/{KUBERNETES}"), 0o755, self.kubernetes_program()?)?;
        for name in NAMES {
            files.symlink(&format!("{PROGRAMS}/{name}"), KUBERNETES)?;
        }
        Ok(())
    }

    /// The server, and the tool that makes its data directory of a snapshot.
    fn etcd(&mut self) -> Result<Tree> {
        if let Some(packaged) = &mut self.packaged {
            return packaged.etcd(PROGRAMS);
        }
        let module = module(self.release);
        let mut files = self.alone(&module, &etcd(), "usr/local/bin/etcd")?;
        files.file("usr/local/bin/etcdutl", 0o755, self.compiled(&module, &etcdutl())?)?;
        Ok(files)
    }

    /// versitygw, which takes snapshots as Amazon's buckets do. It is in no image.
    pub(super) fn bucket_server(&mut self) -> Result<PathBuf> {
        let module = Module { name: "versitygw".to_owned(), sources: &[] };
        let package = "github.com/versity/versitygw/cmd/versitygw";
        let program =
            Program { name: "versitygw", package, variables: Vec::new(), remark: "", uses_c: false };
        self.compiled(&module, &program)
    }

    fn tools(&mut self) -> Result<Tree> {
        let list = FileList::read(&place::repository().join(TOOLS), Architecture::Amd64)?;
        let packages = self.inputs.resolve(&list.packages())?;
        let directories = self.inputs.unpack(&packages)?;
        let mut files = base::of_packages(&list, &directories)?;
        base::add_libraries(&mut files, &list, &directories, target::libraries(Architecture::Amd64))
            .with_context(|| format!("libraries of {TOOLS}"))?;
        files.bytes("etc/passwd", 0o644, PASSWD)?;
        files.bytes("etc/group", 0o644, GROUP)?;
        Ok(files)
    }

    fn compiled(&mut self, module: &Module, program: &Program) -> Result<PathBuf> {
        let inputs = self.backports.as_mut().unwrap_or(&mut self.inputs);
        self.compiler.program(inputs, module, program)
    }

    /// A program and nothing else.
    fn alone(&mut self, module: &Module, program: &Program, path: &str) -> Result<Tree> {
        let file = self.compiled(module, program)?;
        let mut files = Tree::new();
        files.file(path, 0o755, file)?;
        Ok(files)
    }
}

/// The cluster DNS, with the plugins that a Corefile of ours or of kubeadm names.
pub(super) fn core_dns_module(release: &Release) -> Module {
    let name = format!("coredns-{}", minor(release.core_dns));
    Module { name, sources: &["coredns/main.go"] }
}

/// The network of pods, as it is published.
pub(super) fn flannel_module() -> Module {
    Module { name: "flannel".to_owned(), sources: &[] }
}

/// The module with all programs of a release whose origin is modules.
pub(super) fn module(release: &Release) -> Module {
    Module { name: release.minor().to_owned(), sources: &["main.go"] }
}

fn pause_module() -> Module {
    Module { name: "pause".to_owned(), sources: &["pause/main.go"] }
}

fn kubernetes(release: &Release) -> Program {
    Program {
        name: KUBERNETES,
        package: ".",
        variables: release.variables(""),
        remark: ": 8 to 20 minutes on two cores",
        uses_c: false,
    }
}

fn etcd() -> Program {
    let package = "go.etcd.io/etcd/server/v3";
    Program { name: "etcd", package, variables: Vec::new(), remark: "", uses_c: false }
}

fn etcdutl() -> Program {
    let package = "go.etcd.io/etcd/etcdutl/v3";
    Program { name: "etcdutl", package, variables: Vec::new(), remark: "", uses_c: false }
}

fn pause() -> Program {
    Program { name: "pause", package: "./pause", variables: Vec::new(), remark: "", uses_c: false }
}

fn core_dns() -> Program {
    Program { name: "coredns", package: "./coredns", variables: Vec::new(), remark: "", uses_c: false }
}

fn flannel(release: &Release) -> Program {
    let package = "github.com/flannel-io/flannel";
    let version = format!("{package}/pkg/version.Version=v{}", release.flannel);
    // One of its ways to send packets is written in C.
    Program { name: "flanneld", package, variables: vec![version], remark: "", uses_c: true }
}

/// A tree as a layer's files. Directories come with what lies in them.
pub(super) fn of_tree(tree: &Tree) -> Result<Vec<Content>> {
    let mut contents = Vec::new();
    for (path, entry) in tree.iter() {
        let executable = entry.mode & 0o111 != 0;
        let bytes = match &entry.node {
            Node::Dir => continue,
            Node::File(from) if executable => Bytes::Program(from.clone()),
            Node::File(from) => Bytes::File(PathBuf::from(from)),
            Node::Bytes(bytes) => Bytes::Here(bytes.clone()),
            Node::Symlink(target) => Bytes::Link(target.clone()),
            Node::CharDevice(..) | Node::BlockDevice(..) => {
                anyhow::bail!("/{path} is a device, which no layer of ours has")
            }
        };
        contents.push(Content { path: path.to_owned(), bytes });
    }
    Ok(contents)
}
