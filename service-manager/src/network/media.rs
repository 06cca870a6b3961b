//! What a card is connected by, and how fast.
//!
//! Source: include/uapi/linux/ethtool_netlink.h and ethtool.h of Linux.

use super::ethtool::{Attributes, Ethtool, Subject};

/// `ETHTOOL_A_LINKINFO_PORT`
const PORT: u16 = 2;
/// `ETHTOOL_A_LINKMODES_SPEED` and `ETHTOOL_A_LINKMODES_DUPLEX`
const SPEED: u16 = 5;
const DUPLEX: u16 = 6;

/// In the words of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Media {
    /// None: it has none now, or is no card.
    pub(super) speed_mbit: Option<u32>,
    pub(super) port: &'static str,
    pub(super) duplex: &'static str,
}

impl Default for Media {
    fn default() -> Self {
        Self { speed_mbit: None, port: "Other", duplex: "Unknown" }
    }
}

impl Media {
    /// What a card does not tell is as that of no card.
    pub(super) fn read(ethtool: &mut Ethtool, link: &str) -> Self {
        let mut get = |subject| ethtool.get(link, subject).unwrap_or_default();
        Self::of(&get(Subject::LinkModes), &get(Subject::LinkInfo))
    }

    pub(super) fn of(modes: &Attributes, info: &Attributes) -> Self {
        let none = Self::default();
        let port = match info.number(PORT) {
            Some(0) => "TwistedPair",
            Some(1) => "AUI",
            Some(2) => "MII",
            Some(3) => "Fibre",
            Some(4) => "BNC",
            Some(5) => "DirectAttach",
            Some(0xef) => "None",
            _ => none.port,
        };
        let duplex = match modes.number(DUPLEX) {
            Some(0) => "Half",
            Some(1) => "Full",
            _ => none.duplex,
        };
        // All ones: it has no speed now.
        let speed_mbit = modes.number(SPEED).filter(|speed| *speed != u32::MAX);
        Self { speed_mbit, port, duplex }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ethtool::Value;
    use super::*;

    #[test]
    fn what_a_card_tells_is_a_word_and_what_it_does_not_tell_is_none() {
        let modes =
            |speed, duplex| Attributes::of(&[Value::Number(SPEED, speed), Value::Byte(DUPLEX, duplex)]);
        let info = |port| Attributes::of(&[Value::Byte(PORT, port)]);
        for (speed, duplex, port, expected) in [
            (1000, 1, 0, (Some(1000), "Full", "TwistedPair")),
            (10, 0, 2, (Some(10), "Half", "MII")),
            (25_000, 1, 3, (Some(25_000), "Full", "Fibre")),
            (100_000, 1, 5, (Some(100_000), "Full", "DirectAttach")),
            (u32::MAX, 0xff, 0xff, (None, "Unknown", "Other")),
            (0, 7, 0xef, (Some(0), "Unknown", "None")),
        ] {
            let media = Media::of(&modes(speed, duplex), &info(port));
            assert_eq!((media.speed_mbit, media.duplex, media.port), expected);
        }
        assert_eq!(Media::of(&Attributes::default(), &Attributes::default()), Media::default());
    }
}
