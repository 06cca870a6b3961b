//! `gen ca|key|config-key|csr|crt|keypair`: keys and certificates as files.
//!
//! Owns: the files' names. A key is replaced with `--force` only; requests and certificates can be made again at any
//! time and are replaced, so that renewing a certificate is the same commands each time.
//! Source: docs/users/pki.md.

use super::files;
use crate::{output, private_file};
use anyhow::{Context as _, Result, bail};
use api::pki::{
    Algorithm, Authority, CertificateFacts, Identity, Leaf, Lifetime, PrivateKey, Usage, request_for,
    requested_organizations, self_signed,
};
use config::{Secret, decode_base64};
use installer::bundle;
use jiff::Timestamp;
use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

#[derive(Debug, clap::Args)]
pub(crate) struct CaFlags {
    /// Whose authority it is: also the name of the files
    #[arg(long, value_name = "NAME")]
    organization: String,
    /// How long it is valid
    #[arg(long, default_value_t = 87_600, value_name = "HOURS")]
    hours: u32,
    /// Not supported: keys are Ed25519 or, with --ecdsa, ECDSA
    #[arg(long, hide = true)]
    rsa: bool,
    /// An ECDSA key on P-256, as Kubernetes and etcd use it
    #[arg(long)]
    ecdsa: bool,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeyFlags {
    /// Name of the file, without `.key`
    #[arg(long)]
    name: String,
    /// Replace an existing file
    #[arg(short, long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CsrFlags {
    /// File with the private key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Address that the certificate is for
    #[arg(long)]
    ip: Option<IpAddr>,
    /// Roles that are asked for; empty for none, as the first generation has it
    #[arg(long, default_value = "os:admin", value_delimiter = ',')]
    roles: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CrtFlags {
    /// Name of the authority's files, without `.crt` and `.key`
    #[arg(long, value_name = "NAME")]
    ca: PathBuf,
    /// File with the request
    #[arg(long, value_name = "FILE")]
    csr: PathBuf,
    /// Name of the file to write, without `.crt`
    #[arg(long)]
    name: PathBuf,
    /// How long the certificate is valid
    #[arg(long, default_value_t = 24)]
    hours: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeypairFlags {
    /// Whose key it is: also the name of the files
    #[arg(long, value_name = "NAME")]
    organization: String,
    /// Address that the certificate is for
    #[arg(long)]
    ip: Option<IpAddr>,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
}

pub(super) fn ca(flags: &CaFlags) -> Result<()> {
    if flags.rsa {
        bail!("RSA keys are read, but not made here; leave --rsa out (Ed25519), or write --ecdsa");
    }
    let [crt, key, hash] = ["crt", "key", "sha256"].map(|end| named(Path::new(&flags.organization), end));
    files::check_free([&crt, &key, &hash].map(PathBuf::as_path), flags.force)?;
    let algorithm = if flags.ecdsa { Algorithm::Ecdsa } else { Algorithm::Ed25519 };
    let authority = Authority::generate_with(algorithm, &flags.organization, lifetime(flags.hours))?;
    let facts = CertificateFacts::from_pem("the CA", authority.certificate())?;
    private_file::write(&key, authority.key().expose_secret())?;
    private_file::write(&crt, authority.certificate())?;
    private_file::write(&hash, &format!("sha256:{}", hex(&facts.fingerprint)))?;
    tell_expiry(&crt, &facts)
}

pub(super) fn key(flags: &KeyFlags) -> Result<()> {
    let path = named(Path::new(&flags.name), "key");
    files::check_free([path.as_path()], flags.force)?;
    private_file::write(&path, PrivateKey::generate()?.to_pem().expose_secret())
}

pub(super) fn config_key(flags: &KeyFlags) -> Result<()> {
    let [key, public] = ["key", "pub"].map(|end| named(Path::new(&flags.name), end));
    files::check_free([key.as_path(), public.as_path()], flags.force)?;
    let private = PrivateKey::generate()?;
    private_file::write(&key, private.to_pem().expose_secret())?;
    let pem = private.public_pem("the key")?;
    private_file::write(&public, &pem)?;
    // As images say whose configs they take.
    let name = bundle::name_of(&bundle::public_key_from_pem(&pem)?);
    Ok(output::print(format!("created {} (keep it) and {}: key {name}\n", key.display(), public.display()))?)
}

pub(super) fn csr(flags: &CsrFlags) -> Result<()> {
    let key = PrivateKey::from_pem("the private key", read_pem(&flags.key)?.expose_secret())
        .with_context(|| flags.key.display().to_string())?;
    let roles: Vec<String> = flags.roles.iter().filter(|r| !r.is_empty()).cloned().collect();
    let names: Vec<String> = flags.ip.iter().map(ToString::to_string).collect();
    let request = request_for(&key, &roles, &names)?;
    private_file::write(&flags.key.with_extension("csr"), &request)
}

pub(super) fn crt(flags: &CrtFlags) -> Result<()> {
    let authority = authority(&flags.ca)?;
    let request = read_pem(&flags.csr)?;
    let named_file = || flags.csr.display().to_string();
    let leaf = Leaf {
        organizations: requested_organizations(request.expose_secret()).with_context(named_file)?,
        names: Vec::new(),
        usage: Usage::Client,
        lifetime: lifetime(flags.hours),
    };
    let certificate = authority.sign_request(request.expose_secret(), &leaf).with_context(named_file)?;
    let path = named(&flags.name, "crt");
    private_file::write(&path, &certificate)?;
    tell_expiry(&path, &CertificateFacts::from_pem("the certificate", &certificate)?)
}

pub(super) fn keypair(flags: &KeypairFlags) -> Result<()> {
    let [crt, key] = ["crt", "key"].map(|end| named(Path::new(&flags.organization), end));
    files::check_free([crt.as_path(), key.as_path()], flags.force)?;
    let names: Vec<String> = flags.ip.iter().map(ToString::to_string).collect();
    let Identity { certificate, key: private } = self_signed(&flags.organization, &names, lifetime(24))?;
    private_file::write(&key, private.to_pem().expose_secret())?;
    private_file::write(&crt, &certificate)?;
    tell_expiry(&crt, &CertificateFacts::from_pem("the certificate", &certificate)?)
}

fn authority(base: &Path) -> Result<Authority> {
    let (crt, key) = (named(base, "crt"), named(base, "key"));
    let (certificate, private) = (read_pem(&crt)?, read_pem(&key)?);
    Authority::from_pem(certificate.expose_secret(), &private)
        .with_context(|| format!("{} and {}", crt.display(), key.display()))
}

/// PEM text of a file; also of one that holds it in base64, as it stands in a machine configuration.
fn read_pem(path: &Path) -> Result<Secret> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let text = Secret::new(text);
    if text.expose_secret().contains("-----BEGIN ") {
        return Ok(text);
    }
    match decode_base64(text.expose_secret()) {
        Ok(pem) if pem.contains("-----BEGIN ") => Ok(Secret::new(pem.as_str())),
        _ => bail!("{} is neither PEM nor base64 of PEM", path.display()),
    }
}

fn named(base: &Path, end: &str) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    PathBuf::from(name)
}

fn lifetime(hours: u32) -> Lifetime {
    Lifetime::from_now(Duration::from_secs(u64::from(hours) * 3600))
}

fn tell_expiry(path: &Path, facts: &CertificateFacts) -> Result<()> {
    let until = Timestamp::try_from(facts.not_after).context("the certificate's end is out of range")?;
    let until = until.strftime("%Y-%m-%d %H:%M:%S UTC");
    Ok(output::print(format!("created {}, valid until {until}\n", path.display()))?)
}

/// base64 as hexadecimal digits.
fn hex(base64: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).unwrap_or_default();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
