//! Hostile pods, images, ranks and nodes, and files of users that name ranks, nodes and backends
//! (`ftb_fuzz` says how targets run).
#![allow(clippy::unwrap_used)]

use ftb_core::{Event, Tag};
use ftb_fuzz::{Parts, Target, piece};
use ftb_job::{
    Class, Endpoint, Frame, ImageReader, Incoming, RENEWAL_BYTES, Request, read_frame,
    renewal_payload,
};
use ftb_launcher::image_request::ImageRequest;
use ftb_launcher::plan;
use ftb_launcher::rankfile::RankFile;
use ftb_launcher_core::message::ExitCause;
use ftb_launcher_core::packet::{PacketDecoder, PacketHead};
use ftb_launcher_core::wire::SPACE_JL;
use ftb_launcher_pods::backend::Choice;
use ftb_launcher_pods::images::{Outlives, tree};
use ftb_launcher_pods::output::Stream;
use ftb_launcher_pods::pod::ipc::{FROM_BYTES_MAX, FromSupervisor};
use std::fs::File;

#[test]
fn a_rank_file_is_good_or_names_its_line() {
    let seeds = ["rank 0=node01\nrank 1-3=node02 # a comment\n", "\n# nothing\n", "rank 1=a=b"];
    Target::new("rank_file").seeds(seeds).check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        if let Err(error) = RankFile::parse("ranks", text) {
            assert!(error.starts_with("rank file ranks line "), "{error}");
        }
        if let Err(error) = plan::parse_local(text) {
            assert!(!error.is_empty());
        }
    });
}

#[test]
fn a_file_of_a_backend_is_good_or_names_its_line() {
    let seeds = [
        "[backend.criu]\n",
        "[backend.command]\nstart = [\"a\", \"{rank}\"]\nsave = [\"b\"]\nrestore = [\"c\"]\n",
    ];
    let target = Target::new("backend").seeds(seeds).files("deploy/config", "toml").rounds(1_500);
    target.check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        if let Err(error) = Choice::parse(text) {
            assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
        }
    });
}

/// A pod runs programs of the user, which may write to its supervisor's pipe.
#[test]
fn no_bytes_of_a_pod_panic_its_launch_agent() {
    let output = |text: &'static str| FromSupervisor::Output {
        rank: 3,
        stream: Stream::Out,
        bytes: text.into(),
    };
    let pmi = FromSupervisor::Pmi { rank: 3, text: "cmd=init".into() };
    let all = |said: Vec<FromSupervisor>| said.into_iter().flat_map(PacketHead::encode).collect();
    let seeds: [Vec<u8>; 3] = [
        all(vec![FromSupervisor::Begun(3), output("line\n"), FromSupervisor::SampledAll]),
        all(vec![pmi, FromSupervisor::Sampled(3, Box::default()), FromSupervisor::Synced]),
        all(vec![FromSupervisor::Held(7), FromSupervisor::Ended(3, ExitCause::Signal(9))]),
    ];
    Target::new("pod").seeds(seeds).check(|bytes| {
        let mut packets = PacketDecoder::new(FROM_BYTES_MAX);
        packets.push(bytes);
        while let Ok(Some(said)) = packets.next_packet::<FromSupervisor>() {
            assert_eq!(FromSupervisor::decode(said.clone().encode()), Ok(said));
        }
    });
}

/// An image whose checksums and end are right, whatever is in its blocks.
fn image(mut parts: Parts<'_>) -> Vec<u8> {
    let mut image = [&b"FTBIMAGE"[..], &1_u32.to_le_bytes()].concat();
    let mut count = 0_u32;
    let put = |image: &mut Vec<u8>, kind: u8, index: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        let head = [&[kind, 0, 0, 0][..], &index.to_le_bytes(), &length].concat();
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head), payload).to_le_bytes();
        image.extend([&head[..], &sum, payload].concat());
    };
    while let (Some(kind), Some(payload)) = (parts.byte(), parts.piece()) {
        put(&mut image, 1 + kind % 3, count, payload);
        count += 1;
    }
    let (bytes, sum) = (image.len() as u64, crc32c::crc32c(&image));
    let end = [&count.to_le_bytes()[..], &bytes.to_le_bytes(), &sum.to_le_bytes()].concat();
    put(&mut image, 4, count, &end);
    image
}

