//! What a client says, byte by byte; what of an answer counts; answers that are broken.

use super::*;
use crate::testing::{self, Answer, Asked, IAID, MAC, address, server};

fn said(kind: Kind, settings: &Settings) -> Asked {
    let (server, addresses) = (server(1), [address(5)]);
    Asked::read(&encode(
        Say { kind, server: Some(&server), addresses: &addresses },
        0x0001_0203,
        300,
        settings,
    ))
}

fn asked() -> Asked {
    said(Kind::Solicit, &testing::settings())
}

fn reply() -> Answer {
    Answer::new(&asked(), testing::REPLY, server(1))
}

fn heard(answer: &Answer) -> Heard {
    decode(&answer.bytes(), IAID).unwrap()
}

#[test]
fn a_message_is_made_of_these_bytes() {
    let settings = Settings { hostname: Some("n1".into()), ..testing::settings() };
    let message = encode(Say { kind: Kind::Solicit, server: None, addresses: &[] }, 0xaa_bbcc, 7, &settings);
    let expected: &[&[u8]] = &[
        &[1, 0xaa, 0xbb, 0xcc],
        &[0, 1, 0, 10, 0, 3, 0, 1, 0x52, 0x54, 0, 1, 2, 3],
        &[0, 8, 0, 2, 0, 7],
        &[0, 3, 0, 12, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 6, 0, 10, 0, 23, 0, 24, 0, 56, 0, 82, 0, 39],
        &[0, 39, 0, 4, 1, 2, b'n', b'1'],
        &[0, 14, 0, 0],
    ];
    assert_eq!(message, expected.concat());
}

/// RFC 8415 appendix B.
#[test]
fn each_message_has_the_options_of_its_kind() {
    let settings = Settings { hostname: Some("node-1.example.org".into()), ..testing::settings() };
    for (kind, has_association, asks, tells_name) in [
        (Kind::Solicit, true, true, true),
        (Kind::Request, true, true, true),
        (Kind::Confirm, true, false, false),
        (Kind::Renew, true, true, true),
        (Kind::Rebind, true, true, true),
        (Kind::Release, true, false, false),
        (Kind::Decline, true, false, false),
        (Kind::InformationRequest, false, true, false),
    ] {
        let message = said(kind, &settings);
        let has = |code| message.option(code).is_some();
        assert_eq!((message.kind, message.xid), (kind as u8, [1, 2, 3]), "{kind:?}");
        assert!(has(options::CLIENT_ID) && has(options::SERVER_ID), "{kind:?}");
        assert_eq!(message.option(options::ELAPSED_TIME), Some(&300u16.to_be_bytes()[..]));
        let found = (has(options::IA_NA), has(options::OPTION_REQUEST), has(options::CLIENT_FQDN));
        assert_eq!(found, (has_association, asks, tells_name), "{kind:?}");
        assert_eq!(has(options::RAPID_COMMIT), kind == Kind::Solicit, "{kind:?}");
        assert_eq!(message.addresses, if has_association { vec![address(5)] } else { Vec::new() });
    }
    let wanted = said(Kind::InformationRequest, &settings).option(options::OPTION_REQUEST).unwrap().to_vec();
    assert_eq!(wanted, [0, 23, 0, 24, 0, 56, 0, 32, 0, 83]);
    let name = said(Kind::Solicit, &settings).option(options::CLIENT_FQDN).unwrap().to_vec();
    assert_eq!(name, b"\x01\x06node-1\x07example\x03org\0");
}

#[test]
fn a_client_says_who_it_is_and_tells_no_name_that_is_none() {
    let duid = Duid::new(&[0, 4, 1, 2, 3]).unwrap();
    let settings = Settings { duid: Some(duid.clone()), hostname: Some("a b".into()), ..testing::settings() };
    let message = said(Kind::Solicit, &settings);
    assert_eq!(message.option(options::CLIENT_ID), Some(duid.bytes()));
    assert_eq!(message.option(options::CLIENT_FQDN), None);
    assert!(!message.option(options::OPTION_REQUEST).unwrap().contains(&39));
    let release = Asked::read(&release(&settings, &[address(5); 99], &server(1), 7));
    assert_eq!((release.kind, release.addresses.len()), (8, MOST_ADDRESSES));
}

