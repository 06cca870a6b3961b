//! The commands, one module each.

pub(crate) mod clean;
pub(crate) mod run;
pub(crate) mod stop;
pub(crate) mod tidy;
