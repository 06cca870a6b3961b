//! Billet's installer image: which files it has, in which order, and what its labels say.
//!
//! Owns: the format, which image is refused and with which sentence.
//! Does not: install; `installer` does, with the files from here.
//! Source: docs/formats/installer-image.md, which says how an image of Talos looks, too.

mod contents;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use ondisk::Architecture;

use crate::document::Config;
use crate::error::shown;

pub use contents::{Contents, Walk};

/// The only format that this version installs.
pub const FORMAT: &str = "1";

/// Label: the format.
pub const FORMAT_LABEL: &str = "io.billet.installer.format";
/// Label: the oldest version that can install this one.
pub const MINIMUM_FROM_LABEL: &str = "io.billet.installer.minimum-from";
/// Label: how many image layers are ours. What lies above them was added by who built on the image.
pub const LAYERS_LABEL: &str = "io.billet.installer.layers";
/// Label: the version of the system.
pub const VERSION_LABEL: &str = "org.opencontainers.image.version";

/// The root manifest: the first file.
pub const MANIFEST_PATH: &str = "billet/root.json";
/// Directory of what boots; its files come next.
pub const BOOT_FOLDER: &str = "billet/boot/";
/// Directory of the layer files; they come last, in the manifest's order.
pub const LAYER_FOLDER: &str = "billet/layers/";

/// A kernel that was added; [`kernel_path_for`] has where it may lie as well.
pub const KERNEL_PATH: &str = "usr/install/vmlinuz";
/// Name of the kernel among the boot parts.
pub const KERNEL: &str = "vmlinuz";
/// The program that takes in what was added: only images in Docker's form have it.
pub const PROGRAM_PATH: &str = "bin/billetctl";

/// Label and program of Talos' images.
const TALOS_LABELS: [&str; 2] = ["alpha.talos.dev/version", "dev.talos.version"];
const TALOS_PROGRAM: &str = "/bin/installer";

/// A kernel that was added for these machines, where there may be several machines' (docs/formats/installer-image.md).
#[must_use]
pub fn kernel_path_for(architecture: Architecture) -> String {
    format!("usr/install/{}/vmlinuz", architecture.name())
}

/// What an installer image says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Version of the system in it.
    pub version: String,
    /// The oldest version that can install it.
    pub minimum_from: String,
}

/// Why an image is not installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An image of Talos.
    #[error(
        "{image} is a Talos installer image{version}: a Billet node installs Billet's images only; name an installer \
         image of Billet, or install Talos on this machine from its own medium"
    )]
    Talos {
        /// The image.
        image: String,
        /// ` (v1.2.3)` or nothing.
        version: String,
    },
    /// Some other image.
    #[error(
        "{image} is no installer image: it has no label {FORMAT_LABEL}; use what `cargo xtask build` writes as installer.oci.tar"
    )]
    Foreign {
        /// The image.
        image: String,
    },
    /// A format of a later version.
    #[error(
        "{image} has the format {found}, and this version of Billet installs format {FORMAT}: upgrade to a version in between first"
    )]
    Format {
        /// The image.
        image: String,
        /// Its format.
        found: String,
    },
    /// The running version is too old for it.
    #[error(
        "{image} (version {version}) can be installed from {minimum} on, and this node runs {running}: upgrade to {minimum} first"
    )]
    TooOld {
        /// The image.
        image: String,
        /// Its version.
        version: String,
        /// What it needs.
        minimum: String,
        /// What runs.
        running: String,
    },
    /// A label is missing or is no version.
    #[error("{image}: its label {label} is {found:?}, which is no version")]
    Label {
        /// The image.
        image: String,
        /// Which label.
        label: &'static str,
        /// What it says.
        found: String,
    },
}

/// The labels of an image.
#[must_use]
pub fn labels(facts: &Facts) -> BTreeMap<String, String> {
    [(FORMAT_LABEL, FORMAT), (MINIMUM_FROM_LABEL, &facts.minimum_from), (VERSION_LABEL, &facts.version)]
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value.to_owned()))
        .collect()
}

/// How many of an image's layers are ours, as its label says.
#[must_use]
pub fn own_layers(config: &Config) -> Option<usize> {
    config.config.labels.get(LAYERS_LABEL)?.parse().ok()
}

/// What a config says, if `running` can install the image.
pub fn facts(image: &str, config: &Config, running: &str) -> Result<Facts, Refusal> {
    let labels = &config.config.labels;
    let Some(format) = labels.get(FORMAT_LABEL) else { return Err(foreign(image, config)) };
    if format != FORMAT {
        return Err(Refusal::Format { image: image.to_owned(), found: shown(format) });
    }
    let version = |label: &'static str| {
        let text = labels.get(label).map_or("", String::as_str);
        let bad = || Refusal::Label { image: image.to_owned(), label, found: shown(text) };
        Version::parse(text).map(|version| (text.to_owned(), version)).ok_or_else(bad)
    };
    let (version_text, _) = version(VERSION_LABEL)?;
    let (minimum_text, minimum) = version(MINIMUM_FROM_LABEL)?;
    // A running version that is none cannot be compared: such a node is somebody's experiment.
    if Version::parse(running).is_some_and(|running| running < minimum) {
        return Err(Refusal::TooOld {
            image: image.to_owned(),
            version: version_text,
            minimum: minimum_text,
            running: running.to_owned(),
        });
    }
    Ok(Facts { version: version_text, minimum_from: minimum_text })
}

