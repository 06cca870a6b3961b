//! Lines of dots that a guide puts where it leaves lines out.
//!
//! Owns: finding them outside block scalars and blanking them, so that a snippet can be pasted as it is printed.
//! Does not: decide when; the reader tries the untouched text first.

/// Blanks each line that holds nothing but three or more dots. The result has the same lines at the same places.
pub(super) fn blank(text: &str) -> (String, Vec<usize>) {
    let mut out = String::with_capacity(text.len());
    let (mut found, mut block) = (Vec::new(), None);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let depth = line.len() - line.trim_start_matches(' ').len();
        let content = line.trim();
        if block.is_some_and(|parent| depth > parent || content.is_empty()) {
            out.push_str(line);
            continue;
        }
        block = opens_block(content).then_some(depth);
        if content.len() >= 3 && content.bytes().all(|b| b == b'.') {
            found.push(index + 1);
            out.push_str(&line.replace('.', " "));
        } else {
            out.push_str(line);
        }
    }
    (out, found)
}

/// Whether the lines below, as far as they are indented more, are the text of a block scalar.
fn opens_block(content: &str) -> bool {
    let Some((_, last)) = content.rsplit_once(' ') else { return false };
    let mut chars = last.chars();
    matches!(chars.next(), Some('|' | '>')) && chars.all(|c| matches!(c, '+' | '-' | '0'..='9'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_in_a_block_scalar_stay() {
        let text = "a:\n  ...\n  c: |\n    x\n    ...\n  .....\n";
        let (blanked, lines) = blank(text);
        assert_eq!(lines, [2, 6]);
        assert_eq!(blanked.len(), text.len());
        assert!(blanked.contains("    ...\n"));
    }
}
