//! The commands, one module each.

pub(crate) mod advisories;
pub(crate) mod certify;
pub(crate) mod clean;
pub(crate) mod cluster;
pub(crate) mod ctl;
pub(crate) mod fuzz;
pub(crate) mod images;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod stop;
pub(crate) mod test;
pub(crate) mod tidy;