/// Reads an image as a program does that expects these sections.
fn read_image(folder: &std::path::Path, bytes: &[u8]) {
    let path = folder.join("rank-0.img");
    std::fs::write(&path, bytes).unwrap();
    let Ok(image) = ImageReader::read(File::open(&path).unwrap(), &path) else { return };
    assert!(!format!("{:?}", image.header()).is_empty());
    let mut reader = image.into_reader();
    let _ = reader.u64("iteration");
    let _ = (reader.bytes("b"), reader.f64s("f"), reader.u64s("u"));
    let _ = reader.bytes_into("b", &mut [0; 8]);
}

/// Images come from other hosts, and from directories of users.
#[test]
fn an_image_is_read_or_refused_whatever_is_in_its_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let block = |kind: u8, payload: &[u8]| [&[kind - 1][..], &piece(payload)].concat();
    let header = b"{\"job\":\"j\",\"rank\":0,\"size\":1,\"set\":\"set-1\",\"episode\":1,\
                   \"safe_point\":2}";
    let section = |name: &str, kind: &str, bytes: u64| {
        format!("{{\"name\":{name:?},\"type\":{kind:?},\"bytes\":{bytes}}}").into_bytes()
    };
    let head = [block(1, header), block(2, &section("iteration", "u64", 8)), block(3, &[7; 8])];
    let head = head.concat();
    let whole = [&head[..], &block(2, &section("b", "bytes", 5)), &block(3, b"abcde")].concat();
    let huge = [&head[..], &block(2, &section("b", "bytes", u64::MAX)), &block(3, b"a")].concat();
    let odd = [&head[..], &block(2, &section("b", "bytes", 0))].concat();
    let odd = [&odd[..], &block(2, &section("f", "f64", 9)), &block(3, &[1; 9])].concat();
    // The seeds reach the sections.
    read_image(folder.path(), &image(Parts(&whole)));
    let good = ImageReader::open(&folder.path().join("rank-0.img")).unwrap();
    assert_eq!(good.into_reader().u64("iteration").unwrap(), 0x0707_0707_0707_0707);
    Target::new("image").seeds([whole, huge, odd]).rounds(1_000).check(move |bytes| {
        read_image(folder.path(), bytes);
        read_image(folder.path(), &image(Parts(bytes)));
    });
}

/// A rank publishes its address in the key-value space of PMI.
#[test]
fn an_address_of_a_rank_is_read_as_it_was_or_refused() {
    let token = "0123456789abcdef".repeat(2);
    let seeds = [format!("node=n1;token={token};tcp=10.0.0.1:7;unix=/tmp/x"), "node=".to_owned()];
    Target::new("endpoint").seeds(seeds).check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        let Ok(read) = Endpoint::decode(3, text) else { return };
        let again = Endpoint::decode(3, &read.encode()).unwrap();
        assert_eq!(again.encode(), read.encode());
    });
}

/// The end of a link is another rank, of a program that may be wrong.
#[test]
fn a_frame_of_a_rank_reads_again_as_it_was() {
    let framed = |frame: Frame<'_>| [&frame.header()[..], frame.payload()].concat();
    let data = |class, payload| Frame::Data { class, tag: 7, seq: 1, payload };
    let seeds = [
        [framed(data(Class::User, b"hello")), framed(Frame::Goodbye)].concat(),
        [framed(data(Class::Collective, b"")), framed(data(Class::Within(3), b"x"))].concat(),
        framed(Frame::Control { payload: b"{}" }),
        framed(Frame::Renewal { fence: 5, payload: &renewal_payload((3, 2)) }),
    ];
    Target::new("job_frame").seeds(seeds).check(move |bytes| {
        let mut stream = bytes;
        while let Ok(Some(read)) = read_frame(&mut stream) {
            let mut renewal = [0; RENEWAL_BYTES];
            if let Incoming::Renewal { counts, .. } = &read {
                renewal = renewal_payload(*counts);
            }
            let frame = match &read {
                Incoming::Data { class, tag, seq, payload } => {
                    Frame::Data { class: *class, tag: *tag, seq: *seq, payload }
                }
                Incoming::Control { payload } => Frame::Control { payload },
                Incoming::Renewal { fence, .. } => {
                    Frame::Renewal { fence: *fence, payload: &renewal }
                }
                Incoming::Goodbye => Frame::Goodbye,
            };
            let again = [&frame.header()[..], frame.payload()].concat();
            assert_eq!(read_frame(&mut &again[..]).unwrap(), Some(read.clone()));
        }
    });
}

