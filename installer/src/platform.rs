//! Platforms: where an image runs, as `talos.platform=` says it, and the form in which each takes a disk.
//!
//! Owns: the table of both; the word on the command line.
//! Does not: speak to a platform. A node asks the same sources for its config whatever the name (docs/users/images.md).
//! Source: docs/users/images.md; the forms of the clouds are what v1.13's imager makes unasked
//! (siderolabs/talos pkg/imager/profile/default.go).

use crate::Error;

/// The parameter under its two names: the first counts, and the second is what images have.
const PREFIXES: [&str; 2] = ["billet.platform=", "talos.platform="];

/// A machine in a room of one's own.
const METAL: Platform = Platform { name: "metal", packing: Packing::Raw };

/// The name that is known, and has no images.
const CONTAINER: &str = "container";

/// A platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Platform {
    /// As the parameter has it.
    pub name: &'static str,
    /// How it takes a disk.
    pub packing: Packing,
}

/// The form in which a platform takes a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// As it is.
    Raw,
    /// Packed by zstd.
    Zstd,
    /// Packed by gzip.
    Gzip,
    /// In a tar file, packed by gzip.
    TarGzip,
    /// QEMU's form.
    Qcow2,
    /// Hyper-V's form of fixed length, in a tar file, packed by gzip.
    VhdTarGzip,
    /// VMware's form.
    Vmdk,
}

impl Platform {
    /// All of them, by name.
    pub const ALL: [Self; 19] = [
        Self { name: "akamai", packing: Packing::Gzip },
        Self { name: "aws", packing: Packing::TarGzip },
        Self { name: "azure", packing: Packing::VhdTarGzip },
        Self { name: "cloudstack", packing: Packing::Zstd },
        Self { name: "digital-ocean", packing: Packing::TarGzip },
        // Its machines start from the network: the disk is metal's.
        Self { name: "equinixMetal", packing: Packing::Raw },
        Self { name: "exoscale", packing: Packing::Qcow2 },
        Self { name: "gcp", packing: Packing::TarGzip },
        Self { name: "hcloud", packing: Packing::Zstd },
        METAL,
        Self { name: "nocloud", packing: Packing::Zstd },
        Self { name: "opennebula", packing: Packing::Zstd },
        Self { name: "openstack", packing: Packing::TarGzip },
        Self { name: "oracle", packing: Packing::Qcow2 },
        // v0.9.3's name of equinixMetal.
        Self { name: "packet", packing: Packing::Raw },
        Self { name: "scaleway", packing: Packing::Zstd },
        Self { name: "upcloud", packing: Packing::Zstd },
        // It takes an OVA, which is this disk and a description of a machine.
        Self { name: "vmware", packing: Packing::Vmdk },
        Self { name: "vultr", packing: Packing::Zstd },
    ];

    /// The platform of this name, or what to say of the name.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|platform| platform.name == name);
        let names = || Self::ALL.map(|platform| platform.name).join(", ");
        found.ok_or_else(|| match name {
            CONTAINER => format!("a container is no machine that an image starts: use one of {}", names()),
            _ => format!("{name:?} is no platform that is known: use one of {}", names()),
        })
    }

    /// The platform that a command line names; metal where it names none that is known.
    #[must_use]
    pub fn of(command_line: &str) -> Self {
        let last = |prefix: &&str| {
            command_line.split_ascii_whitespace().filter_map(|word| word.strip_prefix(*prefix)).next_back()
        };
        let named = PREFIXES.iter().find_map(last);
        named.and_then(|name| Self::named(name).ok()).unwrap_or(METAL)
    }

    /// The command line with this platform, in the place where it has one.
    #[must_use]
    pub fn on(self, command_line: &str) -> String {
        let own = format!("{}{}", PREFIXES[1], self.name);
        let mut line: Vec<&str> = command_line.split_ascii_whitespace().collect();
        let place = line.iter().position(|word| names_platform(word));
        match place.and_then(|place| line.get_mut(place)) {
            Some(word) => *word = &own,
            None => line.push(&own),
        }
        let mut is_first = true;
        // A second one with another value would be an error at the start.
        line.retain(|word| !names_platform(word) || std::mem::take(&mut is_first));
        line.join(" ")
    }
}

/// Refuses arguments that name a platform, or take the image's away: a second name is an error when the machine starts.
pub(crate) fn check_arguments(arguments: &[String]) -> Result<(), Error> {
    let names = |argument: &&String| {
        let mut words = argument.split_ascii_whitespace().map(|word| word.trim_start_matches('-'));
        words.any(|word| {
            names_platform(word) || PREFIXES.iter().any(|prefix| prefix.strip_suffix('=') == Some(word))
        })
    };
    match arguments.iter().find(names) {
        Some(argument) => Err(Error::PlatformArgument { argument: argument.clone() }),
        None => Ok(()),
    }
}

fn names_platform(word: &str) -> bool {
    PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_replaced_where_it_stands() {
        let aws = Platform::named("aws").unwrap();
        let line = "console=ttyS0 talos.platform=metal panic=10";
        assert_eq!(aws.on(line), "console=ttyS0 talos.platform=aws panic=10");
        assert_eq!(aws.on("billet.platform=gcp talos.platform=metal a"), "talos.platform=aws a");
        assert_eq!(aws.on("a"), "a talos.platform=aws");
        assert_eq!(METAL.on(line), line);
        assert_eq!(Platform::of(&aws.on(line)), aws);
        assert_eq!(Platform::of(line), METAL);
        assert_eq!(Platform::of("billet.platform=gcp talos.platform=aws").name, "gcp");
        assert_eq!(Platform::of("talos.platform=../x"), METAL);
    }

    #[test]
    fn a_name_that_is_not_known_is_answered_with_those_that_are() {
        let error = Platform::named("amazon").unwrap_err();
        assert!(error.contains("\"amazon\" is no platform") && error.contains("aws, azure"), "{error}");
        assert!(Platform::named("container").unwrap_err().contains("no machine"));
        let names = Platform::ALL.map(|platform| platform.name);
        let mut sorted = names;
        sorted.sort_unstable_by_key(|name| name.to_lowercase());
        assert_eq!(names, sorted);
    }

    #[test]
    fn a_platform_is_no_kernel_argument() {
        let check = |word: &str| check_arguments(&["quiet".to_owned(), word.to_owned()]);
        for bad in ["talos.platform=aws", "billet.platform=aws", "-talos.platform", "a billet.platform=gcp"] {
            let error = check(bad).unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("--platform"), "{error}");
        }
        for good in ["talos.platforms=1", "platform=aws", "-platform", "a=talos.platform"] {
            check(good).unwrap();
        }
    }
}
