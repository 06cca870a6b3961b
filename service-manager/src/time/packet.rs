//! The NTP packet, and what four time stamps say about two clocks.
//!
//! Owns: encoding a request, decoding and checking a reply. No I/O.
//! On the wire (48 bytes, big endian): leap, version and mode at 0; stratum at 1; root delay and dispersion (16.16
//! seconds) at 4 and 8; reference id at 12; reference, origin, receive and transmit stamps (32.32 seconds since 1900)
//! at 16, 24, 32 and 40.
//! Source: RFC 5905 §7.3, §8; RFC 4330 §5 for the client's checks.

use sys::clock::Leap;

/// Length of a packet without extensions.
pub(super) const PACKET_BYTES: usize = 48;
/// Version 4, mode 3 (client).
const CLIENT: u8 = 0x23;
/// Mode 4 (server).
const SERVER_MODE: u8 = 4;
/// Stratum 16 and more mean: not synchronised.
const MAX_STRATUM: u8 = 15;
/// A root that is further away than this says nothing (RFC 5905, `MAXDISP`).
const MAX_ROOT_NS: i64 = 16_000_000_000;
/// Seconds from 1900 to 1970.
const EPOCH: i64 = 2_208_988_800;
const NS: i64 = 1_000_000_000;

/// A moment in NTP's form; arithmetic wraps every 136 years, differences are right within 68.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u64);

impl Stamp {
    /// From nanoseconds since 1970.
    pub(super) fn from_unix_ns(ns: i64) -> Self {
        let seconds = (ns.div_euclid(NS) + EPOCH).cast_unsigned() & 0xffff_ffff;
        let rest = ns.rem_euclid(NS).cast_unsigned();
        Self((seconds << 32) | ((rest << 32) / NS.cast_unsigned()))
    }

    /// Nanoseconds from `earlier` to here.
    pub(super) fn since(self, earlier: Self) -> i64 {
        let difference = i128::from(self.0.wrapping_sub(earlier.0).cast_signed());
        i64::try_from((difference * i128::from(NS)) >> 32).unwrap_or(i64::MAX)
    }
}

/// A reply that passed the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) stratum: u8,
    pub(super) leap: Leap,
    pub(super) root_delay_ns: i64,
    pub(super) root_dispersion_ns: i64,
    pub(super) reference: [u8; 4],
    pub(super) received: Stamp,
    pub(super) sent: Stamp,
}

/// Why a reply is of no use.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ReplyError {
    /// Too short for a packet.
    #[error("reply of {0} bytes; an NTP reply has {PACKET_BYTES}")]
    Length(usize),
    /// Not from a server.
    #[error("reply of mode {0}; a server's has {SERVER_MODE}")]
    Mode(u8),
    /// Not an answer to our request: late, or forged.
    #[error("the reply does not answer our request")]
    Origin,
    /// "Kiss of death".
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server has no time itself.
    #[error("the server is not synchronised itself")]
    Unsynchronised,
    /// Its time is too uncertain.
    #[error("the server's own time is uncertain by more than 16 s")]
    TooFar,
}

/// A request that carries `cookie` where a reply repeats it: nothing about our clock leaves the machine.
pub(super) fn request(cookie: u64) -> [u8; PACKET_BYTES] {
    let mut packet = [0; PACKET_BYTES];
    packet[0] = CLIENT;
    packet[40..].copy_from_slice(&cookie.to_be_bytes());
    packet
}

/// Reads and checks a reply to the request with `cookie`.
pub(super) fn reply(packet: &[u8], cookie: u64) -> Result<Reply, ReplyError> {
    let packet: &[u8; PACKET_BYTES] = packet.first_chunk().ok_or(ReplyError::Length(packet.len()))?;
    let (leap, mode, stratum) = (packet[0] >> 6, packet[0] & 7, packet[1]);
    if mode != SERVER_MODE {
        return Err(ReplyError::Mode(mode));
    }
    if stamp(packet, 24).0 != cookie {
        return Err(ReplyError::Origin);
    }
    let reference = [packet[12], packet[13], packet[14], packet[15]];
    if stratum == 0 {
        return Err(ReplyError::Refused(code(reference)));
    }
    let sent = stamp(packet, 40);
    if leap == 3 || stratum > MAX_STRATUM || sent.0 == 0 {
        return Err(ReplyError::Unsynchronised);
    }
    let (root_delay_ns, root_dispersion_ns) = (short(packet, 4), short(packet, 8));
    if root_delay_ns / 2 + root_dispersion_ns >= MAX_ROOT_NS {
        return Err(ReplyError::TooFar);
    }
    let leap = match leap {
        1 => Leap::Insert,
        2 => Leap::Delete,
        _ => Leap::None,
    };
    let received = stamp(packet, 32);
    Ok(Reply { stratum, leap, root_delay_ns, root_dispersion_ns, reference, received, sent })
}