fn foreign(image: &str, config: &Config) -> Refusal {
    let labels = &config.config.labels;
    let version = TALOS_LABELS.iter().find_map(|label| labels.get(*label));
    let runs_it = config.config.entrypoint.first().is_some_and(|program| program == TALOS_PROGRAM);
    if version.is_none() && !runs_it {
        return Refusal::Foreign { image: image.to_owned() };
    }
    let version = version.map_or(String::new(), |version| format!(" ({})", shown(version)));
    Refusal::Talos { image: image.to_owned(), version }
}

/// Longest version: a release's is a dozen, and file names and lines have room for this.
const MOST_VERSION_BYTES: usize = 64;

/// Three numbers and what comes before them: `1.2.0-rc.1` is older than `1.2.0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    numbers: [u64; 3],
    before: Option<String>,
}

impl Version {
    /// Reads one; a `v` may stand before it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // Of Semantic Versioning 2.0.0: what else is in one would go into names and lines.
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
        if text.len() > MOST_VERSION_BYTES || !text.bytes().all(is_part) {
            return None;
        }
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split_once('+').map_or(text, |(text, _)| text);
        let (numbers, before) = match text.split_once('-') {
            Some((numbers, before)) => (numbers, Some(before.to_owned())),
            None => (text, None),
        };
        let mut parts = numbers.split('.').map(str::parse);
        let mut next = || parts.next()?.ok();
        let numbers = [next()?, next()?, next()?];
        parts.next().is_none().then_some(Self { numbers, before })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let before = match (&self.before, &other.before) {
            (None, None) => Ordering::Equal,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(two)) => one.cmp(two),
        };
        Some(self.numbers.cmp(&other.numbers).then(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Execution;

    fn config(labels: &[(&str, &str)], entrypoint: &[&str]) -> Config {
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        let entrypoint = entrypoint.iter().map(|&part| part.to_owned()).collect();
        let config = Execution { entrypoint, labels, ..Execution::default() };
        Config { config, ..Config::default() }
    }

    #[test]
    fn an_image_of_ours_says_what_it_is() {
        let wanted = Facts { version: "0.2.0".into(), minimum_from: "0.1.0".into() };
        let mut config = config(&[], &[]);
        config.config.labels = labels(&wanted);
        for running in ["0.1.0", "0.9.3", "0.1.1-alpha.0", "v1.0.0", "a-branch"] {
            assert_eq!(facts("i", &config, running).unwrap(), wanted, "{running}");
        }
        let error = facts("r.example/i:2", &config, "0.1.0-rc.1").unwrap_err().to_string();
        assert_eq!(
            error,
            "r.example/i:2 (version 0.2.0) can be installed from 0.1.0 on, and this node runs 0.1.0-rc.1: upgrade to \
             0.1.0 first"
        );
    }

    #[test]
    fn other_images_are_refused_by_name() {
        let talos =
            facts("i", &config(&[("alpha.talos.dev/version", "v0.9.3")], &["/bin/installer"]), "0.1.0");
        assert!(talos.unwrap_err().to_string().starts_with("i is a Talos installer image (v0.9.3): "));
        let talos = facts("i", &config(&[], &["/bin/installer"]), "0.1.0").unwrap_err().to_string();
        assert!(talos.starts_with("i is a Talos installer image: "), "{talos}");
        let other = facts("i", &config(&[], &["/pause"]), "0.1.0").unwrap_err().to_string();
        assert!(other.contains("is no installer image"), "{other}");
        let newer = facts("i", &config(&[(FORMAT_LABEL, "7")], &[]), "0.1.0").unwrap_err().to_string();
        assert!(newer.contains("has the format 7") && newer.contains("in between first"), "{newer}");
        let nameless = facts("i", &config(&[(FORMAT_LABEL, "1")], &[]), "0.1.0").unwrap_err().to_string();
        assert!(nameless.contains(VERSION_LABEL), "{nameless}");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let order =
            ["0.1.0-alpha", "0.1.0", "0.2.0", "0.10.0", "1.0.0"].map(|text| Version::parse(text).unwrap());
        assert!(order.windows(2).all(|pair| pair[0] < pair[1]));
        let long = format!("1.2.3-{}", "a".repeat(64));
        for bad in ["", "1", "1.2", "1.2.3.4", "1.x.3", "latest", "1.2.3-\u{1b}[2J", "1.2.3+../a", &long] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }
}
