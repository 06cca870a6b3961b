use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Writes what it was told beside itself, and answers as a plugin does, or fails where a file says so.
const PLUGIN: &str = r#"#!/bin/sh
own=$(dirname "$0")
cat > "$own/told-$CNI_COMMAND"
[ -f "$own/fail" ] && { echo '{"code": 999, "msg": "no"}'; exit 1; }
echo '{"cniVersion": "0.3.1", "ips": []}'
"#;

struct Node {
    directory: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { directory: tempfile::tempdir().unwrap() };
        let plugin = node.path("bridge");
        fs::write(&plugin, PLUGIN).unwrap();
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
        fs::write(node.path("subnet.env"), settings).unwrap();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn call(&self, command: &str, container: &str) -> Result<String, Error> {
        let call = Call {
            command: command.to_owned(),
            container: container.to_owned(),
            path: self.directory.path().as_os_str().to_owned(),
            patience: Duration::ZERO,
        };
        let configuration = json!({
            "name": "cbr0", "cniVersion": "0.3.1", "type": "flannel",
            "subnetFile": self.path("subnet.env"), "dataDir": self.path("data"),
            "runtimeConfig": { "portMappings": [] },
            "delegate": { "hairpinMode": true, "isDefaultGateway": true },
        });
        let answer = answer(&call, configuration.to_string().as_bytes())?;
        Ok(String::from_utf8(answer).unwrap())
    }

    fn told(&self, command: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(&format!("told-{command}"))).unwrap()).unwrap()
    }
}

#[test]
fn a_pod_gets_its_interface_by_the_settings_of_the_daemon_and_loses_it_by_the_same() {
    let node = Node::new();
    assert!(node.call("ADD", "pod").unwrap().contains("\"ips\""));
    let expected = json!({
        "name": "cbr0", "cniVersion": "0.3.1", "type": "bridge", "runtimeConfig": { "portMappings": [] },
        "hairpinMode": true, "isDefaultGateway": true, "isGateway": true, "ipMasq": false, "mtu": 1450,
        "ipam": {
            "type": "host-local",
            "ranges": [[{ "subnet": "10.244.1.0/24" }]],
            "routes": [{ "dst": "10.244.0.0/16" }],
        },
    });
    assert_eq!(node.told("ADD"), expected);
    node.call("CHECK", "pod").unwrap();
    // The node has another part of the network since.
    fs::write(node.path("subnet.env"), "FLANNEL_NETWORK=10.9.0.0/16\nFLANNEL_SUBNET=10.9.1.1/24\n").unwrap();
    node.call("DEL", "pod").unwrap();
    assert_eq!(node.told("DEL"), expected);
    assert!(!node.path("data/pod").exists());
    assert_eq!(node.call("DEL", "pod").unwrap(), "", "what is gone is gone");
    assert!(matches!(node.call("CHECK", "pod"), Err(Error::UnknownContainer)));
}

#[test]
fn what_failed_on_the_way_back_is_tried_again_with_the_same() {
    let node = Node::new();
    node.call("ADD", "pod").unwrap();
    fs::write(node.path("fail"), "").unwrap();
    let error = node.call("DEL", "pod").unwrap_err();
    assert_eq!(error.to_json(), json!({ "code": 999, "msg": "no" }), "the other plugin's own words");
    assert!(node.path("data/pod").exists());
    fs::remove_file(node.path("fail")).unwrap();
    node.call("DEL", "pod").unwrap();
}

#[test]
fn what_is_wrong_is_said_in_the_form_of_the_specification() {
    let node = Node::new();
    fs::remove_file(node.path("subnet.env")).unwrap();
    let error = node.call("ADD", "pod").unwrap_err().to_json();
    assert_eq!(error["code"], 11);
    assert!(error["msg"].as_str().unwrap().ends_with("the pod of flannel on this node has not started yet"));
    for container in ["", "..", "a/b", "/etc/passwd"] {
        assert!(matches!(node.call("DEL", container), Err(Error::Container(_))), "{container:?}");
    }
    assert_eq!(node.call("NONE", "pod").unwrap_err().to_json()["code"], 4);
    let call = |path: &str, text: &str| {
        let call = Call {
            command: "ADD".into(),
            container: "pod".into(),
            path: path.into(),
            patience: Duration::ZERO,
        };
        answer(&call, text.as_bytes()).unwrap_err().to_string()
    };
    assert!(call("", "no").starts_with("the configuration is not understood: "));
    fs::write(node.path("subnet.env"), "FLANNEL_NETWORK=10.9.0.0/16\nFLANNEL_SUBNET=10.9.1.1/24\n").unwrap();
    let with = |delegate: Value| {
        json!({ "subnetFile": node.path("subnet.env"), "dataDir": node.path("data"), "delegate": delegate })
            .to_string()
    };
    assert!(call("/none", &with(json!({}))).starts_with("there is no plugin \"bridge\" in /none"));
    assert!(call("/none", &with(json!({"type": "../bin/sh"}))).starts_with("there is no plugin"));
    assert!(call("/none", &with(json!({"ipam": {}}))).contains("leave it out"));
}

#[test]
fn versions_are_told_without_a_configuration() {
    let call = Call {
        command: "VERSION".into(),
        container: String::new(),
        path: OsString::new(),
        patience: Duration::ZERO,
    };
    let told: Value = serde_json::from_slice(&answer(&call, b"").unwrap()).unwrap();
    assert!(told["supportedVersions"].as_array().unwrap().contains(&json!("0.3.1")));
}
