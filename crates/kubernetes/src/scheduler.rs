//! The static pod of the scheduler, and its configuration file.
//!
//! Source: `kube-scheduler --help` of each minor (testdata/flags); KubeSchedulerConfiguration of Kubernetes.

use serde_json::{Value, json};

use crate::arguments::{Arguments, fixed, flag};
use crate::file::{File, Owner, headed, yaml};
use crate::pod::{Probe, Rendered, StaticPod};
use crate::version::{ALWAYS, Minors, until};
use crate::{Cluster, Error, images, paths};

/// Name of the pod and its program.
pub const NAME: &str = "kube-scheduler";
/// Its port on loopback.
const PORT: u16 = 10259;
/// Its configuration.
const FILE: &str = "scheduler-config.yaml";
/// Form of the configuration.
const API: [(Minors, &str); 3] = [
    (until(21), "kubescheduler.config.k8s.io/v1beta1"),
    (until(24), "kubescheduler.config.k8s.io/v1beta2"),
    (ALWAYS, "kubescheduler.config.k8s.io/v1"),
];

/// Whether this node runs it.
#[must_use]
pub fn is_wanted(cluster: &Cluster<'_>) -> bool {
    let parts = cluster.config().machine.control_plane.as_ref();
    let switch = parts.and_then(|parts| parts.scheduler.as_ref());
    !switch.is_some_and(|switch| switch.disabled)
}

/// Name of the pod's file and the pod.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`].
pub fn pod(cluster: &Cluster<'_>, rendered: &Rendered) -> Result<(String, Value), Error> {
    let settings = cluster.scheduler();
    let probe = Probe::Https { path: "/healthz", port: PORT };
    let pod = StaticPod {
        name: NAME,
        image: images::scheduler(cluster),
        command: [vec![NAME.to_owned()], arguments(cluster)?.to_vec()].concat(),
        owner: Owner::Scheduler,
        env: settings.env.clone(),
        directories: &[("secrets", paths::SCHEDULER_SECRETS), ("config", paths::SCHEDULER_CONFIG)],
        writes: None,
        extra_volumes: &settings.extra_volumes,
        resources: settings.resources.as_ref(),
        requests: ("10m", "64Mi"),
        startup: Some(probe),
        readiness: None,
        liveness: Some(probe),
        rendered,
    };
    Ok((pod.name.to_owned(), pod.to_value()))
}

/// Arguments of the program.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`].
pub fn arguments(cluster: &Cluster<'_>) -> Result<Arguments, Error> {
    let kubeconfig = format!("{}/kubeconfig", paths::SCHEDULER_SECRETS);
    let flags = [
        fixed("authentication-kubeconfig", kubeconfig.as_str()),
        fixed("authorization-kubeconfig", kubeconfig.as_str()),
        flag("authentication-tolerate-lookup-failure", "false"),
        flag("bind-address", "127.0.0.1"),
        fixed("config", format!("{}/{FILE}", paths::SCHEDULER_CONFIG)),
        flag("leader-elect", "true"),
        // Ended with 1.24; before, it served figures to everybody.
        flag("port", "0").only(until(23)),
        flag("profiling", "false"),
        flag("tls-min-version", "VersionTLS13"),
    ];
    let built_in = Arguments::built_in(images::scheduler_version(cluster)?, flags);
    built_in.with("cluster.scheduler.extraArgs", &cluster.scheduler().extra_args)
}

/// Its configuration: the user's, with the connection and the election that the node needs.
///
/// # Errors
/// [`Error::Version`], [`Error::NotAMapping`].
pub fn files(cluster: &Cluster<'_>) -> Result<Vec<File>, Error> {
    let api = Minors::pick(&API, images::scheduler_version(cluster)?).unwrap_or_default();
    let empty = config::schema::Value::Map(Vec::new());
    let given = cluster.scheduler().config.unwrap_or(empty);
    let mut config = headed("cluster.scheduler.config", &given, api, "KubeSchedulerConfiguration")?;
    if let Value::Object(fields) = &mut config {
        let kubeconfig = format!("{}/kubeconfig", paths::SCHEDULER_SECRETS);
        fields.insert("clientConnection".to_owned(), json!({ "kubeconfig": kubeconfig }));
        fields.entry("enableProfiling").or_insert(Value::Bool(false));
        fields.entry("leaderElection").or_insert_with(|| json!({ "leaderElect": true }));
    }
    let text = yaml(FILE, &config)?;
    Ok(vec![File::new(paths::SCHEDULER_CONFIG, FILE, Owner::Scheduler, text)])
}
