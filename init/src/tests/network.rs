//! Roots from the network: a server in memory at the other end of the cable.

use handoff::ToMachined;
use netroot::peer::{Answer, Authority, GOOD, MAC, Manner, SECOND, Site};
use ondisk::manifest::AUTHORITIES_PATH;
use sys::Errno;

use super::golden;
use super::world::{machine, root, short_life, site, with_card, with_network};
use crate::kernel::End;
use crate::recording::Recording;

const LINE: &str = "billet.root=http://10.77.0.1/layers";

/// The layers as the server has them, in one piece for comparison.
fn fetched(kernel: &Recording) -> Vec<u8> {
    let files = root().0.layers.into_iter().map(|layer| format!("/run/billet/network/{}", layer.file_name()));
    files.flat_map(|file| kernel.files.get(&file).cloned().unwrap_or_default()).collect()
}

fn comes_up(kernel: Recording) -> Recording {
    let mut kernel = short_life(kernel);
    crate::run(&mut kernel);
    assert_eq!(kernel.errors(), Vec::<&str>::new(), "{:#?}", kernel.logs);
    assert_eq!(kernel.ends.first(), Some(&End::PowerOff));
    assert!(fetched(&kernel) == root().1);
    kernel
}

/// Runs to the failure and returns its line.
fn line(mut kernel: Recording) -> String {
    crate::run(&mut kernel);
    assert_eq!(kernel.ends, [End::Restart], "{:#?}", kernel.logs);
    let errors = kernel.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors[0].strip_suffix("; restarting in 10 s").unwrap().to_string()
}

#[test]
fn from_the_network() {
    let kernel = comes_up(with_network(machine(LINE), [site(80, Manner::Good)]));
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.root_source, "http://10.77.0.1/layers/");
    // Which frames there are is smoltcp's business.
    let calls = kernel.calls.iter().filter(|call| !call.contains("frame of") && *call != "wait for frames");
    golden("boot-network.txt", &(calls.cloned().collect::<Vec<_>>().join("\n") + "\n"));
}

#[test]
fn the_kernels_own_network_is_as_it_was() {
    let kernel = comes_up(with_network(machine(LINE), [site(80, Manner::Good)]));
    let of_card: Vec<&str> = kernel
        .calls
        .iter()
        .map(String::as_str)
        .filter(|call| {
            call.starts_with("write /sys/class/net") || call.contains("ipv6") || call.contains("set merging")
        })
        .filter(|call| !call.starts_with("read"))
        .collect();
    assert_eq!(
        of_card,
        [
            "write /proc/sys/net/ipv6/conf/eth0/disable_ipv6 1",
            "write /sys/class/net/eth0/flags 0x1003",
            "set merging of eth0: kernel false, card false",
            "write /sys/class/net/eth0/flags 0x1002",
            "set merging of eth0: kernel true, card false",
            "write /proc/sys/net/ipv6/conf/eth0/disable_ipv6 0",
        ]
    );
}

#[test]
fn a_server_that_goes_away_in_the_middle() {
    let kernel = with_network(machine(LINE), [site(80, Manner::Breaks(vec![5000]))]);
    let kernel = comes_up(kernel);
    let said = kernel.warnings().join("\n");
    assert!(said.contains("layer base from http://10.77.0.1/layers/"), "{said}");
    assert!(said.contains("the connection ended after 5000 of 12288 bytes"), "{said}");
}

#[test]
fn wrong_bytes_and_then_a_mirror_with_the_right_ones() {
    let mut bad = site(80, Manner::Good);
    for answer in bad.files.values_mut() {
        let Answer::File(bytes) = answer else { continue };
        bytes[4097] ^= 1;
    }
    let lines = format!("{LINE},http://10.77.0.1:81/layers");
    let kernel = comes_up(with_network(machine(&lines), [bad.clone(), site(81, Manner::Good)]));
    let wanted = root().0.layers[1].root_hash;
    let said = kernel.warnings().join("\n");
    assert!(said.contains("layer kernel from http://10.77.0.1/layers/"), "{said}");
    assert!(said.contains(&format!(", the root manifest has {wanted}")), "{said}");
    let text = line(with_network(machine(LINE), [bad]));
    let start = "boot failed: fetch_layers: fetch root: layer base: http://10.77.0.1/layers/";
    assert!(text.starts_with(start) && text.contains(": wrong digest: the root hash is "), "{text}");
    let mut bad = site(80, Manner::Good);
    for answer in bad.files.values_mut() {
        let Answer::File(bytes) = answer else { continue };
        bytes[8200] ^= 1;
    }
    let text = line(with_network(machine(LINE), [bad]));
    assert!(text.ends_with("wrong digest: its hash tree is not that of its data"), "{text}");
}

