//! Each rule with its message.

use super::*;
use crate::parse;

fn problems(yaml: &str) -> Vec<String> {
    let config = parse(yaml).map_err(|e| e.to_string()).expect("readable");
    validate(&config).err().map_or(Vec::new(), |e| e.0.into_iter().map(|p| p.field).collect())
}

#[test]
fn a_small_worker_is_fine() {
    let yaml = "version: v1alpha1\nmachine: {type: join, token: a.b}\ncluster: {controlPlane: {endpoint: 'https://[::1]:6443'}}\n";
    assert_eq!(problems(yaml), Vec::<String>::new());
}
