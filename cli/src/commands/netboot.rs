//! `netboot serve`: a boot server on this machine, for machines on the same network.
//!
//! Owns: the flags and what is printed; `netboot` serves.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use netboot::{Architecture, Files, Range, Secure, Server, Settings};

use crate::output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum NetbootCommand {
    /// Answer machines that start from the network: proxyDHCP, TFTP and HTTP, until it is ended
    Serve(Flags),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Folder of the bundle, as `image build --kind pxe` makes it
    bundle: PathBuf,
    /// Interface to the machines; it needs an IPv4 address
    #[arg(short, long, value_name = "NAME")]
    interface: String,
    /// Folder of machine configs: 52-54-00-12-34-56.yaml by hardware address, default.yaml for the others
    #[arg(long, value_name = "FOLDER")]
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

pub(crate) async fn run(command: NetbootCommand) -> Result<()> {
    let NetbootCommand::Serve(flags) = command;
    let files = Files::open(&flags.bundle, flags.configs.as_deref())?.judged_by(judge);
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
    let tell = Arc::new(|event: netboot::Event| drop(output::print(format!("{event}\n"))));
    tokio::select! {
        ended = server.serve(tell) => match ended? {},
        ended = tokio::signal::ctrl_c() => ended.context("wait for the end"),
    }
}

/// Why a node would not take this config: its first mistake.
fn judge(text: &[u8]) -> Result<(), String> {
    let loaded = config::load(text).map_err(|error| first(&error.to_string()))?;
    loaded.validate(config::Mode::Metal).map(drop).map_err(|error| first(&error.to_string()))
}

/// The rest is for `validate`.
fn first(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn a_config_that_no_node_takes_is_told_in_one_line() {
        let said = judge(b"version: v1alpha1\nmachine:\n  nothing: 1\n  other: 2\n").unwrap_err();
        assert!(said.starts_with("line 3, column ") && said.lines().count() == 1, "{said}");
        assert!(judge(b"not this one").is_err());
        assert!(judge(b"\xff").is_err());
    }
}
