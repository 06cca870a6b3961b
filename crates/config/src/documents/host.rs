//! Documents for what the v1alpha1 `machine` section says of the host: kernel, files, devices, installation.

use crate::schema::{FileMode, Value, section};
use std::collections::BTreeMap;

section! {
    /// Kernel parameters below /proc/sys.
    SysctlConfig {
        /// The parameters; dots stand for slashes.
        params "params": BTreeMap<String, String> { newer true, example "{net.ipv4.ip_forward: \"0\"}" };
    }
}

section! {
    /// Values below /sys.
    SysfsConfig {
        /// The values; dots stand for slashes.
        params "params": BTreeMap<String, String> { newer true, example "{devices.system.cpu.cpu0.cpufreq.scaling_governor: performance}" };
    }
}

section! {
    /// A kernel module to load.
    KernelModuleConfig {
        /// Its name.
        name "name": String { newer true, example "br_netfilter" };
        /// Its parameters.
        parameters "parameters": Vec<String> { newer true, example "[nf_conntrack_max=131072]" };
    }
}

section! {
    /// Rules for devices.
    UdevRulesConfig {
        /// Lines in udev's language.
        rules "rules": Vec<String> { newer true, example "['SUBSYSTEM==\"drm\", GROUP=\"44\"']" };
    }
}

section! {
    /// A file below /etc.
    EtcFileConfig {
        /// Its path, from /etc.
        name "name": String { newer true, example "nfsmount.conf" };
        /// Its permissions.
        mode "mode": Option<FileMode> { newer true, default "0644", example "0644" };
        /// Its text.
        contents "contents": String { newer true, secret true, example "\"[NFSMount_Global_Options]\"" };
    }
}

section! {
    /// A part of the settings of Kubernetes' containerd.
    CRICustomizationConfig {
        /// Its name.
        name "name": String { newer true, example "metrics" };
        /// The part, in TOML.
        content "content": String { newer true, secret true, example "\"[metrics]\"" };
    }
}

section! {
    /// What every container's OCI description is overlaid with.
    CRIBaseRuntimeSpecConfig {
        /// The fields.
        overrides "overrides": Option<Value> { newer true, example "{process: {rlimits: []}}" };
    }
}

section! {
    /// Images kept in the boot image.
    ImageCacheConfig {
        /// Those on this machine.
        local "local": Option<LocalImageCache> { newer true };
    }
}

section! {
    /// Images kept on this machine.
    LocalImageCache {
        /// Whether they are used.
        enabled "enabled": Option<bool> { newer true };
    }
}

section! {
    /// What keeps containers apart from the node.
    SecurityProfileConfig {
        /// Run workloads in namespaces of users of their own.
        workload_isolation "workloadIsolation": Option<bool> { newer true };
    }
}

section! {
    /// How a machine that was started from something else than its disk installs itself.
    UnattendedInstallConfig {
        /// Start the installed system at once; it is always done.
        reboot "reboot": Option<bool> { newer true, later "staying in the installer" };
        /// What is installed.
        installer "installer": Option<InstallerImage> { newer true };
        /// Where it is installed.
        provisioning "provisioning": Option<InstallTarget> { newer true };
    }
}

section! {
    /// What is installed.
    InstallerImage {
        /// Image of the installer, as in [Install](#install).
        image "image": String { newer true, default "the running version's", example "registry.example.org/billet/installer:0.2.0" };
    }
}

section! {
    /// Where a system is installed.
    InstallTarget {
        /// The disk: the one that is meant.
        disk_selector "diskSelector": Option<super::DiskMatcher> { newer true };
        /// Clear the whole disk first.
        wipe "wipe": Option<bool> { newer true, default "false" };
    }
}

