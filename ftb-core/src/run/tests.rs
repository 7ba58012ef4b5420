//! Runs of events: cut, joined, looked through, as their events are one by one.

use super::*;
use crate::node::testing::sealed_with;
use crate::sealed::SpanError;
use crate::severity::Severity;

fn run() -> Run {
    use Severity::{Error, Info};
    let events =
        [(1, 1, Info), (1, 2, Info), (1, 3, Error), (2, 4, Error), (2, 6, Error), (2, 7, Info)];
    let events = events.map(|(token, seq, severity)| sealed_with(token, seq, severity));
    Run::collect(events.iter().map(Sealed::as_ref)).expect("six events")
}

#[test]
fn a_run_is_cut_into_what_filters_can_tell_apart_and_ids_that_follow() {
    let run = run();
    let groups = |run: &Run| run.groups().map(|(places, _)| places).collect::<Vec<_>>();
    assert_eq!(groups(&run), [0..2, 2..5, 5..6]);
    let stretches = |run: &Run| {
        run.stretches().map(|s| (s.at, s.publisher.token, s.first, s.last)).collect::<Vec<_>>()
    };
    assert_eq!(stretches(&run), [(0, 1, 1, 3), (3, 2, 4, 4), (4, 2, 6, 7)]);
    let part = run.slice(1..5).expect("four events");
    assert_eq!(groups(&part), [0..1, 1..4]);
    assert_eq!(stretches(&part), [(0, 1, 2, 3), (2, 2, 4, 4), (3, 2, 6, 6)]);
    assert_eq!(part.first().id().seq, 2);
    assert!(run.slice(3..3).is_none());
    let seqs = |run: &Run| run.iter().map(|event| event.id().seq).collect::<Vec<_>>();
    let left: Vec<Vec<u64>> = run.without(&[0, 3, 4]).iter().map(seqs).collect();
    assert_eq!(left, [vec![2, 3], vec![7]]);
}

#[test]
fn sizes_add_up_however_it_is_cut() {
    let run = run();
    let one = run.first().len();
    assert_eq!((run.len(), run.count()), (6 * one, 6));
    let (front, back) = (run.slice(0..2), run.slice(2..9));
    let (front, back) = (front.expect("two"), back.expect("four"));
    assert_eq!(front.len() + back.len(), run.len());
    assert_eq!(front.joined(&back), Some(run.clone()));
    assert_eq!(back.joined(&front), None);
    assert_eq!(run.fitting(1, 9), 1);
    assert_eq!(run.fitting(2 * one, 9), 2);
    assert_eq!(run.fitting(2 * one + 1, 9), 3);
    assert_eq!(back.fitting(usize::MAX, 3), 3);
    assert_eq!(back.fitting(usize::MAX, 9), 4);
    assert_eq!(run.fitting(0, 9), 0);
}

#[test]
fn what_is_kept_long_does_not_pin_what_it_came_with() {
    let run = run();
    let one = run.slice(5..6).expect("one event");
    let own = one.clone().detached();
    assert_eq!(own, one);
    assert_eq!(own.batch.bytes.len(), own.len() + Listed::of(own.len()).bytes().len());
    assert!(Arc::ptr_eq(&run.clone().detached().batch, &run.batch));
}

fn alike(seq: u64, time_ns: u64) -> Alike {
    Alike { seq, time_ns, time_at: 0 }
}

fn listed(run: &Run) -> Vec<u8> {
    let event = |event: SealedRef<'_>| [Listed::of(event.len()).bytes(), &*event.bytes()].concat();
    run.iter().flat_map(event).collect()
}

/// What lies there as lists, where nothing is packed.
fn lists(run: &Run) -> Vec<Bytes> {
    let list = |portion: Portion| {
        assert_eq!(portion.packed, None);
        portion.listed
    };
    run.portions().map(list).collect()
}

#[test]
fn a_run_is_sent_as_it_lies_where_it_lies_as_a_list() {
    let run = run();
    let whole = run.batch.bytes.as_ptr_range();
    for places in [0..6, 2..5, 5..6] {
        let part = run.slice(places).expect("some");
        let list = lists(&part);
        assert_eq!(list.len(), 1);
        assert!(whole.contains(&list[0].as_ptr()), "it was copied");
        assert_eq!(list.concat(), listed(&part));
    }
    // Alone in bytes of its own, as a single event comes.
    let one: Run = sealed_with(1, 1, Severity::Info).into();
    assert_eq!(lists(&one).concat(), listed(&one));
    // Two lists with something else in between, as two items of a frame lie.
    let (front, back) = (run.slice(0..2).expect("two"), run.slice(2..4).expect("two"));
    let (mut bytes, mut builder) = (Vec::new(), RunBuilder::default());
    for part in [&front, &back] {
        bytes.extend_from_slice(b"head");
        for event in part.iter() {
            let len = event.len();
            bytes.extend_from_slice(Listed::of(len).bytes());
            let at = Span { start: bytes.len() as u32, len: len as u32 };
            bytes.extend_from_slice(&event.bytes());
            builder.push(event.head(), at);
        }
    }
    let both = builder.finish(bytes.into()).expect("good spans").expect("four events");
    assert_eq!(lists(&both).len(), 2);
    assert_eq!(lists(&both).concat(), listed(&run.slice(0..4).expect("four")));
    assert_eq!(both.slice(1..3).map(|part| lists(&part).len()), Some(2));
    assert_eq!(both.slice(2..4).map(|part| lists(&part).len()), Some(1));
}

