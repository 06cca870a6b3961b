//! Signing in to a registry: what it asks for, and what is answered.
//!
//! Owns: the challenge, the request for a token, the answer. Does not: send anything.
//! Source: OCI distribution specification, "Authentication"; Docker's token authentication; RFC 7617, RFC 6750.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Uri, header};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::Auth;
use crate::error::shown;

/// What a registry wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    /// Name and password.
    Basic,
    /// A token that another server gives.
    Bearer(Bearer),
}

/// Where a token is had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bearer {
    pub(super) realm: String,
    service: String,
    scope: String,
}

/// A request for a token.
pub struct TokenRequest {
    /// Where it goes.
    pub uri: String,
    /// Name and password, marked as a secret.
    pub authorization: Option<HeaderValue>,
    /// Its body, when it is a POST.
    pub form: Option<String>,
}

impl Challenge {
    /// Where a token is had, if that is an address.
    pub(super) fn realm(&self) -> Option<Uri> {
        match self {
            Self::Bearer(bearer) => bearer.realm.parse().ok(),
            Self::Basic => None,
        }
    }

    /// Reads the headers of a 401; a token is preferred where both are offered.
    pub fn of(headers: &HeaderMap) -> Result<Self, String> {
        let offers = headers.get_all(header::WWW_AUTHENTICATE);
        let offers: Vec<&str> = offers.iter().filter_map(|value| value.to_str().ok()).collect();
        let scheme = |name: &str| {
            let matches = |offer: &&&str| {
                let word = offer.split(' ').next().unwrap_or_default();
                word.eq_ignore_ascii_case(name)
            };
            offers.iter().find(matches).copied()
        };
        if let Some(offer) = scheme("bearer") {
            let mut bearer = Bearer::default();
            for (key, value) in parameters(offer.split_once(' ').map_or("", |(_, rest)| rest)) {
                match key.to_ascii_lowercase().as_str() {
                    "realm" => bearer.realm = value,
                    "service" => bearer.service = value,
                    "scope" => bearer.scope = value,
                    _ => {}
                }
            }
            return Ok(Self::Bearer(bearer));
        }
        match scheme("basic") {
            Some(_) => Ok(Self::Basic),
            None => Err("not signed in (401), and it does not say how".to_owned()),
        }
    }
}

/// `a="b c",d=e` in its parts.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some((key, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        found.push((key.trim().to_owned(), value.to_owned()));
        rest = after.trim_start_matches([',', ' ']);
    }
    found
}

impl Bearer {
    /// How a token is asked for. A secret goes to an encrypted address, or where the registry is not encrypted either.
    pub fn request(
        &self,
        who: Option<&Auth>,
        origin: &str,
        repository: &str,
    ) -> Result<TokenRequest, String> {
        let open = self.realm.starts_with("http://") && origin.starts_with("http://");
        if !open && !self.realm.starts_with("https://") {
            return Err(format!("its sign-in address {:?} is not https://", shown(&self.realm)));
        }
        let asked = format!("repository:{repository}:pull");
        let scope = if self.scope.is_empty() { &asked } else { &self.scope };
        let mut query = format!("scope={}", encoded(scope));
        if !self.service.is_empty() {
            query.push_str(&format!("&service={}", encoded(&self.service)));
        }
        if let Some(Auth::Identity(token)) = who {
            let form = format!(
                "grant_type=refresh_token&client_id=billet&{query}&refresh_token={}",
                encoded(token.as_str())
            );
            return Ok(TokenRequest { uri: self.realm.clone(), authorization: None, form: Some(form) });
        }
        let mark = if self.realm.contains('?') { '&' } else { '?' };
        let uri = format!("{}{mark}{query}", self.realm);
        Ok(TokenRequest { uri, authorization: basic(who)?, form: None })
    }
}

/// `Basic` with name and password; `None` for nobody.
pub(super) fn basic(who: Option<&Auth>) -> Result<Option<HeaderValue>, String> {
    let Some(Auth::Password { name, password }) = who else { return Ok(None) };
    let pair = Zeroizing::new(format!("{name}:{}", password.as_str()));
    secret(&Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())))).map(Some)
}

