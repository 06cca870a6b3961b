//! What sequences are made of.

use sequence::{Phase, Task};

use crate::node::Node;
use crate::tasks;

/// A task of machined.
pub(crate) type TaskFn = runtime::sequencer::TaskFn<Node>;

/// A task under the name that events carry.
pub(super) const fn named(name: &'static str, about: &'static str, run: TaskFn) -> Task<TaskFn> {
    Task { name, about, run }
}

/// While all services run.
pub(super) const DRAIN: Phase<TaskFn> = Phase {
    name: "drain",
    tasks: &[named(
        "cordonAndDrainNode",
        "has pods go elsewhere and no further ones come, where that was asked for",
        tasks::drain,
    )],
};

/// Behind it.
pub(super) const LEAVE: Phase<TaskFn> = Phase {
    name: "leave",
    tasks: &[named(
        "leave",
        "leaves etcd's cluster, where a graceful reset wants that",
        tasks::leave_cluster,
    )],
};

/// Before [`STOP`].
pub(super) const CLEAN_UP: Phase<TaskFn> = Phase {
    name: "cleanup",
    tasks: &[named("stopAllPods", "stops the kubelet, then pods, each with its grace", tasks::stop_all_pods)],
};

/// How every sequence ends that ends the machine.
pub(super) const STOP: Phase<TaskFn> = Phase {
    name: "stopEverything",
    tasks: &[named("stopAllServices", "stops all services, dependants first", tasks::stop_all_services)],
};

/// Behind it, where the machine stays off.
pub(super) const TURN_OFF: Phase<TaskFn> =
    Phase { name: "shutdown", tasks: &[named("shutdown", "asks init to cut the power", tasks::shutdown)] };
