//! Texts as udev writes them into names.

/// A label as udev writes it into a name: other signs than these as `\x20`.
pub(super) fn encode(label: &str) -> String {
    let mut out = String::new();
    for sign in label.chars() {
        if is_plain(sign) || !sign.is_ascii() {
            out.push(sign);
        } else {
            out.push_str(&format!("\\x{:02x}", u32::from(sign)));
        }
    }
    out
}

fn is_plain(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || "#+-.:=@_".contains(sign)
}

/// A text of the hardware as udev writes it into a name: blanks at its ends are cut, others are one `_`, as are signs that a
/// name cannot have.
pub(super) fn word(text: &str) -> String {
    let joined = text.split_ascii_whitespace().collect::<Vec<_>>().join("_");
    joined.chars().map(|sign| if is_plain(sign) { sign } else { '_' }).collect()
}
