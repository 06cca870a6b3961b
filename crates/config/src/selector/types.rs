//! What fits together in an expression: each node has its type from the moment it is read.
//!
//! Owns: the nodes and the rules of operators and functions. Numbers with `u` and without are two types, as in CEL.
//! Fails by: [`At`] the operator, with both types and what to write.
//! Source: the CEL specification, "Standard Definitions"; only what properties of disks and links need of it.

use super::fault::At;

/// A type of values that are not lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Bool,
    Int,
    Uint,
    Text,
    /// The address of a link: `mac(…)` makes a text of it.
    Hardware,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    One(Scalar),
    List(Scalar),
    /// `[]`: nothing is in it, of any type.
    Empty,
}

pub(super) const BOOL: Type = Type::One(Scalar::Bool);
pub(super) const INT: Type = Type::One(Scalar::Int);
pub(super) const UINT: Type = Type::One(Scalar::Uint);
pub(super) const TEXT: Type = Type::One(Scalar::Text);
pub(super) const HARDWARE: Type = Type::One(Scalar::Hardware);
pub(super) const TEXTS: Type = Type::List(Scalar::Text);

/// A part of an expression that has a value.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The byte that it begins at; of an operation, the operator.
    pub(super) at: usize,
    pub(super) of: Type,
    pub(super) form: Form,
}

/// What a node is made of.
#[derive(Debug, Clone)]
pub(super) enum Form {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(String),
    List(Vec<Node>),
    SystemDisk,
    /// The property with this index among the subject's words.
    Property(usize),
    /// `mac(address)`
    Mac(Box<Node>),
    Not(Box<Node>),
    Negative(Box<Node>),
    Operation(Operator, Box<Node>, Box<Node>),
    Call(Function, Box<Node>, Box<Node>),
}

/// An operator between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// Each with how it is written and how strongly it binds.
const OPERATORS: [(Operator, &str, u8); 14] = [
    (Operator::Or, "||", 1),
    (Operator::And, "&&", 2),
    (Operator::Equal, "==", 3),
    (Operator::NotEqual, "!=", 3),
    (Operator::Less, "<", 3),
    (Operator::LessOrEqual, "<=", 3),
    (Operator::Greater, ">", 3),
    (Operator::GreaterOrEqual, ">=", 3),
    (Operator::In, "in", 3),
    (Operator::Add, "+", 4),
    (Operator::Subtract, "-", 4),
    (Operator::Multiply, "*", 5),
    (Operator::Divide, "/", 5),
    (Operator::Remainder, "%", 5),
];

/// A function of two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    /// `text.startsWith(start)`
    StartsWith,
    /// `text.endsWith(end)`
    EndsWith,
    /// `text.contains(part)`
    Contains,
    /// `glob(pattern, text)`
    Glob,
}

impl Operator {
    /// The operator that is written so, and how strongly it binds.
    pub(super) fn written(sign: &str) -> Option<(Self, u8)> {
        OPERATORS
            .iter()
            .find(|(_, written, _)| *written == sign)
            .map(|(operator, _, binds)| (*operator, *binds))
    }

    fn sign(self) -> &'static str {
        OPERATORS.iter().find(|(operator, ..)| *operator == self).map_or("", |(_, sign, _)| sign)
    }

    /// What it makes of two types; `None` if they do not fit.
    fn result(self, left: Type, right: Type) -> Option<Type> {
        let is_same = left == right;
        match self {
            Self::Or | Self::And => (is_same && left == BOOL).then_some(BOOL),
            Self::Equal
            | Self::NotEqual
            | Self::Less
            | Self::LessOrEqual
            | Self::Greater
            | Self::GreaterOrEqual => (is_same && matches!(left, Type::One(_))).then_some(BOOL),
            Self::In => match (left, right) {
                (Type::One(one), Type::List(of)) if one == of => Some(BOOL),
                (Type::One(_), Type::Empty) => Some(BOOL),
                (Type::One(_) | Type::List(_) | Type::Empty, _) => None,
            },
            Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Remainder => {
                (is_same && (left == INT || left == UINT)).then_some(left)
            }
        }
    }
}

