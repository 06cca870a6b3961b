//! Random trees: nothing panics, what is written is read back the same, and merging twice what has no lists
//! is merging once. The random numbers are seeded, so that a run can be repeated.

use super::{scalar::Scalar, tree::Node, *};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

fn runner(cases: u32) -> TestRunner {
    TestRunner::new_with_rng(
        Config { cases, failure_persistence: None, ..Config::default() },
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    )
}

fn scalars() -> impl Strategy<Value = Node> {
    let quoted = prop_oneof![
        any::<String>(),
        "[ -~\n]{0,12}",
        "[a-z: #'\"\\-\n]{0,8}\n{0,2}",
        Just("null".to_owned()),
        Just("0x1f".to_owned()),
        Just("<<".to_owned()),
        Just("---\na".to_owned())
    ];
    let plain = prop_oneof![
        "[0-9]{1,5}",
        "-?[0-9]\\.[0-9]",
        Just("true".to_owned()),
        Just("~".to_owned()),
        "[a-z]{1,6}"
    ];
    prop_oneof![
        quoted.prop_map(|text| Node::Scalar(Scalar { text, plain: false })),
        plain.prop_map(|text| Node::Scalar(Scalar { text, plain: true })),
    ]
}

fn trees() -> impl Strategy<Value = Node> {
    scalars().prop_recursive(4, 40, 5, |inner| {
        let keys = prop_oneof!["[a-e]", "[ -~]{0,6}", Just("<<".to_owned()), Just("ä: b".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Node::List),
            prop::collection::btree_map(keys, inner, 0..5).prop_map(|m| Node::Map(m.into_iter().collect())),
        ]
    })
}

fn maps() -> impl Strategy<Value = Node> {
    prop::collection::btree_map("[a-e]", trees(), 0..5).prop_map(|m| Node::Map(m.into_iter().collect()))
}

fn without_lists(node: &Node) -> Node {
    match node {
        Node::List(items) => Node::Scalar(Scalar { text: items.len().to_string(), plain: false }),
        Node::Map(entries) => Node::Map(entries.iter().map(|(k, v)| (k.clone(), without_lists(v))).collect()),
        scalar @ Node::Scalar(_) => scalar.clone(),
    }
}

#[test]
fn what_is_written_is_read_back() {
    runner(500)
        .run(&trees(), |tree| {
            let text = write::documents(std::slice::from_ref(&tree));
            let back = tree::documents(&text)
                .map_err(|e| TestCaseError::fail(format!("{}\n{text}", e.in_patch())))?;
            prop_assert!(back.len() == 1 && back[0].same(&tree), "{text}");
            Ok(())
        })
        .unwrap();
}

#[test]
fn merging_twice_is_merging_once_without_lists() {
    runner(300)
        .run(&(maps(), maps()), |(target, piece)| {
            let target = write::documents(&[without_lists(&target)]);
            let piece = write::documents(&[without_lists(&piece)]);
            let Ok(patches) = load_patches(&piece) else { return Ok(()) };
            if let Ok(once) = apply(&target, &patches) {
                prop_assert_eq!(
                    apply(&once, &patches).map_err(|e| TestCaseError::fail(e.to_string()))?,
                    once
                );
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn json_patches_of_random_paths_never_break_the_document() {
    let operation = (
        prop_oneof!["add", "remove", "replace", "move", "copy", "test"],
        "(/([a-e]|[0-4]|-|~1)){0,3}",
        "(/[a-e]){0,2}",
        trees(),
    );
    runner(500)
        .run(&(maps(), operation), |(target, (op, path, from, value))| {
            let text = |t: &str| Node::Scalar(Scalar { text: t.into(), plain: false });
            let fields = [("op", text(&op)), ("path", text(&path)), ("from", text(&from)), ("value", value)];
            let patch = Node::List(vec![Node::Map(fields.map(|(k, v)| (k.to_owned(), v)).into())]);
            let patches = load_patches(&write::documents(&[patch]));
            let target = write::documents(&[target]);
            if let Ok(changed) = patches.and_then(|p| apply(&target, &p)) {
                prop_assert!(tree::documents(&changed).is_ok(), "{changed}");
            }
            Ok(())
        })
        .unwrap();
}

/// For proptest's reports; the text that is written.
impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&write::documents(std::slice::from_ref(self)))
    }
}
