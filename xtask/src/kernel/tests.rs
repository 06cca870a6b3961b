//! The lists of the repository parse.

use installer::kernel::Required;

use super::ModuleSets;
use crate::target::Architecture;

#[test]
fn the_lists_of_the_repository_parse() {
    for architecture in Architecture::ALL {
        Required::list(architecture).unwrap();
    }
    for architecture in Architecture::ALL {
        ModuleSets::read("default", architecture).unwrap();
    }
}
