//! Hostile policies, events, ranks, and packets on the job connection (`ftb_fuzz` says how targets
//! run).
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use ftb_core::limits;
use ftb_core::{Event, Now, Tag};
use ftb_fuzz::{Parts, Target, piece};
use ftb_launcher_core::drill::{from_answer, from_drill};
use ftb_launcher_core::link::packet::{FromNode, Packet, PacketBody, PathId, ToNode};
use ftb_launcher_core::link::router::{LinkInput, LinkOutput, Router};
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::nla::pmi::wire::{Decoder, message};
use ftb_launcher_core::nla::pmi::{PmiResult, PmiServer};
use ftb_launcher_core::packet::{PacketDecoder, PacketHead};
use ftb_launcher_core::policy::Policy;
use ftb_launcher_core::tree::{PACKET_BYTES_MAX, TreeMessage};
use ftb_launcher_core::wire;
use ftb_proto::event::{check_event, decode_event, encode_event};

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

#[test]
fn a_policy_is_good_or_says_what_is_wrong() {
    Target::new("policy").files("deploy/config", "toml").rounds(1_500).check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        match Policy::parse(text) {
            Ok(policy) => drop((policy.spaces(), policy.on_death(), policy.checkpoint_timer())),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

fn event(space: &str, name: &str, tags: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut event = Event::new(space.parse().unwrap(), name.parse().unwrap());
    let tag = |(key, value): &(&str, &str)| Tag { key: (*key).into(), value: (*value).into() };
    event.tags = tags.iter().map(tag).collect();
    event.payload = payload.to_owned().into();
    encode_event(&event).to_vec()
}

#[test]
fn no_event_of_a_job_panics() {
    let migrate = [("episode", "7"), ("node", "node03"), ("set", "migration-7")];
    let drill = [("drill", "9"), ("fault", "ftb.ipmi FTB_IPMI_FANFAIL"), ("severity", "fatal")];
    let seeds = [
        event("ftb.jl", "FTB_MIGRATE", &migrate, "node03"),
        event("ftb.jl", "FTB_MIGRATE_IPT", &migrate, "node05=2,3 node06=4"),
        event("ftb.jl", "FTB_CHECKPOINT", &migrate, ""),
        event("ftb.nla", "FTB_NLA_STATE", &migrate, "MIGRATION_READY->MIGRATION_ARM"),
        event("ftb.nla", "FTB_MIGRATE_PIC", &migrate, ""),
        event("ftb.mpi", "FTB_MPI_SUSPENDED", &[("rank", "2"), ("episode", "7")], ""),
        event("ftb.jl", "FTB_JL_REQUEST", &[("request", "5"), ("what", "checkpoint")], ""),
        event("ftb.drill", "FTB_DRILL", &drill, "node03"),
    ];
    Target::new("job_event").seeds(seeds).check(|bytes| {
        if check_event(bytes, limits::PAYLOAD_BYTES_MAX).is_err() {
            return;
        }
        let event = decode_event(bytes).unwrap();
        let _ = (wire::from_jl(&event), wire::from_nla(&event), wire::from_rank(&event));
        let _ = (wire::from_request(&event), from_drill(&event), from_answer(&event));
    });
}

#[test]
fn no_rank_that_speaks_pmi_panics_its_server() {
    let two = |text: &str| message(text);
    let seeds = [
        "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=put kvsname=j key=a value=b\n\
         cmd=barrier_in\ncmd=get kvsname=j key=a\ncmd=finalize\n"
            .to_owned(),
        format!(
            "cmd=init pmi_version=2 pmi_subversion=0\n{}{}{}",
            two("cmd=fullinit;pmirank=0;threaded=FALSE;"),
            two("cmd=kvs-put;key=k;value=a;;b;"),
            two("cmd=info-getjobattr;key=PMI_process_mapping;"),
        ),
    ];
    Target::new("pmi").seeds(seeds).check(|bytes| {
        let mut server = PmiServer::new("job7", 2, "(vector,(0,2,1))".to_owned());
        let mut decoder = Decoder::default();
        // The first byte says in which portions the others arrive.
        let Some((portion, bytes)) = bytes.split_first() else { return };
        for portion in bytes.chunks(usize::from(*portion).max(1)) {
            decoder.push(portion);
            while let Ok(Some(text)) = decoder.next_text() {
                if matches!(server.line(0, &text), PmiResult::Nonsense(_)) {
                    return;
                }
            }
        }
        let parts = server.parts(100);
        server.complete(parts.iter().flat_map(|part| part.lines()));
        let (lines, mut again) = (server.export(), server.clone());
        again.import(&lines);
    });
}

/// Frames of authenticated but hostile nodes, at a JL and at an NLA.
#[test]
fn no_sequence_of_packets_stops_a_router() {
    let resume = |number| PacketBody::Resume {
        path: PathId { process: 3, number },
        session: 5,
        expected: 0,
        address: "10.0.0.7:1".to_owned(),
    };
    let message = |number| PacketBody::Message { number, message: Bytes::from_static(b"{}\nx") };
    let step = |link: u8, body: PacketBody| {
        let packet = Packet { node: node("node1"), body };
        [&[0, link][..], &piece(&packet.encode())].concat()
    };
    let pause = vec![2, 40];
    let seeds = [
        [step(1, resume(1)), step(1, message(0)), step(1, message(1)), vec![3, 0]].concat(),
        [step(1, resume(1)), step(2, resume(2)), step(2, PacketBody::Ack { expected: 1 })].concat(),
        [vec![4, 1], step(1, resume(1)), pause, vec![1, 1], vec![5, 0]].concat(),
    ];
    Target::new("job_connection").seeds(seeds).check(|bytes| {
        let nodes = ["node1", "node2"].map(node);
        let addresses = vec!["10.0.0.1:1".to_owned(), "10.0.0.2:1".to_owned()];
        let nla = Router::of_nla(nodes[0].clone(), 3, "10.0.0.7:1".to_owned(), addresses);
        for router in [Router::of_jl(5, nodes.clone()), nla] {
            drive(router, Parts(bytes));
        }
    });
}

fn drive(mut router: Router, mut parts: Parts<'_>) {
    let mut now_ns = 1;
    while let (Some(kind), Some(number)) = (parts.byte(), parts.byte()) {
        let link = u64::from(number % 4);
        let input = match kind % 6 {
            0 => {
                let Some(piece) = parts.piece() else { break };
                match Packet::decode(piece.to_vec().into()) {
                    Ok(packet) => LinkInput::Packet { link, packet },
                    Err(_) => LinkInput::Closed(link),
                }
            }
            1 => LinkInput::Closed(link),
            2 => {
                now_ns += u64::from(number) * 100_000_000;
                LinkInput::Tick
            }
            3 => LinkInput::Send {
                node: (number < 128).then(|| node("node1")),
                message: Bytes::from_static(b"{}\n"),
                keep: number % 2 == 0,
            },
            4 => LinkInput::Dialed(link),
            _ => LinkInput::Launcher("10.0.0.9:1".to_owned()),
        };
        let mut out = Vec::new();
        router.handle(Now { mono_ns: now_ns, wall_ns: now_ns }, input, &mut out);
        for output in out {
            if let LinkOutput::Deliver { message, .. } = output {
                let _ = (FromNode::decode(message.clone()), ToNode::decode(message));
            }
        }
    }
}

/// A launch agent below writes to its output, and so do programs on the way.
#[test]
fn what_comes_up_the_launch_tree_reads_again_as_it_was_or_is_refused() {
    let lost = |reason: &str| TreeMessage::Lost { node: node("node02"), reason: reason.to_owned() };
    let up = TreeMessage::Up { node: node("node01"), pid: 4711 };
    let said = [up, lost("ssh: no route to host"), lost("")].map(PacketHead::encode);
    let noise = Bytes::from_static(b"Welcome!\n12 {\"Up\":1}\n");
    let seeds = said.into_iter().chain([noise]).map(|bytes| [&[200], &bytes[..]].concat());
    Target::new("launch_packet").seeds(seeds).check(|bytes| {
        // The first byte says in which pieces the others arrive.
        let Some((piece, bytes)) = bytes.split_first() else { return };
        let mut packets = PacketDecoder::new(PACKET_BYTES_MAX);
        for piece in bytes.chunks(usize::from(*piece).max(1)) {
            packets.push(piece);
            loop {
                match packets.next_packet::<TreeMessage>() {
                    Ok(None) => break,
                    Ok(Some(said)) => {
                        assert_eq!(TreeMessage::decode(said.clone().encode()), Ok(said));
                    }
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    });
}
