//! Files of both client generations, paths, merging.

use super::*;
use std::{collections::HashMap, os::unix::fs::PermissionsExt};

const OLD: &str = "context: a
contexts:
  a:
    target: 10.0.0.1
    ca: YWJj
    crt: YQ
      ==
    key: YWJj
";
const CURRENT: &str = "context: b
contexts:
    b:
        endpoints: [10.0.0.1, 'https://x:443']
        nodes:
            - 10.0.0.2
        cluster: c
        auth:
            siderov1:
                identity: me@example.org
        future: {key: 1}
";

#[test]
fn the_first_generation_is_read() {
    let config = Talosconfig::parse(OLD).unwrap();
    let (name, context) = config.choose(None).unwrap();
    assert_eq!((name, context.endpoints.as_slice()), ("a", ["10.0.0.1".to_owned()].as_slice()));
    assert_eq!(context.authority().unwrap().as_deref(), Some("abc"));
    assert!(!config.to_yaml().expose_secret().contains("target"));
}

#[test]
fn the_current_generation_survives_a_round_trip() {
    let config = Talosconfig::parse(CURRENT).unwrap();
    let again = Talosconfig::parse(config.to_yaml().expose_secret()).unwrap();
    assert!(config == again);
    let (_, context) = again.choose(Some("b")).unwrap();
    assert_eq!(context.cluster.as_deref(), Some("c"));
    assert!(context.auth.as_ref().is_some_and(|a| a.siderov1.is_some()));
    assert!(context.identity().unwrap().is_none());
}

#[test]
fn errors_say_what_to_do_and_repeat_no_content() {
    let config = Talosconfig::parse(CURRENT).unwrap();
    assert_eq!(config.choose(Some("z")).err().unwrap().to_string(), "there is no context `z`; there are: b");
    let reason = Talosconfig::parse("contexts: {a: {key: [hunter2]}}").err().unwrap();
    assert!(reason.contains("line 1") && !reason.contains("hunter2"), "{reason}");
    assert!(Talosconfig::default().choose(None).err().unwrap().to_string().contains("--context"));
}

#[test]
fn a_name_that_exists_is_numbered() {
    let mut config = Talosconfig::parse(OLD).unwrap();
    assert_eq!(config.merge(Talosconfig::parse(OLD).unwrap()), [("a".to_owned(), "a-1".to_owned())]);
    assert_eq!(config.merge(Talosconfig::parse(OLD).unwrap()), [("a".to_owned(), "a-2".to_owned())]);
    assert_eq!((config.context.as_str(), config.contexts.len()), ("a-2", 3));
}

#[test]
fn the_file_is_private_and_its_directory_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/config");
    Talosconfig::parse(CURRENT).unwrap().save(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing left beside it");
    assert!(Talosconfig::load(&path).is_ok_and(|c| c.context == "b"));
    assert!(matches!(Talosconfig::load(&dir.path().join("none")), Err(TalosconfigError::Missing(_))));
}

#[test]
fn the_first_existing_path_is_used_and_the_first_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let choose = |pairs: &[(&str, PathBuf)]| {
        let map: HashMap<_, _> =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone().into_os_string())).collect();
        path(None, |name| map.get(name).cloned())
    };
    assert_eq!(choose(&[("TALOSCONFIG", at("t")), ("HOME", at("h"))]), at("t"), "neither exists");
    fs::create_dir_all(at("h/.talos")).unwrap();
    fs::write(at("h/.talos/config"), "").unwrap();
    assert_eq!(choose(&[("TALOSCONFIG", at("t")), ("HOME", at("h"))]), at("h/.talos/config"));
    assert_eq!(choose(&[("TALOS_HOME", at("th")), ("HOME", at("h"))]), at("th/config"));
    assert_eq!(choose(&[("TALOS_HOME", PathBuf::from("rel")), ("HOME", at("h"))]), at("h/.talos/config"));
    assert_eq!(path(Some(Path::new("/x")), |_| None), PathBuf::from("/x"));
}
