//! What may be fetched.
//!
//! Owns: names to files; [`configs`](crate::configs) knows which config is whose. Nothing outside of the two directories is ever
//! served, whatever links lie in them.
//! A bundle is a directory with `boot.ipxe`, a script with relative addresses, and what it names; for firmware that has no iPXE
//! also `undionly.kpxe`, `ipxe.efi`, `ipxe-arm64.efi` or a UKI, `billet.efi`; with `stub.efi` a UKI is made for each machine.
//! A config lies in its directory under the machine's hardware address (`52-54-00-12-34-56.yaml`), or as `default.yaml`.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::architecture::Architecture;

use crate::Error;
use crate::configs::{Configs, Judge, inside};
use crate::dhcp::{Loaders, Uefi};
use crate::event::{Event, Machine};
use crate::mac::Mac;
use crate::uki::{self, ARGUMENTS, Plan, Ukis, Variables};

/// The script of a bundle.
pub const SCRIPT: &str = "boot.ipxe";
/// What PCs without UEFI load.
const BIOS_IPXE: &str = "undionly.kpxe";
/// The kernel, as `image build` calls it.
const KERNEL: &str = "vmlinuz";
/// The headers of a program for firmware are at its beginning.
const HEADERS_BYTES: u64 = 64 << 10;

/// The directories.
#[derive(Debug, Clone)]
pub struct Files {
    bundle: PathBuf,
    configs: Option<Configs>,
    /// Host and port of HTTP; a machine that asks by it has said so itself.
    server: Option<String>,
    secure: Option<String>,
    ukis: Arc<Ukis>,
}

/// What is sent.
pub(crate) trait Content: Read + Seek + Send {}

impl<T: Read + Seek + Send> Content for T {}

/// Something that is served, from its first byte on.
pub(crate) struct Opened {
    pub(crate) content: Box<dyn Content>,
    pub(crate) length: u64,
}

impl Opened {
    pub(crate) fn file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { content: Box::new(file), length })
    }
}

/// Something that there is. Who has not shown that it can take it costs no more than this.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file of the bundle.
    File(File, u64),
    /// A UKI, of which nothing is made yet.
    Own(Plan),
}

impl Found {
    pub(crate) fn file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self::File(file, length))
    }

    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::File(_, length) => *length,
            Self::Own(plan) => plan.length(),
        }
    }

    /// Begins to send it.
    ///
    /// # Errors
    /// A part of a UKI that cannot be read.
    pub(crate) async fn open(self) -> io::Result<Opened> {
        let length = self.length();
        let content: Box<dyn Content> = match self {
            Self::File(file, _) => Box::new(file),
            Self::Own(plan) => {
                let made = tokio::task::spawn_blocking(|| plan.make()).await;
                Box::new(made.map_err(io::Error::other)??)
            }
        };
        Ok(Opened { content, length })
    }
}

impl Files {
    /// Looks at the directories.
    ///
    /// # Errors
    /// [`Error::Bundle`] names what is missing.
    pub fn open(bundle: &Path, configs: Option<&Path>) -> Result<Self, Error> {
        let fail = |path: &Path, reason: String| Error::Bundle { path: path.to_owned(), reason };
        let whole = |path: &Path| {
            let real = fs::canonicalize(path).map_err(|error| fail(path, error.to_string()))?;
            if !real.is_dir() {
                return Err(fail(path, "is no directory".into()));
            }
            Ok(real)
        };
        let files = Self {
            bundle: whole(bundle)?,
            configs: configs
                .map(|directory| Ok(Configs { directory: whole(directory)?, judge: None }))
                .transpose()?,
            server: None,
            secure: None,
            ukis: Arc::default(),
        };
        let script = files.bundle.join(SCRIPT);
        let text = fs::read_to_string(&script).map_err(|error| {
            fail(&script, format!("{error}; make a bundle with: billetctl image build --kind pxe"))
        })?;
        if files.configs.is_some() && !text.contains(ARGUMENTS) {
            let reason = format!("the kernel's line has no {ARGUMENTS}, where the config's address goes");
            return Err(fail(&script, reason));
        }
        if let Some(word) = uki::own_config(&text).filter(|_| files.configs.is_some()) {
            let reason = format!(
                "the kernel's line has {word}, and a second address of a config would end the boot: serve it without \
                 a directory of configs, or make the bundle without this argument"
            );
            return Err(fail(&script, reason));
        }
        Ok(files)
    }

