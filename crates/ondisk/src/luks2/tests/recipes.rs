//! Headers in testdata/luks2, made by `make.sh` there with cryptsetup: each is read, described as cryptsetup describes it,
//! and written back as it was.

use super::*;

/// Recipes at least.
const LEAST: usize = 60;

/// What cannot be mapped: ciphers that are not known here, by the start of the recipe's name.
const UNKNOWN: &str = "cipher-";

struct Recipe {
    name: String,
    bytes: Vec<u8>,
    dump: String,
}

fn recipes() -> Vec<Recipe> {
    let directory = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/luks2"));
    let names =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".xz")?.to_string())).collect();
    names.sort();
    let read = |name: String| Recipe {
        bytes: unpacked(&directory.join(std::format!("{name}.xz"))),
        dump: fs::read_to_string(directory.join(std::format!("{name}.dump"))).unwrap(),
        name,
    };
    names.into_iter().map(read).collect()
}

fn unpacked(path: &std::path::Path) -> Vec<u8> {
    let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", path.display());
    output.stdout
}

#[test]
fn every_recipe_is_read_and_described_in_the_same_words() {
    let recipes = recipes();
    assert!(recipes.len() >= LEAST, "{}", recipes.len());
    for Recipe { name, bytes, dump } in recipes {
        let found = read(&mut bytes.as_slice()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.header.to_string().trim_end(), dump.trim_end(), "{name}");
        match found.stale {
            None => assert!(!name.starts_with("damaged") && !name.starts_with("older"), "{name}"),
            Some((copy, fault)) => {
                let expected = if name.ends_with("first") { Copy::First } else { Copy::Second };
                assert_eq!((copy, fault.is_some()), (expected, name.starts_with("damaged")), "{name}");
            }
        }
        let mapping = found.header.mapping();
        assert_eq!(mapping.is_err(), name.starts_with(UNKNOWN), "{name}: {mapping:?}");
    }
}

#[test]
fn a_recipe_that_is_written_anew_says_the_same() {
    for Recipe { name, bytes, .. } in recipes() {
        let header = read(&mut bytes.as_slice()).unwrap().header;
        let mut device = vec![0; bytes.len()];
        for copy in [Copy::First, Copy::Second] {
            apply(&mut device, &[header.repair(copy).unwrap()]);
        }
        let again = read(&mut device.as_slice()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((again.stale, again.header), (None, header), "{name}");
    }
}

#[test]
fn whole_recipes_open_with_their_passphrase_alone() {
    let mut opens = 0;
    for Recipe { name, bytes, .. } in recipes().into_iter().filter(|recipe| recipe.name.starts_with("whole-"))
    {
        assert_eq!(
            opened(&bytes, PASSPHRASE).unwrap_or_else(|e| panic!("{name}: {e}")).key.len(),
            32,
            "{name}"
        );
        assert!(opened(&bytes, b"wrong").is_err(), "{name}");
        opens += 1;
    }
    assert_eq!(opens, 2);
}
