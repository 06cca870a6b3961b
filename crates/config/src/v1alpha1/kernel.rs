//! Kernel modules, device rules, logging, seccomp profiles.

use crate::schema::{Value, section};
use std::collections::BTreeMap;

section! {
    /// The kernel.
    Kernel {
        /// Modules to load.
        modules "modules": Vec<KernelModule> { newer true };
    }
}

section! {
    /// A kernel module to load.
    KernelModule {
        /// Its name.
        name "name": String { newer true, example "br_netfilter" };
        /// Its parameters.
        parameters "parameters": Vec<String> { newer true, example "[nf_conntrack_max=131072]" };
    }
}

section! {
    /// Rules for devices.
    Udev {
        /// Lines in udev's language.
        rules "rules": Vec<String> { newer true, example "['SUBSYSTEM==\"drm\", GROUP=\"44\"']" };
    }
}

section! {
    /// Where logs are sent.
    Logging {
        /// The receivers.
        destinations "destinations": Vec<LogDestination> { newer true };
    }
}

section! {
    /// A receiver of logs.
    LogDestination {
        /// Where it answers.
        endpoint "endpoint": String { newer true, example "tcp://1.2.3.4:12345" };
        /// How lines are written.
        format "format": String { newer true, example "json_lines" };
        /// Fields that each line gets.
        extra_tags "extraTags": BTreeMap<String, String> { newer true, example "{server: s03}" };
    }
}

section! {
    /// A seccomp profile that pods may name.
    SeccompProfile {
        /// Its name.
        name "name": String { newer true, example "audit.json" };
        /// The profile.
        value "value": Value { newer true, example "{defaultAction: SCMP_ACT_LOG}" };
    }
}
