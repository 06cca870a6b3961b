//! An address that machines on one segment share without etcd, by VRRP.

use std::net::IpAddr;
use std::time::Duration;

use super::entries::{Entries, Problem, named};
use crate::documents::Document;
use crate::schema::GoDuration;
use crate::text::link_name;

pub(super) const NAME: &str = "billet-vrrp";

const ADDRESS: &str = "ADDRESS";
const LINK: &str = "LINK";
const ROUTER_ID: &str = "ROUTER_ID";
const PRIORITY: &str = "PRIORITY";
const INTERVAL: &str = "INTERVAL";
const PREEMPT: &str = "PREEMPT";
const KNOWN: [&str; 6] = [ADDRESS, LINK, ROUTER_ID, PRIORITY, INTERVAL, PREEMPT];

const DEFAULT_PRIORITY: u8 = 100;
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// What an advertisement counts it in, up to 4095.
const UNIT: Duration = Duration::from_millis(10);
/// Others take over after three of them. Until then the kernel has to have taken the address from a machine that hangs.
const SHORTEST: Duration = Duration::from_millis(700);
const LONGEST: Duration = Duration::from_millis(40_950);

/// A virtual router with one address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vrrp {
    /// The address that is shared.
    pub address: IpAddr,
    /// The link that has it.
    pub link: String,
    /// Number of the virtual router, the same on all its machines: 1 to 255.
    pub router_id: u8,
    /// The highest one has the address: 1 to 254, 255 for a machine that owns it.
    pub priority: u8,
    /// Between two advertisements, the same on all machines: 700 ms to 40.95 s.
    pub interval: Duration,
    /// Takes the address from a machine of a lower priority.
    pub is_preempting: bool,
}

pub(super) fn is_name(name: &str) -> bool {
    name.strip_prefix(NAME).is_some_and(|rest| rest.is_empty() || (rest.starts_with('-') && rest.len() > 1))
}

impl Vrrp {
    /// The virtual routers of a config.
    #[must_use]
    pub fn of(documents: &[Document]) -> Vec<Self> {
        named(documents, is_name).filter_map(|document| Self::read(&document.environment).0).collect()
    }

    pub(super) fn read(environment: &[String]) -> (Option<Self>, Vec<Problem>) {
        let mut entries = Entries::new(environment, &KNOWN);
        for name in [ADDRESS, LINK, ROUTER_ID] {
            if entries.get(name).is_none() {
                entries.missing(format!("{name} is missing"));
            }
        }
        let address = entries.parsed(ADDRESS, "address: 10.0.0.100", |text| {
            text.parse::<IpAddr>().ok().filter(|address| !address.is_unspecified() && !address.is_multicast())
        });
        let link = entries
            .parsed(LINK, "name of a link: eth0", |text| link_name(text).is_ok().then(|| text.to_owned()));
        let router_id =
            entries.parsed(ROUTER_ID, "number from 1 to 255", |text| text.parse().ok().filter(|id| *id > 0));
        let priority =
            entries.parsed(PRIORITY, "number from 1 to 255", |text| text.parse().ok().filter(|id| *id > 0));
        let interval = entries.parsed(INTERVAL, "time from 700ms to 40.95s in steps of 10ms", |text| {
            let time = GoDuration::parse(text)?.0;
            let is_whole = time.as_nanos() % UNIT.as_nanos() == 0;
            (is_whole && (SHORTEST..=LONGEST).contains(&time)).then_some(time)
        });
        let preempt = entries.parsed(PREEMPT, "answer: true or false", |text| text.parse().ok());
        let read = match (address, link, router_id) {
            (Some(address), Some(link), Some(router_id)) => Some(Self {
                address,
                link,
                router_id,
                priority: priority.unwrap_or(DEFAULT_PRIORITY),
                interval: interval.unwrap_or(DEFAULT_INTERVAL),
                is_preempting: preempt.unwrap_or(true),
            }),
            _ => None,
        };
        (read.filter(|_| entries.problems.iter().all(|problem| problem.is_warning)), entries.problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[&str]) -> (Option<Vrrp>, String) {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        let (read, problems) = Vrrp::read(&entries);
        let texts: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
        (read, texts.join("\n"))
    }

    #[test]
    fn a_virtual_router_is_read() {
        let (router, problems) = read(&["ADDRESS=10.0.0.100", "LINK=eth0", "ROUTER_ID=51"]);
        assert_eq!(problems, "");
        let router = router.unwrap();
        assert_eq!((router.priority, router.interval, router.is_preempting), (100, DEFAULT_INTERVAL, true));
        let (router, _) = read(&[
            "ADDRESS=fd00::100",
            "LINK=eth0",
            "ROUTER_ID=51",
            "PRIORITY=200",
            "INTERVAL=2s",
            "PREEMPT=false",
        ]);
        let router = router.unwrap();
        assert_eq!(
            (router.priority, router.interval, router.is_preempting),
            (200, Duration::from_secs(2), false)
        );
        assert!(is_name("billet-vrrp") && is_name("billet-vrrp-dns"));
        assert!(!is_name("billet-vrrp-") && !is_name("billet-vrrps"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let good = ["ADDRESS=10.0.0.100", "LINK=eth0", "ROUTER_ID=51"];
        for (entry, wanted) in [
            ("ADDRESS=x", "ADDRESS: `x` is no address: 10.0.0.100"),
            ("ADDRESS=224.0.0.1", "ADDRESS: `224.0.0.1` is no address: 10.0.0.100"),
            ("LINK=a/b", "LINK: `a/b` is no name of a link: eth0"),
            ("ROUTER_ID=256", "ROUTER_ID: `256` is no number from 1 to 255"),
            ("PRIORITY=0", "PRIORITY: `0` is no number from 1 to 255"),
            ("INTERVAL=695ms", "INTERVAL: `695ms` is no time from 700ms to 40.95s in steps of 10ms"),
            ("PREEMPT=yes", "PREEMPT: `yes` is no answer: true or false"),
        ] {
            let name = entry.split('=').next().unwrap();
            let mut entries: Vec<&str> = good.into_iter().filter(|good| !good.starts_with(name)).collect();
            entries.push(entry);
            assert_eq!(read(&entries), (None, wanted.to_owned()));
        }
        assert_eq!(read(&[]).1, "ADDRESS is missing\nLINK is missing\nROUTER_ID is missing");
    }
}
