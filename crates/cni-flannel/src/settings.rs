//! What the daemon of flannel wrote about this node's part of the network: lines of `NAME=value`.
//!
//! Source: flannel's documentation, "Running", `/run/flannel/subnet.env`.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// This node's part of the network. Of each family there is the whole network with this node's part, or neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The whole network and this node's part, IPv4.
    pub(crate) v4: Option<(String, String)>,
    /// The same, IPv6.
    pub(crate) v6: Option<(String, String)>,
    /// Largest packet in bytes that fits the tunnel.
    pub(crate) mtu: Option<u64>,
    /// Whether the daemon masks what leaves the network.
    pub(crate) masks: bool,
}

/// Between two looks for the file.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

impl Settings {
    /// What the file says; where there is none yet, it is waited for.
    pub(crate) fn wait(path: &Path, patience: Duration) -> Result<Self, Error> {
        Self::wait_with(path, patience, || thread::sleep(LOOK_PERIOD))
    }

    fn wait_with(path: &Path, patience: Duration, mut pause: impl FnMut()) -> Result<Self, Error> {
        let begin = Instant::now();
        loop {
            match Self::read(path) {
                Err(Error::NoSettings(_)) if begin.elapsed() < patience => pause(),
                other => return other,
            }
        }
    }

    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => Error::NoSettings(path.to_owned()),
            _ => Error::File { what: "read", path: path.to_owned(), source },
        })?;
        Self::parse(&text).map_err(|reason| Error::Settings { path: path.to_owned(), reason })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let value = |name: &str| {
            let lines = text.lines().filter_map(|line| line.trim().split_once('='));
            let found = lines.filter(|(known, _)| *known == name).map(|(_, value)| value.trim()).next_back();
            found.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        // An IPv6 network alone has an IPv4 one of zeros beside it.
        let is_real = |network: &String| !network.starts_with("0.0.0.0");
        let family =
            |network: &str, part: &str| match (value(network).filter(is_real), value(part).filter(is_real)) {
                (Some(network), Some(part)) => {
                    let part = without_host(&part).ok_or_else(|| format!("{part} is no network"))?;
                    Ok(Some((network, part)))
                }
                (None, None) => Ok(None),
                (Some(_), None) => Err(format!("{network} without {part}")),
                (None, Some(_)) => Err(format!("{part} without {network}")),
            };
        let number = |text: String| text.parse().map_err(|_| format!("FLANNEL_MTU={text} is no number"));
        let settings = Self {
            v4: family("FLANNEL_NETWORK", "FLANNEL_SUBNET")?,
            v6: family("FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET")?,
            mtu: value("FLANNEL_MTU").map(number).transpose()?,
            masks: value("FLANNEL_IPMASQ").as_deref() == Some("true"),
        };
        if settings.v4.is_none() && settings.v6.is_none() {
            return Err("it names no network".to_owned());
        }
        Ok(settings)
    }
}

/// A network in the form that `host-local` takes: the daemon writes the first address of it, `10.244.1.1/24`.
fn without_host(text: &str) -> Option<String> {
    let (address, length) = text.split_once('/')?;
    let length: u32 = length.parse().ok()?;
    match address.parse().ok()? {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(length)?).unwrap_or(0);
            Some(format!("{}/{length}", Ipv4Addr::from(u32::from(address) & mask)))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(length)?).unwrap_or(0);
            Some(format!("{}/{length}", Ipv6Addr::from(u128::from(address) & mask)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_not_there_yet_are_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("subnet.env");
        let mut pauses = 0;
        let mut pause = || {
            pauses += 1;
            if pauses == 3 {
                let text = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\n";
                fs::write(&path, text).unwrap();
            }
        };
        let settings = Settings::wait_with(&path, Duration::from_secs(60), &mut pause).unwrap();
        assert_eq!((settings.v4.unwrap().1.as_str(), pauses), ("10.244.1.0/24", 3));
        // What is wrong in a file is said at once, and so is that there is none when the time is over.
        fs::write(&path, "FLANNEL_SUBNET=a\n").unwrap();
        let refused = |patience| Settings::wait_with(&path, patience, || panic!("it waits")).unwrap_err();
        assert!(matches!(refused(Duration::from_secs(60)), Error::Settings { .. }));
        fs::remove_file(&path).unwrap();
        assert!(matches!(refused(Duration::ZERO), Error::NoSettings(_)));
    }

    #[test]
    fn both_families_are_read() {
        let text = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPV6_NETWORK=fd00:10:244::/56\n\
                    FLANNEL_IPV6_SUBNET=fd00:10:244:1::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
        let settings = Settings::parse(text).unwrap();
        assert_eq!(settings.v4, Some(("10.244.0.0/16".into(), "10.244.1.0/24".into())));
        assert_eq!(settings.v6, Some(("fd00:10:244::/56".into(), "fd00:10:244:1::/64".into())));
        assert_eq!((settings.mtu, settings.masks), (Some(1450), true));
        let alone = Settings::parse(
            "FLANNEL_NETWORK=0.0.0.0/0\nFLANNEL_SUBNET=0.0.0.0/0\nFLANNEL_IPV6_NETWORK=a\nFLANNEL_IPV6_SUBNET=fd00::1/64\n",
        );
        assert_eq!(alone.unwrap().v4, None);
    }

    #[test]
    fn what_is_half_is_named() {
        assert_eq!(
            Settings::parse("FLANNEL_SUBNET=a\n").unwrap_err(),
            "FLANNEL_SUBNET without FLANNEL_NETWORK"
        );
        assert_eq!(Settings::parse("").unwrap_err(), "it names no network");
        let text = "FLANNEL_NETWORK=a\nFLANNEL_SUBNET=b\n";
        assert_eq!(Settings::parse(text).unwrap_err(), "b is no network");
        for length in ["33", "-1", "x"] {
            let text = format!("FLANNEL_NETWORK=a\nFLANNEL_SUBNET=10.0.0.1/{length}\n");
            assert_eq!(Settings::parse(&text).unwrap_err(), format!("10.0.0.1/{length} is no network"));
        }
        let text = "FLANNEL_NETWORK=a\nFLANNEL_SUBNET=10.0.0.1/0\nFLANNEL_MTU=x\n";
        assert_eq!(Settings::parse(text).unwrap_err(), "FLANNEL_MTU=x is no number");
    }
}