#[test]
fn an_answer_is_read() {
    let dns = [&address(0x53).octets()[..], &[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]].concat();
    let ntp = [&[0, 1, 0, 16][..], &address(0x123).octets(), &[0, 3, 0, 3, 1, b'a', 0]].concat();
    let answer = reply()
        .with(address(5), 100, 200)
        .times(50, 80)
        .preference(9)
        .rapid()
        .option(options::DNS_SERVERS, &dns)
        .option(options::DOMAIN_LIST, b"\x07Example\x03org\0")
        .option(options::NTP_SERVER, &ntp)
        .option(options::REFRESH_TIME, &7200u32.to_be_bytes())
        .option(options::SOL_MAX_RT, &60u32.to_be_bytes())
        .option(options::INF_MAX_RT, &59u32.to_be_bytes())
        .option(999, b"what is not known");
    let heard = heard(&answer);
    assert_eq!((heard.kind, heard.xid, heard.preference), (Kind::Reply, 0x0001_0203, 9));
    assert_eq!((heard.client.clone(), heard.server.clone()), (Duid::of_hardware(&MAC), server(1)));
    assert_eq!((heard.is_rapid, heard.status()), (true, Status::Success));
    let association = heard.association.unwrap();
    assert_eq!((association.t1, association.t2), (50, 80));
    assert_eq!(association.addresses, [Offered { address: address(5), preferred: 100, valid: 200 }]);
    assert_eq!(heard.information.dns_servers, [address(0x53), "fe80::1".parse().unwrap()]);
    assert_eq!(heard.information.domains, ["example.org"]);
    assert_eq!(heard.information.time_servers, [address(0x123)]);
    assert_eq!(heard.information.refresh, Duration::from_secs(7200));
    assert_eq!(heard.solicit_longest, Some(Duration::from_secs(60)));
    assert_eq!(heard.inform_longest, None, "out of range");
}

#[test]
fn a_status_of_the_whole_goes_before_that_of_the_association() {
    for (code, status) in [
        (0, Status::Success),
        (testing::UNSPEC_FAIL, Status::UnspecFail),
        (testing::NO_ADDRS_AVAIL, Status::NoAddrsAvail),
        (testing::NO_BINDING, Status::NoBinding),
        (testing::NOT_ON_LINK, Status::NotOnLink),
        (testing::USE_MULTICAST, Status::UseMulticast),
        (77, Status::Other(77)),
    ] {
        assert_eq!(heard(&reply().status(code)).status(), status);
        assert_eq!(heard(&reply().own_status(code)).status(), status);
        assert_eq!(heard(&reply().own_status(code).status(0)).status(), status);
    }
    let both = reply().own_status(testing::NO_BINDING).status(testing::NOT_ON_LINK);
    assert_eq!(heard(&both).status(), Status::NoBinding);
}

#[test]
fn broken_structure_is_an_error() {
    let error = |answer: Answer| decode(&answer.bytes(), IAID).unwrap_err();
    let length = |option, bytes| Error::Length { option, bytes };
    assert_eq!(decode(&[], IAID), Err(Error::Short));
    assert_eq!(decode(&[7, 0, 0], IAID), Err(Error::Short));
    for kind in [0, 1, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 255] {
        assert_eq!(error(Answer { kind, ..reply() }), Error::Kind(kind), "10 is RECONFIGURE");
    }
    assert_eq!(error(Answer { client: None, ..reply() }), Error::Missing { option: 1 });
    assert_eq!(error(Answer { server: None, ..reply() }), Error::Missing { option: 2 });
    assert_eq!(error(reply().option(1, server(1).bytes())), Error::Twice { option: 1 });
    assert_eq!(error(reply().preference(1).preference(1)), Error::Twice { option: 7 });
    assert_eq!(error(reply().option(2, &[0; 131])), length(2, 131));
    assert_eq!(error(reply().option(7, &[])), length(7, 0));
    assert_eq!(error(reply().option(13, &[0])), length(13, 1));
    assert_eq!(error(reply().option(14, &[0])), length(14, 1));
    assert_eq!(error(reply().option(3, &[0; 11])), length(3, 3));
    let inside = |bytes: &[u8]| reply().option(3, &[&IAID.to_be_bytes()[..], &[0; 8], bytes].concat());
    assert_eq!(error(inside(&[0])), Error::Short);
    assert_eq!(error(inside(&[0, 5, 0, 24, 0])), Error::Overrun { option: 5 });
    assert_eq!(error(inside(&[0, 5, 0, 1, 0])), length(5, 1));
    assert_eq!(error(inside(&[0, 13, 0, 2, 0, 0, 0, 13, 0, 2, 0, 0])), Error::Twice { option: 13 });
    let nested = [&[0, 5, 0, 27][..], &[0; 24], &[0, 13, 0]].concat();
    assert_eq!(error(inside(&nested)), Error::Short);
    let mut cut = reply().rapid().bytes();
    cut.pop();
    assert_eq!(decode(&cut, IAID), Err(Error::Short));
    assert_eq!(Error::Length { option: 7, bytes: 0 }.to_string(), "option 7 cannot have 0 bytes");
}

