//! The table as nft prints it, and what comes through from another machine.

use std::net::{TcpListener, TcpStream};
use std::process::Command;

use super::*;
use crate::network::testing::{Neighbour, done, ip, is_inside};

const TEST: &str = "network::firewall::tests::only_who_may_comes_in";
const BLOCK: &str = "---\napiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n";

fn rule(name: &str, ports: &str, protocol: &str, ingress: &str) -> String {
    format!(
        "---\napiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: {name}\nportSelector: {{ports: {ports}, protocol: {protocol}}}\ningress: {ingress}\n"
    )
}

fn firewall(documents: &str) -> Option<Firewall> {
    let text = format!("version: v1alpha1\nmachine: {{token: aaaaaa.bbbbbbbbbbbbbbbb}}\n{documents}");
    let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    network_plan::plan(&Default::default(), Some(&loaded.config), &loaded.documents, &[]).firewall
}

fn printed() -> String {
    let text = done(Command::new("nft").args(["list", "ruleset"]));
    let lines = text.lines().map(|line| match line.split_once(" counter packets ") {
        // What was counted is another one's.
        Some((before, counted)) => format!("{before} {}", counted.splitn(4, ' ').nth(3).unwrap()),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether the neighbour reaches a port of an address here, within a second.
fn comes_in(neighbour: &Neighbour, address: &str, port: u16) -> bool {
    let connect = format!("exec 3<>/dev/tcp/{address}/{port}");
    neighbour.inside("timeout").args(["1", "bash", "-c", &connect]).output().unwrap().status.success()
}

#[tokio::test]
async fn only_who_may_comes_in() {
    if !is_inside(TEST) {
        return;
    }
    let neighbour = Neighbour::start();
    for address in ["10.9.0.2/24", "10.8.0.2/24", "fd00::2/64"] {
        // Without a wait for another machine with it.
        let nodad = if address.contains(':') { " nodad" } else { "" };
        ip(&format!("address add {address} dev eth0{nodad}"));
        neighbour.ip(&format!("address add {} dev srv0{nodad}", address.replace("2/", "1/")));
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("system/run/machined")).unwrap();
    let runtime = Runtime::detached(directory.path().to_path_buf());
    let mut filter = Filter::new(&runtime);
    let listeners = [7001, 7002, API_PORT].map(|port| TcpListener::bind(("::", port)).unwrap());
    let [by_v4, by_other, by_v6] = ["10.9.0.2", "10.8.0.2", "fd00::2"];
    assert!(comes_in(&neighbour, by_other, 7001) && comes_in(&neighbour, by_v6, 7001));

    // A connection that is there lives on.
    let mut held = neighbour.inside("bash");
    held.args(["-c", &format!("exec 3<>/dev/tcp/{by_v4}/7002; head -c 1 <&3; echo on >&3; cat <&3")]);
    let mut held = held.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let (mut stream, _) = listeners[1].accept().unwrap();

    let some = "[{subnet: 10.9.0.0/24, except: 10.9.0.128/25}, {subnet: 'fd00::/8'}]";
    let documents = BLOCK.to_owned() + &rule("web", "[7001, 7100-7200]", "tcp", some);
    filter.bring(firewall(&documents).as_ref()).await.unwrap();
    let wanted = "table inet billet {
	chain ingress {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		iifname \"lo\" accept
		ip saddr 10.244.0.0/16 accept
		ip saddr 10.96.0.0/12 accept
		tcp dport 7001-7001 jump rule-0-web
		tcp dport 7100-7200 jump rule-0-web
		tcp dport 7001-7001 drop
		tcp dport 7100-7200 drop
		meta l4proto icmp accept
		meta l4proto ipv6-icmp accept
		udp dport 68-68 accept
		udp dport 546-546 accept
		tcp dport 50000-50000 accept
	}

	chain rule-0-web {
		ip saddr 10.9.0.0/25 accept
		ip6 saddr fd00::/8 accept
	}
}";
    assert_eq!(printed(), wanted);
    let reached = |port| [by_v4, by_other, by_v6].map(|address| comes_in(&neighbour, address, port));
    assert_eq!(reached(7001), [true, false, true]);
    assert_eq!(reached(7002), [false; 3]);
    assert!(comes_in(&neighbour, by_other, API_PORT), "the first document locks no client out");
    // The kernel learns of it when the side sends that may.
    std::io::Write::write_all(&mut stream, b"?").unwrap();
    let mut word = [0; 3];
    std::io::Read::read_exact(&mut stream, &mut word).unwrap();
    assert_eq!(&word, b"on\n");
    let _ = held.kill();
    let _ = held.wait();

    // The same again is no transaction, and a rule of the API's port has effect.
    filter.bring(firewall(&documents).as_ref()).await.unwrap();
    let api = BLOCK.to_owned() + &rule("api", "[50000]", "tcp", "[{subnet: 10.9.0.0/24}]");
    filter.bring(firewall(&api).as_ref()).await.unwrap();
    assert_eq!(reached(API_PORT), [true, false, false]);

    // A virtual router hears the others.
    let router = "---\napiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: billet-vrrp\nenvironment: \
                  [ADDRESS=10.9.0.100, LINK=eth0, ROUTER_ID=51]\n";
    filter.bring(firewall(&(BLOCK.to_owned() + router)).as_ref()).await.unwrap();
    assert!(printed().contains("meta l4proto vrrp accept"), "{}", printed());

    // Without a default, only what a rule names is closed.
    let named = rule("web", "[7001]", "tcp", "[{subnet: 10.8.0.0/24}]");
    filter.bring(firewall(&named).as_ref()).await.unwrap();
    assert_eq!((reached(7001), reached(7002)), ([false, true, false], [true; 3]));

    // Of etcd's ports, members reach all, and no other sender any, whatever the documents leave open.
    let etcd = TcpListener::bind(("::", 2379)).unwrap();
    let members = ["10.9.0.1", "fd00::1"].map(|address| address.parse().unwrap());
    let closed = network_plan::firewall::close_etcd(None, &members);
    filter.bring(Some(&closed)).await.unwrap();
    assert_eq!((reached(2379), reached(7002)), ([true, false, true], [true; 3]));
    filter.bring(Some(&network_plan::firewall::close_etcd(None, &[]))).await.unwrap();
    assert_eq!(reached(2379), [false; 3]);
    ip("link set lo up");
    assert!(TcpStream::connect("10.9.0.2:2379").is_ok(), "the node's own programs");
    drop(etcd);

    // A new machined removes what the one before made.
    let mut filter = Filter::new(&runtime);
    filter.bring(None).await.unwrap();
    assert_eq!(printed(), "");
    assert_eq!(reached(7001), [true; 3]);
    assert!(!runtime.path(MARKER).exists());
}

#[tokio::test]
async fn a_machine_without_a_firewall_is_not_asked_for_one() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::detached(directory.path().to_path_buf());
    // Without a marker nothing is sent: here there is no privilege to send it.
    Filter::new(&runtime).bring(None).await.unwrap();
    let refused = Filter::new(&runtime).bring(firewall(BLOCK).as_ref()).await.unwrap_err();
    assert!(refused.starts_with("firewall: note it in "), "{refused}");
}
