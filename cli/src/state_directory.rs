//! Where billetctl keeps what it has to know again: notes of flashing, local clusters.
//!
//! Source: XDG Base Directory Specification, `XDG_STATE_HOME`.

use std::{env, path::PathBuf};

use anyhow::{Context as _, Result};

/// billetctl's own directory in the user's state directory.
pub(crate) fn path() -> Result<PathBuf> {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = of("XDG_STATE_HOME").or_else(|| of("HOME").map(|home| home.join(".local/state")));
    let state = state.context("neither XDG_STATE_HOME nor HOME says where billetctl may keep its state")?;
    Ok(state.join("billetctl"))
}
