//! Lines of /proc/modules.

use runtime::store::{LoadedModule, ModuleStatus};

/// Name, size, users, modules that use it, state, address. A line of another form is left out.
pub(super) fn parse(text: &str) -> Vec<(String, LoadedModule)> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(String, LoadedModule)> {
    let mut cells = line.split(' ');
    let mut cell = || cells.next();
    let (name, size, count, users) = (cell()?, cell()?, cell()?, cell()?);
    let module = LoadedModule {
        size: size.parse().ok()?,
        // A kernel that unloads nothing counts no users.
        reference_count: count.parse().unwrap_or(-1),
        dependencies: users.split(',').filter(|user| !matches!(*user, "" | "-")).map(str::to_owned).collect(),
        state: cell()?.to_owned(),
        address: cell()?.to_owned(),
    };
    Some((name.to_owned(), module))
}

/// The same as v1.14 shows it.
pub(super) fn status(mut module: LoadedModule) -> ModuleStatus {
    module.state = module.state.to_ascii_lowercase();
    ModuleStatus { kind: "dynamic", module }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_and_without_users() {
        let text = "xfs 2117632 2 - Live 0x0000000000000000\nlibcrc32c 12288 2 xfs,nf_tables, Live 0x0000000000000000\nodd\n";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0.as_str(), found[0].1.size, found[0].1.reference_count), ("xfs", 2_117_632, 2));
        assert!(found[0].1.dependencies.is_empty());
        assert_eq!(found[1].1.dependencies, ["xfs", "nf_tables"]);
        assert_eq!(status(found[1].1.clone()).module.state, "live");
    }
}
