//! What is at the other end of a recorded card's cable.

use netroot::peer::Peer;

/// The servers, from the first frame socket on. A copy of a scenario begins without.
#[derive(Default)]
pub(crate) struct Cable(pub(crate) Option<Peer>);

impl Clone for Cable {
    fn clone(&self) -> Self {
        Self(None)
    }
}

impl std::fmt::Debug for Cable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cable")
    }
}
