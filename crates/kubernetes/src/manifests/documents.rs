//! The text of a manifest: documents of YAML or JSON, one object or a list of objects each.
//!
//! Owns: how much is read, and what every object has. Does not: know kinds, the API server does.
//! Fails by: [`TextError`], with the place in the text and never with a value that stands there: it may be a secret.
//! Source: YAML 1.1 as kubectl reads it: `yes` is true, `0644` is octal, `<<` merges.

use serde_json::Value;

/// The longest text: several times the largest manifests that projects publish.
pub const MAX_TEXT_BYTES: usize = 8 << 20;
/// The most documents in one.
const MAX_DOCUMENTS: usize = 2048;
/// The most mappings, lists and scalars in one: about 50 MB of memory.
const MAX_NODES: usize = 500_000;

/// Why a text is no manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// It is too long.
    #[error("it is longer than {} MiB", MAX_TEXT_BYTES >> 20)]
    TooLong,
    /// Bytes that are no text.
    #[error("byte {at} is not UTF-8")]
    Encoding {
        /// The first of them, from 0.
        at: usize,
    },
    /// It is not YAML.
    #[error("line {line}, column {column}: {reason}")]
    Yaml {
        /// From 1; 0 if it concerns the whole text.
        line: u64,
        /// From 1.
        column: u64,
        /// The reader's words.
        reason: String,
    },
    /// A document that is no object of Kubernetes.
    #[error("the document at line {line} has no {field}")]
    NoObject {
        /// Where it begins, from 1.
        line: u64,
        /// `apiVersion`, `kind`, `metadata.name`.
        field: &'static str,
    },
}

/// The objects of a text in their order; those of a list stand for themselves. Empty documents are none.
///
/// # Errors
/// [`TextError`].
pub fn objects(text: &[u8]) -> Result<Vec<Value>, TextError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(TextError::TooLong);
    }
    let text = std::str::from_utf8(text).map_err(|error| TextError::Encoding { at: error.valid_up_to() })?;
    let options = serde_saphyr::options! {
        with_snippet: false,
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! { max_documents: MAX_DOCUMENTS, max_nodes: MAX_NODES },
    };
    let documents: Vec<serde_saphyr::Spanned<Value>> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| unread(&error))?;
    let mut objects = Vec::new();
    for document in documents {
        add(&mut objects, document.value, document.referenced.line())?;
    }
    Ok(objects)
}

fn unread(error: &serde_saphyr::Error) -> TextError {
    let (line, column) = error.location().map_or((0, 0), |place| (place.line(), place.column()));
    // Where it is stands beside it.
    let reason = error.without_snippet().to_string();
    let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
    TextError::Yaml { line, column, reason }
}

/// Adds an object, or those of a list; `line` is where its document begins.
fn add(objects: &mut Vec<Value>, mut value: Value, line: u64) -> Result<(), TextError> {
    let missing = |field| TextError::NoObject { line, field };
    let word = |at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default();
    if word("/apiVersion").is_empty() {
        return Err(missing("apiVersion"));
    }
    if word("/kind").is_empty() {
        return Err(missing("kind"));
    }
    let (is_list, has_name) = (word("/kind").ends_with("List"), !word("/metadata/name").is_empty());
    if let Some(Value::Array(items)) = value.get_mut("items").filter(|_| is_list) {
        return std::mem::take(items).into_iter().try_for_each(|item| add(objects, item, line));
    }
    if !has_name {
        return Err(missing("metadata.name"));
    }
    objects.push(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let objects = objects(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn refused(text: &str) -> String {
        objects(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn documents_and_lists_are_objects_in_their_order() {
        let text = "# a comment\n---\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n\
                    apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n\
                    - {apiVersion: v1, kind: Secret, metadata: {name: c}}\n---\nnull\n---\n\
                    {\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"d\"}}\n...\n";
        assert_eq!(names(text), ["a", "b", "c", "d"]);
        assert!(names("").is_empty() && names("---\n# nothing\n").is_empty());
    }

    #[test]
    fn values_are_read_as_kubectl_reads_them() {
        let text = "apiVersion: v1\nkind: A\nmetadata: {name: a}\nmode: 0644\nyes: yes\nquoted: \"0644\"\n1: 1.5\n\
                    base: &base {x: 1}\nmerged: {<<: *base, y: 2}\nblock: |\n  ---\n  a: b\n";
        let object = objects(text.as_bytes()).unwrap().remove(0);
        assert_eq!(object["mode"], 420);
        assert_eq!((&object["yes"], &object["quoted"]), (&true.into(), &"0644".into()));
        assert_eq!((&object["1"], &object["merged"]["x"]), (&1.5.into(), &1.into()));
        assert_eq!(object["block"], "---\na: b\n");
    }

    #[test]
    fn what_is_wrong_has_a_place() {
        assert!(refused("apiVersion: v1\nkind: [\n").starts_with("line "));
        let twice = refused("apiVersion: v1\nkind: A\n---\nkind: A\nkind: B\n");
        assert!(twice.starts_with("line 5, column 1: "), "{twice}");
        let of =
            |text: &str| refused(&format!("apiVersion: v1\nkind: A\nmetadata: {{name: a}}\n---\n{text}\n"));
        assert_eq!(of("kind: A"), "the document at line 5 has no apiVersion");
        assert_eq!(of("\napiVersion: v1"), "the document at line 6 has no kind");
        assert_eq!(
            of("apiVersion: v1\nkind: A\nmetadata: {generateName: a-}"),
            "the document at line 5 has no metadata.name"
        );
        assert_eq!(of("text"), "the document at line 5 has no apiVersion");
        assert_eq!(of("apiVersion: v1\nkind: List\nitems: [{}]"), "the document at line 5 has no apiVersion");
        let error = objects(b"kind: \xff").unwrap_err();
        assert_eq!(error.to_string(), "byte 6 is not UTF-8");
    }

    #[test]
    fn there_is_a_largest_manifest() {
        assert_eq!(objects(&vec![b'#'; MAX_TEXT_BYTES + 1]), Err(TextError::TooLong));
        assert!(refused(&"--- a\n".repeat(MAX_DOCUMENTS + 1)).starts_with("line "));
        let bomb = (1..8).fold("a0: &a0 x\n".to_owned(), |text, level| {
            let before = format!("*a{}", level - 1);
            format!("{text}a{level}: &a{level} [{}]\n", vec![before; 20].join(", "))
        });
        assert!(refused(&bomb).starts_with("line "));
    }
}
