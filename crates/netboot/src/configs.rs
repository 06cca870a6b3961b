//! The directory of configs: which is whose, and what in it is nobody's.
//!
//! Owns: names of configs, remarks on files that no machine can get or use.
//! Does not: know what a config is; a [`Judge`] does. Remarks hinder nobody: a directory may be mended while it is served.

use std::fs;
use std::path::{Path, PathBuf};

use crate::mac::Mac;

/// The config of machines that have none of their own.
const DEFAULT: &str = "default.yaml";
const EXAMPLE: &str = "52-54-00-12-34-56.yaml";

/// Says why a text is no config that a node takes, in one line.
pub type Judge = fn(&[u8]) -> Result<(), String>;

/// The directory.
#[derive(Debug, Clone)]
pub(crate) struct Configs {
    /// Without links in its path.
    pub(crate) directory: PathBuf,
    pub(crate) judge: Option<Judge>,
}

impl Configs {
    /// The config of a machine.
    pub(crate) fn of(&self, mac: Mac) -> Option<PathBuf> {
        inside(&self.directory, &name_of(mac)).or_else(|| inside(&self.directory, DEFAULT))
    }

    /// Why a node does not take it.
    pub(crate) fn fault(&self, config: &Path) -> Option<String> {
        let judge = self.judge?;
        match fs::read(config) {
            Ok(text) => judge(&text).err(),
            Err(error) => Some(error.to_string()),
        }
    }

    /// What no machine will get, or take. Hidden files and directories are not meant as configs.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        let remark = |name: &String| self.remark(name).map(|remark| format!("{name}: {remark}"));
        names.iter().filter_map(remark).collect()
    }

    fn remark(&self, name: &str) -> Option<String> {
        match meant(name) {
            Some(right) if right == name => {}
            Some(right) => return Some(format!("no machine gets it: call it {right}")),
            None => {
                return Some(format!(
                    "no machine gets it: configs are called {EXAMPLE}, after a network card, or {DEFAULT}"
                ));
            }
        }
        let Some(path) = inside(&self.directory, name) else {
            return Some("no machine gets it: it is no file in this directory".to_owned());
        };
        self.fault(&path).map(|fault| format!("no node takes it: {fault}"))
    }
}

fn name_of(mac: Mac) -> String {
    format!("{}.yaml", mac.dashed())
}

/// What a file is called right that somebody meant as a config.
fn meant(name: &str) -> Option<String> {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    if stem.eq_ignore_ascii_case("default") {
        return Some(DEFAULT.to_owned());
    }
    let digits: Vec<char> = stem.chars().filter(|letter| !matches!(letter, ':' | '-' | '_' | '.')).collect();
    if digits.len() != 12 {
        return None;
    }
    let pairs: Vec<String> = digits.chunks(2).map(String::from_iter).collect();
    Mac::parse(&pairs.join("-")).map(name_of)
}

/// The file of this name, if it lies in the directory.
pub(crate) fn inside(directory: &Path, name: &str) -> Option<PathBuf> {
    let name = Path::new(name);
    if !name.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
        return None;
    }
    let real = fs::canonicalize(directory.join(name)).ok()?;
    (real.starts_with(directory) && real.is_file()).then_some(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_gets_is_remarked() {
        let directory = tempfile::tempdir().unwrap();
        let configs = Configs {
            directory: fs::canonicalize(directory.path()).unwrap(),
            judge: Some(
                |text| if text == b"good" { Ok(()) } else { Err("line 1, column 1: bad".to_owned()) },
            ),
        };
        let right = "call it 52-54-00-12-34-5a.yaml";
        for (name, said) in [
            ("52-54-00-12-34-56.yaml", None),
            ("default.yaml", None),
            ("52:54:00:12:34:5A.yaml", Some(right)),
            ("52-54-00-12-34-5A.yaml", Some(right)),
            ("52-54-00-12-34-5a.yml", Some(right)),
            ("52540012345a", Some(right)),
            ("Default.YAML", Some("call it default.yaml")),
            (
                "foo.yaml",
                Some("configs are called 52-54-00-12-34-56.yaml, after a network card, or default.yaml"),
            ),
            ("5:54:00:12:34:56.yaml", Some("configs are called ")),
            (".hidden", None),
        ] {
            let path = directory.path().join(name);
            fs::write(&path, "good").unwrap();
            let remarks = configs.remarks();
            match said {
                None => assert_eq!(remarks, [""; 0]),
                Some(said) => {
                    assert_eq!(remarks.len(), 1, "{remarks:?}");
                    assert!(
                        remarks[0].starts_with(&format!("{name}: no machine gets it: {said}")),
                        "{remarks:?}"
                    );
                }
            }
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn what_no_node_takes_is_remarked() {
        let directory = tempfile::tempdir().unwrap();
        let mut configs = Configs { directory: fs::canonicalize(directory.path()).unwrap(), judge: None };
        fs::create_dir(directory.path().join("directory.yaml")).unwrap();
        fs::write(directory.path().join("default.yaml"), "bad").unwrap();
        assert_eq!(configs.remarks(), [""; 0]);
        configs.judge = Some(|_| Err("line 1, column 1: bad".to_owned()));
        assert_eq!(configs.remarks(), ["default.yaml: no node takes it: line 1, column 1: bad"]);
        std::os::unix::fs::symlink("/proc/version", directory.path().join("52-54-00-12-34-56.yaml")).unwrap();
        assert_eq!(
            configs.remarks()[0],
            "52-54-00-12-34-56.yaml: no machine gets it: it is no file in this directory"
        );
    }
}
