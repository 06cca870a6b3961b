//! The address that a config is fetched from, with what this machine is put into it.
//!
//! Owns: `${uuid} ${serial} ${mac} ${hostname} ${code}` in path and query, and the older form of a query key `uuid`.
//! Fails by: naming what is not known yet; the caller tries again, so it is waited for.
//! Source: docs/users/per-device.md.

/// What is put into an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// SMBIOS UUID, lower case.
    pub(super) uuid: Option<String>,
    /// SMBIOS serial number.
    pub(super) serial: Option<String>,
    /// Hardware address of the first wired link.
    pub(super) mac: Option<String>,
    /// Host name.
    pub(super) hostname: Option<String>,
    /// What META keeps for this purpose.
    pub(super) code: Option<String>,
}

impl Machine {
    fn value(&self, name: &str) -> Result<&str, String> {
        let (value, what) = match name {
            "uuid" => (&self.uuid, "the SMBIOS UUID of this machine"),
            "serial" => (&self.serial, "the SMBIOS serial number of this machine"),
            "mac" => (&self.mac, "the hardware address of a wired link"),
            "hostname" => (&self.hostname, "the host name"),
            "code" => {
                (&self.code, "the code of this machine (META key 0x0b: `billetctl meta write 0x0b CODE`)")
            }
            _ => {
                return Err(format!(
                    "${{{name}}} is no variable; there are ${{uuid}} ${{serial}} ${{mac}} ${{hostname}} ${{code}}"
                ));
            }
        };
        value.as_deref().ok_or_else(|| format!("{what} is not known"))
    }
}

/// Fills an address in.
pub(super) fn fill(address: &str, machine: &Machine) -> Result<String, String> {
    let (scheme, rest) = address
        .split_once("://")
        .ok_or_else(|| format!("{address:?} is no address: write http://host/path"))?;
    let path = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, rest) = rest.split_at(path);
    let filled = with_bare_uuid(&variables(rest, machine)?, machine)?;
    Ok(format!("{scheme}://{host}{filled}"))
}

fn variables(text: &str, machine: &Machine) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("`${` without `}` in the address")?;
        out.push_str(before);
        out.push_str(&escaped(machine.value(name)?));
        rest = after;
    }
    Ok(out + rest)
}

/// The first generation's form: the query key `uuid`, whatever its value unless it was filled in just now.
fn with_bare_uuid(text: &str, machine: &Machine) -> Result<String, String> {
    let Some((path, query)) = text.split_once('?') else { return Ok(text.to_owned()) };
    let mut pairs = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key == "uuid" && value.is_empty() {
            pairs.push(format!("uuid={}", escaped(machine.value("uuid")?)));
        } else {
            pairs.push(pair.to_owned());
        }
    }
    Ok(format!("{path}?{}", pairs.join("&")))
}

/// Percent-encodes what has a meaning of its own in an address.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            uuid: Some("1b4e".into()),
            serial: Some("S/N 7".into()),
            mac: Some("52:54:00:12:34:56".into()),
            hostname: None,
            code: Some("a/1".into()),
        }
    }

    fn filled(address: &str) -> Result<String, String> {
        fill(address, &machine())
    }

    #[test]
    fn variables_are_filled_in_path_and_query() {
        assert_eq!(
            filled("http://h/${uuid}/c.yaml?m=${mac}"),
            Ok("http://h/1b4e/c.yaml?m=52:54:00:12:34:56".into())
        );
        assert_eq!(filled("http://h?s=${serial}"), Ok("http://h?s=S%2FN%207".into()));
        assert_eq!(filled("http://h/c?code=${code}"), Ok("http://h/c?code=a%2F1".into()));
        assert_eq!(filled("https://h:8443"), Ok("https://h:8443".into()));
    }

    #[test]
    fn the_older_form_of_uuid() {
        assert_eq!(filled("http://h/c?uuid=&x=1"), Ok("http://h/c?uuid=1b4e&x=1".into()));
        assert_eq!(filled("http://h/c?uuid"), Ok("http://h/c?uuid=1b4e".into()));
        assert_eq!(filled("http://h/c?a=uuid"), Ok("http://h/c?a=uuid".into()));
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(filled("http://h/${hostname}"), Err("the host name is not known".into()));
        let blank = fill("http://h/${code}", &Machine::default()).unwrap_err();
        assert!(blank.contains("META key 0x0b") && blank.ends_with("is not known"), "{blank}");
        assert!(filled("http://h/${model}").unwrap_err().contains("${model} is no variable"));
        assert!(filled("http://h/${uuid").is_err() && filled("h/x").is_err());
    }
}
