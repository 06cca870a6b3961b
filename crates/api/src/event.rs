//! Events as they go over the wire: a payload packed into `Any`.
//!
//! Owns: the list of payload types and their addresses. A type that is not in it must not be published: the current
//! client generation stops its tracking at an unknown one. Source: crates/api/proto/machine/machine.proto (Events).

use crate::proto::machine;
use prost::{DecodeError, Message};
use prost_types::Any;

/// What precedes the full message name in `Any.type_url`.
const PREFIX: &str = "talos/runtime/";

macro_rules! payloads {
    ($($(#[$doc:meta])* $name:ident($message:ident)),+ $(,)?) => {
        /// What happened.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Payload {
            $($(#[$doc])* $name(machine::$message),)+
        }

        impl Payload {
            /// For the wire.
            pub fn pack(&self) -> Any {
                match self {
                    $(Self::$name(m) => Any {
                        type_url: concat!("talos/runtime/machine.", stringify!($message)).to_owned(),
                        value: m.encode_to_vec(),
                    },)+
                }
            }

            /// From the wire; `None` for a type that is not known here.
            ///
            /// # Errors
            /// The decoder's, for a known type with other content.
            pub fn unpack(any: &Any) -> Result<Option<Self>, DecodeError> {
                match any.type_url.strip_prefix(PREFIX).and_then(|n| n.strip_prefix("machine.")) {
                    $(Some(stringify!($message)) => machine::$message::decode(any.value.as_slice()).map(Self::$name).map(Some),)+
                    _ => Ok(None),
                }
            }
        }
    };
}

payloads! {
    /// A sequence started, ended or failed.
    Sequence(SequenceEvent),
    /// A phase started or ended.
    Phase(PhaseEvent),
    /// A task started or ended.
    Task(TaskEvent),
    /// A service changed its state or health.
    ServiceState(ServiceStateEvent),
    /// A configuration could not be read.
    ConfigLoadError(ConfigLoadErrorEvent),
    /// A configuration was refused.
    ConfigValidationError(ConfigValidationErrorEvent),
    /// Host name or addresses changed.
    Address(AddressEvent),
    /// The machine's stage or readiness changed.
    MachineStatus(MachineStatusEvent),
    /// The node is about to restart.
    Restart(RestartEvent),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_survives_the_wire_under_its_address() {
        let payload = Payload::Task(machine::TaskEvent { task: "mountState".into(), action: 1 });
        let any = payload.pack();
        assert_eq!(any.type_url, "talos/runtime/machine.TaskEvent");
        assert_eq!(Payload::unpack(&any).unwrap(), Some(payload));
    }

    #[test]
    fn unknown_types_are_none_and_garbage_is_an_error() {
        let any = |url: &str| Any { type_url: url.into(), value: vec![0xff] };
        assert_eq!(Payload::unpack(&any("talos/runtime/machine.Other")).unwrap(), None);
        assert_eq!(Payload::unpack(&any("")).unwrap(), None);
        assert!(Payload::unpack(&any("talos/runtime/machine.TaskEvent")).is_err());
    }
}
