//! apt's source lists, both formats, as far as finding a mirror needs them.
//!
//! Source: sources.list(5).

/// One archive that the host uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) uri: String,
    pub(super) suites: Vec<String>,
}

/// The one-line format (`*.list`).
pub(super) fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

/// The deb822 format (`*.sources`).
pub(super) fn parse_deb822(text: &str) -> Vec<Source> {
    text.split("\n\n").flat_map(parse_stanza).collect()
}

/// `deb [option=value …] URI SUITE COMPONENT…`
fn parse_line(line: &str) -> Option<Source> {
    let rest = line.trim().strip_prefix("deb")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let rest = if rest.starts_with('[') { rest.split_once(']')?.1 } else { rest };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    Some(Source { uri: uri.to_owned(), suites: vec![suite.to_owned()] })
}

fn parse_stanza(stanza: &str) -> Vec<Source> {
    let fields = fields(stanza);
    let words = |name: &str| -> Vec<String> {
        let value = fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        value.map(|(_, value)| value.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
    };
    let disabled = words("Enabled").first().is_some_and(|value| value == "no");
    if disabled || !words("Types").iter().any(|kind| kind == "deb") {
        return Vec::new();
    }
    let suites = words("Suites");
    words("URIs").into_iter().map(|uri| Source { uri, suites: suites.clone() }).collect()
}

/// Field names with their values, continuation lines joined, comments dropped.
fn fields(stanza: &str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in stanza.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(uri: &str, suites: &[&str]) -> Source {
        Source { uri: uri.to_owned(), suites: suites.iter().map(|suite| (*suite).to_owned()).collect() }
    }

    #[test]
    fn one_line_entries() {
        let text = "# deb http://no.example/ sid main\ndeb-src http://no.example/ sid main\n\
            deb http://a.example/debian bookworm main contrib\n\
            deb\t[ arch=amd64 signed-by=/k.gpg ] https://b.example/debian bookworm-updates main # why\n\n";
        let wanted = [
            source("http://a.example/debian", &["bookworm"]),
            source("https://b.example/debian", &["bookworm-updates"]),
        ];
        assert_eq!(parse_list(text), wanted);
    }

    #[test]
    fn deb822_stanzas() {
        let text = "Types: deb deb-src\n# URIs: http://no.example/\nURIs: http://a.example/debian\n  http://b.example/debian\n\
            Suites: trixie\n trixie-updates\nComponents: main\n\n\
            Types: deb-src\nURIs: http://no.example/\nSuites: sid\n\n\
            enabled: no\nTypes: deb\nURIs: http://no.example/\nSuites: sid\n";
        let suites = ["trixie", "trixie-updates"];
        assert_eq!(
            parse_deb822(text),
            [source("http://a.example/debian", &suites), source("http://b.example/debian", &suites)]
        );
    }
}
