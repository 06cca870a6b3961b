//! What a server hears and says, for tests.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::client::Output;
use crate::duid::Duid;
use crate::message::Settings;
use crate::options::{self, Options, put};

pub(crate) const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];
pub(crate) const IAID: u32 = 0x0001_0203;

pub(crate) const SOLICIT: u8 = 1;
pub(crate) const ADVERTISE: u8 = 2;
pub(crate) const REQUEST: u8 = 3;
pub(crate) const CONFIRM: u8 = 4;
pub(crate) const RENEW: u8 = 5;
pub(crate) const REBIND: u8 = 6;
pub(crate) const REPLY: u8 = 7;
pub(crate) const RELEASE: u8 = 8;
pub(crate) const DECLINE: u8 = 9;
pub(crate) const INFORM: u8 = 11;

pub(crate) const UNSPEC_FAIL: u16 = 1;
pub(crate) const NO_ADDRS_AVAIL: u16 = 2;
pub(crate) const NO_BINDING: u16 = 3;
pub(crate) const NOT_ON_LINK: u16 = 4;
pub(crate) const USE_MULTICAST: u16 = 5;

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn address(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

pub(crate) fn server(number: u8) -> Duid {
    Duid::of_hardware(&[2, 0, 0, 0, 0, number])
}

/// A client that sends its first message at once.
pub(crate) fn settings() -> Settings {
    Settings { hardware: MAC, first_delay: Duration::ZERO, ..Settings::default() }
}

/// A client's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) kind: u8,
    pub(crate) xid: [u8; 3],
    pub(crate) options: Vec<(u16, Vec<u8>)>,
    pub(crate) addresses: Vec<Ipv6Addr>,
}

impl Asked {
    pub(crate) fn read(message: &[u8]) -> Self {
        let options: Vec<_> = Options::of(&message[4..])
            .map(|option| option.map(|(code, value)| (code, value.to_vec())).unwrap())
            .collect();
        let association = options.iter().find(|(code, _)| *code == options::IA_NA);
        let addresses = association.map_or(Vec::new(), |(_, value)| {
            let inner = Options::of(&value[12..]).map(Result::unwrap);
            inner.map(|(_, value)| Ipv6Addr::from_octets(value[..16].try_into().unwrap())).collect()
        });
        Self { kind: message[0], xid: message[1..4].try_into().unwrap(), options, addresses }
    }

    pub(crate) fn option(&self, code: u16) -> Option<&[u8]> {
        self.options.iter().find(|(known, _)| *known == code).map(|(_, value)| &value[..])
    }

    pub(crate) fn is_to(&self, server: &Duid) -> bool {
        self.option(options::SERVER_ID).is_none_or(|named| named == server.bytes())
    }
}

/// The messages that were sent.
pub(crate) fn sent(outputs: &[Output]) -> Vec<Asked> {
    let message =
        |output: &Output| if let Output::Send(message) = output { Some(Asked::read(message)) } else { None };
    outputs.iter().filter_map(message).collect()
}

pub(crate) fn kinds(outputs: &[Output]) -> Vec<u8> {
    sent(outputs).iter().map(|asked| asked.kind).collect()
}

/// An answer that is put together.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) kind: u8,
    pub(crate) xid: [u8; 3],
    pub(crate) client: Option<Duid>,
    pub(crate) server: Option<Duid>,
    pub(crate) times: (u32, u32),
    pub(crate) iaid: u32,
    /// With preferred and valid lifetime.
    pub(crate) addresses: Vec<(Ipv6Addr, u32, u32)>,
    /// Of the association; `None` with no address: there is no association.
    pub(crate) status: Option<u16>,
    pub(crate) rest: Vec<u8>,
}

impl Answer {
    pub(crate) fn new(to: &Asked, kind: u8, server: Duid) -> Self {
        Self {
            kind,
            xid: to.xid,
            client: Some(Duid::of_hardware(&MAC)),
            server: Some(server),
            times: (0, 0),
            iaid: IAID,
            addresses: Vec::new(),
            status: None,
            rest: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, address: Ipv6Addr, preferred: u32, valid: u32) -> Self {
        self.addresses.push((address, preferred, valid));
        self
    }

    /// Of the association.
    pub(crate) fn status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    pub(crate) fn times(self, t1: u32, t2: u32) -> Self {
        Self { times: (t1, t2), ..self }
    }

    pub(crate) fn option(mut self, code: u16, value: &[u8]) -> Self {
        put(&mut self.rest, code, value);
        self
    }

    /// Of the whole message.
    pub(crate) fn own_status(self, status: u16) -> Self {
        self.option(options::STATUS_CODE, &[&status.to_be_bytes()[..], b"text"].concat())
    }

    pub(crate) fn preference(self, preference: u8) -> Self {
        self.option(options::PREFERENCE, &[preference])
    }

    pub(crate) fn rapid(self) -> Self {
        self.option(options::RAPID_COMMIT, &[])
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = vec![self.kind];
        out.extend(self.xid);
        for (code, duid) in [(options::CLIENT_ID, &self.client), (options::SERVER_ID, &self.server)] {
            if let Some(duid) = duid {
                put(&mut out, code, duid.bytes());
            }
        }
        if self.status.is_some() || !self.addresses.is_empty() {
            let mut association = self.iaid.to_be_bytes().to_vec();
            association.extend(self.times.0.to_be_bytes());
            association.extend(self.times.1.to_be_bytes());
            for (address, preferred, valid) in &self.addresses {
                let times = [preferred.to_be_bytes(), valid.to_be_bytes()].concat();
                put(&mut association, options::IA_ADDRESS, &[&address.octets()[..], &times].concat());
            }
            if let Some(status) = self.status {
                put(&mut association, options::STATUS_CODE, &status.to_be_bytes());
            }
            put(&mut out, options::IA_NA, &association);
        }
        out.extend(&self.rest);
        out
    }
}
