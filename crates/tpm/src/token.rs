//! A sealed key as JSON: what a token in a LUKS2 header says of it.
//!
//! Owns: names and forms of the fields; all of them are needed.
//! Does not: know the token's type and slots.
//! Fails by: [`TokenError`], naming the field.
//! Source: docs/formats/luks2.md.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use crate::pcr::{PCRS, Pcrs, Values};
use crate::policy::{Approval, Policy, PublicKey, Signed};
use crate::seal::Sealed;

/// A field that is missing, or is not what it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenError(pub &'static str);

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sealed key in the header has no usable field {}", self.0)
    }
}

impl core::error::Error for TokenError {}

impl Sealed {
    /// The fields.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let values = self.policy.values.iter();
        let values: Map<String, Value> =
            values.map(|(number, value)| (number.to_string(), json!(BASE64.encode(value)))).collect();
        for (name, value) in [
            ("storageKey", json!(BASE64.encode(self.storage_key))),
            ("public", json!(BASE64.encode(&self.public))),
            ("private", json!(BASE64.encode(&self.private))),
            ("pcrs", Value::Object(values)),
            ("signed", self.policy.signed.as_ref().map_or(Value::Null, signed_to_json)),
        ] {
            fields.insert(name.into(), value);
        }
        fields
    }

    /// The same backwards. Other fields are passed over.
    pub fn from_json(fields: &Map<String, Value>) -> Result<Self, TokenError> {
        let values = match fields.get("pcrs") {
            Some(Value::Object(values)) => read_values(values).ok_or(TokenError("pcrs"))?,
            _ => return Err(TokenError("pcrs")),
        };
        let signed = match fields.get("signed") {
            None | Some(Value::Null) => None,
            Some(Value::Object(signed)) => Some(signed_from_json(signed).ok_or(TokenError("signed"))?),
            Some(_) => return Err(TokenError("signed")),
        };
        Ok(Self {
            storage_key: array(fields.get("storageKey")).ok_or(TokenError("storageKey"))?,
            public: bytes(fields.get("public")).ok_or(TokenError("public"))?,
            private: bytes(fields.get("private")).ok_or(TokenError("private"))?,
            policy: Policy { values, signed },
        })
    }
}

fn signed_to_json(signed: &Signed) -> Value {
    let approvals = signed.approvals.iter().map(|approval| {
        json!({ "policy": BASE64.encode(approval.policy), "signature": BASE64.encode(approval.signature) })
    });
    json!({
        "pcrs": signed.pcrs.iter().collect::<Vec<u8>>(),
        "key": BASE64.encode(signed.key.0),
        "approvals": approvals.collect::<Vec<Value>>(),
    })
}

fn signed_from_json(fields: &Map<String, Value>) -> Option<Signed> {
    let numbers = fields.get("pcrs")?.as_array()?.iter();
    let numbers: Vec<u8> =
        numbers.map(|number| u8::try_from(number.as_u64()?).ok()).collect::<Option<_>>()?;
    let approvals = fields.get("approvals")?.as_array()?.iter().map(|approval| {
        Some(Approval {
            policy: array(approval.get("policy"))?,
            signature: array(approval.get("signature"))?,
        })
    });
    Some(Signed {
        pcrs: Pcrs::new(&numbers)?,
        key: PublicKey(array(fields.get("key"))?),
        approvals: approvals.collect::<Option<_>>()?,
    })
}

fn read_values(fields: &Map<String, Value>) -> Option<Values> {
    let value = |(number, value): (&String, &Value)| {
        let number = number.parse().ok().filter(|number| *number < PCRS)?;
        Some((number, array(Some(value))?))
    };
    fields.iter().map(value).collect()
}

fn bytes(value: Option<&Value>) -> Option<Vec<u8>> {
    BASE64.decode(value?.as_str()?).ok()
}

fn array<const N: usize>(value: Option<&Value>) -> Option<[u8; N]> {
    bytes(value)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> Sealed {
        let approval = Approval { policy: [4; 32], signature: [5; 64] };
        let signed = Signed {
            pcrs: Pcrs::new(&[11]).unwrap(),
            key: PublicKey([6; 64]),
            approvals: [approval, approval].to_vec(),
        };
        Sealed {
            storage_key: [1; 34],
            public: [2; 50].to_vec(),
            private: [3; 160].to_vec(),
            policy: Policy { values: Values::from([(7, [8; 32]), (14, [9; 32])]), signed: Some(signed) },
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let sealed = sealed();
        assert_eq!(Sealed::from_json(&sealed.to_json()), Ok(sealed.clone()));
        let mut plain = sealed;
        plain.policy = Policy::default();
        assert_eq!(Sealed::from_json(&plain.to_json()), Ok(plain));
    }

    #[test]
    fn a_field_that_is_missing_or_wrong_is_named() {
        for name in ["storageKey", "public", "private", "pcrs", "signed"] {
            let mut fields = sealed().to_json();
            fields.insert(name.into(), json!([1]));
            assert_eq!(Sealed::from_json(&fields), Err(TokenError(name)));
        }
        for (name, value) in [
            ("pcrs", json!({ "24": "AAAA" })),
            ("pcrs", json!({ "7": "AAAA" })),
            ("signed", json!({ "pcrs": [300], "key": "", "approvals": [] })),
            ("storageKey", json!("AAAA")),
            ("private", json!("no base64")),
        ] {
            let mut fields = sealed().to_json();
            fields.insert(name.into(), value);
            assert_eq!(Sealed::from_json(&fields), Err(TokenError(name)));
        }
    }
}