#[test]
fn what_stands_before_an_event_of_a_list_is_as_protobuf_writes_it() {
    for (len, expected) in [
        (0, vec![0x12, 0]),
        (127, vec![0x12, 127]),
        (128, vec![0x12, 0x80, 1]),
        (300, vec![0x12, 0xac, 2]),
        (1 << 21, vec![0x12, 0x80, 0x80, 0x80, 1]),
        (u32::MAX as usize, vec![0x12, 0xff, 0xff, 0xff, 0xff, 0x0f]),
    ] {
        assert_eq!(Listed::of(len).bytes(), expected, "{len}");
    }
}

#[test]
fn what_neighbours_have_in_common_is_kept_once_and_seen_in_each() {
    let run = run();
    assert_eq!(run.batch.heads.len(), 4);
    let events: Vec<Sealed> = run.iter().map(SealedRef::to_sealed).collect();
    let (mut bytes, mut short) = (Vec::new(), RunBuilder::default());
    for (place, event) in events.iter().take(2).enumerate() {
        let at = Span { start: bytes.len() as u32, len: event.len() as u32 };
        bytes.extend_from_slice(event.bytes());
        let head = *event.head();
        match place {
            0 => short.push(head, at),
            _ => short.push_like(alike(head.id.seq, head.time_ns), at),
        }
    }
    let short = short.finish(bytes.into()).expect("good spans").expect("two events");
    assert_eq!(short, run.slice(0..2).expect("two"));
    assert_eq!((short.batch.heads.len(), short.groups().count()), (1, 1));
    assert_eq!(
        short.stretches().collect::<Vec<_>>(),
        run.slice(0..2).expect("two").stretches().collect::<Vec<_>>()
    );
}

/// Ten events of which each is in the buffer as a list has it, each with its time where its payload
/// would be: one run told of each alone, one of them as they lie in rows.
#[test]
fn a_row_of_events_is_what_its_events_are() {
    const TIME_AT: usize = 100;
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    let seqs = [5, 6, 7, 8, 20, 21, 22, 23, 24, 25_u64];
    for seq in seqs {
        let mut event = sealed_with(1, seq, Severity::Info).bytes().to_vec();
        event[TIME_AT..TIME_AT + 8].copy_from_slice(&(1000 * seq).to_le_bytes());
        bytes.extend_from_slice(Listed::of(event.len()).bytes());
        spans.push(Span { start: bytes.len() as u32, len: event.len() as u32 });
        bytes.extend_from_slice(&event);
    }
    let head = |seq| Head { time_ns: 1000 * seq, ..*sealed_with(1, seq, Severity::Info).head() };
    let (mut alone, mut in_rows) = (RunBuilder::default(), RunBuilder::default());
    for (seq, at) in seqs.into_iter().zip(&spans) {
        alone.push(head(seq), *at);
    }
    in_rows.push(head(5), spans[0]);
    for place in [1, 2, 4] {
        let time_at = TIME_AT as u32;
        if place == 4 {
            in_rows.push_following(1, time_at);
        }
        let (seq, time_ns) = (seqs[place], 1000 * seqs[place]);
        in_rows.push_like(Alike { seq, time_ns, time_at }, spans[place]);
    }
    in_rows.push_following(5, TIME_AT as u32);
    let [alone, in_rows] = [alone, in_rows].map(|builder| {
        builder.finish(bytes.clone().into()).expect("good spans").expect("ten events")
    });
    assert_eq!((alone.batch.rows.len(), in_rows.batch.rows.len()), (10, 2));
    assert_eq!(in_rows, alone);
    assert!(in_rows.iter().zip(seqs).all(|(event, seq)| event.time_ns() == 1000 * seq));
    for (from, to) in (0..10).flat_map(|from| (from + 1..=10).map(move |to| (from, to))) {
        let [one, other] = [&alone, &in_rows].map(|run| run.slice(from..to).expect("some"));
        assert_eq!((one.len(), &one), (other.len(), &other));
        assert!(one.stretches().eq(other.stretches()));
        assert_eq!((lists(&one), lists(&one).len()), (lists(&other), 1));
        for bytes in (0..one.len() + 9).step_by(9) {
            assert_eq!(one.fitting(bytes, 7), other.fitting(bytes, 7), "{from}..{to}: {bytes}");
        }
    }
}

