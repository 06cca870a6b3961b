//! JSON patches.
//!
//! Owns: the six operations. A patch is applied in full or not at all. Source: RFC 6902.

use super::{
    PatchError, described, listed,
    pointer::{Pointer, index},
    tree::Node,
};

/// One operation. Its value may be a secret: no `Debug`.
#[derive(Clone)]
pub(super) struct Operation {
    path: Pointer,
    text: String,
    action: Action,
}

#[derive(Clone)]
enum Action {
    Add(Node),
    Remove,
    Replace(Node),
    Move(Pointer),
    Copy(Pointer),
    Test(Node),
}

impl Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::Remove => "remove",
            Self::Replace(_) => "replace",
            Self::Move(_) => "move",
            Self::Copy(_) => "copy",
            Self::Test(_) => "test",
        }
    }
}

/// Reads the list of operations.
pub(super) fn operations(items: Vec<Node>) -> Result<Vec<Operation>, PatchError> {
    let numbered = items.iter().enumerate();
    numbered
        .map(|(i, item)| operation(item).map_err(|reason| PatchError::Operation { operation: i + 1, reason }))
        .collect()
}

fn operation(item: &Node) -> Result<Operation, String> {
    let Node::Map(entries) = item else {
        return Err(format!("it is {}, not a map with `op` and `path`", described(item)));
    };
    let text = |key: &str| item.get(key).and_then(Node::text).map(str::to_owned);
    let name = text("op").ok_or_else(|| format!("`op` is missing; there is {}", keys(entries)))?;
    let path = match item.get("path") {
        Some(Node::Scalar(s)) => s.text.clone(),
        _ => return Err(format!("`path` is missing; there is {}", keys(entries))),
    };
    let value = || {
        item.get("value")
            .cloned()
            .ok_or_else(|| format!("`{name}` needs a `value`; there is {}", keys(entries)))
    };
    let from = || {
        let from =
            text("from").ok_or_else(|| format!("`{name}` needs `from`; there is {}", keys(entries)))?;
        Pointer::parse(&from)
    };
    let action = match name.as_str() {
        "add" => Action::Add(value()?),
        "remove" => Action::Remove,
        "replace" => Action::Replace(value()?),
        "move" => Action::Move(from()?),
        "copy" => Action::Copy(from()?),
        "test" => Action::Test(value()?),
        other => {
            return Err(format!(
                "`{other}` is not known; there is add, remove, replace, move, copy and test"
            ));
        }
    };
    Ok(Operation { path: Pointer::parse(&path)?, text: path, action })
}

fn keys(entries: &[(String, Node)]) -> String {
    listed(entries.iter().map(|(k, _)| k.as_str()))
}

/// Applies all operations to the only document.
pub(super) fn apply(
    documents: &mut Vec<Node>,
    operations: &[Operation],
    patch: usize,
) -> Result<(), PatchError> {
    if documents.len() > 1 {
        return Err(PatchError::SeveralDocuments { patch });
    }
    let mut root = documents.first().cloned().unwrap_or_else(Node::null);
    for (number, operation) in operations.iter().enumerate() {
        step(&mut root, operation).map_err(|reason| PatchError::Json {
            patch,
            operation: number + 1,
            name: operation.action.name(),
            path: operation.text.clone(),
            reason,
        })?;
    }
    *documents = vec![root];
    Ok(())
}

fn step(root: &mut Node, operation: &Operation) -> Result<(), String> {
    let path = &operation.path;
    match &operation.action {
        Action::Add(value) => add(root, path, value.clone()),
        Action::Remove => remove(root, path).map(|_| ()),
        Action::Replace(value) => replace(root, path, value.clone()),
        Action::Copy(from) => add(root, path, from.find(root)?.clone()),
        Action::Move(from) if from == path => from.find(root).map(|_| ()),
        Action::Move(from) if from.holds(path) => {
            Err(format!("a value can not be moved into itself (from {})", from.text(from.parts().len())))
        }
        Action::Move(from) => {
            let value = remove(root, from)?;
            add(root, path, value)
        }
        Action::Test(expected) => {
            let found = path.find(root)?;
            if found.same(expected) {
                return Ok(());
            }
            Err(format!("the value there is another one; it is {}", described(found)))
        }
    }
}

fn add(root: &mut Node, path: &Pointer, value: Node) -> Result<(), String> {
    let depth = path.parts().len().saturating_sub(1);
    match path.container(root)? {
        None => *root = value,
        Some((Node::Map(entries), key)) => match entries.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => entries.push((key.to_owned(), value)),
        },
        Some((Node::List(items), "-")) => items.push(value),
        // One more than there are: the place after the last is an index here.
        Some((Node::List(items), part)) => {
            let at = index(part, items.len() + 1, &path.text(depth))?;
            items.insert(at, value);
        }
        Some((scalar, _)) => {
            return Err(format!("{} is {}; nothing can be added to it", path.text(depth), described(scalar)));
        }
    }
    Ok(())
}

fn remove(root: &mut Node, path: &Pointer) -> Result<Node, String> {
    path.find(root)?;
    let place = path.text(path.parts().len().saturating_sub(1));
    match path.container(root)? {
        None => Ok(std::mem::replace(root, Node::null())),
        Some((Node::Map(entries), key)) => {
            let at =
                entries.iter().position(|(k, _)| k == key).ok_or_else(|| format!("there is no `{key}`"))?;
            Ok(entries.remove(at).1)
        }
        Some((Node::List(items), part)) => {
            let at = index(part, items.len(), &place)?;
            Ok(items.remove(at))
        }
        Some((Node::Scalar(_), part)) => Err(format!("there is no `{part}`")),
    }
}

fn replace(root: &mut Node, path: &Pointer, value: Node) -> Result<(), String> {
    path.find(root).map_err(|reason| format!("{reason}; `add` makes what does not exist"))?;
    let place = path.text(path.parts().len().saturating_sub(1));
    match path.container(root)? {
        None => *root = value,
        Some((Node::Map(entries), key)) => {
            if let Some((_, old)) = entries.iter_mut().find(|(k, _)| k == key) {
                *old = value;
            }
        }
        Some((Node::List(items), part)) => {
            let at = index(part, items.len(), &place)?;
            items[at] = value;
        }
        Some((Node::Scalar(_), part)) => return Err(format!("there is no `{part}`")),
    }
    Ok(())
}
