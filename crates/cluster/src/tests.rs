use super::*;

#[test]
fn a_network_has_this_machine_first_and_then_the_nodes() {
    let network: network::Network = "10.5.0.77/24".parse().unwrap();
    assert_eq!(network.cidr(), "10.5.0.0/24");
    assert_eq!(network.host().to_string(), "10.5.0.1");
    assert_eq!(network.node(0).unwrap().to_string(), "10.5.0.2");
    assert_eq!(network.node(252).unwrap().to_string(), "10.5.0.254");
    assert_eq!(network.node(253), None);
    for text in ["10.5.0.0", "10.5.0.0/30", "fd00::/64", "10.5.0.0/x"] {
        let error = text.parse::<network::Network>().unwrap_err().to_string();
        assert!(error.contains("is no network for nodes"), "{error}");
    }
}

fn node(name: &str, address: &str) -> NodeSpec {
    NodeSpec { name: name.into(), address: address.parse().unwrap(), is_control_plane: true, config: None }
}

#[test]
fn what_contradicts_itself_is_named() {
    let network = "10.5.0.0/24".parse().unwrap();
    let refused =
        |name: &str, nodes: &[NodeSpec]| spec::check(name, &network, nodes).unwrap_err().to_string();
    assert!(refused("My Cluster", &[]).starts_with("cluster name \"My Cluster\": use"));
    assert!(refused("demo", &[node("cp-1", "10.5.0.1")]).contains("10.5.0.1 is no address for a node"));
    assert!(refused("demo", &[node("cp-1", "10.6.0.2")]).contains("10.6.0.2 is no address for a node"));
    let same = [node("cp-1", "10.5.0.2"), node("cp-1", "10.5.0.3")];
    assert!(refused("demo", &same).contains("have the same name or address"));
    assert!(spec::check("demo", &network, &[node("cp-1", "10.5.0.2"), node("worker-1", "10.5.0.3")]).is_ok());
}

#[test]
fn a_node_has_its_config_in_the_environment_and_no_more_rights_than_the_host() {
    let mut node = node("cp-1", "10.5.0.2");
    node.config = Some(config::Secret::new("version: v1alpha1\n"));
    let places = bundle::Places::below(Path::new("/state/demo/cp-1"), Path::new("/run/netns/demo.cp-1"));
    let bundle = bundle::configuration(&node, &places, "/billet/demo/cp-1");
    assert_eq!(bundle["process"]["env"][1], "USERDATA=dmVyc2lvbjogdjFhbHBoYTEK");
    let rights = bundle["process"]["capabilities"]["bounding"].as_array().unwrap();
    assert!(!rights.iter().any(|right| right == "CAP_SYS_MODULE" || right == "CAP_SYS_TIME"));
    assert_eq!(bundle["linux"]["namespaces"][5]["path"], "/run/netns/demo.cp-1");
}

#[test]
fn a_cluster_that_is_not_there_is_named() {
    let state = tempfile::tempdir().unwrap();
    let error = find(state.path(), "demo").unwrap_err().to_string();
    assert!(error.starts_with("there is no cluster \"demo\""), "{error}");
}

#[test]
fn nodes_of_two_clusters_have_two_names() {
    let cluster = |name: &str| Cluster {
        name: name.into(),
        network: "10.5.0.0/24".parse().unwrap(),
        image: Image { layers: Vec::new(), init: PathBuf::new(), manifest: PathBuf::new() },
        nodes: Vec::new(),
        turned_forwarding_on: false,
        directory: PathBuf::new(),
    };
    assert_ne!(cluster("a-b").container("c"), cluster("a").container("b-c"));
}

/// Runs the named test of this program once more, in namespaces of its own for network and mounts.
fn in_namespaces(test: &str) -> bool {
    // The switches of a network are those of the namespace in which its files were mounted.
    let script = "ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && mount -t proc proc /proc && exec \"$@\"";
    let flags = ["--net", "--mount", "--pid", "--fork", "--propagation", "private"];
    namespaces::is_inside_of(test, &flags, script)
}

/// Lines of the rules that are in force.
fn rules() -> String {
    program::run("nft", &["list", "ruleset"]).unwrap()
}

#[test]
#[ignore = "makes a network: `cargo xtask test` runs it as root"]
fn nodes_reach_the_outside_and_nothing_is_left_behind() {
    if !in_namespaces("tests::nodes_reach_the_outside_and_nothing_is_left_behind") {
        return;
    }
    let ip = |words: &[&str]| program::run("ip", words).unwrap();
    // Another machine outside: it knows no way to the network of the nodes.
    ip(&["netns", "add", "outside"]);
    ip(&["link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", "outside"]);
    ip(&["address", "add", "192.0.2.1/24", "dev", "uplink"]);
    ip(&["link", "set", "uplink", "up"]);
    ip(&["-n", "outside", "address", "add", "192.0.2.2/24", "dev", "eth0"]);
    ip(&["-n", "outside", "link", "set", "eth0", "up"]);
    // Docker's policy.
    program::run("nft", &["add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }"])
        .unwrap();
    let before = rules();
    fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();

    let network: network::Network = "10.5.0.0/24".parse().unwrap();
    network.make_bridge("demo").unwrap();
    assert!(nat::make(&network, "demo").unwrap(), "the switch was off");
    network.make_namespace("demo", "demo.cp-1", "10.5.0.2".parse().unwrap()).unwrap();
    // Nothing listens there: a refusal is an answer.
    let reaches = |from: &str, to: &str| {
        let connect = format!("exec 3<>/dev/tcp/{to}/9");
        let words = ["netns", "exec", from, "timeout", "2", "bash", "-c", &connect];
        let output = std::process::Command::new("ip").args(words).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("refused")
    };
    assert!(reaches("demo.cp-1", "192.0.2.2"), "{}", rules());
    ip(&["-n", "outside", "route", "add", "10.5.0.0/24", "via", "192.0.2.1"]);
    assert!(!reaches("outside", "10.5.0.2"), "only answers come in");

    for _ in 0..2 {
        network.remove_namespace("demo.cp-1").unwrap();
        network.remove_bridge("demo").unwrap();
        nat::remove("demo").unwrap();
    }
    assert_eq!(rules(), before);
}
