//! Who is told what.

use super::*;

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MAC: Mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
const SOMEBODY: &str = "10.0.0.77:68";

fn responder(range: Option<&str>) -> Responder {
    let loaders = Loaders {
        architecture: Some(Architecture::Amd64),
        bios: Some("undionly.kpxe".into()),
        amd64: Some(Uefi::File("ipxe.efi".into())),
        arm64: None,
    };
    let pool = range.map(|range| Pool::new(range.parse().unwrap()));
    Responder { address: US, http_port: 8080, loaders, pool }
}

fn message(kind: MessageType, options: &[DhcpOption]) -> Message {
    let nobody = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(7, nobody, nobody, nobody, nobody, &MAC.0);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    options.iter().for_each(|option| drop(message.opts_mut().insert(option.clone())));
    message
}

fn firmware(architecture: u16) -> Vec<DhcpOption> {
    vec![
        DhcpOption::ClassIdentifier(b"PXEClient:Arch:00000:UNDI:002001".to_vec()),
        DhcpOption::ClientSystemArchitecture(Number(architecture)),
        DhcpOption::ClientMachineIdentifier(vec![0; 17]),
    ]
}

fn ipxe(architecture: u16) -> Vec<DhcpOption> {
    let mut options = firmware(architecture);
    options.push(DhcpOption::UserClass(b"iPXE".to_vec()));
    options
}

#[test]
fn only_a_machine_with_an_ethernet_address_is_answered() {
    let mut packet = message(MessageType::Discover, &firmware(7)).to_vec().unwrap();
    for length in [0, 6, 16] {
        // Where a message says how long that is.
        packet[2] = length;
        let read = read(&packet).unwrap();
        let (reply, _) = ask(&mut responder(None), &read, Port::Dhcp);
        assert_eq!(reply.is_some(), length == 6, "{length}");
    }
}

/// The answer, and what was told.
fn ask(responder: &mut Responder, request: &Message, port: Port) -> (Option<Reply>, Vec<Event>) {
    let mut told = Vec::new();
    let from = SOMEBODY.parse().unwrap();
    let reply = responder.answer(request, from, port, Instant::now(), &mut |event| told.push(event));
    (reply, told)
}

fn file(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.message.fname().unwrap()).trim_end_matches('\0').to_owned()
}

#[test]
fn firmware_gets_its_loader_and_ipxe_the_script() {
    let script = "http://10.0.0.1:8080/boot.ipxe?mac=52-54-00-12-34-56";
    for (options, expected) in [
        (firmware(0), "undionly.kpxe"),
        (firmware(7), "ipxe.efi"),
        (firmware(9), "ipxe.efi"),
        (ipxe(0), script),
        (ipxe(7), script),
    ] {
        let (reply, told) = ask(&mut responder(None), &message(MessageType::Discover, &options), Port::Dhcp);
        let reply = reply.unwrap();
        assert_eq!((file(&reply).as_str(), reply.to), (expected, everybody()));
        let said = &reply.message;
        assert_eq!((said.xid(), said.yiaddr(), said.siaddr()), (7, Ipv4Addr::UNSPECIFIED, US));
        assert_eq!(said.opts().msg_type(), Some(MessageType::Offer));
        assert!(said.opts().get(OptionCode::ClientMachineIdentifier).is_some());
        assert!(matches!(told.as_slice(), [Event::Offered { mac: MAC, .. }]), "{told:?}");
        // Those who ask on the other port are answered there.
        let (reply, _) = ask(&mut responder(None), &message(MessageType::Request, &options), Port::Pxe);
        let reply = reply.unwrap();
        assert_eq!((file(&reply).as_str(), reply.to), (expected, SOMEBODY.parse().unwrap()));
        assert_eq!(reply.message.opts().msg_type(), Some(MessageType::Ack));
    }
}

#[test]
fn firmware_that_starts_by_http_gets_an_address() {
    let class = DhcpOption::ClassIdentifier(b"HTTPClient:Arch:00016:UNDI:003001".to_vec());
    let architecture = DhcpOption::ClientSystemArchitecture(Number(16));
    let request = message(MessageType::Discover, &[class, architecture]);
    let mut responder = responder(None);
    for (uefi, path) in
        [(Uefi::File("ipxe.efi".into()), "ipxe.efi"), (Uefi::Own, "52-54-00-12-34-56/billet.efi")]
    {
        responder.loaders.amd64 = Some(uefi);
        let (reply, told) = ask(&mut responder, &request, Port::Dhcp);
        let reply = reply.unwrap();
        assert_eq!(file(&reply), format!("http://10.0.0.1:8080/bundle/{path}"));
        let options = reply.message.opts();
        // Firmware looks for its own class in the answer, and for no vendor's options.
        assert_eq!(
            options.get(OptionCode::ClassIdentifier),
            Some(&DhcpOption::ClassIdentifier(b"HTTPClient".to_vec()))
        );
        assert!(options.get(OptionCode::VendorExtensions).is_none());
        assert!(told[0].to_string().contains("(UEFI x86-64 by HTTP): loads http://"), "{told:?}");
    }
}

