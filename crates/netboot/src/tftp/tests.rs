//! Clients of all kinds, over the loopback interface.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn request(name: &str, options: &str) -> Vec<u8> {
    [&READ.to_be_bytes(), name.as_bytes(), b"\0octet\0", options.as_bytes()].concat()
}

/// Somebody who should send and does not fails the test.
async fn next(client: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    let received = tokio::time::timeout(Duration::from_secs(20), client.recv_from(buffer)).await;
    received.expect("nothing comes any more").unwrap()
}

/// A file to a client that may be sent a first block.
async fn send_with(to: SocketAddr, request: &Request, file: Found, wait: Duration) -> io::Result<u64> {
    let (place, _given_away) = Places::new(LIMITS).admit(to).unwrap();
    let client = Client { us: Ipv4Addr::LOCALHOST, to, place: &place, trusts: &|| true };
    client.send_with(request, file, wait).await
}

async fn send(to: SocketAddr, request: &Request, file: Found) -> io::Result<u64> {
    send_with(to, request, file, USUAL_TIMEOUT).await
}

/// A client as firmware is one: asks, acknowledges each block, once twice.
async fn fetch(path: &Path, options: &str) -> (Option<Vec<u8>>, Vec<u8>, u64) {
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let to = client.local_addr().unwrap();
    let request = Request::read(&request("file", options)).unwrap();
    let file = Found::file(path).unwrap();
    let sending = tokio::spawn(async move { send(to, &request, file).await });
    let (mut acknowledged, mut content, mut buffer) = (None, Vec::new(), [0; 2000]);
    let mut block_bytes = USUAL_BLOCK_BYTES;
    loop {
        let (count, from) = next(&client, &mut buffer).await;
        let packet = &buffer[..count];
        if opcode(packet) == Some(OPTIONS) {
            acknowledged = Some(packet[2..].to_vec());
            if options.contains("blksize") {
                block_bytes = 1468;
            }
            client.send_to(&[0, 4, 0, 0], from).await.unwrap();
            continue;
        }
        assert_eq!(opcode(packet), Some(DATA));
        let block = number(packet).unwrap();
        content.extend_from_slice(&packet[4..]);
        let ack = [ACK.to_be_bytes(), block.to_be_bytes()].concat();
        client.send_to(&ack, from).await.unwrap();
        if block == 1 {
            // An old acknowledgement brings no second copy of what follows.
            client.send_to(&ack, from).await.unwrap();
        }
        if packet.len() - 4 < block_bytes {
            return (acknowledged, content, sending.await.unwrap().unwrap());
        }
    }
}

#[tokio::test]
async fn a_file_arrives_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    // One that fills its last block, and so has an empty one behind it.
    for length in [0_usize, 1, 512, 100_000, 1468 * 3] {
        let bytes: Vec<u8> = (0..length).map(|n| (n * 7 % 251).to_le_bytes()[0]).collect();
        std::fs::write(&path, &bytes).unwrap();
        let (options, content, sent) = fetch(&path, "").await;
        assert_eq!((options, content.len(), sent), (None, length, length as u64));
        assert_eq!(content, bytes);
        let (options, content, _) = fetch(&path, "tsize\x000\0blksize\x009000\0windowsize\x0016\0").await;
        let expected = format!("blksize\x001468\0tsize\0{length}\0");
        assert_eq!(options.as_deref(), Some(expected.as_bytes()));
        assert_eq!(content, bytes);
    }
}

#[tokio::test]
async fn more_blocks_than_a_number_has_are_counted_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let bytes = vec![9; 512 * 65_540 + 3];
    std::fs::write(&path, &bytes).unwrap();
    let (_, content, _) = fetch(&path, "").await;
    assert!(content == bytes);
}

#[tokio::test]
async fn a_client_that_only_wants_the_length_is_no_fault() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let to = client.local_addr().unwrap();
    let asks = |options: &str| Request::read(&request("file", options)).unwrap();
    for (options, ends) in [("tsize\x000\0", Ok(0)), ("blksize\x00512\0", Err(()))] {
        let (wanted, file) = (asks(options), Found::file(&path).unwrap());
        let sending = tokio::spawn(async move { send(to, &wanted, file).await });
        let mut buffer = [0; 600];
        let (_, from) = next(&client, &mut buffer).await;
        client.send_to(&error(8, "enough"), from).await.unwrap();
        assert_eq!(
            sending.await.unwrap().map_err(|error| assert!(error.to_string().contains("enough"))),
            ends
        );
    }
}

/// A transfer to a socket of ours that sends again after this time.
fn sending(
    client: &UdpSocket,
    path: &Path,
    options: &str,
    wait: Duration,
) -> tokio::task::JoinHandle<io::Result<u64>> {
    let to = client.local_addr().unwrap();
    let (wanted, file) = (Request::read(&request("file", options)).unwrap(), Found::file(path).unwrap());
    tokio::spawn(async move { send_with(to, &wanted, file, wait).await })
}

