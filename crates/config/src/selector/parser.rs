//! What binds how strongly in an expression, and which names there are.
//!
//! Fails by: [`At`] the first token that does not belong there. Neither depth nor length of an expression can exhaust the
//! stack: its parts are counted.
//! Source: the CEL specification, "Syntax".

use super::fault::At;
use super::lexer::Token;
use super::properties::UNITS;
use super::subject::Words;
use super::types::{self, BOOL, Form, Function, INT, Node, Operator, TEXT, UINT};

/// Most values, operators and brackets.
const MOST_PARTS: usize = 200;

struct Parser<'a> {
    tokens: &'a [(usize, Token)],
    next: usize,
    /// Length of the text.
    end: usize,
    parts: usize,
    words: Words,
}

/// The whole expression; it is true or false.
pub(super) fn parse(tokens: &[(usize, Token)], end: usize, words: Words) -> Result<Node, At> {
    let mut parser = Parser { tokens, next: 0, end, parts: 0, words };
    let root = parser.expression(0)?;
    if let Some((at, token)) = parser.tokens.get(parser.next) {
        let why = match token {
            Token::Sign(")" | "]") => "it closes nothing",
            _ => "the expression was at its end: `&&` or `||` is missing",
        };
        return Err(At::new(*at, why));
    }
    if root.of != BOOL {
        return Err(At::new(
            root.at,
            format!("the expression must be true or false, this is {}", root.of.name()),
        ));
    }
    Ok(root)
}

impl<'a> Parser<'a> {
    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    /// Steps over a sign, if it is the next token.
    fn has(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), At> {
        let at = self.at();
        if self.has(sign) { Ok(()) } else { Err(At::new(at, format!("`{sign}` is missing before this"))) }
    }

