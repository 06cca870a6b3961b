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
    NodeSpec { name: name.into(), address: address.parse().unwrap(), config: None }
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
        directory: PathBuf::new(),
    };
    assert_ne!(cluster("a-b").container("c"), cluster("a").container("b-c"));
}
