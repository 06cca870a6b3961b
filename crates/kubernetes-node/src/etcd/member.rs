//! A member of etcd, as it lists itself and the others.

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Its name; empty until it has started once.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub is_learner: bool,
}

impl Member {
    /// Its name, or its id where it has none yet.
    pub(super) fn title(&self) -> String {
        if self.name.is_empty() { hex(self.id) } else { self.name.clone() }
    }
}

impl From<&etcd_client::Member> for Member {
    fn from(member: &etcd_client::Member) -> Self {
        Self {
            id: member.id(),
            name: member.name().to_owned(),
            peer_urls: member.peer_urls().to_vec(),
            client_urls: member.client_urls().to_vec(),
            is_learner: member.is_learner(),
        }
    }
}

/// An id as etcd's own tools and clients write it.
pub(super) fn hex(id: u64) -> String {
    format!("{id:016x}")
}

/// A member, and whether it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The member.
    pub member: Member,
    /// Whether it answers and follows a leader.
    pub is_healthy: bool,
}
