//! The kernel command line, as machined reads it.
//!
//! Owns: splitting with quotes, and the parameters that machined honours under `billet.` and `talos.` names.
//! Does not: read /proc/cmdline; act for init, which has its own no_std reader and reports unknown parameters.
//! Order: where a parameter is given more than once the last one wins, as in the kernel; `billet.` wins over `talos.`.
//! Source: Documentation/admin-guide/kernel-parameters.rst of Linux; docs/users/kernel-parameters.md.

use network_line::Line;

/// The parameters of a kernel command line in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine {
    parameters: Vec<Parameter>,
}

/// One word of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// What stands before the first `=`.
    pub name: String,
    /// What stands after it; `None` without `=`.
    pub value: Option<String>,
}

/// What a command line says to machined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeParameters {
    /// `platform=`: where the node runs; `metal` unless given.
    pub platform: String,
    /// `config=`: where the configuration is.
    pub config: Option<ConfigSource>,
    /// `config.early=`: base64 of a configuration, perhaps packed by zstd; comes before `config`.
    pub config_early: Option<String>,
    /// `config.inline=`: the same; comes after `config`.
    pub config_inline: Option<String>,
    /// `logging.kernel=`: where the kernel's log is sent.
    pub logging_kernel: Option<String>,
    /// `hostname=`.
    pub hostname: Option<String>,
    /// `install=no`: a machine that runs from elsewhere than a disk stays so, whatever its config says.
    pub no_install: bool,
    /// `shutdown=halt`: halt instead of power off.
    pub halt_on_shutdown: bool,
    /// `module.signatures=verify`: the kernel checks every module.
    pub keep_module_signatures: bool,
    /// `trial=`: seconds that a new system gets to prove itself.
    pub trial_seconds: Option<u64>,
    /// `experimental.wipe=system[:LABEL,…]`: partitions of the system disk to wipe at this boot; empty: all of it.
    pub wipe_system: Option<Vec<String>>,
    /// `maintenance=open`: a STATE that cannot be used locks nobody out: whoever reaches the node may give it a config.
    pub open_maintenance: bool,
    /// `network.interface.ignore=`, each time it is given: links that are left alone.
    pub ignored_links: Vec<String>,
    /// `ip=`, `vlan=`, `bond=`.
    pub network: Line,
    /// `environment=NAME=VALUE`, each time it is given: variables of services, before those of the configuration.
    pub environment: Vec<(String, String)>,
    /// `panic=`: seconds until a reboot after a fatal error.
    pub panic_seconds: Option<i32>,
}

/// Where a configuration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// A volume labelled `metal-iso` that holds config.yaml.
    MetalIso,
    /// Nowhere: stay in maintenance.
    None,
    /// An address to fetch it from.
    Url(String),
}

impl CommandLine {
    /// Splits `text`. Double quotes keep blanks and are removed, also around a whole `name=value`.
    pub fn parse(text: &str) -> Self {
        let parameters = words(text).iter().map(|word| parameter(word)).collect();
        Self { parameters }
    }

    /// All parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The value of the last parameter of this exact name.
    pub fn last(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rev().find(|p| p.name == name).and_then(|p| p.value.as_deref())
    }

    /// The value of `billet.NAME`, else of `talos.NAME`.
    pub fn ours(&self, name: &str) -> Option<&str> {
        self.last(&format!("billet.{name}")).or_else(|| self.last(&format!("talos.{name}")))
    }

    /// The values of every `billet.NAME` and `talos.NAME`, in order.
    fn every(&self, name: &str) -> impl Iterator<Item = &str> {
        let known = ["billet.", "talos."].map(|before| format!("{before}{name}"));
        let ours = self.parameters.iter().filter(move |parameter| known.contains(&parameter.name));
        ours.filter_map(|parameter| parameter.value.as_deref())
    }

    /// What the command line says to machined.
    pub fn node(&self) -> NodeParameters {
        NodeParameters {
            platform: self.ours("platform").unwrap_or("metal").to_owned(),
            config: self.ours("config").map(config_source),
            config_early: self.ours("config.early").filter(|c| !c.is_empty()).map(str::to_owned),
            config_inline: self.ours("config.inline").filter(|c| !c.is_empty()).map(str::to_owned),
            logging_kernel: self.ours("logging.kernel").filter(|url| !url.is_empty()).map(str::to_owned),
            hostname: self.ours("hostname").filter(|h| !h.is_empty()).map(str::to_owned),
            no_install: self.ours("install") == Some("no"),
            halt_on_shutdown: self.ours("shutdown") == Some("halt"),
            keep_module_signatures: self.ours("module.signatures") == Some("verify"),
            trial_seconds: self.ours("trial").and_then(|v| v.parse().ok()),
            wipe_system: self.ours("experimental.wipe").and_then(wipe),
            open_maintenance: self.ours("maintenance") == Some("open"),
            ignored_links: self.every("network.interface.ignore").map(str::to_owned).collect(),
            network: Line::read(
                self.parameters.iter().map(|parameter| {
                    (parameter.name.as_str(), parameter.value.as_deref().unwrap_or_default())
                }),
            ),
            environment: self.every("environment").filter_map(variable).collect(),
            panic_seconds: self.last("panic").and_then(|v| v.parse().ok()),
        }
    }
}