/// The options and each block, once: the network loses what comes first. It loses each acknowledgement as well.
#[tokio::test]
async fn what_is_lost_is_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let bytes: Vec<u8> = (0..1400_usize).map(|n| (n * 7 % 251).to_le_bytes()[0]).collect();
    std::fs::write(&path, &bytes).unwrap();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let sending = sending(&client, &path, "blksize\x00512\0", Duration::from_millis(50));
    let (mut content, mut buffer) = (Vec::new(), [0; 600]);
    for block in 0..=3 {
        let mut heard = Vec::new();
        // Nothing is said meanwhile, so these are not asked for. Copies of the block before may still be under way.
        let from = loop {
            let (count, from) = next(&client, &mut buffer).await;
            let packet = &buffer[..count];
            let is_options = opcode(packet) == Some(OPTIONS);
            if is_options && block == 0 || opcode(packet) == Some(DATA) && number(packet) == Some(block) {
                heard.push(packet.to_vec());
            }
            if heard.len() == 3 {
                break from;
            }
        };
        assert!(heard.iter().all(|packet| *packet == heard[0]), "{heard:?}");
        if block > 0 {
            content.extend_from_slice(&heard[0][4..]);
        }
        client.send_to(&[ACK.to_be_bytes(), block.to_be_bytes()].concat(), from).await.unwrap();
    }
    assert_eq!(sending.await.unwrap().unwrap(), 1400);
    assert_eq!(content, bytes);
}

#[tokio::test]
async fn a_client_that_goes_silent_is_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, [9; 600]).unwrap();
    for acknowledged in [0, 1] {
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let sending = sending(&client, &path, "", Duration::from_millis(50));
        let mut buffer = [0; 600];
        for block in 1..=acknowledged {
            let (_, from) = next(&client, &mut buffer).await;
            client.send_to(&[ACK.to_be_bytes(), u16::to_be_bytes(block)].concat(), from).await.unwrap();
        }
        let error = sending.await.unwrap().unwrap_err();
        let last = acknowledged + 1;
        // Who has said nothing itself is sent a block once.
        let (tries, seconds) = if acknowledged == 0 { (1, "0.15") } else { (TRIES, "0.3") };
        assert_eq!(
            error.to_string(),
            format!("no acknowledgement of block {last} within {seconds} s (deadline TFTP block)")
        );
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut sent = 0;
        while let Ok(count) = client.try_recv(&mut buffer) {
            sent += u32::from(number(&buffer[..count]) == Some(last));
        }
        assert_eq!(sent, tries);
    }
}

#[test]
fn what_is_no_request_is_answered_with_a_reason() {
    for (packet, why) in [
        (b"".as_slice(), "no request"),
        (b"\0\x02file\0octet\0", "only read"),
        (b"\0\x01file\0octet", "cut off"),
        (b"\0\x01file\0", "cut off"),
        (b"\0\x01\0octet\0", "names no file"),
        (b"\0\x01file\0netascii\0", "only octet"),
        (b"\0\x04\0\x01", "no request"),
    ] {
        let error = Request::read(packet).unwrap_err();
        assert!(error.reason.contains(why), "{packet:?}: {}", error.reason);
        assert_eq!(opcode(&error.answer()), Some(ERROR));
    }
    let odd = Request::read(&request("file", "blksize\x001\0timeout\x000\0tsize\0")).unwrap();
    assert_eq!((odd.block_bytes, odd.timeout_seconds, odd.wants_length), (None, None, false));
}

#[test]
fn a_timeout_that_keeps_a_transfer_for_minutes_is_not_agreed_to() {
    let asked = |seconds: &str| Request::read(&request("f", &format!("timeout\0{seconds}\0"))).unwrap();
    assert_eq!(asked("5").acknowledgement(1).unwrap(), b"\0\x06timeout\x005\0");
    for seconds in ["0", "6", "255", "256"] {
        assert_eq!(asked(seconds).acknowledgement(1), None, "{seconds}");
    }
}

#[test]
fn a_length_that_would_make_the_answer_longer_than_the_request_is_left_out() {
    let asked = Request::read(&request("f", "tsize\x000\0blksize\x001468\0")).unwrap();
    assert_eq!(asked.acknowledgement(99_999_999).unwrap(), b"\0\x06blksize\x001468\0tsize\x0099999999\0");
    assert_eq!(asked.acknowledgement(u64::MAX).unwrap(), b"\0\x06blksize\x001468\0");
}

proptest! {
    #[test]
    fn no_answer_to_an_address_that_anybody_can_name_is_longer_than_the_request(
        packet in proptest::collection::vec(any::<u8>(), 0..80),
        options in "(tsize|blksize|timeout|x)\0[0-9]{0,5}\0((tsize|blksize|timeout)\0[0-9]{1,5}\0){0,4}",
        length in any::<u64>(),
    ) {
        let asked = Request::read(&request("f", &options)).unwrap();
        let bytes = request("f", &options).len();
        prop_assert!(asked.acknowledgement(length).is_none_or(|answer| answer.len() <= bytes));
        match Request::read(&packet) {
            Ok(asked) => prop_assert!(asked.acknowledgement(length).is_none_or(|a| a.len() <= packet.len())),
            Err(error) => {
                let answer = within(error.answer(), packet.len());
                prop_assert!(answer.is_none_or(|answer| answer.len() <= packet.len() && answer.ends_with(&[0])));
            }
        }
    }
}
