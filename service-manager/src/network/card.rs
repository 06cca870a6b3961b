//! What a card tells besides netlink: its speed and its port, its driver's and firmware's versions, its maker.
//!
//! Owns: when a card is asked: once it is there, and again when its link changes. A card's answer may take a while.
//! Fails by: what a card does not tell is left out.
//! Source: include/uapi/linux/ethtool.h of Linux.

use std::collections::BTreeMap;
use std::path::Path;

use super::ethtool::Ethtool;
use super::link::Link;
use super::media::Media;
use crate::hardware::pci;

/// What a card tells; nothing of a link that is no card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) media: Media,
    pub(super) driver_version: String,
    pub(super) firmware_version: String,
    /// `0x1af4`
    pub(super) vendor_id: String,
    /// `0x1000`
    pub(super) product_id: String,
    /// Names, where the image has the list of them.
    pub(super) vendor: String,
    pub(super) product: String,
}

/// All cards by index, each as it was when its link was so.
#[derive(Default)]
pub(super) struct Cards(BTreeMap<u32, (Link, Card)>);

impl Cards {
    /// Asks those that are new or changed, and forgets those that are gone.
    pub(super) fn follow<'a>(&mut self, root: &Path, links: impl Iterator<Item = &'a Link>) {
        let mut before = std::mem::take(&mut self.0);
        let mut ethtool = None;
        for link in links.filter(|link| link.device.is_physical) {
            let known = before.remove(&link.index).filter(|(as_it_was, _)| as_it_was == link);
            let entry = known.unwrap_or_else(|| {
                // Without ethtool the rest is told.
                let ethtool = ethtool.get_or_insert_with(|| Ethtool::open().ok()).as_mut();
                (link.clone(), read(root, link, ethtool))
            });
            self.0.insert(link.index, entry);
        }
    }

    pub(super) fn of(&self, link: &Link) -> Card {
        self.0.get(&link.index).map(|(_, card)| card.clone()).unwrap_or_default()
    }
}

fn read(root: &Path, link: &Link, ethtool: Option<&mut Ethtool>) -> Card {
    let media = ethtool.map(|ethtool| Media::read(ethtool, &link.name)).unwrap_or_default();
    let driver = sys::link::driver(&link.name).unwrap_or_default();
    let card =
        Card { media, driver_version: driver.version, firmware_version: driver.firmware, ..Card::default() };
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let numbers = link.device.pci_id.split_once(':');
    let Some((vendor, product)) = numbers.and_then(|(vendor, product)| number(vendor).zip(number(product)))
    else {
        return card;
    };
    let (vendor_name, product_name) = pci::names(root, vendor, product);
    Card {
        vendor_id: format!("0x{vendor:04x}"),
        product_id: format!("0x{product:04x}"),
        vendor: vendor_name.unwrap_or_default(),
        product: product_name.unwrap_or_default(),
        ..card
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::Device;
    use super::*;
    use crate::network::testing::{ip, is_inside};

    fn link(name: &str) -> Link {
        let device = Device { is_physical: true, pci_id: "1af4:1000".into(), ..Device::default() };
        Link { index: 7, name: name.into(), device, ..Link::default() }
    }

    #[test]
    fn a_card_has_the_names_of_the_list_and_its_numbers_without_one() {
        let root = tempfile::tempdir().unwrap();
        let bare = read(root.path(), &link("no-such-link"), None);
        assert_eq!((bare.vendor_id.as_str(), bare.product_id.as_str()), ("0x1af4", "0x1000"));
        assert_eq!((bare.vendor.as_str(), bare.media), ("", Media::default()));
        std::fs::create_dir_all(root.path().join("usr/share/misc")).unwrap();
        let list = "1af4  Red Hat, Inc.\n\t1000  Virtio network device\n";
        std::fs::write(root.path().join("usr/share/misc/pci.ids"), list).unwrap();
        let named = read(root.path(), &link("no-such-link"), None);
        assert_eq!(
            (named.vendor.as_str(), named.product.as_str()),
            ("Red Hat, Inc.", "Virtio network device")
        );
        let usb = Link { device: Device { is_physical: true, ..Device::default() }, ..link("no-such-link") };
        assert_eq!(read(root.path(), &usb, None), Card::default());
    }

    #[test]
    fn a_card_is_asked_once_and_again_when_its_link_changes() {
        if !is_inside("network::card::tests::a_card_is_asked_once_and_again_when_its_link_changes") {
            return;
        }
        // The kernel's veth answers as a card does.
        ip("link add eth0 type veth peer name eth1");
        let root = tempfile::tempdir().unwrap();
        let (mut cards, first) = (Cards::default(), link("eth0"));
        cards.follow(root.path(), [&first].into_iter());
        let card = cards.of(&first);
        assert_eq!((card.media.speed_mbit, card.media.duplex), (Some(10_000), "Full"), "{card:?}");
        assert_eq!(card.driver_version, "1.0");
        ip("link del eth0");
        cards.follow(root.path(), [&first].into_iter());
        assert_eq!(cards.of(&first), card, "it was asked again");
        let changed = Link { carrier_ups: 1, ..first.clone() };
        cards.follow(root.path(), [&changed].into_iter());
        assert_eq!(cards.of(&changed).media, Media::default());
        cards.follow(root.path(), [].into_iter());
        assert_eq!(cards.of(&first), Card::default());
        let made = Link { device: Device::default(), ..first };
        cards.follow(root.path(), [&made].into_iter());
        assert_eq!(cards.of(&made), Card::default(), "a link that programs made is no card");
    }
}
