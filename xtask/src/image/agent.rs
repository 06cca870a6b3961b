//! The layer that makes a test image: the fault injector and its service. No production image has it.

use std::path::Path;

use anyhow::{Context, Result};
use installer::tree::Tree;
use serde_json::json;

use super::paths::add_file;

/// Name of the layer and of the service.
pub(crate) const NAME: &str = "test-agent";

pub(crate) fn assemble(agent: &Path) -> Result<Tree> {
    let path = format!("usr/bin/{NAME}");
    let service = json!({
        "id": NAME,
        "argv": [format!("/{path}")],
        "depends_on": [],
        "restart": "forever",
        "env": {},
        "health": { "tcp": "127.0.0.1:50099" },
    });
    let service = serde_json::to_string_pretty(&service).context("serialise the test agent's service")?;
    let mut tree = Tree::new();
    add_file(&mut tree, &path, agent)?;
    tree.bytes(&format!("usr/lib/billet/services.d/{NAME}.json"), 0o644, service)?;
    Ok(tree)
}
