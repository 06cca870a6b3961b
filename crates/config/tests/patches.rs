//! Patches that do not apply, made from the schema: for every field, a patch that has no place there.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::places::{Place, places};
use config::{
    load,
    patch::{PatchError, apply, load_patches},
    schema::Shape,
};

/// Path of a field of the v1alpha1 document as JSON patches write it.
fn pointer(place: &Place) -> String {
    format!("/{}", place.path().replace("[0]", ".0").replace('.', "/"))
}

#[test]
fn a_json_patch_of_a_field_that_is_not_there_names_operation_path_and_what_exists() {
    let target = "version: v1alpha1\nmachine: {}\ncluster: {}\n";
    let mut tried = 0;
    for place in places().iter().filter(|p| !p.name().contains(' ') && p.path().contains(['.', '['])) {
        let path = pointer(place);
        for operation in ["remove", "replace", "test", "move", "copy"] {
            let patch = format!("- {{op: {operation}, path: {path}, from: {path}, value: 1}}");
            let error = apply(target, &load_patches(&patch).unwrap()).expect_err(&patch);
            let PatchError::Json { patch: 1, operation: 1, name, path: told, reason } = &error else {
                panic!("{patch}: {error}")
            };
            assert!(
                *name == operation && told.starts_with('/') && path.starts_with(told.as_str()),
                "{error}"
            );
            assert!(!reason.is_empty(), "{patch}");
            tried += 1;
        }
    }
    assert!(tried > 2000, "{tried}");
}

/// A value of this kind that is as small as can be, and one of another kind.
fn right_and_wrong(shape: &Shape) -> Option<(&'static str, &'static str)> {
    match shape {
        Shape::List(_) => Some(("[]", "text")),
        Shape::Map(_) | Shape::Section(_) => Some(("{}", "[x]")),
        _ => None,
    }
}

#[test]
fn a_merge_patch_of_another_kind_than_the_field_is_refused_at_the_field() {
    let (mut refused, mut left_to_the_reader) = (0, 0);
    // Lists append, so entries of lists meet nothing that they could contradict.
    for place in places().iter().filter(|p| !p.path().contains('[')) {
        let Some((right, wrong)) = right_and_wrong(&place.shape) else { continue };
        let patches = load_patches(&place.text(wrong).text).unwrap();
        match apply(&place.text(right).text, &patches) {
            Err(PatchError::Merge { patch: 1, path, reason }) => {
                assert!(place.path() == path && reason.contains("but there is"), "{path}: {reason}");
                refused += 1;
            }
            Err(error) => panic!("{}: {error}", place.name()),
            // Some places are replaced as a whole; what comes out is then no configuration.
            Ok(patched) => {
                let error = load(patched.as_bytes()).err().unwrap_or_else(|| panic!("accepted:\n{patched}"));
                assert_eq!(error.0[0].path, place.path(), "{error}");
                left_to_the_reader += 1;
            }
        }
    }
    assert!(refused > 150 && left_to_the_reader < 20, "{refused} refused, {left_to_the_reader} left");
}
