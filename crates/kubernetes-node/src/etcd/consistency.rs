//! Whether the members of etcd agree about who they are, and are the control plane nodes.
//!
//! Fails by: a sentence that names the member, how many of how many are well, and what differs.
//! Source: etcd's documentation, "Runtime reconfiguration".

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::client::{self, Access, ENDPOINT, MEMBER_DEADLINE, QUORUM_DEADLINE};
use super::member::{Health, Member, hex};
use super::members::{Alarm, AlarmKind};
use crate::KubernetesNode;

impl KubernetesNode {
    /// Whether every member answers, there is no alarm, and each member lists the same members as this node's.
    ///
    /// # Errors
    /// What keeps it from that.
    pub async fn etcd_is_consistent(&self) -> Result<(), String> {
        let access = Access::read(&self.runtime.root).map_err(|error| error.to_string())?;
        let members = self.listed(&access).await?;
        all_answer(&client::health(&access, &members).await)?;
        // A quorum tells of alarms.
        no_alarm(&members, &self.etcd_alarms().await.map_err(|error| error.to_string())?)?;
        for member in &members {
            same(&members, member, &list_of(&access, member).await?)?;
        }
        Ok(())
    }

    /// Whether the members are the control plane nodes, each of which has these addresses.
    ///
    /// # Errors
    /// What differs.
    pub async fn etcd_is_control_plane(&self, control_plane: &[BTreeSet<IpAddr>]) -> Result<(), String> {
        let access = Access::read(&self.runtime.root).map_err(|error| error.to_string())?;
        are_at(&self.listed(&access).await?, control_plane)
    }

    async fn listed(&self, access: &Access) -> Result<Vec<Member>, String> {
        let said = |error: crate::Error| error.to_string();
        let mut own = access.connect(ENDPOINT, Some(QUORUM_DEADLINE)).await.map_err(said)?;
        Ok(client::list(&mut own, ENDPOINT).await.map_err(said)?.members)
    }
}

