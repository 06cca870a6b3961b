//! Whether etcd's cluster outlives the removal of a member.
//!
//! A change of the members needs a majority of those before it, and the cluster one of those behind it.
//!
//! Source: etcd's documentation, "FAQ: What is failure tolerance?" and "Runtime reconfiguration".

use super::member::Health;

/// Why a member stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuorumError {
    /// The cluster would be gone.
    #[error(
        "{name} is the only voting member of etcd: without it the cluster's data is gone. Take a snapshot first (etcd snapshot); \
         to wipe the node all the same, reset it with --graceful=false"
    )]
    Last {
        /// Its name.
        name: String,
    },
    /// There is no majority now.
    #[error(
        "etcd has no quorum: {healthy} of {members} voting members answer, {needed} are needed. No member can be removed until \
         more of them run again, or the cluster is recovered from a snapshot"
    )]
    None {
        /// Voting members.
        members: usize,
        /// Those that answer.
        healthy: usize,
        /// The majority.
        needed: usize,
    },
    /// There would be none.
    #[error(
        "etcd would lose its quorum without {name}: of {members} voting members {healthy} answer; {left} would be left, of which \
         {left_healthy} answer and {needed} are needed. Mend or remove the members that do not answer first"
    )]
    Lost {
        /// The member that is to go.
        name: String,
        /// Voting members now.
        members: usize,
        /// Those that answer.
        healthy: usize,
        /// Voting members then.
        left: usize,
        /// Those of them that answer.
        left_healthy: usize,
        /// Their majority.
        needed: usize,
    },
}

/// How many of so many make a majority.
#[must_use]
pub fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// Whether the member with this id can go. One without a vote needs a majority of the others alone.
///
/// # Errors
/// [`QuorumError`], which has the numbers.
pub fn removal(all: &[Health], id: u64) -> Result<(), QuorumError> {
    let voters = || all.iter().filter(|one| !one.member.is_learner);
    let members = voters().count();
    let healthy = voters().filter(|one| one.is_healthy).count();
    let leaving = voters().find(|one| one.member.id == id);
    if let Some(leaving) = leaving.filter(|_| members == 1) {
        return Err(QuorumError::Last { name: leaving.member.title() });
    }
    let needed = majority(members);
    if healthy < needed {
        return Err(QuorumError::None { members, healthy, needed });
    }
    let Some(leaving) = leaving else { return Ok(()) };
    let left = members.saturating_sub(1);
    let left_healthy = healthy.saturating_sub(usize::from(leaving.is_healthy));
    let needed = majority(left);
    if left_healthy < needed {
        let name = leaving.member.title();
        return Err(QuorumError::Lost { name, members, healthy, left, left_healthy, needed });
    }
    Ok(())
}

/// What is to be said of so many voting members.
#[must_use]
pub fn advice(voters: usize) -> Option<String> {
    let lost = voters.saturating_sub(majority(voters));
    let odd = voters.saturating_sub(1);
    (voters > 0 && voters.is_multiple_of(2)).then(|| {
        format!(
            "etcd has {voters} voting members: an even number. The loss of {lost} can be borne, no more than with {odd}; add or \
             remove one"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::member::Member;
    use super::*;

    fn health(id: u64, is_healthy: bool, is_learner: bool) -> Health {
        let member = Member {
            id,
            name: format!("cp-{id}"),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner,
        };
        Health { member, is_healthy }
    }

    /// One to seven members, each pattern of health, each of them removed: beside a count of its own kind.
    #[test]
    fn the_rule_holds_for_every_pattern() {
        let mut seen = [0_usize; 4];
        for members in 1_u64..=7 {
            for pattern in 0_u64..1 << members {
                let all: Vec<Health> =
                    (0..members).map(|id| health(id, pattern >> id & 1 == 1, false)).collect();
                let (n, up) = (members, u64::from(pattern.count_ones()));
                for id in 0..members {
                    let up_then = up - (pattern >> id & 1);
                    let wanted = if n == 1 {
                        0
                    } else if 2 * up <= n {
                        1
                    } else if 2 * up_then < n {
                        // A majority of n - 1 is more than (n - 1) / 2.
                        2
                    } else {
                        3
                    };
                    let got = match removal(&all, id) {
                        Err(QuorumError::Last { .. }) => 0,
                        Err(QuorumError::None { .. }) => 1,
                        Err(QuorumError::Lost { .. }) => 2,
                        Ok(()) => 3,
                    };
                    assert_eq!(got, wanted, "{members} members, up {pattern:b}, without {id}");
                    if let Some(count) = seen.get_mut(got) {
                        *count += 1;
                    }
                }
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    }

    #[test]
    fn a_learner_goes_while_the_others_have_a_majority() {
        let with = |up: [bool; 3]| {
            let mut all: Vec<Health> = up.iter().zip(1..).map(|(up, id)| health(id, *up, false)).collect();
            all.push(health(9, false, true));
            removal(&all, 9)
        };
        assert_eq!(with([true, true, false]), Ok(()));
        assert_eq!(with([true, false, false]), Err(QuorumError::None { members: 3, healthy: 1, needed: 2 }));
        assert_eq!(removal(&[health(1, true, false), health(9, true, true)], 9), Ok(()));
    }

    #[test]
    fn refusals_have_the_numbers() {
        let text = |all: &[Health], id| removal(all, id).unwrap_err().to_string();
        let all = [health(1, true, false), health(2, true, false), health(3, false, false)];
        assert_eq!(removal(&all, 3), Ok(()));
        assert_eq!(
            text(&all, 2),
            "etcd would lose its quorum without cp-2: of 3 voting members 2 answer; 2 would be left, of which 1 answer and 2 are \
             needed. Mend or remove the members that do not answer first"
        );
        let all = [health(1, true, false), health(2, false, false)];
        assert_eq!(
            text(&all, 2),
            "etcd has no quorum: 1 of 2 voting members answer, 2 are needed. No member can be removed until more of them run \
             again, or the cluster is recovered from a snapshot"
        );
        assert_eq!(
            text(&[health(1, true, false)], 1),
            "cp-1 is the only voting member of etcd: without it the cluster's data is gone. Take a snapshot first (etcd \
             snapshot); to wipe the node all the same, reset it with --graceful=false"
        );
        assert_eq!((advice(1), advice(3), advice(0)), (None, None, None));
        assert_eq!(
            advice(2).unwrap(),
            "etcd has 2 voting members: an even number. The loss of 0 can be borne, no more than with 1; add or remove one"
        );
    }
}