#[test]
fn too_little_memory_is_said_before_anything_is_done() {
    let kernel = with_network(machine(LINE), [site(80, Manner::Good)]);
    let mut kernel = kernel.file("/proc/meminfo", "MemAvailable:   100000 kB\n");
    crate::run(&mut kernel);
    let text = "boot failed: check_memory: fetch root into memory: needs 136 MB: 1 MB for its layers and 135 MB for \
                what runs; 102 MB are free; restarting in 10 s";
    assert_eq!(kernel.errors(), [text]);
    assert!(!kernel.calls.iter().any(|call| call.starts_with("write /sys/class/net")));
}

#[test]
fn nobody_gives_an_address_and_nobody_has_the_file() {
    let mut kernel = with_network(machine(LINE), [site(80, Manner::Good)]);
    kernel.network.dhcp.clear();
    let text = "boot failed: take_address: take an address from the network: eth0: no DHCP server gave an address \
                within 60 s; give one with ip=ADDRESS::GATEWAY:NETMASK::INTERFACE";
    assert_eq!(line(kernel), text);
    let text = line(with_network(machine(LINE), [Site::new(80, Manner::Good)]));
    assert!(text.ends_with(".layer: it answers 404 Not Found"), "{text}");
}

#[test]
fn a_dhcp_server_without_a_next_server_does() {
    let mut kernel = with_network(machine(LINE), [site(80, Manner::Good)]);
    kernel.network.no_next_server = true;
    let kernel = comes_up(kernel);
    let wanted = "log Info eth0: address 10.77.0.100/24, gateway 10.77.0.1, from the DHCP server 10.77.0.1";
    assert!(kernel.calls.iter().any(|call| call == wanted), "{:#?}", kernel.logs);
}

#[test]
fn a_second_dhcp_server_is_a_warning() {
    let mut kernel = with_network(machine(LINE), [site(80, Manner::Good)]);
    kernel.network.dhcp.push(SECOND);
    let kernel = comes_up(kernel);
    assert_eq!(kernel.warnings()[0], "another DHCP server is on this network: 10.77.0.2");
}

#[test]
fn a_server_that_says_nothing_meets_its_deadline_while_the_watchdog_is_fed() {
    let mut kernel = with_network(machine(LINE), [site(80, Manner::Mute)]);
    crate::run(&mut kernel);
    let errors = kernel.errors();
    assert!(
        errors[0].contains("layer base: given up after 180 s") && errors[0].contains("no answer within 20 s")
    );
    let fed = kernel.calls.iter().filter(|call| *call == "feed watchdog").count();
    assert!(fed > 10, "{fed}");
}

#[test]
fn no_card_and_no_carrier_within_their_deadlines() {
    let mut kernel = with_network(machine(LINE), []);
    kernel.files.retain(|path, _| !path.starts_with("/sys/class/net/eth0"));
    let text = "boot failed: raise_cards: wait for a network card with a driver: not there after 45 s";
    assert_eq!(line(kernel), text);
    let kernel = with_network(machine(LINE), []).file("/sys/class/net/eth0/carrier", "0\n");
    let text = "boot failed: raise_cards: wait for a carrier on eth0: none after 60 s; plug in a cable, or name \
                another card in ip=";
    assert_eq!(line(kernel), text);
}

#[test]
fn the_card_of_the_firmware_comes_before_the_first() {
    let other = [2, 0, 0, 0, 0, 9];
    let with_two = |line: &str| {
        let kernel = with_network(machine(line), [site(80, Manner::Good)]);
        with_card(kernel, "eth1", other)
    };
    let card = MAC.map(|byte| format!("{byte:02x}")).join("-");
    let kernel = comes_up(with_two(&format!("{LINE} BOOTIF=01-{card}")));
    assert!(!kernel.calls.iter().any(|call| call.starts_with("write /sys/class/net/eth1")));
    let kernel = comes_up(with_two(&format!("{LINE} ip=10.77.0.9:::24::eth0")));
    assert!(!kernel.calls.iter().any(|call| call.starts_with("write /sys/class/net/eth1")));
    let is_untouched = |kernel: &Recording, card: &str| {
        let own = format!("write /sys/class/net/{card}");
        !kernel.calls.iter().any(|call| call.starts_with(&own))
    };
    let (bond, other) = ("bond=bond0:eth0,eth1 ip=bond0:dhcp", "BOOTIF=01-02-00-00-00-00-09");
    // A card that somebody named before the one that the script passes; of several it is that one.
    let kernel = comes_up(with_two(&format!("{LINE} ip=eth0:dhcp {other}")));
    assert!(is_untouched(&kernel, "eth1") && !is_untouched(&kernel, "eth0"));
    let kernel = comes_up(with_two(&format!("{LINE} {bond} BOOTIF=01-{card}")));
    assert!(is_untouched(&kernel, "eth1") && !is_untouched(&kernel, "eth0"));
    // One that is not there.
    let kernel = comes_up(with_two(&format!("{LINE} ip=enp9s0:dhcp BOOTIF=01-{card}")));
    assert_eq!(kernel.warnings()[0], "there is no card that ip= names; tried are eth0");
    assert!(is_untouched(&kernel, "eth1"));
    let kernel = comes_up(with_two(&format!("{LINE} ip=10.77.0.9:::24::enp9s0")));
    assert_eq!(kernel.warnings()[0], "there is no card that ip= names; tried are eth0, eth1");
    assert!(kernel.calls.iter().any(|call| call == "write /sys/class/net/eth1/flags 0x1002"));
}