/// An event with its number, time and payload at known places, the rest dots.
fn with_own(seq: u64, time_ns: u64, payload: u8) -> Sealed {
    let event = sealed_with(1, seq, Severity::Info);
    let mut bytes = event.bytes()[..PARTS.payload_at as usize + 5].to_vec();
    let mut number = Vec::new();
    crate::own::put_varint(seq, &mut number);
    bytes[PARTS.seq_at as usize..][..number.len()].copy_from_slice(&number);
    bytes[PARTS.time_at as usize..][..8].copy_from_slice(&time_ns.to_le_bytes());
    bytes[PARTS.payload_at as usize..].fill(payload);
    Sealed::new(Head { time_ns, ..*event.head() }, bytes.into()).expect("good spans")
}

const PARTS: OwnParts = OwnParts { seq_at: 30, time_at: 40, payload_at: 50 };

fn own(event: &Sealed) -> Vec<u8> {
    let (time, payload) = (PARTS.time_at as usize, PARTS.payload_at as usize);
    [&event.bytes()[time..time + 8], &event.bytes()[payload..]].concat()
}

/// Rows of which only the first event lies there whole, with something in between and beside one
/// that is alone: every stretch of them is what the events are one by one.
#[test]
fn a_packed_row_is_what_its_events_are() {
    let rows = [200..204_u32, 300..301, 301..303];
    let (mut bytes, mut builder, mut events) =
        (b"head".to_vec(), RunBuilder::default(), Vec::new());
    for seqs in rows {
        let mut seqs = seqs.map(|seq| with_own(seq.into(), 1000 * u64::from(seq), seq as u8));
        let first = seqs.next().expect("one");
        bytes.extend_from_slice(Listed::of(first.len()).bytes());
        let at = Span { start: bytes.len() as u32, len: first.len() as u32 };
        bytes.extend_from_slice(first.bytes());
        match events.last() {
            None => builder.push(*first.head(), at),
            Some(_) => {
                let (seq, time_ns) = (first.head().id.seq, first.head().time_ns);
                builder.push_known(Alike { seq, time_ns, time_at: PARTS.time_at }, at);
            }
        }
        bytes.extend_from_slice(b"between");
        events.push(first);
        let (start, others) = (bytes.len() as u32, seqs.len() as u32);
        for event in seqs {
            bytes.extend_from_slice(&own(&event));
            events.push(event);
        }
        assert_eq!(builder.push_packed(others, PARTS, start), others > 0);
    }
    let run = builder.finish(bytes.into()).expect("good spans").expect("seven events");
    assert_eq!((run.count(), run.batch.rows.len()), (7, 3));
    let alone = Run::collect(events.iter().map(Sealed::as_ref)).expect("seven events");
    assert_eq!(run, alone);
    assert!(run.iter().zip(&events).all(|(event, alone)| event.to_sealed() == *alone));
    assert_eq!(run.groups().map(|(places, _)| places.len()).collect::<Vec<_>>(), [7]);
    assert!(
        run.stretches().map(|stretch| (stretch.first, stretch.last)).eq([(200, 203), (300, 302)])
    );
    for (from, to) in (0..7).flat_map(|from| (from + 1..=7).map(move |to| (from, to))) {
        let [part, alone] = [&run, &alone].map(|run| run.slice(from..to).expect("some"));
        assert_eq!((part.len(), &part), (alone.len(), &alone));
        assert_eq!(part.clone().detached(), alone);
        let (mut count, mut told) = (0, Vec::new());
        for portion in part.portions() {
            let last = part.get(count + portion.count - 1).expect("one");
            count += portion.count;
            let whole =
                |event: SealedRef<'_>| [Listed::of(event.len()).bytes(), &*event.bytes()].concat();
            let first = part.get(count - portion.count).expect("one");
            assert!(portion.listed.starts_with(&whole(first)));
            if let Some(packed) = portion.packed {
                assert!(packed.ends_with(&own(&last.to_sealed())));
                assert_eq!(packed.len(), (portion.count - 1) * PARTS.step(first.len()));
            }
            told.push(portion.count);
        }
        assert_eq!(count, part.count());
        // One that is alone, and one behind which others are packed, are no list together.
        let rows = [0..4, 4..5, 5..7].into_iter().filter(|row| row.start < to && from < row.end);
        assert_eq!(told.len(), rows.count());
    }
}

