//! Generic netlink: one request of one family, and its answers.
//!
//! Owns: how a family's number is found.
//! Does not: know where an answer ends (`exchange` does).
//! Source: genetlink(7).

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlMessage};
use netlink_sys::{Socket, protocols::NETLINK_GENERIC};
use zeroize::Zeroizing;

use super::exchange::{exchange, open};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum GenericError {
    /// No socket.
    #[error("open a generic netlink socket: {0}")]
    Open(io::Error),
    /// The family is not there: a module is missing, or the kernel was built without it.
    #[error("the kernel has no {0}")]
    NoFamily(&'static str),
    /// The kernel refused.
    #[error("ask the kernel for {0}: {1}")]
    Refused(&'static str, io::Error),
    /// The answer cannot be read.
    #[error("read the kernel's answer about {0}: {1}")]
    Answer(&'static str, String),
}

/// A connection to a family of the kernel's.
pub(super) struct Family {
    socket: Socket,
    number: u16,
    name: &'static str,
}

impl Family {
    /// Finds a family; `name` is for people.
    pub(super) fn open<T: GenlFamily>(name: &'static str) -> Result<Self, GenericError> {
        let socket = open(NETLINK_GENERIC).map_err(GenericError::Open)?;
        let mut family = Self { socket, number: 0, name };
        let wanted = T::family_name().to_owned();
        let ask = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(wanted)] };
        let answers = match family.send(GenlMessage::from_payload(ask), NLM_F_ACK) {
            Err(GenericError::Refused(_, error)) if error.kind() == io::ErrorKind::NotFound => {
                return Err(GenericError::NoFamily(name));
            }
            answers => answers?,
        };
        let numbers = answers.into_iter().flat_map(|answer| answer.payload.nlas);
        let mut numbers = numbers.filter_map(|attribute| match attribute {
            GenlCtrlAttrs::FamilyId(number) => Some(number),
            _ => None,
        });
        family.number = numbers.next().ok_or(GenericError::NoFamily(name))?;
        Ok(family)
    }

    /// Sends a message of the family's; the answers up to the acknowledgement or the end of the list, one of which `flags`
    /// ask for.
    pub(super) fn request<T>(&mut self, payload: T, flags: u16) -> Result<Vec<T>, GenericError>
    where
        T: GenlFamily + std::fmt::Debug,
        GenlMessage<T>: NetlinkSerializable + NetlinkDeserializable + Into<NetlinkPayload<GenlMessage<T>>>,
    {
        let mut message = GenlMessage::from_payload(payload);
        message.set_resolved_family_id(self.number);
        Ok(self.send(message, flags)?.into_iter().map(|answer| answer.payload).collect())
    }

    fn send<T>(&mut self, message: GenlMessage<T>, flags: u16) -> Result<Vec<GenlMessage<T>>, GenericError>
    where
        GenlMessage<T>: NetlinkSerializable + NetlinkDeserializable + Into<NetlinkPayload<GenlMessage<T>>>,
    {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.finalize();
        // It may hold a key.
        let mut bytes = Zeroizing::new(vec![0; request.buffer_len()]);
        request.serialize(&mut bytes);
        let (name, mut answers) = (self.name, Vec::new());
        let take = |answer: &[u8]| answers.push(NetlinkMessage::<GenlMessage<T>>::deserialize(answer));
        exchange(&self.socket, &bytes, take).map_err(|error| GenericError::Refused(name, error))?;
        let unreadable = |error: DecodeError| GenericError::Answer(name, error.to_string());
        let mut found = Vec::new();
        for answer in answers {
            if let NetlinkPayload::InnerMessage(message) = answer.map_err(unreadable)?.payload {
                found.push(message);
            }
        }
        Ok(found)
    }
}