    /// The same, with somebody who knows what a config is.
    #[must_use]
    pub fn checked_by(mut self, judge: Judge) -> Self {
        if let Some(configs) = &mut self.configs {
            configs.judge = Some(judge);
        }
        self
    }

    /// What is wrong with the directory of configs, a line for each file.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.configs.as_ref().map(Configs::remarks).unwrap_or_default()
    }

    /// The same, with everything else fetched by HTTP from this host and port.
    pub(crate) fn at(self, server: String) -> Self {
        Self { server: Some(server), ..self }
    }

    /// The same, with layers fetched by HTTPS from this host and port.
    pub(crate) fn secured(self, authority: String) -> Self {
        Self { secure: Some(authority), ..self }
    }

    /// What firmware finds in the bundle. iPXE loads its kernel, so that counts only where the kernel runs.
    #[must_use]
    pub fn loaders(&self) -> Loaders {
        let has = |name: &str| self.bundle.join(name).is_file();
        let own = self.architecture();
        let uefi = |architecture, ipxe: &str, uki: &str| {
            let file = |name: &str| has(name).then(|| Uefi::File(name.to_owned()));
            let ipxe = file(ipxe).filter(|_| own.is_none_or(|own| own == architecture));
            let made = || (own == Some(architecture) && has(uki::STUB)).then_some(Uefi::Own);
            ipxe.or_else(|| file(uki)).or_else(made)
        };
        Loaders {
            architecture: own,
            bios: has(BIOS_IPXE).then(|| BIOS_IPXE.to_owned()),
            amd64: uefi(Architecture::Amd64, "ipxe.efi", uki::NAME),
            arm64: uefi(Architecture::Arm64, "ipxe-arm64.efi", "billet-arm64.efi"),
        }
    }

    /// What the bundle's stub runs on and, in older bundles, its kernel.
    fn architecture(&self) -> Option<Architecture> {
        let start = |name| {
            let mut bytes = Vec::new();
            File::open(self.bundle.join(name)).ok()?.take(HEADERS_BYTES).read_to_end(&mut bytes).ok()?;
            Architecture::of_program(&bytes)
        };
        start(uki::STUB).or_else(|| start(KERNEL))
    }

    /// What there is under a name in the bundle: a file, or the UKI of a machine. `None`: nothing.
    pub(crate) async fn find_named(self: Arc<Self>, name: String) -> Option<io::Result<Found>> {
        let found = tokio::task::spawn_blocking(move || self.find(&name)).await;
        found.unwrap_or_else(|error| Some(Err(io::Error::other(error))))
    }

    fn find(&self, name: &str) -> Option<io::Result<Found>> {
        if let Some(path) = self.in_bundle(name) {
            return Some(Found::file(&path));
        }
        let mac = owner(name)?;
        self.in_bundle(uki::STUB)?;
        Some(self.uki(self.server.as_ref()?, mac).map(Found::Own))
    }

    fn uki(&self, server: &str, mac: Mac) -> io::Result<Plan> {
        let script = fs::read_to_string(self.bundle.join(SCRIPT))?;
        let (root, arguments) = (self.root(server), self.arguments(server, mac).unwrap_or_default());
        self.ukis.of_script(&self.bundle, &script, &Variables { root: &root, mac, arguments: &arguments })
    }

    /// Bytes that UKIs under way have of their own, now and at most.
    #[cfg(test)]
    pub(crate) fn own_bytes(&self) -> (u64, u64) {
        self.ukis.own_bytes()
    }

    /// A file of the bundle.
    #[must_use]
    pub fn in_bundle(&self, name: &str) -> Option<PathBuf> {
        inside(&self.bundle, name.trim_start_matches('/'))
    }

    /// The config of a machine.
    #[must_use]
    pub fn config_of(&self, mac: Mac) -> Option<PathBuf> {
        self.configs.as_ref()?.of(mac)
    }

    /// What is told of a machine that was given what it starts, a script or a UKI of its own; `None`: it did not say who it is.
    pub(crate) fn start_of(&self, to: Machine, what: &'static str) -> Option<Event> {
        let config = self.config_of(to.mac?).map(|path| name_of(&path));
        Some(Event::Starts { to, what, config })
    }

    /// Why no node takes this config.
    pub(crate) fn fault(&self, config: &Path) -> Option<String> {
        self.configs.as_ref()?.fault(config)
    }

    /// What iPXE does first: it learns where the layers and the machine's config are, and goes on with the bundle's script.
    ///
    /// # Errors
    /// The bundle's script cannot be read, or the kernel would cut its line off.
    pub fn script(&self, server: &str, mac: Option<Mac>) -> io::Result<String> {
        let (root, arguments) = (self.root(server), mac.and_then(|mac| self.arguments(server, mac)));
        let own = fs::read_to_string(self.bundle.join(SCRIPT))?;
        let known = arguments.as_deref().unwrap_or_default();
        // Every address of a card is as long.
        let variables = Variables { root: &root, mac: mac.unwrap_or(Mac([0; 6])), arguments: known };
        uki::check_script(&own, &variables)?;
        let arguments = arguments.map(|arguments| format!("set billet-args {arguments}\n"));
        let root = format!("set billet-root {root}\n");
        Ok(format!("#!ipxe\n{root}{}chain bundle/{SCRIPT}\n", arguments.unwrap_or_default()))
    }

    /// Where the layers are.
    fn root(&self, server: &str) -> String {
        let place = self.secure.as_ref().map_or(format!("http://{server}"), |host| format!("https://{host}"));
        format!("{place}/bundle/layers")
    }

    /// The kernel's argument that says where the machine's config is; `None`: it has none.
    fn arguments(&self, server: &str, mac: Mac) -> Option<String> {
        self.config_of(mac)?;
        Some(format!("billet.config=http://{server}/config?mac={}", mac.dashed()))
    }
}