#[test]
fn a_vlan() {
    let mut kernel =
        with_network(machine(&format!("{LINE} vlan=eth0.5:eth0 ip=eth0.5:dhcp")), [site(80, Manner::Good)]);
    kernel.network.vlan = Some(5);
    let kernel = comes_up(kernel);
    let wanted =
        "log Info eth0, VLAN 5: address 10.77.0.100/24, gateway 10.77.0.1, from the DHCP server 10.77.0.1";
    assert!(kernel.calls.iter().any(|call| call == wanted), "{:#?}", kernel.logs);
    // Promiscuous meanwhile: otherwise the card itself drops what has a tag.
    let flags = kernel.calls.iter().filter(|call| call.starts_with("write /sys/class/net/eth0/flags"));
    assert_eq!(
        Vec::from_iter(flags),
        ["write /sys/class/net/eth0/flags 0x1103", "write /sys/class/net/eth0/flags 0x1002"]
    );
}

#[test]
fn a_card_that_is_pulled_out() {
    let mut kernel = with_network(machine(LINE), [site(80, Manner::Good)]);
    kernel.always_fail.push(("receive frame", Errno::NODEV));
    let text = line(kernel);
    assert!(text.contains("eth0: receive frame from eth0: ENODEV"), "{text}");
}

/// With the certificate of this authority in the initramfs.
fn trusting(kernel: Recording, authority: &Authority) -> Recording {
    kernel.file(AUTHORITIES_PATH, authority.pem.clone())
}

const SECURE: &str = "billet.root=https://10.77.0.1/layers";

#[test]
fn by_https_from_a_server_that_is_believed() {
    let (known, stranger) = (Authority::new("Known"), Authority::new("Stranger"));
    let secure = |by: &Authority| site(443, Manner::Good).secure(by.server(&["10.77.0.1"], GOOD));
    let kernel = with_network(machine(SECURE), [secure(&known)]);
    let kernel = comes_up(trusting(kernel, &known));
    let Some(ToMachined::Start(start)) = kernel.sent.first() else { panic!("no start") };
    assert_eq!(start.report.root_source, "https://10.77.0.1/layers/");
    // That of the recorded machine is behind the build.
    let wanted = "the clock is wrong: certificates count from their own first day on";
    assert_eq!(kernel.warnings().first(), Some(&wanted));
    let text = line(trusting(with_network(machine(SECURE), [secure(&stranger)]), &known));
    assert!(text.contains("(issued by \"Stranger\") is not trusted"), "{text}");
}

#[test]
fn https_without_an_authority_is_refused_before_anything_is_done() {
    let mut kernel = with_network(machine(SECURE), []);
    crate::run(&mut kernel);
    let text = "boot failed: read_authorities: fetch root from https://10.77.0.1/layers: https needs an authority to \
                trust, and this image has none; make it with image build --certificate FILE, or use http: what comes \
                is compared with the root manifest anyway; restarting in 10 s";
    assert_eq!(kernel.errors(), [text]);
    assert!(!kernel.calls.iter().any(|call| call.starts_with("write /sys/class/net")));
    let kernel = with_network(machine(SECURE), []).file(AUTHORITIES_PATH, "nothing");
    let wanted = "read authorities /etc/billet/authorities.pem: has no certificate of an authority";
    assert!(line(kernel).ends_with(wanted));
    // Whoever asks for http gets it.
    let kernel = with_network(machine(LINE), [site(80, Manner::Good)]).file(AUTHORITIES_PATH, "nothing");
    assert_eq!(comes_up(kernel).warnings().first(), Some(&wanted));
}
