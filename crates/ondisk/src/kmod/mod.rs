//! Placeholder until written in the next commit.
