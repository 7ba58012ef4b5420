#![allow(clippy::unwrap_used)]

use super::*;
use crate::memory::{create, is_sealed};
use std::io::{Read as _, Write as _};

fn link() -> (RankSocket, AgentLink) {
    let (agent, rank) = RankSocket::pair().unwrap();
    (agent, AgentLink::new(RankSocket::new(rank)))
}

#[test]
fn an_image_passes_as_a_descriptor_and_cannot_be_changed_any_more() {
    let (agent, rank) = link();
    let serve = std::thread::spawn(move || {
        let (packet, image) = agent.receive::<RankPacket>().unwrap().unwrap();
        assert_eq!(packet, RankPacket::Put { set: "mem-000001".to_owned() });
        let image = File::from(image.unwrap());
        assert!(is_sealed(&image));
        agent.send(&AgentPacket::Ok, None).unwrap();
        for (set, rank) in [("mem-000001", 3), ("mem-000002", 4)] {
            let got = agent.receive::<RankPacket>().unwrap().unwrap().0;
            assert_eq!(got, RankPacket::Get { set: set.to_owned(), rank });
            match rank {
                3 => agent.send(&AgentPacket::Ok, Some(image.as_fd())).unwrap(),
                _ => agent.send(&AgentPacket::Refused("there is none".into()), None).unwrap(),
            }
        }
        assert!(agent.receive::<RankPacket>().unwrap().is_none(), "the rank has ended");
    });
    let mut image = create("image").unwrap();
    image.write_all(b"state").unwrap();
    assert!(!is_sealed(&image));
    rank.put("mem-000001", &image).unwrap();
    assert!(image.write_all(b"more").is_err());
    let mut text = String::new();
    rank.get("mem-000001", 3).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "state");
    assert_eq!(rank.get("mem-000002", 4).unwrap_err().to_string(), "there is none");
    drop(rank);
    serve.join().unwrap();
}

/// An order that arrives between a request and its answer is neither taken for that nor lost.
#[test]
fn orders_wait_until_a_request_is_answered() {
    let (agent, rank) = link();
    let orders = [AgentPacket::Where, AgentPacket::Cancel];
    agent.send(&orders[0], None).unwrap();
    agent.send(&orders[1], None).unwrap();
    agent.send(&AgentPacket::Ok, None).unwrap();
    rank.reserve("mem-000001", 10).unwrap();
    assert!(rank.wait(Duration::ZERO).unwrap());
    assert_eq!(rank.order().unwrap().as_ref(), Some(&orders[0]));
    assert_eq!(rank.order().unwrap().as_ref(), Some(&orders[1]));
    assert_eq!(rank.order().unwrap(), None);
    assert!(!rank.wait(Duration::ZERO).unwrap());
    for _ in 0..=ORDERS_MAX {
        agent.send(&AgentPacket::Where, None).unwrap();
    }
    let error = rank.reserve("mem-000001", 10).unwrap_err();
    assert!(error.to_string().contains("more orders"), "{error}");
}

#[test]
fn a_packet_has_a_largest_size_and_nothing_else_is_one() {
    let (agent, rank) = RankSocket::pair().unwrap();
    let long = |length| AgentPacket::Refused("x".repeat(length));
    let error = agent.send(&long(PACKET_BYTES_MAX), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    // {"Refused":""} and the line end.
    let longest = long(PACKET_BYTES_MAX - 15);
    agent.try_send(&longest).unwrap();
    let flags = SendFlags::NOSIGNAL;
    for bytes in [&b"\n"[..], b"{}", b"\"Halt\"\n", b"\"Where\"\n\"Where\"\n", &[b' '; 70_000]] {
        rustix::net::send(&agent.0, bytes, flags).unwrap();
    }
    let rank = RankSocket::new(rank);
    assert_eq!(rank.receive::<AgentPacket>().unwrap().unwrap().0, longest);
    for _ in 0..5 {
        rank.receive::<AgentPacket>().unwrap_err();
    }
    assert_eq!(reason(&"ä".repeat(PACKET_BYTES_MAX)).chars().count(), REASON_CHARS_MAX);
}