/// The members as one of them lists them.
async fn list_of(access: &Access, member: &Member) -> Result<Vec<Member>, String> {
    let mut last = format!("member {} has not started", member.title());
    for url in &member.client_urls {
        let ask = async {
            let mut client = access.connect(url, Some(MEMBER_DEADLINE)).await?;
            client::list(&mut client, url).await
        };
        match ask.await {
            Ok(listed) => return Ok(listed.members),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

/// The first alarm, with what ends it.
fn no_alarm(members: &[Member], alarms: &[Alarm]) -> Result<(), String> {
    let Some(alarm) = alarms.iter().find(|alarm| alarm.kind != AlarmKind::None) else { return Ok(()) };
    let member = members.iter().find(|member| member.id == alarm.member);
    let title = member.map_or_else(|| hex(alarm.member), Member::title);
    Err(match alarm.kind {
        AlarmKind::Corrupt => format!(
            "the data of member {title} differs from the others' (alarm CORRUPT): reset that node, so that it joins anew"
        ),
        _ => format!(
            "the database of member {title} is full (alarm NOSPACE), and etcd refuses writes: remove objects, give the room back \
             (`etcd defrag` on each control plane node), then `etcd alarm disarm`"
        ),
    })
}

fn all_answer(all: &[Health]) -> Result<(), String> {
    let silent: Vec<String> =
        all.iter().filter(|one| !one.is_healthy).map(|one| one.member.title()).collect();
    if silent.is_empty() {
        return Ok(());
    }
    let voters = all.iter().filter(|one| !one.member.is_learner).count();
    let well = all.iter().filter(|one| one.is_healthy && !one.member.is_learner).count();
    Err(format!(
        "{} does not answer: of {voters} voting members {well} do, {} are needed; look at `service etcd` on that node",
        silent.join(", "),
        voters / 2 + 1
    ))
}

/// `theirs`: as `member` lists them.
fn same(ours: &[Member], member: &Member, theirs: &[Member]) -> Result<(), String> {
    let ids = |members: &[Member]| members.iter().map(|one| one.id).collect::<BTreeSet<_>>();
    let titles = |members: &[Member]| members.iter().map(Member::title).collect::<Vec<_>>().join(", ");
    if ids(ours) == ids(theirs) {
        return Ok(());
    }
    Err(format!("{} lists {}, this node's member {}", member.title(), titles(theirs), titles(ours)))
}

fn are_at(members: &[Member], control_plane: &[BTreeSet<IpAddr>]) -> Result<(), String> {
    let at = |member: &Member| -> BTreeSet<IpAddr> {
        member.peer_urls.iter().filter_map(|url| client::host(url).parse().ok()).collect()
    };
    let is_a_node = |member: &&Member| control_plane.iter().any(|node| !node.is_disjoint(&at(member)));
    if let Some(member) = members.iter().find(|member| !is_a_node(member)) {
        return Err(format!(
            "member {} is at {}, where no control plane node is: remove it (`etcd remove-member`) if the node is gone",
            member.title(),
            member.peer_urls.join(", ")
        ));
    }
    let known: BTreeSet<IpAddr> = members.iter().flat_map(at).collect();
    match control_plane.iter().find(|node| node.is_disjoint(&known)) {
        Some(node) => {
            let addresses: Vec<String> = node.iter().map(ToString::to_string).collect();
            Err(format!("the control plane node at {} has no member yet", addresses.join(", ")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, address: &str) -> Member {
        Member {
            id,
            name: format!("cp-{id}"),
            peer_urls: vec![format!("https://{address}:2380")],
            client_urls: vec![format!("https://{address}:2379")],
            is_learner: false,
        }
    }

    fn three() -> Vec<Member> {
        vec![member(1, "10.0.0.3"), member(2, "10.0.0.4"), member(3, "[fd00::5]")]
    }

    #[test]
    fn an_alarm_is_told_with_what_ends_it() {
        let alarm = |member, kind| Alarm { member, kind };
        assert_eq!(no_alarm(&three(), &[]), Ok(()));
        let told = no_alarm(&three(), &[alarm(2, AlarmKind::NoSpace)]).unwrap_err();
        assert_eq!(
            told,
            "the database of member cp-2 is full (alarm NOSPACE), and etcd refuses writes: remove objects, give the room back (`etcd \
             defrag` on each control plane node), then `etcd alarm disarm`"
        );
        let told = no_alarm(&three(), &[alarm(0xab, AlarmKind::Corrupt)]).unwrap_err();
        assert!(told.starts_with("the data of member 00000000000000ab differs"), "{told}");
    }

    #[test]
    fn who_is_silent_and_who_lists_others_is_named() {
        let health = |silent: &[u64]| -> Vec<Health> {
            let one = |member: Member| Health { is_healthy: !silent.contains(&member.id), member };
            three().into_iter().map(one).collect()
        };
        assert_eq!(all_answer(&health(&[])), Ok(()));
        assert_eq!(
            all_answer(&health(&[3])).unwrap_err(),
            "cp-3 does not answer: of 3 voting members 2 do, 2 are needed; look at `service etcd` on that node"
        );
        assert_eq!(same(&three(), &three()[1], &three()), Ok(()));
        assert_eq!(
            same(&three(), &three()[1], &three()[..2]).unwrap_err(),
            "cp-2 lists cp-1, cp-2, this node's member cp-1, cp-2, cp-3"
        );
    }

    #[test]
    fn members_and_control_plane_nodes_belong_together() {
        let nodes = |texts: &[&str]| -> Vec<BTreeSet<IpAddr>> {
            texts.iter().map(|text| BTreeSet::from([text.parse().unwrap()])).collect()
        };
        assert_eq!(are_at(&three(), &nodes(&["10.0.0.3", "10.0.0.4", "fd00::5"])), Ok(()));
        assert_eq!(
            are_at(&three(), &nodes(&["10.0.0.3", "10.0.0.4"])).unwrap_err(),
            "member cp-3 is at https://[fd00::5]:2380, where no control plane node is: remove it (`etcd remove-member`) if the \
             node is gone"
        );
        assert_eq!(
            are_at(&three()[..2], &nodes(&["10.0.0.3", "10.0.0.4", "fd00::5"])).unwrap_err(),
            "the control plane node at fd00::5 has no member yet"
        );
    }
}