#[test]
fn malformed_settings_are_left_out() {
    let information = |option, value: &[u8]| heard(&reply().option(option, value)).information;
    for value in [&[][..], &[0; 15], &[0; 17], &[0; 16], &[0xff; 16]] {
        assert!(information(options::DNS_SERVERS, value).dns_servers.is_empty());
    }
    for value in [&b"\x07example"[..], b"\xc0\x0c", b"\0", b"\x03a\0b\0"] {
        assert!(information(options::DOMAIN_LIST, value).domains.is_empty());
    }
    for value in [&[0, 1, 0, 4, 10, 0, 0, 1][..], &[0, 1], &[0, 1, 0, 16, 1], &[0, 2, 0, 0]] {
        assert!(information(options::NTP_SERVER, value).time_servers.is_empty());
    }
    assert_eq!(information(options::REFRESH_TIME, &[1]).refresh, Duration::from_secs(86400));
    assert_eq!(information(options::REFRESH_TIME, &[0; 4]).refresh, Duration::from_secs(600));
    assert_eq!(information(options::REFRESH_TIME, &[0xff; 4]).refresh, crate::FOREVER);
    for seconds in [0, 59, 86401, u32::MAX] {
        assert_eq!(heard(&reply().option(82, &seconds.to_be_bytes())).solicit_longest, None);
    }
}

#[test]
fn huge_lists_are_cut_off() {
    let mut answer = reply();
    for last in 0..1000 {
        answer = answer.with(address(last), 10, 20);
    }
    let servers: Vec<u8> = (1..=1000).flat_map(|last| address(last).octets()).collect();
    let domains: Vec<u8> = (0..1000).flat_map(|number| format!("\u{3}{number:03}\0").into_bytes()).collect();
    let mut answer = answer.option(options::DNS_SERVERS, &servers).option(options::DOMAIN_LIST, &domains);
    for last in 1..=500 {
        answer = answer.option(options::NTP_SERVER, &[&[0, 1, 0, 16][..], &address(last).octets()].concat());
    }
    let heard = heard(&answer);
    assert_eq!(heard.association.unwrap().addresses.len(), MOST_ADDRESSES);
    assert_eq!(heard.information.dns_servers.len(), MOST_DNS_SERVERS);
    assert_eq!(heard.information.domains.len(), MOST_DOMAINS);
    assert_eq!(heard.information.time_servers.len(), MOST_TIME_SERVERS);
}

#[test]
fn only_the_own_association_in_order_counts() {
    let stranger = Answer { iaid: 9, ..reply() }.with(address(5), 10, 20);
    assert_eq!(heard(&stranger).association, None);
    for (t1, t2, counts) in [(0, 0, true), (9, 0, true), (0, 9, true), (9, 9, true), (10, 9, false)] {
        let answer = reply().with(address(5), 100, 200).times(t1, t2);
        assert_eq!(heard(&answer).association.is_some(), counts, "{t1} {t2}");
    }
    // The server says of one address that it failed.
    let granted = [&address(6).octets()[..], &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
    let failed = [&address(5).octets()[..], &[0; 8], &[0, 13, 0, 2, 0, 4]].concat();
    let mut inside = [&IAID.to_be_bytes()[..], &[0; 8]].concat();
    put(&mut inside, 5, &failed);
    put(&mut inside, 5, &granted);
    let association = heard(&reply().option(3, &inside)).association.unwrap();
    assert_eq!(association.addresses.iter().map(|it| it.address).collect::<Vec<_>>(), [address(6)]);
}
