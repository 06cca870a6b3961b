//! The part of Kubernetes' JSONPath that print columns use.
//!
//! Owns: `{@}`, `.name`, `['name']`, `[0]`, `[-1]`, `[*]` and `[?(@.name=="text")]`, one expression in braces.
//! A missing field is the empty text. An expression beyond this is shown as it is, so that a column never lies.
//! Source: docs/users/commands.md; the columns of crates/api/tests/data/resources.tsv.

use serde_json::Value;

/// What `path` selects in `value`, as text: several values parted by blanks, lists and maps as JSON.
pub(super) fn text(path: &str, value: &Value) -> String {
    let Some(steps) = parse(path) else { return path.to_owned() };
    let selected = steps
        .iter()
        .fold(vec![value], |values, step| values.into_iter().flat_map(|v| step.apply(v)).collect());
    selected.iter().map(|v| shown(v)).collect::<Vec<_>>().join(" ")
}

/// Text with expressions in it: `{.metadata.id} runs{"\n"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Path(String),
}

impl Template {
    /// `None` if an expression is beyond what is known here.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (mut parts, mut rest) = (Vec::new(), text);
        // A lone path may be written without its braces.
        if text.starts_with(['.', '$', '@', '[']) && !text.contains('{') {
            return Self::parse(&format!("{{{text}}}"));
        }
        while let Some(begin) = rest.find('{') {
            parts.push(Part::Literal(rest[..begin].to_owned()));
            let end = begin + rest[begin..].find('}')? + 1;
            let inside = &rest[begin..end];
            match quoted(inside) {
                Some(literal) => parts.push(Part::Literal(literal)),
                None => {
                    parse(inside)?;
                    parts.push(Part::Path(inside.to_owned()));
                }
            }
            rest = &rest[end..];
        }
        parts.push(Part::Literal(rest.to_owned()));
        Some(Self(parts))
    }

    /// The text for `value`.
    pub(super) fn text(&self, value: &Value) -> String {
        let part = |part: &Part| match part {
            Part::Literal(literal) => literal.clone(),
            Part::Path(path) => text(path, value),
        };
        self.0.iter().map(part).collect()
    }
}

/// The text of `{"text"}`.
fn quoted(part: &str) -> Option<String> {
    let inside = part.strip_prefix('{')?.strip_suffix('}')?.trim();
    inside.starts_with('"').then(|| serde_json::from_str(inside).ok())?
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    Where { field: String, equals: String },
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(list)) => at(list, *index).into_iter().collect(),
            (Self::Every, Value::Array(list)) => list.iter().collect(),
            (Self::Every, Value::Object(map)) => map.values().collect(),
            (Self::Where { field, equals }, Value::Array(list)) => {
                list.iter().filter(|v| v.get(field).is_some_and(|v| shown(v) == *equals)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn at(list: &[Value], index: i64) -> Option<&Value> {
    let distance = usize::try_from(index.unsigned_abs()).ok()?;
    if index >= 0 { list.get(distance) } else { list.get(list.len().checked_sub(distance)?) }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    rest = rest.strip_prefix(['@', '$']).unwrap_or(rest);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = step(rest)?;
        steps.extend(step);
        rest = after;
    }
    Some(steps)
}

/// The next step, or none for a lone `.`, and what follows it.
fn step(text: &str) -> Option<(Option<Step>, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        return match name {
            "" => Some((None, after)),
            "*" => Some((Some(Step::Every), after)),
            name => Some((Some(Step::Field(name.to_owned())), after)),
        };
    }
    let (inside, after) = text.strip_prefix('[')?.split_once(']')?;
    let step = match inside {
        "*" => Step::Every,
        _ if inside.starts_with("?(") => condition(inside)?,
        _ if inside.starts_with('\'') => {
            Step::Field(inside.strip_prefix('\'')?.strip_suffix('\'')?.to_owned())
        }
        number => Step::Index(number.parse().ok()?),
    };
    Some((Some(step), after))
}

fn condition(text: &str) -> Option<Step> {
    let (field, equals) = text.strip_prefix("?(@.")?.strip_suffix(')')?.split_once("==")?;
    let equals = equals.trim().trim_matches(['"', '\'']);
    Some(Step::Where { field: field.trim().to_owned(), equals: equals.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_form_that_columns_use() {
        let value = json!({
            "running": true,
            "n": 3,
            "name": "x",
            "none": null,
            "addresses": ["10.0.0.1", "::1"],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}],
            "a.b": 1,
        });
        for (path, expected) in [
            ("{.running}", "true"),
            ("{.n}", "3"),
            ("{.name}", "x"),
            ("{.none}", ""),
            ("{.missing.deeper}", ""),
            ("{.addresses}", r#"["10.0.0.1","::1"]"#),
            ("{.addresses[0]}", "10.0.0.1"),
            ("{.addresses[-1]}", "::1"),
            ("{.addresses[-3]}", ""),
            ("{.addresses[*]}", "10.0.0.1 ::1"),
            (r#"{.conditions[?(@.type=="Ready")].status}"#, "True"),
            ("{.conditions[*].status}", "True False"),
            ("{['a.b']}", "1"),
        ] {
            assert_eq!(text(path, &value), expected, "{path}");
        }
        assert_eq!(text("{@}", &json!("controlplane")), "controlplane");
    }

    #[test]
    fn templates_mix_text_and_paths() {
        let value = json!({"metadata": {"id": "apid"}, "spec": {"running": true}});
        for (template, expected) in [
            ("{.spec.running}", "true"),
            (".metadata.id", "apid"),
            ("{.metadata.id} runs: {.spec.running}{\"\\n\"}", "apid runs: true\n"),
            ("{.none}", ""),
            ("plain", "plain"),
        ] {
            assert_eq!(Template::parse(template).unwrap().text(&value), expected, "{template}");
        }
        for wrong in ["{", "{.a", "{range .items}", "{.a[1:2]}"] {
            assert_eq!(Template::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_not_understood_is_shown() {
        for path in ["", ".a", "{range .a}", "{.a[1:2]}", "{.a[?(@.b>1)]}"] {
            assert_eq!(text(path, &json!({"a": [1]})), path);
        }
    }
}
