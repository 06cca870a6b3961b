//! `gen secrets`: all secrets of a cluster in one file.

use super::files::{self, Target};
use crate::{commands::machine_config, global::Global};
use anyhow::{Context as _, Result};
use api::generate::{Bundle, Contract, KubernetesPki};
use config::Secret;
use std::{
    fs,
    path::{Path, PathBuf},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The file [default: secrets.yaml]; `-` for the standard output
    #[arg(long = "output-file", value_name = "FILE")]
    output_file: Option<String>,
    /// Take the secrets out of the configuration of a control plane node
    #[arg(long, alias = "from-controlplane-config", value_name = "FILE")]
    from_control_plane_config: Option<String>,
    /// Take Kubernetes' authorities and service account key from a directory as kubeadm has it in /etc/kubernetes/pki
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "from_control_plane_config")]
    from_kubernetes_pki: Option<PathBuf>,
    /// With --from-kubernetes-pki: token of joining nodes [default: a fresh one]
    #[arg(long, value_name = "TOKEN", requires = "from_kubernetes_pki", value_parser = token)]
    kubernetes_bootstrap_token: Option<Token>,
    /// Version whose configurations the secrets are for
    #[arg(long, value_name = "VERSION")]
    talos_version: Option<String>,
    /// Replace an existing file
    #[arg(short, long)]
    force: bool,
}

/// A token of joining nodes, which flags can be printed with.
#[derive(Clone)]
pub(crate) struct Token(Secret);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a token")
    }
}

pub(super) fn run(global: &Global, flags: &Flags) -> Result<()> {
    if let Some(version) = &flags.talos_version {
        version.parse::<Contract>()?;
    }
    let name = flags.output_file.as_deref().or(global.output_word.as_deref()).unwrap_or("secrets.yaml");
    let target = if name == "-" { Target::Stdout } else { Target::File(PathBuf::from(name)) };
    if let Target::File(path) = &target {
        files::check_free([path.as_path()], flags.force)?;
    }
    let bundle = match (&flags.from_control_plane_config, &flags.from_kubernetes_pki) {
        (Some(file), _) => {
            Bundle::from_control_plane(&machine_config::read_file(file)?).with_context(|| file.clone())?
        }
        (None, Some(directory)) => {
            let pki = kubernetes_pki(directory, flags.kubernetes_bootstrap_token.as_ref())?;
            Bundle::generate()?.with_kubernetes(&pki).with_context(|| directory.display().to_string())?
        }
        (None, None) => Bundle::generate()?,
    };
    files::put(&target, bundle.to_yaml().expose_secret())
}

/// Reads the files by the names that kubeadm gives them.
fn kubernetes_pki(directory: &Path, token: Option<&Token>) -> Result<KubernetesPki> {
    let read = |name: &str| {
        let path = directory.join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        anyhow::Ok(Secret::new(text))
    };
    let pair = |name: &str| {
        let certificate = read(&format!("{name}.crt"))?.expose_secret().to_owned();
        anyhow::Ok((certificate, read(&format!("{name}.key"))?))
    };
    Ok(KubernetesPki {
        authority: pair("ca")?,
        aggregator: pair("front-proxy-ca")?,
        etcd: pair("etcd/ca")?,
        service_account: read("sa.key")?,
        bootstrap_token: token.map(|token| token.0.clone()),
    })
}

/// `abcdef.0123456789abcdef`.
fn token(text: &str) -> Result<Token, String> {
    let part = |part: &str, length| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    match text.split_once('.') {
        Some((id, secret)) if part(id, 6) && part(secret, 16) => Ok(Token(Secret::new(text))),
        _ => Err("a token has 6 and 16 lower-case letters or digits with a dot between them".to_owned()),
    }
}
