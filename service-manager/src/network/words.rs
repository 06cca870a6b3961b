//! The kernel's values as clients know them.

/// The kernel's value as clients know it: a word, or the number where it has none.
pub(super) fn word(value: impl std::fmt::Debug) -> String {
    let text = format!("{value:?}").to_ascii_lowercase();
    match text.strip_prefix("other(").and_then(|rest| rest.strip_suffix(')')) {
        Some(number) => number.to_owned(),
        None => match text.as_str() {
            "universe" => "global".to_owned(),
            "icmpredirect" => "redirect".to_owned(),
            "lowerlayerdown" => "lowerLayerDown".to_owned(),
            "notpresent" => "notPresent".to_owned(),
            _ => text,
        },
    }
}

pub(super) fn hardware_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// The name of a table, or its number.
pub(super) fn table_name(number: u32) -> Box<str> {
    match number {
        253 => "default".into(),
        254 => "main".into(),
        255 => "local".into(),
        other => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::State;
    use netlink_packet_route::route::RouteScope;

    use super::*;

    #[test]
    fn words_are_those_that_clients_know() {
        let states = [State::Up, State::LowerLayerDown, State::NotPresent, State::Other(9)].map(word);
        assert_eq!(states, ["up", "lowerLayerDown", "notPresent", "9"]);
        assert_eq!(word(RouteScope::Universe), "global");
    }
}