/// The token in an answer, as the header that shows it.
pub fn token(answer: &[u8]) -> Result<HeaderValue, String> {
    #[derive(Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
    }
    let answer: Answer = serde_json::from_slice(answer)
        .map_err(|_| "the sign-in's answer is not the JSON it should be".to_owned())?;
    let token = answer.token.filter(|token| !token.is_empty()).or(answer.access_token);
    let token = Zeroizing::new(token.ok_or("the sign-in's answer has no token")?);
    secret(&Zeroizing::new(format!("Bearer {}", token.as_str())))
}

fn secret(text: &str) -> Result<HeaderValue, String> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| "the sign-in holds characters that no header can")?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a registry says about an error.
pub fn message(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        errors: Vec<Fault>,
    }
    #[derive(Deserialize)]
    struct Fault {
        #[serde(default)]
        message: String,
    }
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    let message = answer.errors.into_iter().map(|fault| fault.message).find(|text| !text.is_empty())?;
    // It goes into log lines.
    Some(message.chars().filter(|c| !c.is_control()).take(200).collect())
}

/// A text as part of an address or a form.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(offers: &[&str]) -> Result<Challenge, String> {
        let mut headers = HeaderMap::new();
        for offer in offers {
            headers.append(header::WWW_AUTHENTICATE, offer.parse().unwrap());
        }
        Challenge::of(&headers)
    }

    fn password() -> Auth {
        Auth::Password { name: "me".into(), password: Zeroizing::new("geheim".into()) }
    }

    #[test]
    fn challenges_are_read() {
        assert_eq!(challenge(&["Basic realm=\"x\""]), Ok(Challenge::Basic));
        let text = r#"bearer realm="https://t.example/token",service="a b",scope="repository:x:pull,push""#;
        let Ok(Challenge::Bearer(bearer)) = challenge(&["Basic realm=x", text]) else { panic!() };
        assert_eq!((bearer.service.as_str(), bearer.scope.as_str()), ("a b", "repository:x:pull,push"));
        assert!(challenge(&[]).is_err() && challenge(&["Negotiate"]).is_err());
        for odd in ["Bearer", "Bearer realm", "Bearer realm=\"", "Bearer =,=,"] {
            let _ = challenge(&[odd]);
        }
    }

    #[test]
    fn a_token_is_asked_for_as_the_registry_says() {
        let Ok(Challenge::Bearer(bearer)) =
            challenge(&[r#"Bearer realm="https://t.example/t?a=b",service="s""#])
        else {
            panic!()
        };
        let request = bearer.request(Some(&password()), "https://r.example", "a/b").unwrap();
        assert_eq!(request.uri, "https://t.example/t?a=b&scope=repository%3Aa%2Fb%3Apull&service=s");
        assert_eq!(request.authorization.unwrap(), "Basic bWU6Z2VoZWlt");
        let anonymous = bearer.request(None, "https://r.example", "a/b").unwrap();
        assert!(anonymous.authorization.is_none() && anonymous.form.is_none());
        let identity = Auth::Identity(Zeroizing::new("t/k".into()));
        let request = bearer.request(Some(&identity), "https://r.example", "a/b").unwrap();
        assert!(request.form.unwrap().ends_with("&refresh_token=t%2Fk"));
        let Ok(Challenge::Bearer(open)) = challenge(&[r#"Bearer realm="http://t.example/t""#]) else {
            panic!()
        };
        assert!(open.request(Some(&password()), "https://r.example", "a").is_err());
        assert!(open.request(Some(&password()), "http://r.example", "a").is_ok());
    }

    #[test]
    fn answers_are_read_and_secrets_are_not_printed() {
        let value = token(br#"{"token":"","access_token":"abc","expires_in":1}"#).unwrap();
        assert_eq!(value, "Bearer abc");
        assert!(!format!("{value:?}").contains("abc"));
        assert!(token(b"{}").is_err() && token(br#"{"token":"a\nb"}"#).is_err() && token(b"x").is_err());
        let text = br#"{"errors":[{"code":"X","message":""},{"code":"Y","message":"manifest\nunknown"}]}"#;
        assert_eq!(message(text).as_deref(), Some("manifestunknown"));
    }
}
