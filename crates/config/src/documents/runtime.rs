//! Documents for services and the kernel: environment, extensions, roots, logs, events, watchdog.

use crate::{
    Secret,
    schema::{GoDuration, section},
};
use std::collections::BTreeMap;

section! {
    /// Environment of all services.
    EnvironmentConfig {
        /// The variables.
        variables "variables": BTreeMap<String, String> { newer true, secret true, example "{HTTPS_PROXY: \"http://proxy.example.org:8080\"}" };
    }
}

section! {
    /// Where events are sent.
    EventSinkConfig {
        /// Host and port.
        endpoint "endpoint": String { newer true, example "\"192.168.10.3:3247\"" };
    }
}

section! {
    /// Where the kernel's log is sent.
    KmsgLogConfig {
        /// Its name.
        name "name": String { newer true, example "remote-log" };
        /// The address.
        url "url": String { newer true, example "\"tcp://192.168.3.7:3478/\"" };
    }
}

section! {
    /// Settings of an extension's service.
    ExtensionServiceConfig {
        /// Name of the service, without `ext-`.
        name "name": String { newer true, example "nut-client" };
        /// Files that it sees.
        config_files "configFiles": Vec<ExtensionFile> { newer true };
        /// Its environment: `NAME=value`.
        environment "environment": Vec<String> { newer true, secret true, example "[NAME=value]" };
    }
}

section! {
    /// A file that an extension's service sees.
    ExtensionFile {
        /// Its text.
        content "content": String { newer true, secret true };
        /// Where the service sees it.
        mount_path "mountPath": String { newer true, example "/etc/example" };
    }
}

section! {
    /// Additional CA certificates that this machine trusts.
    TrustedRootsConfig {
        /// Its name.
        name "name": String { newer true, example "my-enterprise-ca" };
        /// PEM of the certificates.
        certificates "certificates": String { newer true, example "\"-----BEGIN CERTIFICATE-----\"" };
    }
}

section! {
    /// The device that restarts a machine that hangs.
    WatchdogTimerConfig {
        /// Its path.
        device "device": String { newer true, example "/dev/watchdog0" };
        /// Time until it acts, at least 10 seconds.
        timeout "timeout": Option<GoDuration> { newer true, default "1m", example "2m" };
    }
}

section! {
    /// A tunnel to a management server.
    SideroLinkConfig {
        /// Its address; it holds a secret.
        api_url "apiUrl": Secret { newer true };
        /// The API is reached by the tunnel only.
        tunnel "tunnel": Option<bool> { newer true };
        /// Name that is announced.
        unique_token "uniqueToken": Option<Secret> { newer true };
    }
}

section! {
    /// Give a PCI device to another driver.
    PCIDriverRebindConfig {
        /// The device's place.
        name "name": String { newer true, example "\"0000:04:00.00\"" };
        /// The driver.
        target_driver "targetDriver": String { newer true, example "vfio-pci" };
    }
}

section! {
    /// What is ended before memory runs out.
    OOMConfig {
        /// When something is ended, as an expression.
        trigger_expression "triggerExpression": String { newer true };
        /// What is ended first, as an expression.
        cgroup_ranking_expression "cgroupRankingExpression": String { newer true };
        /// Keep to the order of the classes of cgroups.
        strict_cgroup_class_ordering "strictCgroupClassOrdering": Option<bool> { newer true };
        /// Time between two looks.
        sample_interval "sampleInterval": Option<GoDuration> { newer true, default "500ms" };
    }
}