#[test]
fn an_answer_survives_the_wire() {
    use dhcproto::{Decodable, Decoder, Encodable};
    let (reply, _) = ask(&mut responder(None), &message(MessageType::Discover, &firmware(7)), Port::Dhcp);
    let bytes = reply.unwrap().message.to_vec().unwrap();
    let read = Message::decode(&mut Decoder::new(&bytes)).unwrap();
    assert_eq!(read.opcode(), Opcode::BootReply);
    assert!(matches!(read.opts().get(OptionCode::VendorExtensions),
        Some(DhcpOption::VendorExtensions(bytes)) if *bytes == LOAD_THE_NAMED_FILE));
}

#[test]
fn the_older_class_tells_the_machine_too() {
    let class = DhcpOption::ClassIdentifier(b"PXEClient:Arch:00007:UNDI:003016".to_vec());
    let (reply, _) = ask(&mut responder(None), &message(MessageType::Discover, &[class]), Port::Dhcp);
    assert_eq!(file(&reply.unwrap()), "ipxe.efi");
}

#[test]
fn machines_that_the_bundle_has_nothing_for_are_named() {
    let bare = || Responder {
        loaders: Loaders { architecture: Some(Architecture::Amd64), ..Loaders::default() },
        ..responder(None)
    };
    for (mut responder, options, said) in [
        (responder(None), firmware(11), "(UEFI arm64): not served: the bundle is for amd64"),
        (responder(None), ipxe(11), "(iPXE arm64): not served: the bundle is for amd64"),
        (
            responder(None),
            firmware(6),
            "(firmware of another kind): not served: there are no bundles for such machines",
        ),
        (
            responder(None),
            ipxe(27),
            "(firmware of another kind): not served: there are no bundles for such machines",
        ),
        (bare(), firmware(0), "(BIOS): not served: the bundle has no undionly.kpxe"),
        (
            bare(),
            firmware(7),
            "(UEFI x86-64): not served: the bundle has none of ipxe.efi, billet.efi and stub.efi",
        ),
    ] {
        let (reply, told) = ask(&mut responder, &message(MessageType::Discover, &options), Port::Dhcp);
        assert!(reply.is_none());
        assert_eq!(told[0].to_string(), format!("{MAC} {said}"));
    }
}

#[test]
fn a_bundle_is_for_machines_of_its_processor() {
    let mut responder = responder(None);
    responder.loaders = Loaders {
        architecture: Some(Architecture::Arm64),
        bios: Some("undionly.kpxe".into()),
        amd64: None,
        arm64: Some(Uefi::Own),
    };
    let mut told = |options: &[DhcpOption]| {
        let (reply, told) = ask(&mut responder, &message(MessageType::Discover, options), Port::Dhcp);
        (reply.map(|reply| file(&reply)), told[0].to_string())
    };
    for options in [firmware(0), firmware(7), firmware(16), ipxe(0), ipxe(7)] {
        let (file, said) = told(&options);
        assert!(file.is_none() && said.ends_with("not served: the bundle is for arm64"), "{said}");
    }
    assert_eq!(told(&firmware(11)).0.as_deref(), Some("52-54-00-12-34-56/billet.efi"));
    assert_eq!(told(&firmware(19)).0.unwrap(), "http://10.0.0.1:8080/bundle/52-54-00-12-34-56/billet.efi");
    assert!(told(&ipxe(11)).0.unwrap().contains("/boot.ipxe?mac="));
    // iPXE that does not say what it runs on is believed to fit.
    let unknown = [DhcpOption::UserClass(b"iPXE".to_vec())];
    assert!(told(&unknown).0.unwrap().contains("/boot.ipxe?mac="));
}

#[test]
fn what_no_card_of_a_machine_asks_is_not_answered() {
    let asks = |change: &dyn Fn(&mut Message)| {
        let mut request = message(MessageType::Discover, &firmware(7));
        change(&mut request);
        ask(&mut responder(Some("10.0.0.10-10.0.0.20/24")), &request, Port::Dhcp).0.is_some()
    };
    assert!(asks(&|_| {}));
    let of_card = |card: &[u8]| asks(&|request| _ = request.set_chaddr(card));
    assert!(asks(&|request| _ = request.set_ciaddr([10, 0, 0, 77])));
    assert!(!asks(&|request| _ = request.set_ciaddr([10, 0, 0, 78])), "sent from another address");
    assert!(!of_card(&[1, 0, 0, 0, 0, 2]), "a group's address");
    assert!(!of_card(&[0; 6]) && !of_card(&[2; 8]));
    assert!(!asks(&|request| _ = request.set_htype(HType::Unknown(32))));
    // A class without a machine is no request for a boot file.
    let class = [DhcpOption::ClassIdentifier(b"PXEClient".to_vec())];
    assert!(ask(&mut responder(None), &message(MessageType::Discover, &class), Port::Dhcp).0.is_none());
    assert!(ask(&mut responder(None), &message(MessageType::Request, &class), Port::Pxe).0.is_none());
}

