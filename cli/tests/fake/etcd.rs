//! The fake node's etcd: an alarm, and a cluster that may go back a version.

use super::m;
use api::proto::common::Metadata;

type From = Option<Metadata>;

fn alarm() -> m::EtcdMemberAlarm {
    m::EtcdMemberAlarm { member_id: 0x00c0_ffee, alarm: m::etcd_member_alarm::AlarmType::Nospace.into() }
}

pub(super) fn alarms(metadata: From, (): &()) -> m::EtcdAlarm {
    m::EtcdAlarm { metadata, member_alarms: vec![alarm()] }
}

pub(super) fn disarmed(metadata: From, (): &()) -> m::EtcdAlarmDisarm {
    m::EtcdAlarmDisarm { metadata, member_alarms: vec![alarm()] }
}

fn cluster() -> Option<m::EtcdClusterDowngrade> {
    Some(m::EtcdClusterDowngrade { cluster_version: "3.6.0".into() })
}

pub(super) fn validated(metadata: From, _: &m::EtcdDowngradeValidateRequest) -> m::EtcdDowngradeValidate {
    m::EtcdDowngradeValidate { metadata, cluster_downgrade: cluster() }
}

pub(super) fn enabled(metadata: From, _: &m::EtcdDowngradeEnableRequest) -> m::EtcdDowngradeEnable {
    m::EtcdDowngradeEnable { metadata, cluster_downgrade: cluster() }
}

pub(super) fn cancelled(metadata: From, (): &()) -> m::EtcdDowngradeCancel {
    m::EtcdDowngradeCancel { metadata, cluster_downgrade: cluster() }
}