section! {
    /// A container that runs beside Kubernetes.
    ContainerConfig {
        /// Its name.
        name "name": String { newer true, example "exporter" };
        /// Its image.
        image "image": String { newer true, example "registry.example.org/exporter:1" };
        /// The program.
        entrypoint "entrypoint": Vec<String> { newer true, example "[/exporter]" };
        /// Its arguments.
        args "args": Vec<String> { newer true, example "[--verbose]" };
        /// Its directory.
        working_dir "workingDir": String { newer true, example "/work" };
        /// Whose rights it has.
        run_as "runAs": Option<ContainerUser> { newer true };
        /// Its environment: `NAME=value`.
        environment "environment": Vec<String> { newer true, secret true, example "[NAME=value]" };
        /// What it sees of the host.
        mounts "mounts": Vec<ContainerMount> { newer true };
        /// What it may do.
        security "security": Option<ContainerSecurity> { newer true };
        /// Its network.
        network "network": Option<ContainerNetwork> { newer true };
        /// Processor time and memory.
        resources "resources": Option<ContainerResources> { newer true };
        /// What it waits for.
        depends_on "dependsOn": Option<ContainerDependencies> { newer true };
    }
}

section! {
    /// Whose rights a container has.
    ContainerUser {
        /// User id.
        uid "uid": Option<u32> { newer true };
        /// Group id.
        gid "gid": Option<u32> { newer true };
    }
}

section! {
    /// What a container sees of the host: one of these.
    ContainerMount {
        /// A volume of the user's.
        user_volume "userVolume": Option<UserVolumeMount> { newer true };
        /// Memory.
        tmpfs "tmpfs": Option<TmpfsMount> { newer true };
        /// A directory of the host.
        host_path "hostPath": Option<HostPathMount> { newer true };
    }
}

section! {
    /// A volume of the user's in a container.
    UserVolumeMount {
        /// The volume.
        name "name": String { newer true, example "local-volume" };
        /// Where it appears.
        destination "destination": String { newer true, example "/data" };
        /// Mount options.
        options "options": Vec<String> { newer true, example "[ro]" };
    }
}

section! {
    /// Memory as a directory of a container.
    TmpfsMount {
        /// Where it appears.
        destination "destination": String { newer true, example "/tmp" };
        /// Its size.
        size "size": String { newer true, example "64MiB" };
        /// Mount options.
        options "options": Vec<String> { newer true, example "[noexec]" };
    }
}

section! {
    /// A directory of the host in a container.
    HostPathMount {
        /// On the host.
        source "source": String { newer true, example "/var/lib/exporter" };
        /// In the container.
        destination "destination": String { newer true, example "/data" };
        /// Mount options.
        options "options": Vec<String> { newer true, example "[rbind, ro]" };
    }
}

section! {
    /// What a container may do.
    ContainerSecurity {
        /// Name of the profile.
        profile "profile": String { newer true, example "default" };
        /// Its capabilities.
        capabilities "capabilities": Option<ContainerCapabilities> { newer true };
    }
}

section! {
    /// Capabilities of a container.
    ContainerCapabilities {
        /// Beside those of the profile.
        add "add": Vec<String> { newer true, example "[NET_ADMIN]" };
        /// Without these.
        drop "drop": Vec<String> { newer true, example "[ALL]" };
    }
}

section! {
    /// Network of a container.
    ContainerNetwork {
        /// Which one.
        mode "mode": String { newer true, example "host" };
    }
}

section! {
    /// Processor time and memory of a container.
    ContainerResources {
        /// What is the most.
        limits "limits": Option<ContainerLimits> { newer true };
    }
}

section! {
    /// The most that a container takes.
    ContainerLimits {
        /// Processor time, as Kubernetes writes it.
        cpu "cpu": String { newer true, example "500m" };
        /// Memory, as Kubernetes writes it.
        memory "memory": String { newer true, example "64Mi" };
    }
}

section! {
    /// What a container waits for.
    ContainerDependencies {
        /// Paths that exist.
        paths "paths": Vec<String> { newer true, example "[/run/ready]" };
        /// States of the network: `addresses`, `connectivity`, `hostname`, `etcfiles`.
        networks "networks": Vec<String> { newer true, example "[addresses]" };
        /// The time is right.
        time "time": Option<bool> { newer true };
        /// Containers that run.
        containers "containers": Vec<String> { newer true, example "[proxy]" };
    }
}