#[test]
fn what_cannot_be_packed_behind_an_event_is_refused() {
    let event = with_own(200, 1, 1);
    let at = Span { start: 0, len: event.len() as u32 };
    let bytes = [event.bytes(), &own(&event)[..], &own(&event)].concat();
    let packed = |count, parts, start, seq| {
        let mut builder = RunBuilder::default();
        let id = EventId { seq, ..event.head().id };
        builder.push(Head { id, ..*event.head() }, at);
        builder.push_packed(count, parts, start).then(|| builder.finish(bytes.clone().into()))
    };
    let start = at.len;
    assert!(matches!(packed(2, PARTS, start, 200), Some(Ok(Some(run))) if run.count() == 3));
    assert_eq!(packed(3, PARTS, start, 200), Some(Err(SpanError("payload"))), "behind the end");
    assert_eq!(packed(2, PARTS, start + 1, 200), Some(Err(SpanError("payload"))));
    assert!(packed(0, PARTS, start, 200).is_none());
    assert!(packed(1, PARTS, start, 127).is_none(), "the next number takes a byte more");
    assert!(packed(1, PARTS, start, u64::MAX).is_none(), "there is no next number");
    assert!(packed(1, OwnParts { payload_at: 47, ..PARTS }, start, 200).is_none(), "over the time");
    // Not behind a fold, nor where others of the row are there already.
    let mut builder = RunBuilder::default();
    assert!(!builder.push_packed(1, PARTS, start));
    builder.push(Head { covers: 3, ..*event.head() }, at);
    assert!(!builder.push_packed(1, PARTS, start));
    let mut builder = RunBuilder::default();
    builder.push(*event.head(), at);
    builder.push_following(1, PARTS.time_at);
    assert!(!builder.push_packed(1, PARTS, start));
    let mut builder = RunBuilder::default();
    builder.push(*event.head(), at);
    assert!(builder.push_packed(1, PARTS, start));
    assert!(!builder.push_packed(1, PARTS, start + 13));
}

#[test]
fn what_lies_outside_the_buffer_is_refused() {
    let event = sealed_with(1, 1, Severity::Info);
    let len = u32::try_from(event.len()).expect("small");
    let finish = |head: Head, at: Span| {
        let mut builder = RunBuilder::default();
        builder.push(head, at);
        builder.finish(event.bytes().clone()).map(|run| run.map(|run| run.count()))
    };
    let head = *event.head();
    assert_eq!(finish(head, Span { start: 0, len }), Ok(Some(1)));
    assert_eq!(finish(head, Span { start: 1, len }), Err(SpanError("content")));
    assert_eq!(finish(head, Span { start: 0, len: 14 }), Err(SpanError("host")));
    let mut builder = RunBuilder::default();
    builder.push(head, Span { start: 0, len });
    builder.push_like(alike(2, 0), Span { start: 0, len: 14 });
    assert_eq!(builder.finish(event.bytes().clone()), Err(SpanError("host")));
    let mut builder = RunBuilder::default();
    builder.push(head, Span { start: 0, len });
    builder.push_following(1, 0);
    assert_eq!(builder.finish(event.bytes().clone()), Err(SpanError("content")), "behind it");
    let twice = [event.bytes(), Listed::of(event.len()).bytes(), event.bytes()].concat();
    let mut builder = RunBuilder::default();
    builder.push(head, Span { start: 0, len });
    builder.push_following(1, len - 7);
    assert_eq!(builder.finish(twice.into()), Err(SpanError("time")));
    assert_eq!(RunBuilder::default().finish(Bytes::new()), Ok(None));
}

/// Whoever sends events may give them any numbers.
#[test]
fn behind_the_highest_number_a_row_ends() {
    let seqs = [u64::MAX - 2, u64::MAX - 1, u64::MAX, u64::MAX];
    let (mut bytes, mut builder) = (Vec::new(), RunBuilder::default());
    for (place, seq) in seqs.into_iter().enumerate() {
        let event = sealed_with(1, seq, Severity::Info);
        bytes.extend_from_slice(Listed::of(event.len()).bytes());
        let at = Span { start: bytes.len() as u32, len: event.len() as u32 };
        bytes.extend_from_slice(event.bytes());
        match place {
            0 => builder.push(*event.head(), at),
            _ => builder.push_like(alike(seq, event.head().time_ns), at),
        }
    }
    let run = builder.finish(bytes.into()).expect("good spans").expect("four events");
    assert!(run.iter().map(|event| event.head().id.seq).eq(seqs));
    let last: Vec<u64> = run.stretches().map(|stretch| stretch.last).collect();
    assert_eq!(last, [u64::MAX, u64::MAX]);
}