impl Type {
    /// In a sentence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::One(Scalar::Bool) => "true or false",
            Self::One(Scalar::Int) => "a number without `u`",
            Self::One(Scalar::Uint) => "a number with `u`",
            Self::One(Scalar::Text) => "a text",
            Self::One(Scalar::Hardware) => "a hardware address",
            Self::List(Scalar::Bool) => "a list of true and false",
            Self::List(Scalar::Int) => "a list of numbers without `u`",
            Self::List(Scalar::Uint) => "a list of numbers with `u`",
            Self::List(Scalar::Text) => "a list of texts",
            Self::List(Scalar::Hardware) => "a list of hardware addresses",
            Self::Empty => "an empty list",
        }
    }
}

/// An operation, if its sides fit.
pub(super) fn operation(at: usize, operator: Operator, left: Node, right: Node) -> Result<Node, At> {
    let Some(of) = operator.result(left.of, right.of) else {
        let (sign, left, right) = (operator.sign(), left.of, right.of);
        let hint = match (left, right) {
            (UINT, INT) | (INT, UINT) => ": sizes are numbers with `u`, as in 10u * GiB",
            (HARDWARE, _) | (_, HARDWARE) => ": write mac(link.permanent_addr) == \"02:00:00:00:00:01\"",
            _ => "",
        };
        return Err(At::new(at, format!("`{sign}` does not fit {} and {}{hint}", left.name(), right.name())));
    };
    Ok(Node { at, of, form: Form::Operation(operator, Box::new(left), Box::new(right)) })
}

/// `!` or `-` before a value.
pub(super) fn prefixed(at: usize, sign: &str, value: Node) -> Result<Node, At> {
    let (wanted, form): (Type, fn(Box<Node>) -> Form) = match sign {
        "!" => (BOOL, Form::Not),
        _ => (INT, Form::Negative),
    };
    if value.of != wanted {
        let (wanted, found) = (wanted.name(), value.of.name());
        return Err(At::new(at, format!("`{sign}` needs {wanted} behind it, this is {found}")));
    }
    Ok(Node { at, of: wanted, form: form(Box::new(value)) })
}

/// The text of a hardware address.
pub(super) fn mac(at: usize, address: Node) -> Result<Node, At> {
    if address.of != HARDWARE {
        let found = address.of.name();
        return Err(At::new(address.at, format!("a hardware address is needed here, this is {found}")));
    }
    Ok(Node { at, of: TEXT, form: Form::Mac(Box::new(address)) })
}

/// A call of a function of two texts.
pub(super) fn call(at: usize, function: Function, first: Node, second: Node) -> Result<Node, At> {
    for argument in [&first, &second] {
        if argument.of != TEXT {
            return Err(At::new(
                argument.at,
                format!("a text is needed here, this is {}", argument.of.name()),
            ));
        }
    }
    Ok(Node { at, of: BOOL, form: Form::Call(function, Box::new(first), Box::new(second)) })
}

/// A list of values of one type.
pub(super) fn list(at: usize, values: Vec<Node>) -> Result<Node, At> {
    let of = match values.first().map(|first| first.of) {
        None => Type::Empty,
        Some(Type::One(scalar)) => Type::List(scalar),
        Some(Type::List(_) | Type::Empty) => {
            return Err(At::new(at, "a list in a list fits no property of a disk"));
        }
    };
    let first = values.first().map(|first| first.of);
    if let Some(other) = values.iter().find(|value| Some(value.of) != first) {
        let why = format!("the list begins with another type, this is {}", other.of.name());
        return Err(At::new(other.at, why));
    }
    Ok(Node { at, of, form: Form::List(values) })
}
