//! PE, to come.