    fn count(&mut self) -> Result<(), At> {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return Err(At::new(self.at(), format!("the expression has more than {MOST_PARTS} parts")));
        }
        Ok(())
    }

    fn operator(&self) -> Option<(Operator, u8)> {
        match self.peek()? {
            Token::Sign(sign) => Operator::written(sign),
            Token::Name(name) if name == "in" => Operator::written(name),
            _ => None,
        }
    }

    /// Operations that bind at least so strongly.
    fn expression(&mut self, least: u8) -> Result<Node, At> {
        let mut left = self.prefixed()?;
        while let Some((operator, binds)) = self.operator().filter(|(_, binds)| *binds >= least) {
            self.count()?;
            let at = self.at();
            self.next += 1;
            let right = self.expression(binds + 1)?;
            left = types::operation(at, operator, left, right)?;
        }
        Ok(left)
    }

    fn prefixed(&mut self) -> Result<Node, At> {
        self.count()?;
        let at = self.at();
        for sign in ["!", "-"] {
            if self.has(sign) {
                let value = self.prefixed()?;
                return types::prefixed(at, sign, value);
            }
        }
        let value = self.value()?;
        self.method(value)
    }

    fn value(&mut self) -> Result<Node, At> {
        let at = self.at();
        let node = |of, form| Ok(Node { at, of, form });
        let token = self.peek().ok_or_else(|| At::new(at, "a value is missing"))?;
        self.next += 1;
        match token {
            Token::Int(number) => node(INT, Form::Int(*number)),
            Token::Uint(number) => node(UINT, Form::Uint(*number)),
            Token::Text(text) => node(TEXT, Form::Text(text.clone())),
            Token::Sign("(") => {
                let inner = self.expression(0)?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => types::list(at, self.values("]")?),
            Token::Sign(sign) => Err(At::new(at, format!("a value is missing before `{sign}`"))),
            Token::Name(name) => self.named(at, name),
        }
    }

    /// Values up to the closing bracket.
    fn values(&mut self, closing: &str) -> Result<Vec<Node>, At> {
        let mut values = Vec::new();
        if self.has(closing) {
            return Ok(values);
        }
        loop {
            values.push(self.expression(0)?);
            if self.has(closing) {
                return Ok(values);
            }
            self.expect(",")?;
        }
    }

    fn named(&mut self, at: usize, name: &str) -> Result<Node, At> {
        let node = |of, form| Ok(Node { at, of, form });
        if let Some((_, size)) = UNITS.iter().find(|(unit, _)| *unit == name) {
            return node(UINT, Form::Uint(*size));
        }
        match name {
            "true" => node(BOOL, Form::Bool(true)),
            "false" => node(BOOL, Form::Bool(false)),
            "system_disk" if self.words.has_system_disk => node(BOOL, Form::SystemDisk),
            _ if name == self.words.subject => self.property(at),
            "mac" if self.has("(") => {
                let [address] = self.arguments::<1>(at, "mac(link.permanent_addr)")?;
                types::mac(at, address)
            }
            "glob" if self.has("(") => {
                let [pattern, text] = self.arguments::<2>(at, "glob(pattern, text)")?;
                types::call(at, Function::Glob, pattern, text)
            }
            _ if matches!(self.peek(), Some(Token::Sign("("))) => Err(At::new(
                at,
                format!("the function `{name}` is not known here; there is glob(pattern, text)"),
            )),
            _ if (self.words.named)(name).is_some() => {
                Err(At::new(at, format!("write `{}.{name}`", self.words.subject)))
            }
            _ => {
                let further = if self.words.has_system_disk { "system_disk, " } else { "" };
                let subject = self.words.subject;
                Err(At::new(
                    at,
                    format!("`{name}` is not known here: {subject}.…, {further}true, false, MiB, GB, …"),
                ))
            }
        }
    }

    fn arguments<const N: usize>(&mut self, at: usize, shape: &str) -> Result<[Node; N], At> {
        let values = self.values(")")?;
        values.try_into().map_err(|_| At::new(at, format!("it is written {shape}")))
    }

    /// What stands behind `disk` or `link`.
    fn property(&mut self, at: usize) -> Result<Node, At> {
        let words = self.words;
        if !self.has(".") {
            let (subject, example) = (words.subject, words.example);
            return Err(At::new(at, format!("a property of the {subject} is missing: {example}")));
        }
        let place = self.at();
        let known = || (words.names)().join(", ");
        let Some(Token::Name(name)) = self.peek() else {
            return Err(At::new(place, format!("a property is missing: {}", known())));
        };
        self.next += 1;
        if name == "system_disk" && words.has_system_disk {
            return Err(At::new(at, "write `system_disk`, without `disk.`"));
        }
        let unknown = || At::new(place, format!("a {} has no `{name}`; it has {}", words.subject, known()));
        let (index, of) = (words.named)(name).ok_or_else(unknown)?;
        Ok(Node { at, of, form: Form::Property(index) })
    }

    /// Calls behind a value: `.startsWith("a")`.
    fn method(&mut self, mut value: Node) -> Result<Node, At> {
        while self.has(".") {
            self.count()?;
            let at = self.at();
            let Some(Token::Name(name)) = self.peek() else {
                return Err(At::new(at, "a name is missing"));
            };
            self.next += 1;
            let function = match name.as_str() {
                "startsWith" => Function::StartsWith,
                "endsWith" => Function::EndsWith,
                "contains" => Function::Contains,
                "matches" => {
                    return Err(At::new(at, "regular expressions are not known here: glob(pattern, text)"));
                }
                "exists" | "all" | "exists_one" | "filter" | "map" => {
                    return Err(At::new(at, format!("`{name}` is not known here: write `\"text\" in list`")));
                }
                _ => {
                    let why =
                        format!("`{name}` is not known here; there are startsWith, endsWith and contains");
                    return Err(At::new(at, why));
                }
            };
            self.expect("(")?;
            let [argument] = self.arguments::<1>(at, &format!("text.{name}(text)"))?;
            value = types::call(at, function, value, argument)?;
        }
        Ok(value)
    }
}
