//! What runs a node and knows no feature of it.
//!
//! | module | what it is |
//! |---|---|
//! | [`Runtime`] | the handles of all below, as a feature gets them |
//! | [`store`] | resources: typed values in memory, with watches |
//! | [`sequencer`] | runs sequences of tasks, one at a time; whose they are is a [`sequencer::Host`] |
//! | [`services`] | processes and internal tasks that are started, checked, restarted |
//! | [`tasks`] | tasks that live as long as machined, each with a name |
//! | [`events`], [`journal`], [`logs`], [`kmsg`], [`timeline`] | what others may read of all this |
//! | [`init_link`], [`listeners`], [`checkpoint`] | the line to init, and what outlives machined by it |
//! | [`request`], [`status_text`] | the scope of a request: panics end it, status messages are bounded |
//! | [`errors`] | an error with its causes in one line |
//! | [`clock`], [`watched`] | time, and descriptors as tokio sees them |
#![warn(missing_docs)]

pub mod beneath;
pub mod checkpoint;
pub mod clock;
pub mod errors;
pub mod events;
mod handles;
pub mod init_link;
pub mod journal;
pub mod kmsg;
pub mod listeners;
pub mod logs;
pub mod request;
pub mod sequencer;
pub mod services;
pub mod status_text;
pub mod store;
pub mod tasks;
pub mod timeline;
pub mod watched;

pub use handles::{Places, Runtime};
