//! Texts, numbers, names and signs of an expression, each with its place.
//!
//! Does not: know which names there are. Texts in three quotes, bytes and numbers with a fraction are refused.
//! Source: the CEL specification, "Syntax".

use super::fault::At;

/// The smallest part of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name, also `in`, `true` and `false`.
    Name(String),
    /// `10`
    Int(i64),
    /// `10u`
    Uint(u64),
    /// `"text"`
    Text(String),
    /// An operator, a bracket, a comma or a dot.
    Sign(&'static str),
}

/// The longer ones first.
const SIGNS: [&str; 20] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", "[", "]", ",", ".", "*", "/", "%", "+", "-",
];

/// All of them, each with the byte that it begins at.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, At> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.chars().next().unwrap_or(' ');
        let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']).len();
        if blanks > 0 {
            at += blanks;
            continue;
        }
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let (token, length) = match first {
            '"' | '\'' => quoted(rest, first, at)?,
            '0'..='9' => number(rest, at)?,
            'a'..='z' | 'A'..='Z' | '_' => name(rest, at)?,
            _ => sign(rest, first, at)?,
        };
        found.push((at, token));
        at += length;
    }
    Ok(found)
}

fn sign(rest: &str, first: char, at: usize) -> Result<(Token, usize), At> {
    let known = SIGNS.iter().find(|sign| rest.starts_with(**sign));
    let sign = known.ok_or_else(|| match first {
        '=' => At::new(at, "a single `=` compares nothing: write `==`"),
        '?' => At::new(at, "`?:` is not known here: write it with && and ||"),
        '&' | '|' => At::new(at, format!("write `{first}{first}`")),
        _ => At::new(at, format!("{first:?} is no part of an expression")),
    })?;
    Ok((Token::Sign(sign), sign.len()))
}

fn name(rest: &str, at: usize) -> Result<(Token, usize), At> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let length = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
    let (name, behind) = rest.split_at(length);
    if behind.starts_with(['"', '\'']) {
        let why = format!("a text with `{name}` before it is not known here: write it in plain quotes");
        return Err(At::new(at, why));
    }
    Ok((Token::Name(name.to_owned()), length))
}

fn number(rest: &str, at: usize) -> Result<(Token, usize), At> {
    let hex = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
    let (base, start) = if hex.is_some() { (16, 2) } else { (10, 0) };
    let digits = rest.get(start..).unwrap_or_default();
    let count = digits.find(|letter: char| !letter.is_digit(base)).unwrap_or(digits.len());
    let (digits, behind) = digits.split_at(count);
    if behind.strip_prefix('.').is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit())) {
        return Err(At::new(at, "a number with a fraction fits no property of a disk: write a whole one"));
    }
    let unsigned = behind.starts_with(['u', 'U']);
    let length = start + count + usize::from(unsigned);
    if rest
        .get(length..)
        .is_some_and(|rest| rest.starts_with(|l: char| l.is_ascii_alphanumeric() || l == '_'))
    {
        return Err(At::new(at, "letters follow the number: write `10u * GiB`, or `10u`"));
    }
    let too_large = || At::new(at, "the number is too large");
    let value = u64::from_str_radix(digits, base);
    let value =
        value.map_err(|_| if digits.is_empty() { At::new(at, "digits are missing") } else { too_large() })?;
    let token = match unsigned {
        true => Token::Uint(value),
        false => Token::Int(i64::try_from(value).map_err(|_| too_large())?),
    };
    Ok((token, length))
}

fn quoted(rest: &str, quote: char, at: usize) -> Result<(Token, usize), At> {
    if rest.starts_with(&quote.to_string().repeat(3)) {
        return Err(At::new(at, "a text in three quotes is not known here: write it in one"));
    }
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((offset, letter)) = letters.next() {
        match letter {
            _ if letter == quote => return Ok((Token::Text(text), offset + 1)),
            '\n' | '\r' => break,
            '\\' => text.push(escaped(&mut letters, at + offset)?),
            _ => text.push(letter),
        }
    }
    Err(At::new(at, format!("the text has no end: {quote} is missing")))
}

/// The character behind a backslash.
fn escaped(letters: &mut impl Iterator<Item = (usize, char)>, at: usize) -> Result<char, At> {
    let known = match letters.next().map(|(_, kind)| kind) {
        Some(same @ ('\\' | '\'' | '"' | '`' | '?')) => Some(same),
        Some('n') => Some('\n'),
        Some('r') => Some('\r'),
        Some('t') => Some('\t'),
        Some('u') => coded(letters),
        _ => None,
    };
    known.ok_or_else(|| {
        At::new(at, "behind `\\` one of \\ ' \" n r t is needed, or u with four hexadecimal digits")
    })
}

/// A character as four hexadecimal digits.
fn coded(letters: &mut impl Iterator<Item = (usize, char)>) -> Option<char> {
    let code = letters
        .take(4)
        .try_fold((0, 0), |(code, count), (_, letter)| Some((code * 16 + letter.to_digit(16)?, count + 1)));
    code.filter(|(_, count)| *count == 4).and_then(|(code, _)| char::from_u32(code))
}
