//! Peers that make up who they are, over the loopback interface, each from an address of its own.

use std::net::Ipv4Addr;
use std::path::Path;

use super::*;
use crate::tftp::{ACK, DATA, ERROR, OPTIONS, number};

const US: Ipv4Addr = Ipv4Addr::LOCALHOST;
const SCRIPT: &str = "#!ipxe\nkernel vmlinuz initrd=initramfs BOOTIF=01-${mac:hexhyp} ${billet-args}\ninitrd initramfs\nboot\n";
const UKI: &str = "52-54-00-12-34-56/billet.efi";
const OPTION: &str = "tsize\x000\0blksize\x001468\0";

struct Rig {
    _directory: tempfile::TempDir,
    service: Arc<Service>,
    files: Arc<Files>,
    address: SocketAddr,
    told: Arc<Mutex<Vec<String>>>,
}

/// A bundle with a stub, and its service on a network of this prefix.
async fn rig(prefix: u8) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let keep = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
    keep("boot.ipxe", SCRIPT.as_bytes());
    keep("stub.efi", include_bytes!("../../../../ondisk/testdata/stub.efi"));
    keep("vmlinuz", &[0x5b; 300_003]);
    keep("initramfs", &[0xa7; 700_001]);
    let socket = UdpSocket::bind((US, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    let files = Arc::new(Files::open(directory.path(), None).unwrap().at("127.0.0.1:8080".into()));
    let service = Arc::new(Service::new(Network { address: US, prefix }, socket, files.clone()));
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let (hears, serves) = (told.clone(), service.clone());
    let tell: Tell = Arc::new(move |event: Event| hears.lock().unwrap().push(event.to_string()));
    tokio::spawn(async move { serves.serve(&tell).await });
    Rig { _directory: directory, service, files, address, told }
}

async fn peer(host: u16) -> UdpSocket {
    let [high, low] = host.to_be_bytes();
    UdpSocket::bind((Ipv4Addr::new(127, 1, high, low), 0)).await.unwrap()
}

fn request(name: &str, options: &str) -> Vec<u8> {
    [&READ.to_be_bytes(), name.as_bytes(), b"\0octet\0", options.as_bytes()].concat()
}

/// Whatever should come and does not fails the test.
async fn next(client: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2000];
    let received = tokio::time::timeout(Duration::from_secs(20), client.recv_from(&mut buffer)).await;
    let (count, from) = received.expect("nothing comes any more").unwrap();
    (buffer[..count].to_vec(), from)
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "it never came to this: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Firmware: options, then every block.
async fn fetch(rig: &Rig, client: &UdpSocket, name: &str) -> Vec<u8> {
    client.send_to(&request(name, OPTION), rig.address).await.unwrap();
    let mut content = Vec::new();
    loop {
        let (packet, from) = next(client).await;
        match opcode(&packet) {
            Some(OPTIONS) => drop(client.send_to(&[0, 4, 0, 0], from).await.unwrap()),
            Some(DATA) => {
                content.extend_from_slice(&packet[4..]);
                client.send_to(&[&ACK.to_be_bytes(), &packet[2..4]].concat(), from).await.unwrap();
                if packet.len() < 4 + 1468 {
                    return content;
                }
            }
            _ => panic!("{packet:?}"),
        }
    }
}

#[tokio::test]
async fn packets_of_many_made_up_peers_cost_a_bounded_number_of_places_and_no_uki() {
    let rig = rig(8).await;
    let mut peers = Vec::new();
    for host in 0..400 {
        let peer = peer(host).await;
        peer.send_to(&request(UKI, OPTION), rig.address).await.unwrap();
        peers.push(peer);
        assert!(rig.service.transfers() <= LIMITS.of_all);
    }
    until("all places are taken", || rig.service.transfers() == LIMITS.of_all).await;
    assert_eq!(rig.files.own_bytes(), (0, 0), "nothing is made for who did not answer");
    // A machine among them has its file.
    let machine = peer(9999).await;
    let uki = fetch(&rig, &machine, UKI).await;
    assert!(ondisk::pe::Image::parse(&uki).unwrap().checksum_is_right());
    until("the places are free again", || rig.service.transfers() == 0).await;
    let (now, most) = rig.files.own_bytes();
    assert!(now == 0 && most < 2048, "one at a time, of which little is its own: {now}, {most}");
    // What each was sent: the options, three times at most, each in no more bytes than it sent.
    for peer in &peers {
        let (mut buffer, mut count, mut bytes) = ([0; 2000], 0, 0);
        while let Ok(received) = peer.try_recv(&mut buffer) {
            assert_eq!(opcode(&buffer[..received]), Some(OPTIONS));
            (count, bytes) = (count + 1, bytes + received);
        }
        assert!(count <= 3 && bytes <= 3 * request(UKI, OPTION).len(), "{count} packets, {bytes} bytes");
    }
    // The machine and its file, and a few of the others.
    let told = rig.told.lock().unwrap().clone();
    assert!(told.iter().filter(|line| line.contains("no acknowledgement")).count() <= 16, "{told:?}");
    assert!(told.iter().any(|line| line.contains("starts billet.efi")), "{told:?}");
}

#[tokio::test]
async fn an_address_has_few_transfers_and_those_that_answered_go_on() {
    let rig = rig(8).await;
    let mut heard = Vec::new();
    for _ in 0..LIMITS.of_peer {
        let client = peer(1).await;
        client.send_to(&request(UKI, OPTION), rig.address).await.unwrap();
        let (_, from) = next(&client).await;
        client.send_to(&[0, 4, 0, 0], from).await.unwrap();
        let (packet, from) = next(&client).await;
        assert_eq!((opcode(&packet), number(&packet)), (Some(DATA), Some(1)));
        heard.push((client, from));
    }
    let one_more = peer(1).await;
    one_more.send_to(&request(UKI, OPTION), rig.address).await.unwrap();
    let (packet, _) = next(&one_more).await;
    assert_eq!(packet, b"\0\x05\0\0too many files at once\0");
    for (client, from) in heard {
        client.send_to(&[0, 4, 0, 1], from).await.unwrap();
        let block = loop {
            let (packet, _) = next(&client).await;
            // The first one may have come twice meanwhile.
            if number(&packet) != Some(1) {
                break number(&packet);
            }
        };
        assert_eq!(block, Some(2));
    }
}

#[tokio::test]
async fn who_asks_twice_before_it_heard_is_served_once() {
    let rig = rig(8).await;
    let client = peer(1).await;
    for _ in 0..3 {
        client.send_to(&request("boot.ipxe", OPTION), rig.address).await.unwrap();
    }
    let content = {
        let mut last = None;
        for _ in 0..3 {
            let (packet, from) = next(&client).await;
            assert_eq!(opcode(&packet), Some(OPTIONS));
            last = Some(from);
        }
        // Of the three the newest is left; the others are ports that nobody listens at.
        let last = last.unwrap();
        client.send_to(&[0, 4, 0, 0], last).await.unwrap();
        loop {
            let (packet, from) = next(&client).await;
            if opcode(&packet) == Some(DATA) {
                client.send_to(&[0, 4, 0, 1], from).await.unwrap();
                break packet[4..].to_vec();
            }
        }
    };
    assert_eq!(content, SCRIPT.as_bytes());
}

/// RFC 1350 alone: the first answer is a block of data.
#[tokio::test]
async fn without_options_neighbours_get_a_first_block_once_and_others_nothing() {
    let far = rig(32).await;
    let client = peer(1).await;
    client.send_to(&request("initramfs", ""), far.address).await.unwrap();
    until("it was refused", || far.told.lock().unwrap().iter().any(|line| line.contains("without options")))
        .await;
    assert!(client.try_recv(&mut [0; 600]).is_err());

    let near = rig(8).await;
    client.send_to(&request("initramfs", ""), near.address).await.unwrap();
    let (packet, _) = next(&client).await;
    assert_eq!((opcode(&packet), packet.len()), (Some(DATA), 516));
    until("it is given up", || near.service.transfers() == 0).await;
    assert!(client.try_recv(&mut [0; 600]).is_err(), "it came once");

    // However many ask: a burst and then a few each second.
    let began = Instant::now();
    let mut peers = Vec::new();
    for host in 0..120 {
        let peer = peer(host).await;
        peer.send_to(&request("initramfs", ""), near.address).await.unwrap();
        peers.push(peer);
    }
    until("all are given up", || near.service.transfers() == 0).await;
    let blocks = peers.iter().filter(|peer| peer.try_recv(&mut [0; 600]).is_ok()).count();
    let most = 16 + usize::try_from(began.elapsed().as_millis() / 125).unwrap() + 1;
    assert!((1..=most).contains(&blocks), "{blocks} of at most {most}");
}

/// Two servers would send each other errors for ever.
#[tokio::test]
async fn what_is_no_request_is_not_answered() {
    let rig = rig(8).await;
    let client = peer(1).await;
    for packet in
        [&b""[..], b"\0", b"\0\x05\0\x04no request\0", b"\0\x04\0\x01", b"\0\x03\0\x01data", b"\0\x06a\0"]
    {
        client.send_to(packet, rig.address).await.unwrap();
    }
    client.send_to(b"\0\x02file\0octet\0", rig.address).await.unwrap();
    let (packet, _) = next(&client).await;
    // Only the last one, in as many bytes as it has.
    assert_eq!((opcode(&packet), packet.len(), packet.last()), (Some(ERROR), 13, Some(&0)));
    assert!(packet[4..].starts_with(b"files ar"), "{packet:?}");
    assert!(client.try_recv(&mut [0; 600]).is_err());
    assert!(!Path::new("file").exists());
}
