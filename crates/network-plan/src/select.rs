//! Whether a link has the properties that a selector names.
//!
//! Source: docs/users/network.md; patterns have `*` for any characters and `?` for one, without regard to case.

use config::selector::{Fault, LinkExpression, LinkProperties};
use config::v1alpha1::DeviceSelector;

use crate::Present;

/// Whether every property that is named fits. A selector that names nothing fits nothing, and none fits a link that was made:
/// a VLAN has its parent's address, a bond that of a member.
pub(crate) fn fits(selector: &DeviceSelector, link: &Present) -> bool {
    let patterns = [
        (&selector.bus_path, link.bus_path.clone()),
        (&selector.hardware_addr, text(&link.hardware)),
        (&selector.permanent_addr, text(&link.permanent)),
        (&selector.pci_id, link.pci_id.clone()),
        (&selector.driver, link.driver.clone()),
    ];
    let mut named = patterns.iter().filter(|(pattern, _)| !pattern.is_empty()).peekable();
    let names_nothing = named.peek().is_none() && selector.physical.is_none();
    if names_nothing || !link.kind.is_empty() {
        return false;
    }
    selector.physical.is_none_or(|wanted| wanted == link.is_physical)
        && named.all(|(pattern, value)| is_like(&pattern.to_ascii_lowercase(), &value.to_ascii_lowercase()))
}

/// The cards of which an expression is true.
pub(crate) fn named<'a>(expression: &str, present: &'a [Present]) -> Result<Vec<&'a Present>, Fault> {
    let expression = LinkExpression::read(expression)?;
    let mut found = Vec::new();
    for link in present.iter().filter(|link| link.is_physical) {
        if expression.matches(&properties(link))? {
            found.push(link);
        }
    }
    Ok(found)
}

fn properties(link: &Present) -> LinkProperties {
    LinkProperties {
        hardware_addr: text(&link.hardware),
        permanent_addr: text(&link.permanent),
        driver: link.driver.clone(),
        bus_path: link.bus_path.clone(),
        pci_id: link.pci_id.to_ascii_uppercase(),
        kind: link.kind.clone(),
        alt_names: link.alt_names.clone(),
    }
}

/// `02:00:00:00:00:01`.
fn text(hardware: &[u8]) -> String {
    hardware.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Whether a text is like a pattern, in time that grows with the product of their lengths.
fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut read) = (0, 0);
    // Where the last `*` is, and what it has swallowed so far.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[read] => {
                at += 1;
                read += 1;
            }
            _ => match star {
                Some((place, swallowed)) => {
                    star = Some((place, swallowed + 1));
                    at = place + 1;
                    read = swallowed + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Present {
        Present {
            name: "enp0s3".into(),
            alt_names: Vec::new(),
            kind: String::new(),
            hardware: vec![2, 0, 0, 0, 0xF0, 0xAB],
            permanent: vec![2, 0, 0, 0, 0, 1],
            driver: "virtio_net".into(),
            bus_path: "0000:00:03.0".into(),
            pci_id: "1AF4:1000".into(),
            is_physical: true,
        }
    }

    #[test]
    fn every_property_that_is_named_has_to_fit() {
        let of = |change: &dyn Fn(&mut DeviceSelector)| {
            let mut selector = DeviceSelector::default();
            change(&mut selector);
            fits(&selector, &link())
        };
        assert!(!of(&|_| {}), "nothing is no selector");
        assert!(of(&|s| s.hardware_addr = "*:F0:ab".into()));
        assert!(!of(&|s| s.hardware_addr = "*:f0".into()));
        assert!(of(&|s| s.permanent_addr = "02:00:00:00:00:01".into()));
        assert!(!of(&|s| s.permanent_addr = "02:00:00:00:f0:ab".into()));
        assert!(of(&|s| s.bus_path = "0000:00:*".into()));
        assert!(of(&|s| s.pci_id = "1af4:*".into()));
        assert!(of(&|s| s.driver = "virtio_net".into()));
        assert!(!of(&|s| s.driver = "virtio".into()));
        assert!(of(&|s| s.physical = Some(true)) && !of(&|s| s.physical = Some(false)));
        let both =
            |driver: &str| of(&|s| (s.driver, s.hardware_addr) = (driver.to_owned(), "02:*".to_owned()));
        assert!(both("virtio*") && !both("e1000e"));
        let vlan = Present { name: "enp0s3.5".into(), kind: "vlan".into(), ..link() };
        let selector = DeviceSelector { hardware_addr: "02:*".into(), ..DeviceSelector::default() };
        assert!(fits(&selector, &link()) && !fits(&selector, &vlan));
    }

    #[test]
    fn patterns() {
        for (pattern, text) in [("*", ""), ("a*c", "abbc"), ("a?c", "abc"), ("*b*", "abc"), ("**", "x")] {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a*d", "abc"), ("a?c", "ac"), ("?", "")] {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
        let hostile = format!("{}b", "a*".repeat(200));
        assert!(!is_like(&hostile, &"a".repeat(2000)));
    }
}