/// The port of boot files answers an address that only the request names.
#[test]
fn an_answer_to_a_named_address_is_no_longer_than_the_request() {
    use dhcproto::{Decodable, Decoder};
    let request = message(MessageType::Request, &firmware(7));
    let reply = |port| ask(&mut responder(None), &request, port).0.unwrap();
    let whole = reply(Port::Pxe).message.to_vec().unwrap().len();
    let without = |bytes| {
        let packet = reply(Port::Pxe).packet(Port::Pxe, bytes).unwrap()?;
        assert!(packet.len() <= bytes);
        let read = Message::decode(&mut Decoder::new(&packet)).unwrap();
        assert!(read.fname().unwrap().starts_with(b"ipxe.efi"));
        let has = |code| read.opts().get(code).is_some();
        Some((has(OptionCode::TFTPServerName), has(OptionCode::BootfileName)))
    };
    assert_eq!(without(whole), Some((true, true)));
    assert_eq!(without(whole - 1), Some((false, true)));
    assert_eq!(without(whole - 12), Some((false, false)));
    assert_eq!(without(whole - 22), None);
    // Firmware's own are long enough: EDK II sends 347 bytes.
    assert!(whole <= 347, "{whole}");
    assert_eq!(reply(Port::Pxe).packet(Port::Dhcp, 1).unwrap().unwrap().len(), whole);
}

#[test]
fn beside_another_server_systems_are_left_to_it() {
    for kind in [MessageType::Discover, MessageType::Request, MessageType::Inform] {
        let (reply, told) = ask(&mut responder(None), &message(kind, &[]), Port::Dhcp);
        assert!(reply.is_none() && told.is_empty());
    }
    // And what comes over a relay, or is an answer itself.
    let mut relayed = message(MessageType::Discover, &firmware(0));
    relayed.set_giaddr(US);
    assert!(ask(&mut responder(None), &relayed, Port::Dhcp).0.is_none());
    let mut answer = message(MessageType::Discover, &firmware(0));
    answer.set_opcode(Opcode::BootReply);
    assert!(ask(&mut responder(None), &answer, Port::Dhcp).0.is_none());
}

#[test]
fn with_a_range_everybody_gets_an_address() {
    let mut responder = responder(Some("10.0.0.10-10.0.0.10/24"));
    let address = Ipv4Addr::new(10, 0, 0, 10);
    let (offer, _) = ask(&mut responder, &message(MessageType::Discover, &[]), Port::Dhcp);
    let offer = offer.unwrap().message;
    assert_eq!((offer.yiaddr(), offer.fname()), (address, None));
    assert!(matches!(offer.opts().get(OptionCode::SubnetMask), Some(DhcpOption::SubnetMask(_))));
    let wants = |address| DhcpOption::RequestedIpAddress(address);
    let request = message(MessageType::Request, &[wants(address), DhcpOption::ServerIdentifier(US)]);
    let (ack, told) = ask(&mut responder, &request, Port::Dhcp);
    assert_eq!(ack.unwrap().message.opts().msg_type(), Some(MessageType::Ack));
    assert_eq!(told, [Event::Leased { mac: MAC, address }]);
    let (nak, _) = ask(&mut responder, &message(MessageType::Request, &[wants(US)]), Port::Dhcp);
    assert_eq!(nak.unwrap().message.opts().msg_type(), Some(MessageType::Nak));
    // Who chose another server is told of; who finds none left, too.
    let other = DhcpOption::ServerIdentifier(Ipv4Addr::new(10, 0, 0, 2));
    let (none, told) =
        ask(&mut responder, &message(MessageType::Request, &[wants(address), other]), Port::Dhcp);
    assert!(none.is_none() && matches!(told.as_slice(), [Event::OtherServer { .. }]));
    let mut second = message(MessageType::Discover, &[]);
    second.set_chaddr(&[2, 0, 0, 0, 0, 2]);
    let (none, told) = ask(&mut responder, &second, Port::Dhcp);
    assert!(none.is_none() && matches!(told.as_slice(), [Event::Exhausted { .. }]));
}
