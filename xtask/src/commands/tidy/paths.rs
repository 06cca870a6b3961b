//! Which paths a Rust file names: `crate::a::b`, `super::c`, `child::d`, with the trees of `use` taken apart.
//!
//! Does not: expand macros; paths inside their calls are read like any others. Comments, strings and the inline module
//! of tests are left out.

/// A path as it is written, without generic arguments: `["crate", "a", "B"]`.
pub(super) type Path = Vec<String>;

/// What a file names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Paths {
    /// Every path of two or more parts.
    pub(super) named: Vec<Path>,
    /// Those that a public `use` gives on, each with the name under which it does.
    pub(super) given_on: Vec<(String, Path)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Separator,
    Open,
    Close,
    Comma,
    Other,
}

pub(super) fn read(text: &str) -> Paths {
    let program = text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end]);
    let tokens = tokens(program);
    let mut paths = Paths::default();
    let mut at = 0;
    let mut public = false;
    while let Some(token) = tokens.get(at) {
        match token {
            Token::Word(word) if word == "use" => {
                let mut leaves = Vec::new();
                at = tree(&tokens, at + 1, &Path::new(), &mut leaves);
                for (name, path) in leaves {
                    if public {
                        paths.given_on.push((name, path.clone()));
                    }
                    paths.named.push(path);
                }
                public = false;
                continue;
            }
            Token::Word(word) if word == "pub" => public = true,
            // `pub(crate) use`
            Token::Word(word) if public && (word == "crate" || word == "super" || word == "in") => {}
            Token::Other if public => {}
            Token::Word(_) => {
                public = false;
                let after_separator = at > 0 && tokens[at - 1] == Token::Separator;
                let mut path = Path::new();
                let end = plain(&tokens, at, &mut path);
                if path.len() > 1 && !after_separator {
                    paths.named.push(path);
                }
                at = end;
                continue;
            }
            _ => public = false,
        }
        at += 1;
    }
    paths
}

/// The words of a path in an expression or a type; where it ends.
fn plain(tokens: &[Token], mut at: usize, path: &mut Path) -> usize {
    while let Some(Token::Word(word)) = tokens.get(at) {
        path.push(word.clone());
        at += 1;
        if tokens.get(at) != Some(&Token::Separator) {
            break;
        }
        at += 1;
    }
    at
}

/// The leaves of a tree of `use`, each with the name that it brings; where the tree ends.
fn tree(tokens: &[Token], mut at: usize, prefix: &Path, leaves: &mut Vec<(String, Path)>) -> usize {
    let mut path = prefix.clone();
    at = plain(tokens, at, &mut path);
    if tokens.get(at) == Some(&Token::Open) {
        at += 1;
        while at < tokens.len() && tokens[at] != Token::Close {
            at = match tokens[at] {
                Token::Comma | Token::Other => at + 1,
                _ => tree(tokens, at, &path, leaves),
            };
        }
        return at + 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if let (Some(Token::Word(word)), Some(Token::Word(alias))) = (tokens.get(at), tokens.get(at + 1))
        && word == "as"
    {
        name.clone_from(alias);
        at += 2;
    }
    if path.len() > 1 {
        leaves.push((name, path));
    }
    at.max(1)
}

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = literal(rest) {
            found.push(Token::Other);
            length
        } else if first == '_' || first.is_alphabetic() {
            let is_part = |c: char| c == '_' || c.is_alphanumeric();
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            found.push(Token::Word(rest[..length].to_owned()));
            length
        } else if rest.starts_with("::") {
            found.push(Token::Separator);
            2
        } else {
            match first {
                '{' => found.push(Token::Open),
                '}' => found.push(Token::Close),
                ',' => found.push(Token::Comma),
                space if space.is_whitespace() => {}
                _ => found.push(Token::Other),
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    found
}

/// The length of the string, raw string or character that a text begins with.
fn literal(text: &str) -> Option<usize> {
    let raw =
        text.trim_start_matches(['b', 'c']).strip_prefix('r').filter(|rest| rest.starts_with(['"', '#']));
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let body = raw[hashes..].strip_prefix('"')?;
        let length = body.find(&end).map_or(body.len(), |at| at + end.len());
        return Some(text.len() - body.len() + length);
    }
    let body =
        text.strip_prefix("b\"").or_else(|| text.strip_prefix("c\"")).or_else(|| text.strip_prefix('"'));
    if let Some(body) = body {
        let mut escaped = false;
        for (at, c) in body.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return Some(text.len() - body.len() + at + 1),
                _ => {}
            }
        }
        return Some(text.len());
    }
    // A quote that no quote follows is a lifetime.
    let body = text.strip_prefix('\'')?;
    let mut chars = body.char_indices();
    let end = match chars.next()? {
        (_, '\\') => body[2..].find('\'')? + 2,
        _ => chars.next().filter(|(_, c)| *c == '\'')?.0,
    };
    Some(end + 2)
}