/// A file's name without its directory.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whose UKI has this name.
pub(crate) fn owner(name: &str) -> Option<Mac> {
    Mac::parse(name.trim_start_matches('/').strip_suffix(uki::NAME)?.strip_suffix('/')?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in ["bundle", "bundle/layers", "configs"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let script = format!("#!ipxe\nkernel vmlinuz {ARGUMENTS}\nboot\n");
        for (name, text) in [
            ("bundle/boot.ipxe", script.as_str()),
            ("bundle/layers/base", "b"),
            ("secret", "s"),
            ("bundle/ipxe.efi", ""),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    fn open(directory: &Path) -> Files {
        Files::open(&directory.join("bundle"), Some(&directory.join("configs"))).unwrap()
    }

    #[test]
    fn nothing_outside_of_the_directories_is_served() {
        let directory = directory();
        std::os::unix::fs::symlink("../secret", directory.path().join("bundle/link")).unwrap();
        let files = open(directory.path());
        assert!(files.in_bundle("layers/base").is_some() && files.in_bundle("/boot.ipxe").is_some());
        for name in ["../secret", "link", "layers", "layers/../../secret", "", "no", "./boot.ipxe/x"] {
            assert_eq!(files.in_bundle(name), None, "{name}");
        }
    }

    #[test]
    fn a_machine_gets_its_own_config_or_the_one_for_all() {
        let directory = directory();
        let files = open(directory.path());
        assert_eq!(files.config_of(MAC), None);
        let script = "#!ipxe\nset billet-root http://10.0.0.1:80/bundle/layers\nchain bundle/boot.ipxe\n";
        assert_eq!(files.script("10.0.0.1:80", Some(MAC)).unwrap(), script);
        fs::write(directory.path().join("configs/default.yaml"), "all").unwrap();
        assert!(files.config_of(MAC).unwrap().ends_with("default.yaml"));
        fs::write(directory.path().join("configs/52-54-00-12-34-56.yaml"), "own").unwrap();
        assert!(files.config_of(MAC).unwrap().ends_with("52-54-00-12-34-56.yaml"));
        let script = files.script("10.0.0.1:80", Some(MAC)).unwrap();
        assert!(
            script.contains(
                "\nset billet-args billet.config=http://10.0.0.1:80/config?mac=52-54-00-12-34-56\n"
            )
        );
        assert!(!files.script("10.0.0.1:80", None).unwrap().contains("billet-args"));
        let nobody = Machine::from(std::net::IpAddr::from([10, 0, 0, 7]));
        assert_eq!(files.start_of(nobody, SCRIPT), None);
        let told = files.start_of(Machine { mac: Some(MAC), ..nobody }, uki::NAME).unwrap().to_string();
        assert_eq!(
            told,
            "52:54:00:12:34:56, 10.0.0.7: starts billet.efi with the config 52-54-00-12-34-56.yaml"
        );
    }

    #[test]
    fn what_a_bundle_lacks_is_said() {
        let directory = directory();
        assert_eq!(
            open(directory.path()).loaders(),
            Loaders { amd64: Some(Uefi::File("ipxe.efi".into())), ..Loaders::default() }
        );
        let (bundle, configs) = (directory.path().join("bundle"), directory.path().join("configs"));
        fs::write(bundle.join(SCRIPT), "#!ipxe\n").unwrap();
        let error = Files::open(&bundle, Some(&configs)).unwrap_err().to_string();
        assert!(error.contains("${billet-args}"), "{error}");
        assert!(Files::open(&bundle, None).is_ok());
        for name in ["billet", "talos"] {
            let line = format!("#!ipxe\nkernel vmlinuz {name}.config=http://a/ {ARGUMENTS}\nboot\n");
            fs::write(bundle.join(SCRIPT), line).unwrap();
            let error = Files::open(&bundle, Some(&configs)).unwrap_err().to_string();
            assert!(
                error.contains(".config=http://a/") && error.contains("make the bundle without"),
                "{error}"
            );
            assert!(Files::open(&bundle, None).is_ok());
        }
        fs::remove_file(bundle.join(SCRIPT)).unwrap();
        let error = Files::open(&bundle, None).unwrap_err().to_string();
        assert!(error.contains("image build --kind pxe"), "{error}");
        let error = Files::open(&directory.path().join("secret"), None).unwrap_err().to_string();
        assert!(error.contains("is no directory"), "{error}");
    }

    /// The headers of a program for firmware, of this machine type.
    fn program(machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 0x80];
        bytes[0x3c] = 0x40;
        bytes[0x40..0x44].copy_from_slice(b"PE\0\0");
        bytes[0x44..0x46].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    const AMD64: u16 = 0x8664;
    const ARM64: u16 = 0xaa64;

    #[test]
    fn a_bundle_with_a_stub_has_a_uki_for_each_machine() {
        let directory = directory();
        let bundle = directory.path().join("bundle");
        let files = open(directory.path()).at("10.0.0.1:80".into());
        let name = "/52-54-00-12-34-56/billet.efi";
        assert!(files.find(name).is_none());
        fs::write(bundle.join("stub.efi"), program(AMD64)).unwrap();
        assert_eq!(files.loaders().amd64, Some(Uefi::File("ipxe.efi".into())));
        fs::remove_file(bundle.join("ipxe.efi")).unwrap();
        let uefi = files.loaders().amd64.unwrap();
        assert_eq!((uefi.path(MAC), uefi), (name.trim_start_matches('/').into(), Uefi::Own));
        let error = files.find(name).unwrap().err().unwrap().to_string();
        assert!(error.starts_with("vmlinuz: "), "{error}");
        for other in ["billet.efi", "52-54-00/billet.efi", "52-54-00-12-34-56/vmlinuz"] {
            assert!(files.find(other).is_none(), "{other}");
        }
        assert_eq!(files.find("layers/base").unwrap().unwrap().length(), 1);
    }

    #[test]
    fn a_stub_is_for_machines_of_its_processor() {
        let directory = directory();
        let bundle = directory.path().join("bundle");
        let files = open(directory.path());
        fs::write(bundle.join("stub.efi"), program(ARM64)).unwrap();
        let loaders = files.loaders();
        // iPXE that somebody put there would load a kernel that does not run.
        let why = "the bundle is for arm64".to_owned();
        assert_eq!(loaders.uefi(Architecture::Amd64), Err(why.clone()));
        assert_eq!(loaders.bios(), Err(why));
        assert_eq!(loaders.uefi(Architecture::Arm64), Ok(&Uefi::Own));
        // A UKI has a kernel of its own.
        fs::write(bundle.join("billet.efi"), program(AMD64)).unwrap();
        assert_eq!(files.loaders().amd64, Some(Uefi::File("billet.efi".into())));
        // Without a stub the kernel says it.
        fs::remove_file(bundle.join("stub.efi")).unwrap();
        fs::write(bundle.join("vmlinuz"), program(ARM64)).unwrap();
        let loaders = files.loaders();
        assert_eq!((loaders.architecture, loaders.arm64), (Some(Architecture::Arm64), None));
    }
}
