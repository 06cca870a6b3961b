//! The lists of the repository parse, and a kernel or a module that will not do is named.

use super::required::Required;
use super::{ModuleIndex, ModuleSet, ModuleSets};
use crate::place;

const LIST: &str = "[[group]]\nname = \"a\"\nreason = \"Why.\"\nbuiltin = [\"B\"]\navailable = [\"C\", \"D\"]\noff = [\"E\"]\n";

#[test]
fn a_kernel_that_will_do() {
    let required = Required::parse(LIST).unwrap();
    required.check("# comment\nCONFIG_B=y\nCONFIG_C=m\nCONFIG_D=y\n# CONFIG_E is not set\n").unwrap();
}

#[test]
fn every_missing_option_is_named_under_its_reason() {
    let required = Required::parse(LIST).unwrap();
    let error = required.check("CONFIG_B=m\nCONFIG_C=n\nCONFIG_E=y\nCONFIG_DD=y\n").unwrap_err().to_string();
    assert_eq!(
        error,
        "its configuration lacks what a node needs:\n  a: Why.\n    CONFIG_B must be y, is m\n    \
         CONFIG_C must be y or m, is n\n    CONFIG_D must be y or m, is not set\n    CONFIG_E must not be set, is y"
    );
}

#[test]
fn a_list_with_an_unknown_key_or_no_reason_is_refused() {
    assert!(Required::parse(&LIST.replace("builtin", "buildin")).is_err());
    assert!(Required::parse(&LIST.replace("Why.", "why")).is_err());
}

#[test]
fn the_lists_of_the_repository_parse() {
    Required::read(&place::repository().join("kernel-config/required.toml")).unwrap();
    ModuleSets::read("default").unwrap();
}

fn set(modules: &str, load: bool) -> ModuleSet {
    ModuleSet::parse(&format!(
        "[[group]]\nname = \"g\"\nreason = \"Why.\"\nload = {load}\nmodules = [{modules}]\n"
    ))
    .unwrap()
}

fn index() -> ModuleIndex {
    let dep = "kernel/fs/a.ko.xz: kernel/lib/b-c.ko.xz\nkernel/lib/b-c.ko.xz:\nkernel/lib/d.ko.xz:\nkernel/libx/e.ko.xz:\n";
    ModuleIndex::from_texts(dep, "softdep b_c pre: d\n", "kernel/mm/builtin_one.ko\n")
}

#[test]
fn dependencies_come_along() {
    let paths = set("\"a\", \"builtin-one\"", false).resolve(&index()).unwrap();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    assert_eq!(paths, ["kernel/fs/a.ko.xz", "kernel/lib/b-c.ko.xz", "kernel/lib/d.ko.xz"]);
}

#[test]
fn a_folder_takes_its_own_modules_only() {
    let paths = set("\"lib/\"", false).resolve(&index()).unwrap();
    assert_eq!(paths.len(), 2);
}

#[test]
fn all_modules_that_a_kernel_lacks_are_named() {
    let error = set("\"a\", \"nix\", \"none/\"", false).resolve(&index()).unwrap_err().to_string();
    assert_eq!(error, "the kernel has no such modules: nix none/");
}

#[test]
fn the_load_list_keeps_its_order_and_leaves_out_what_is_built_in() {
    let list = set("\"d\", \"builtin_one\", \"a\"", true).load_list(&index());
    assert_eq!(list, "# g: Why.\nd\na\n");
    assert_eq!(set("\"a\"", false).load_list(&index()), "");
}
