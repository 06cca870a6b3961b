//! The answer of an expression for one disk or link.
//!
//! Owns: what operators make of values. As in CEL, `&&` and `||` need only one side: an error of the other is
//! no matter if this one decides.
//! Fails by: [`At`] for a number that leaves its range, a division by zero, and what is not known of the subject.
//! Source: the CEL specification, "Logical Operators", "Arithmetic"; patterns of the second generation: `*` stands for
//! anything, every other character for itself.

use std::cmp::Ordering;

use super::fault::At;
use super::subject::{Known, Value};
use super::types::{Form, Function, Node, Operator};

/// Whether an expression is true of a subject.
pub(super) fn truth(node: &Node, subject: &dyn Known) -> Result<bool, At> {
    match value(node, subject)? {
        Value::Bool(truth) => Ok(truth),
        _ => Err(misfit(node)),
    }
}

/// Types are checked when an expression is read, so that nobody sees this.
fn misfit(node: &Node) -> At {
    At::new(node.at, "the types do not fit")
}

fn value<'a>(node: &'a Node, subject: &'a dyn Known) -> Result<Value<'a>, At> {
    Ok(match &node.form {
        Form::Bool(truth) => Value::Bool(*truth),
        Form::Int(number) => Value::Int(*number),
        Form::Uint(number) => Value::Uint(*number),
        Form::Text(text) => Value::Text(text),
        Form::List(nodes) => {
            Value::List(nodes.iter().map(|node| value(node, subject)).collect::<Result<_, _>>()?)
        }
        Form::SystemDisk => {
            let unknown =
                || At::new(node.at, "which disk is the system's is not known before an installation");
            Value::Bool(subject.is_system_disk().ok_or_else(unknown)?)
        }
        Form::Property(index) => subject.property(*index).ok_or_else(|| misfit(node))?,
        Form::Mac(address) => match value(address, subject)? {
            Value::Hardware(text) => Value::Text(text),
            _ => return Err(misfit(node)),
        },
        Form::Not(inner) => Value::Bool(!truth(inner, subject)?),
        Form::Negative(inner) => match value(inner, subject)? {
            Value::Int(number) => Value::Int(number.checked_neg().ok_or_else(|| out_of_range(node.at))?),
            _ => return Err(misfit(node)),
        },
        Form::Operation(operator @ (Operator::And | Operator::Or), left, right) => {
            Value::Bool(joined(*operator == Operator::Or, truth(left, subject), || truth(right, subject))?)
        }
        Form::Operation(operator, left, right) => {
            operation(node, *operator, value(left, subject)?, value(right, subject)?)?
        }
        Form::Call(function, first, second) => match (value(first, subject)?, value(second, subject)?) {
            (Value::Text(first), Value::Text(second)) => Value::Bool(call(*function, first, second)),
            _ => return Err(misfit(node)),
        },
    })
}

/// `&&` or `||`: a side that is `decides` decides, whatever is wrong with the other.
fn joined(
    decides: bool,
    left: Result<bool, At>,
    right: impl FnOnce() -> Result<bool, At>,
) -> Result<bool, At> {
    if matches!(left, Ok(truth) if truth == decides) {
        return Ok(decides);
    }
    match right() {
        Ok(truth) if truth == decides => Ok(decides),
        right => left.and(right),
    }
}

fn operation<'a>(
    node: &Node,
    operator: Operator,
    left: Value<'a>,
    right: Value<'a>,
) -> Result<Value<'a>, At> {
    let fits = |wanted: &dyn Fn(Ordering) -> bool| match compare(&left, &right) {
        Some(order) => Ok(Value::Bool(wanted(order))),
        None => Err(misfit(node)),
    };
    match operator {
        Operator::Equal => Ok(Value::Bool(left == right)),
        Operator::NotEqual => Ok(Value::Bool(left != right)),
        Operator::Less => fits(&Ordering::is_lt),
        Operator::LessOrEqual => fits(&Ordering::is_le),
        Operator::Greater => fits(&Ordering::is_gt),
        Operator::GreaterOrEqual => fits(&Ordering::is_ge),
        Operator::In => match right {
            Value::List(list) => Ok(Value::Bool(list.contains(&left))),
            _ => Err(misfit(node)),
        },
        Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => {
            match (left, right) {
                (Value::Int(left), Value::Int(right)) => signed(operator, left, right).map(Value::Int),
                (Value::Uint(left), Value::Uint(right)) => unsigned(operator, left, right).map(Value::Uint),
                _ => None,
            }
            .ok_or_else(|| out_of_range(node.at))
        }
        // They are joined before both sides have a value.
        Operator::And | Operator::Or => Err(misfit(node)),
    }
}

fn out_of_range(at: usize) -> At {
    At::new(at, "the result is too large, too small, or a division by zero")
}

fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(right)),
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn signed(operator: Operator, left: i64, right: i64) -> Option<i64> {
    match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_div(right),
        _ => left.checked_rem(right),
    }
}

fn unsigned(operator: Operator, left: u64, right: u64) -> Option<u64> {
    match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_div(right),
        _ => left.checked_rem(right),
    }
}

fn call(function: Function, first: &str, second: &str) -> bool {
    match function {
        Function::StartsWith => first.starts_with(second),
        Function::EndsWith => first.ends_with(second),
        Function::Contains => first.contains(second),
        Function::Glob => glob(first, second),
    }
}

/// Whether a pattern covers the whole text: what is between its stars comes in this order, each part at its first place.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = text.strip_prefix(start) else { return false };
    for part in middle.split('*') {
        match left.split_once(part) {
            Some((_, behind)) => left = behind,
            // An empty part is at no place, and needs none.
            None if part.is_empty() => {}
            None => return false,
        }
    }
    left.ends_with(end)
}