/// The four letters of a refusal, as far as they are printable.
fn code(bytes: [u8; 4]) -> String {
    bytes.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(|byte| char::from(*byte)).collect()
}

fn stamp(packet: &[u8; PACKET_BYTES], at: usize) -> Stamp {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&packet[at..at + 8]);
    Stamp(u64::from_be_bytes(bytes))
}

/// A length of time in 16.16 seconds.
fn short(packet: &[u8; PACKET_BYTES], at: usize) -> i64 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&packet[at..at + 4]);
    (i64::from(u32::from_be_bytes(bytes)) * NS) >> 16
}

/// Offset of the server's clock to ours, and the time both ways took, from our stamps and the server's.
pub(super) fn measure(asked: Stamp, reply: &Reply, answered: Stamp) -> (i64, i64) {
    let (out, back) = (reply.received.since(asked), reply.sent.since(answered));
    let offset = (i128::from(out) + i128::from(back)) / 2;
    let round_trip = answered.since(asked) - reply.sent.since(reply.received);
    (i64::try_from(offset).unwrap_or(i64::MAX), round_trip.max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's answer: its clock is `ahead` of ours, each way takes 10 ms, it thinks for 1 ms.
    fn answer(cookie: u64, asked_ns: i64, ahead_ns: i64) -> [u8; PACKET_BYTES] {
        let mut packet = [0; PACKET_BYTES];
        packet[0] = 0x24;
        packet[1] = 2;
        packet[4..8].copy_from_slice(&0x0000_8000_u32.to_be_bytes());
        packet[24..32].copy_from_slice(&cookie.to_be_bytes());
        let received = Stamp::from_unix_ns(asked_ns + ahead_ns + 10_000_000);
        let sent = Stamp::from_unix_ns(asked_ns + ahead_ns + 11_000_000);
        packet[32..40].copy_from_slice(&received.0.to_be_bytes());
        packet[40..48].copy_from_slice(&sent.0.to_be_bytes());
        packet
    }

    fn near(a: i64, b: i64) -> bool {
        (a - b).abs() < 10
    }

    #[test]
    fn offset_and_round_trip_come_out_of_four_stamps() {
        for (asked, ahead) in [
            (1_700_000_000 * NS, 250_000_000),
            (1_700_000_000 * NS, -3_600 * NS),
            // A machine that begins in 1970 learns the time of 2026, and one before 2036 that of 2040.
            (0, 1_770_000_000 * NS),
            (2_085_000_000 * NS, 126_000_000 * NS),
        ] {
            let reply = reply(&answer(7, asked, ahead), 7).unwrap();
            let answered = Stamp::from_unix_ns(asked + 21_000_000);
            let (offset, round_trip) = measure(Stamp::from_unix_ns(asked), &reply, answered);
            assert!(near(offset, ahead), "{offset} is not {ahead}");
            assert!(near(round_trip, 20_000_000), "{round_trip}");
            assert_eq!((reply.stratum, reply.root_delay_ns), (2, 500_000_000));
        }
    }

    #[test]
    fn replies_that_say_nothing_are_refused() {
        let good = answer(7, 0, 0);
        let spoilt = |at: usize, byte: u8| {
            let mut packet = good;
            packet[at] = byte;
            reply(&packet, 7)
        };
        assert_eq!(reply(&good, 8), Err(ReplyError::Origin));
        assert_eq!(reply(&good[..47], 7), Err(ReplyError::Length(47)));
        assert_eq!(spoilt(0, 0x23), Err(ReplyError::Mode(3)));
        assert_eq!(spoilt(0, 0xe4), Err(ReplyError::Unsynchronised));
        assert_eq!(spoilt(1, 16), Err(ReplyError::Unsynchronised));
        assert_eq!(spoilt(4, 0x40), Err(ReplyError::TooFar));
        let mut kiss = good;
        kiss[1] = 0;
        kiss[12..16].copy_from_slice(b"RATE");
        assert_eq!(reply(&kiss, 7), Err(ReplyError::Refused("RATE".into())));
    }

    #[test]
    fn a_leap_second_is_passed_on() {
        let mut packet = answer(7, 0, 0);
        packet[0] |= 0x40;
        assert_eq!(reply(&packet, 7).unwrap().leap, Leap::Insert);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut packet = answer(7, 0, 0);
        for at in 0..PACKET_BYTES {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let before = std::mem::replace(&mut packet[at], byte);
                if let Ok(reply) = reply(&packet, 7) {
                    let _ = measure(Stamp(0), &reply, Stamp(u64::MAX));
                }
                packet[at] = before;
            }
        }
    }
}
