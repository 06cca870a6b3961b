//! Each rule finds what it is there for, and nothing else.

use std::collections::BTreeSet;

use super::dependencies::{Crate, Policy, judge};
use super::sources::Sources;
use super::{circles, directions, paths, text};

fn one(path: &str, text: &str) -> Sources {
    Sources::of(&[(path, text)])
}

#[test]
fn a_file_without_header_is_found() {
    assert_eq!(text::headers(&one("a.rs", "use x;\n")).unwrap().len(), 1);
    assert_eq!(text::headers(&one("a.rs", "//! Owns: x.\n")).unwrap().len(), 0);
    assert_eq!(text::headers(&one("a.toml", "x = 1\n")).unwrap().len(), 0);
    assert_eq!(text::headers(&one("store/tests.rs", "use x;\n")).unwrap().len(), 0);
}

#[test]
fn comments_do_not_count_for_size() {
    let code = "let x = 1;\n";
    assert_eq!(text::sizes(&one("a.rs", &code.repeat(601))).unwrap().len(), 1);
    assert_eq!(text::sizes(&one("a.rs", &(code.repeat(600) + &"// x\n\n".repeat(100)))).unwrap().len(), 0);
}

#[test]
fn unsafe_code_is_found_outside_its_crate_only() {
    let code = "//! x\nfn f() { unsafe { g() } }\n";
    assert_eq!(text::unsafe_code(&one("init/src/a.rs", code)).unwrap().len(), 1);
    assert_eq!(text::unsafe_code(&one("crates/sys/src/a.rs", code)).unwrap().len(), 0);
    let prose = "// unsafe in a comment\nlet a = \"unsafe\";\nlet not_unsafe_code = 1;\n";
    assert_eq!(text::unsafe_code(&one("init/src/a.rs", prose)).unwrap().len(), 0);
}

#[test]
fn host_names_and_machine_paths_are_found_with_their_line() {
    let host = ["http://deb.deb", "ian.org/"].concat();
    let found = text::hosts(&one("docs/a.md", &format!("x\nsee {host}\n"))).unwrap();
    assert!(found[0].starts_with("docs/a.md:2: "), "{found:?}");
    assert_eq!(text::hosts(&one("Cargo.lock", &host)).unwrap().len(), 0);
    for path in [["/wo", "rk/main"], ["/ho", "me/me"], ["/root", "/.cargo"]] {
        let line = format!("let a = \"{}\";", path.concat());
        assert_eq!(text::machine_paths(&one("a.rs", &line)).unwrap().len(), 1, "{line}");
    }
    let fine = ["net", "wo", "rk/a upper", "/wo", "rk/b"].concat();
    assert_eq!(text::machine_paths(&one("a.rs", &fine)).unwrap().len(), 0);
}

#[test]
fn words_that_are_not_the_fields_are_found_in_names_and_prose() {
    let of = |line: &str| text::words(&one("a.rs", line)).unwrap().len();
    let word = ["cha", "nce"].concat();
    for line in [
        format!("let {word} = 1;"),
        "struct MyCha".to_owned() + "nce;",
        format!("fn by_{word}() {{}}"),
        format!("/// By {word}."),
    ] {
        assert_eq!(of(&line), 1, "{line}");
    }
    for line in ["let chancery = 1;".to_owned(), format!("#[serde(alias = \"{word}\")]")] {
        assert_eq!(of(&line), 0, "{line}");
    }
}

#[test]
fn a_page_that_a_comment_names_is_in_the_repository() {
    let page = ("docs/glossary.md", "# Words\n");
    let of = |line: &str| text::pages(&Sources::of(&[page, ("a.rs", line)])).unwrap();
    for fine in
        ["//! Source: docs/glossary.md, §2; RFC 1.", "/// (docs/glossary.md)", "let x = \"docs/gone.md\";"]
    {
        assert_eq!(of(fine), [""; 0], "{fine}");
    }
    for page in ["docs/users/gone.md", "spec/facts.md", "shared/spec/facts.md"] {
        assert_eq!(
            of(&format!("\n//! Source: `{page}`.")),
            [format!("a.rs:2: {page} is no page of this repository")]
        );
    }
}