/// Another node of the job requests an image, or a cell of one in memory.
#[test]
fn a_request_of_an_image_reads_again_as_it_was_or_is_refused() {
    let seeds = [
        r#"{"Get":{"set":"set-1","rank":7}}"#,
        r#"{"Await":{"set":"mem-000001","rank":0}}"#,
        r#"{"Fold":{"set":"set-1","stripe":0,"chunk":4096,"first":{"address":"10.0.0.1:7",
        "member":0,"owner":"node01","bytes":12000},"rest":[]}}"#,
    ];
    let read: fn(&[u8]) -> Option<ImageRequest> = |bytes| serde_json::from_slice(bytes).ok();
    assert!(seeds.iter().all(|seed| read(seed.as_bytes()).is_some()));
    Target::new("memory_request").seeds(seeds).check(move |bytes| {
        let Some(request) = read(bytes) else { return };
        assert_eq!(read(&serde_json::to_vec(&request).unwrap()), Some(request));
    });
}

/// The name, the payload and the tags of an event for ranks.
#[test]
fn a_request_to_ranks_is_read_or_refused_by_its_name() {
    let parts = |all: &[&str]| all.iter().flat_map(|part| piece(part.as_bytes())).collect();
    let seeds: [Vec<u8>; 3] = [
        parts(&["FTB_CHECKPOINT", "s1", "episode", "4", "set", "s1"]),
        parts(&["FTB_MIGRATE", "", "episode", "4", "source", "n", "set", "m4", "ranks", "2 3"]),
        parts(&["FTB_JL_ROLLBACK", "s1", "episode", "4", "ranks", "0 2", "left", "2"]),
    ];
    Target::new("rank_request").seeds(seeds).check(|bytes| {
        let mut rest = Parts(bytes);
        let pieces: Vec<&[u8]> = std::iter::from_fn(|| rest.piece()).collect();
        let texts: Result<Vec<&str>, _> = pieces.into_iter().map(str::from_utf8).collect();
        let Ok([name, payload, tags @ ..]) = texts.as_deref() else { return };
        let Ok(parsed) = name.parse() else { return };
        let mut event = Event::new(SPACE_JL.parse().unwrap(), parsed);
        let tag =
            |tag: &[&str]| Some(Tag { key: (*tag.first()?).into(), value: (*tag.get(1)?).into() });
        event.tags = tags.chunks(2).filter_map(tag).collect();
        event.payload = (*payload).to_owned().into();
        match Request::from_event(&event) {
            Ok(Some(request)) => assert!(request.set().is_none_or(|set| !set.contains('/'))),
            Ok(None) => {}
            Err(error) => assert!(error.to_string().contains(*name), "{error}"),
        }
    });
}

/// The images of a rank come from another node.
#[test]
fn no_stream_of_an_image_panics_its_receiver_or_writes_elsewhere() {
    let seeds = [
        "5 a\nhello3 b/c\nend\n",
        "1 pages-1.img\nx+1 pages-1.img\ny0 empty\n\n",
        "1 ../x\nx\n",
        "18446744073709551615 a\nx",
        "0 a/b\n0 a\n\n",
    ];
    let target = Target::new("image_stream").seeds(seeds).rounds(1_500);
    target.check(|bytes| {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let mut from = bytes;
        let received = tree::receive(&mut from, &image, Outlives::Nothing);
        let entries: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(entries.len(), 1, "nothing beside the image");
        if let Ok(sum) = received {
            assert_eq!(tree::bytes(&image).unwrap(), sum.bytes);
        }
    });
}
