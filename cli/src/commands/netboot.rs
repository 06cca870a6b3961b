//! `netboot serve`: a boot server on this machine, for machines on the same network.
//!
//! Owns: the flags and what is printed; `netboot` serves.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use config::Mode;
use installer::image::Platform;
use netboot::{Architecture, Files, Range, Secure, Server, Settings};

use crate::output;

/// The bundle's script for iPXE.
const SCRIPT: &str = "boot.ipxe";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum NetbootCommand {
    /// Answer machines that start from the network: proxyDHCP, TFTP and HTTP, until it is ended
    Serve(Flags),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Directory of the bundle, as `image build --kind pxe` makes it
    bundle: PathBuf,
    /// Interface to the machines; it needs an IPv4 address
    #[arg(short, long, value_name = "NAME")]
    interface: String,
    /// Directory of machine configs: 52-54-00-12-34-56.yaml by hardware address, default.yaml for the others
    #[arg(long, value_name = "DIRECTORY")]
    configs: Option<PathBuf>,
    /// Hand out these addresses, where there is no other DHCP server: 192.168.7.100-192.168.7.199/24
    #[arg(long, value_name = "FIRST-LAST/PREFIX")]
    dhcp_range: Option<Range>,
    /// TCP port of scripts, bundle and configs
    #[arg(long, default_value_t = 8080, value_name = "PORT")]
    http_port: u16,
    /// Have layers fetched by HTTPS with this certificate (PEM); its authority belongs into the bundle: image build
    /// --certificate
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Name that the certificate is for, if not for the interface's address; the machines' name server must know it
    #[arg(long, requires = "tls_cert", value_name = "HOST")]
    tls_name: Option<String>,
    /// TCP port of HTTPS
    #[arg(long, default_value_t = 8443, requires = "tls_cert", value_name = "PORT")]
    https_port: u16,
}

impl Flags {
    fn secure(&self) -> Option<Secure> {
        let (certificate, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(Secure { port: self.https_port, certificate, key, name: self.tls_name.clone() })
    }
}

/// Says why a node would not take a config.
type Judge = fn(&[u8]) -> Result<(), String>;

impl Flags {
    /// For nodes on the platform of the bundle, which its script names for the kernel.
    fn judge(&self) -> Judge {
        // A bundle without a script is refused with more to say.
        let script = fs::read_to_string(self.bundle.join(SCRIPT)).unwrap_or_default();
        match Mode::of_platform(Platform::of(&script).name) {
            Mode::Metal => |text| judge(text, Mode::Metal),
            Mode::Cloud | Mode::Container => |text| judge(text, Mode::Cloud),
        }
    }
}

pub(crate) async fn run(command: NetbootCommand) -> Result<()> {
    let NetbootCommand::Serve(flags) = command;
    let files = Files::open(&flags.bundle, flags.configs.as_deref())?.checked_by(flags.judge());
    let (remarks, configs) = (files.remarks(), flags.configs.clone().unwrap_or_default());
    let loaders = files.loaders();
    let secure = flags.secure();
    let Flags { interface, http_port, https_port, dhcp_range: range, .. } = flags;
    let server = Server::bind(
        &Settings { interface: interface.clone(), http_port, secure: secure.clone(), range },
        files,
    )?;
    let address = server.address();
    let beside = match range {
        Some(range) => format!("hands out {range}"),
        None => "beside the network's own DHCP server".to_owned(),
    };
    let ports = match secure {
        Some(_) => format!("HTTP port {http_port}, HTTPS port {https_port}"),
        None => format!("HTTP port {http_port}"),
    };
    output::print(format!("serving on {interface}, {address}, {ports}: {beside}\n"))?;
    let uefi = |architecture| loaders.uefi(architecture).map(ToString::to_string);
    for (kind, loader) in [
        ("BIOS", loaders.bios().map(str::to_owned)),
        ("UEFI x86-64", uefi(Architecture::Amd64)),
        ("UEFI arm64", uefi(Architecture::Arm64)),
    ] {
        let loader = loader.unwrap_or_else(|reason| format!("nothing: {reason}"));
        output::print(format!("firmware ({kind}) loads {loader}\n"))?;
    }
    output::print("iPXE in a network card loads boot.ipxe\n")?;
    for remark in remarks {
        eprintln!("warning: {}", configs.join(remark).display());
    }
    // A line that cannot be printed is no reason to let a machine wait.
    let tell = Arc::new(|event: netboot::Event| {
        drop(output::print(format!("{}\n", output::line(&event.to_string()))))
    });
    tokio::select! {
        ended = server.serve(tell) => match ended? {},
        ended = tokio::signal::ctrl_c() => ended.context("wait for the end"),
    }
}

/// Why a node would not take this config: its first mistake.
fn judge(text: &[u8], mode: Mode) -> Result<(), String> {
    let loaded = config::load(text).map_err(|error| first(&error.to_string()))?;
    loaded.validate(mode).map(drop).map_err(|error| first(&error.to_string()))
}

/// The rest is for `validate`.
fn first(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use api::generate::Secrets;
    use config::{Input, MachineType};

    use super::*;

    #[test]
    fn a_config_that_no_node_takes_is_told_in_one_line() {
        let said =
            judge(b"version: v1alpha1\nmachine:\n  nothing: 1\n  other: 2\n", Mode::Metal).unwrap_err();
        assert!(said.starts_with("line 3, column ") && said.lines().count() == 1, "{said}");
        assert!(judge(b"not this one", Mode::Metal).is_err());
        assert!(judge(b"\xff", Mode::Metal).is_err());
    }
    #[test]
    fn a_config_is_checked_for_the_platform_that_the_script_names() {
        let secrets = Secrets::generate().unwrap();
        let config = config::generate(Input {
            cluster_name: "demo".into(),
            endpoint: "https://10.5.0.1:6443".into(),
            machine_type: MachineType::Worker,
            ca_certificate: secrets.authority.certificate().to_owned(),
            ca_key: None,
            tokens: secrets.tokens,
            cert_sans: Vec::new(),
            hostname: None,
            install_disk: None,
        })
        .unwrap();
        let bundle = tempfile::tempdir().unwrap();
        let flags = Flags {
            bundle: bundle.path().to_owned(),
            interface: "lo".into(),
            configs: None,
            dhcp_range: None,
            http_port: 8080,
            tls_cert: None,
            tls_key: None,
            tls_name: None,
            https_port: 8443,
        };
        let checked = |words: &str| {
            fs::write(bundle.path().join(SCRIPT), format!("#!ipxe\nkernel vmlinuz {words}\nboot\n")).unwrap();
            flags.judge()(config.as_bytes())
        };
        assert!(checked("talos.platform=metal").unwrap_err().contains("install"));
        assert!(checked("panic=10").unwrap_err().contains("install"));
        assert_eq!(checked("talos.platform=nocloud"), Ok(()));
    }
}