#[test]
fn a_dependency_against_the_direction_is_found() {
    let manifest = "[dependencies]\nservice-manager = { workspace = true }\nserde = \"1\"\n";
    let sources = one("init/Cargo.toml", manifest);
    assert_eq!(directions::check(&sources).unwrap(), ["init/Cargo.toml: may not depend on service-manager"]);
    assert_eq!(directions::versions(&sources).unwrap(), ["init/Cargo.toml: serde = { workspace = true }"]);
    let unknown = directions::check(&one("crates/util/Cargo.toml", "")).unwrap();
    assert_eq!(unknown.len(), 1);
}

#[test]
fn bans_duplicates_and_licences() {
    let policy: Policy = toml::from_str(
        "[bans]\ndeny = [{ crate = \"openssl-sys\" }]\nskip = [{ crate = \"syn@2\" }]\n[licenses]\nallow = [\"MIT\", \"ISC\"]\n",
    )
    .unwrap();
    let found = |name: &str, version: &str, licence: &str| Crate {
        name: name.into(),
        version: version.into(),
        licence: licence.into(),
    };
    let fine = BTreeSet::from([
        found("syn", "2.0.0", "MIT OR Apache-2.0"),
        found("syn", "3.0.0", "Apache-2.0/MIT"),
        found("ring", "1.0.0", "MIT AND ISC"),
    ]);
    assert_eq!(judge(&policy, &fine), Vec::<String>::new());
    let bad = BTreeSet::from([
        found("openssl-sys", "1.0.0", "MIT"),
        found("x", "1.0.0", "MIT AND GPL-3.0"),
        found("y", "1.0.0", "ISC"),
        found("y", "2.0.0", "ISC"),
        found("z", "2.0.0", ""),
    ]);
    assert_eq!(judge(&policy, &bad).len(), 4);
}

#[test]
fn paths_are_read_out_of_uses_and_expressions_and_nothing_else() {
    let text = "//! crate::prose\nuse crate::{a, b::{self, C as D}};\npub use self::e::F;\n\
                fn f<'a>(x: &'a crate::g::H) -> char { super::i::j(\"crate::k\", r#\"crate::l\"#); '\\'' }\n\
                /* crate::m */ macro_rules! n { () => { $crate::o::P } }\n\
                #[cfg(test)]\nmod tests {\n    use crate::q::R;\n}\n";
    let found = paths::read(text);
    let named: BTreeSet<String> = found.named.iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::a",
        "crate::b::C",
        "crate::b::self",
        "crate::g::H",
        "crate::o::P",
        "self::e::F",
        "super::i::j",
    ];
    assert_eq!(named, expected.map(str::to_owned).into());
    assert_eq!(found.given_on, [("F".to_owned(), vec!["self".to_owned(), "e".into(), "F".into()])]);
}

#[test]
fn circles_of_modules_are_found_through_what_the_root_gives_on() {
    let manifest = ("crates/x/Cargo.toml", "");
    let root = ("crates/x/src/lib.rs", "//! x\nmod a;\nmod b;\npub use b::B;\n");
    let needs_b = ("crates/x/src/a.rs", "//! a\nuse crate::B;\npub struct A;\n");
    let alone = ("crates/x/src/b.rs", "//! b\npub struct B;\n");
    let needs_a = ("crates/x/src/b.rs", "//! b\nuse super::a::A;\npub struct B(A);\n");
    assert_eq!(
        circles::check(&Sources::of(&[manifest, root, needs_b, alone])).unwrap(),
        Vec::<String>::new()
    );
    let found = circles::check(&Sources::of(&[manifest, root, needs_b, needs_a])).unwrap();
    assert_eq!(found, ["crates/x: 2 modules directly below src need each other in circles, 0 at most: a, b"]);
    // Files of one module are counted apart, and tests may use everything.
    let parent = ("crates/x/src/a/mod.rs", "//! a\nmod c;\npub struct A(c::C);\n");
    let child = ("crates/x/src/a/c.rs", "//! c\nuse super::A;\npub struct C;\n");
    let tests = ("crates/x/src/b/tests.rs", "use crate::a::A;\n");
    let found = circles::check(&Sources::of(&[manifest, root, parent, child, alone, tests])).unwrap();
    assert_eq!(found, ["crates/x: 2 files of one module need each other in circles, 0 at most: a, a::c"]);
}

#[test]
fn a_count_of_circles_that_is_too_high_is_a_fault() {
    let (directory, _, files) = circles::KNOWN[0];
    let found = circles::check(&one(&format!("{directory}/Cargo.toml"), "")).unwrap();
    let wanted = format!("0 files of one module are in circles now: write that instead of {files}");
    assert!(found.iter().any(|fault| fault.ends_with(&wanted)), "{found:?}");
}
