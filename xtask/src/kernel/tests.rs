//! The lists of the repository parse.

use installer::kernel::Required;

use super::ModuleSets;

#[test]
fn the_lists_of_the_repository_parse() {
    Required::list().unwrap();
    ModuleSets::read("default").unwrap();
}