/// `system`, or `system:` with labels between commas. Anything else wipes nothing.
fn wipe(value: &str) -> Option<Vec<String>> {
    match value.strip_prefix("system")? {
        "" => Some(Vec::new()),
        labels => {
            let labels = labels.strip_prefix(':')?.split(',').map(str::to_owned).collect::<Vec<_>>();
            labels.iter().all(|label| !label.is_empty()).then_some(labels)
        }
    }
}

fn variable(value: &str) -> Option<(String, String)> {
    let (name, value) = value.split_once('=')?;
    (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

fn config_source(value: &str) -> ConfigSource {
    match value {
        "metal-iso" => ConfigSource::MetalIso,
        "none" | "" => ConfigSource::None,
        url => ConfigSource::Url(url.to_owned()),
    }
}

fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quoted, mut started) = (String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => (quoted, started) = (!quoted, true),
            c if c.is_ascii_whitespace() && !quoted => {
                if started {
                    words.push(std::mem::take(&mut word));
                }
                started = false;
            }
            c => {
                word.push(c);
                started = true;
            }
        }
    }
    if started {
        words.push(word);
    }
    words
}

fn parameter(word: &str) -> Parameter {
    match word.split_once('=') {
        Some((name, value)) => Parameter { name: name.to_owned(), value: Some(value.to_owned()) },
        None => Parameter { name: word.to_owned(), value: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks() {
        let line = CommandLine::parse("a  b=\"c d\" \"e=f g\" h=\n");
        let pairs: Vec<_> = line.parameters().iter().map(|p| (p.name.as_str(), p.value.as_deref())).collect();
        assert_eq!(pairs, [("a", None), ("b", Some("c d")), ("e", Some("f g")), ("h", Some(""))]);
    }

    #[test]
    fn the_last_one_wins_and_billet_before_talos() {
        let line = CommandLine::parse(
            "billet.hostname=a talos.hostname=b billet.hostname=c talos.config=none panic=10 panic=20 talos.logging.kernel=udp://10.0.0.1:514",
        );
        let node = line.node();
        assert_eq!(node.hostname.as_deref(), Some("c"));
        assert_eq!(node.config, Some(ConfigSource::None));
        assert_eq!(node.panic_seconds, Some(20));
        assert_eq!(node.logging_kernel.as_deref(), Some("udp://10.0.0.1:514"));
        assert_eq!(node.platform, "metal");
    }

    #[test]
    fn variables_may_be_given_often() {
        let line =
            "talos.environment=A=b billet.environment=http_proxy=http://p:1/?x=y talos.environment=nothing";
        let environment = CommandLine::parse(line).node().environment;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(environment, [pair("A", "b"), pair("http_proxy", "http://p:1/?x=y")]);
    }

    #[test]
    fn the_network_of_the_kernel() {
        let node = CommandLine::parse("ip=10.0.0.5:::24::eth0 talos.network.interface.ignore=eth1").node();
        assert_eq!(node.network.statics().map(|address| address.link.as_str()).collect::<Vec<_>>(), ["eth0"]);
        assert_eq!(node.ignored_links, ["eth1"]);
    }

    #[test]
    fn what_a_boot_wipes() {
        let wipe = |text: &str| CommandLine::parse(text).node().wipe_system;
        assert_eq!(wipe("talos.experimental.wipe=system"), Some(vec![]));
        let labels = vec!["STATE".to_owned(), "EPHEMERAL".to_owned()];
        assert_eq!(wipe("billet.experimental.wipe=system:STATE,EPHEMERAL"), Some(labels));
        for nothing in [
            "quiet",
            "talos.experimental.wipe=",
            "talos.experimental.wipe=system:",
            "talos.experimental.wipe=systemd",
            "talos.experimental.wipe=system:STATE,",
        ] {
            assert_eq!(wipe(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn sources_of_a_configuration() {
        let source = |text: &str| CommandLine::parse(text).node().config;
        assert_eq!(source("billet.config=metal-iso"), Some(ConfigSource::MetalIso));
        assert_eq!(source("talos.config=http://a/b?c=d"), Some(ConfigSource::Url("http://a/b?c=d".into())));
        assert_eq!(source("quiet"), None);
        assert!(CommandLine::parse("talos.shutdown=halt").node().halt_on_shutdown);
        let is_open = |text: &str| CommandLine::parse(text).node().open_maintenance;
        assert!(is_open("billet.maintenance=open") && is_open("talos.maintenance=open"));
        assert!(
            !is_open("billet.maintenance=yes") && !is_open("billet.maintenance=open billet.maintenance=")
        );
        assert!(CommandLine::parse("billet.module.signatures=verify").node().keep_module_signatures);
    }
}
