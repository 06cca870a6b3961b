//! Commands for etcd that no cluster of the VM tests has a use for, as a process against a node on loopback.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod fake;
mod rig;

use rig::Rig;

#[tokio::test]
async fn alarms_are_listed_and_disarmed() {
    let rig = Rig::start().await;
    let table = "NODE        MEMBER             ALARM\n127.0.0.1   0000000000c0ffee   NOSPACE\n";
    assert_eq!(rig.prints("etcd alarm list").await, table);
    // It tells which there were.
    assert_eq!(rig.prints("etcd alarm disarm").await, table);
    let of_two = rig.prints("-n n1,n2 etcd alarm disarm").await;
    assert!(
        of_two.contains("n1     0000000000c0ffee") && of_two.contains("n2     0000000000c0ffee"),
        "{of_two}"
    );
}

#[tokio::test]
async fn a_downgrade_is_validated_enabled_and_cancelled() {
    let rig = Rig::start().await;
    assert_eq!(
        rig.prints("etcd downgrade validate 3.5").await,
        "127.0.0.1: the downgrade is possible; the cluster's version is 3.6.0\n"
    );
    rig.asked("EtcdDowngradeValidateRequest { version: \"3.5\" }").await;
    assert_eq!(
        rig.prints("-n n1 etcd downgrade enable 3.5").await,
        "n1: the downgrade is enabled; the cluster's version is 3.6.0\n"
    );
    rig.asked("EtcdDowngradeEnableRequest { version: \"3.5\" }").await;
    assert_eq!(
        rig.prints("etcd downgrade cancel").await,
        "127.0.0.1: the downgrade is cancelled; the cluster's version is 3.6.0\n"
    );
    assert!(rig.fails("etcd downgrade validate").await.contains("<VERSION>"));
}

#[tokio::test]
async fn a_member_is_removed_by_its_name() {
    let rig = Rig::start().await;
    assert_eq!(rig.prints("etcd remove-member cp-3").await, "");
    rig.asked("EtcdRemoveMemberRequest { member: \"cp-3\" }").await;
}
