//! Errors as one line for people.

/// An error with everything that caused it: `read META: /dev/vda3: Input/output error`.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text.push_str(&format!(": {error}"));
        below = error.source();
    }
    text
}
