//! Runs of events: cut, joined, looked through, as their events are one by one.

use super::*;
use crate::severity::Severity;
use crate::testing::{said, sealed_with};

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
    assert_eq!(groups(&run), [0..2, 2..3, 3..5, 5..6]);
    let stretches = |run: &Run| {
        run.stretches()
            .map(|s| (s.at, s.publisher.token, s.first.get(), s.last.get()))
            .collect::<Vec<_>>()
    };
    assert_eq!(stretches(&run), [(0, 1, 1, 3), (3, 2, 4, 4), (4, 2, 6, 7)]);
    let part = run.slice(1..5).expect("four events");
    assert_eq!(groups(&part), [0..1, 1..2, 2..4]);
    assert_eq!(stretches(&part), [(0, 1, 2, 3), (2, 2, 4, 4), (3, 2, 6, 6)]);
    assert_eq!(part.first().id().seq, 2.into());
    assert!(run.slice(3..3).is_none());
    let seqs = |run: &Run| run.iter().map(|event| event.id().seq.get()).collect::<Vec<_>>();
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
    assert_eq!(own.buffer().len(), own.len());
    assert!(Arc::ptr_eq(&run.clone().detached().batch, &run.batch));
}

#[test]
fn consecutive_events_share_a_header_only_where_all_routing_texts_are_the_same() {
    let events = [("ftb.a", 1), ("ftb.a", 2), ("ftb.b", 3), ("ftb.b", 4), ("ftb.a", 5)];
    let events = events.map(|(space, seq)| said(space, "X", seq, Severity::Info));
    let run = Run::collect(events.iter().map(Sealed::as_ref)).expect("five events");
    let groups: Vec<_> = run.groups().map(|(places, first)| (places, first.space())).collect();
    assert_eq!(groups, [(0..2, "ftb.a"), (2..4, "ftb.b"), (4..5, "ftb.a")]);
    assert_eq!(run.batch.headers.len(), 3);
    assert!(run.iter().zip(&events).all(|(one, alone)| one == alone.as_ref()));
    assert_eq!(
        run.stretches().map(|s| (s.first.get(), s.last.get())).collect::<Vec<_>>(),
        [(1, 5)]
    );
}

#[test]
fn a_slice_gives_its_buffer_and_where_its_events_lie() {
    let run = run();
    let part = run.slice(2..4).expect("two events");
    let slices: Vec<_> = part.spans().filter_map(|at| at.slice(part.buffer())).collect();
    assert_eq!(slices, part.iter().map(SealedRef::bytes).collect::<Vec<_>>());
}

#[test]
fn what_lies_outside_the_buffer_is_refused() {
    let event = sealed_with(1, 1, Severity::Info);
    let len = u32::try_from(event.len()).expect("small");
    let finish = |head: Head, at: Span| {
        let mut builder = RunBuilder::default();
        builder.push(event.bytes(), head, at)?;
        builder.finish(event.bytes().clone()).map(|run| run.map(|run| run.count()))
    };
    let head = *event.head();
    assert_eq!(finish(head, Span { start: 0, len }), Ok(Some(1)));
    assert_eq!(finish(head, Span { start: 1, len }), Err(SpanError("content")));
    assert_eq!(finish(head, Span { start: 0, len: 14 }), Err(SpanError("host")));
    let mut builder = RunBuilder::default();
    assert_eq!(builder.push(event.bytes(), head, Span { start: 0, len }), Ok(()));
    assert_eq!(
        builder.finish(event.bytes().slice(1..)),
        Err(SpanError("content")),
        "another buffer"
    );
    assert_eq!(RunBuilder::default().finish(Bytes::new()), Ok(None));
}

#[test]
fn consecutive_sequence_numbers_end_at_the_highest() {
    let seqs = [u64::MAX - 2, u64::MAX - 1, u64::MAX, u64::MAX];
    let events = seqs.map(|seq| sealed_with(1, seq, Severity::Info));
    let run = Run::collect(events.iter().map(Sealed::as_ref)).expect("four events");
    assert!(run.iter().map(|event| event.head().id.seq.get()).eq(seqs));
    let last: Vec<u64> = run.stretches().map(|stretch| stretch.last.get()).collect();
    assert_eq!(last, [u64::MAX, u64::MAX]);
}
