//! When a client hears that its events are held: at once, or when it costs nothing.

use crate::bounds::{Agent, CLIENT};
use ftb_core::node::api::{Input, Output, ToClient};
use ftb_core::node::{ACK_DELAY_EVENTS_MAX, ACK_DELAY_MS};

/// An acting root without a standby: what it takes is held.
fn root() -> Agent {
    let mut root = Agent::alone();
    root.attach();
    root.out.clear();
    root
}

fn delay_acks(root: &mut Agent, delayed: bool) {
    root.handle(Input::DelayAcks { client: CLIENT, delayed });
}

/// A root whose client does not wait, and has just heard that its first event is held.
fn lazy_root() -> Agent {
    let mut root = root();
    delay_acks(&mut root, true);
    root.publish(1, 1);
    assert_eq!(confirmed(woken(&mut root).as_deref()), 1, "it heard nothing for long");
    root
}

/// Whether the client is woken; what it hears then.
fn woken(root: &mut Agent) -> Option<Vec<ToClient>> {
    let ready = |output: &Output| matches!(output, Output::ClientReady(CLIENT));
    let ready = root.out.drain(..).any(|output| ready(&output));
    ready.then(|| root.messages())
}

fn confirmed(heard: Option<&[ToClient]>) -> u64 {
    match heard {
        Some([.., ToClient::Confirmed { seq, .. }]) => seq.get(),
        other => panic!("{other:?} confirms nothing"),
    }
}

#[test]
fn who_has_not_said_otherwise_hears_it_at_once() {
    let mut root = root();
    for seq in 1..=3 {
        root.publish(seq, 1);
        assert_eq!(confirmed(woken(&mut root).as_deref()), seq);
    }
}

#[test]
fn a_lazy_client_hears_it_once_for_all_when_the_time_is_over() {
    let mut root = lazy_root();
    for seq in 2..=4 {
        root.publish(seq, 1);
        assert_eq!(woken(&mut root), None);
    }
    let before_ns = root.now.mono_ns;
    let heard = loop {
        root.pass_time();
        if let Some(heard) = woken(&mut root) {
            break heard;
        }
    };
    assert_eq!(confirmed(Some(&heard)), 4);
    assert!(root.now.mono_ns - before_ns <= ACK_DELAY_MS * 1_000_000);
    // And again.
    root.publish(5, 1);
    assert_eq!(woken(&mut root), None);
    root.now.mono_ns += ACK_DELAY_MS * 1_000_000;
    root.handle(Input::Tick);
    assert_eq!(confirmed(woken(&mut root).as_deref()), 5);
    // Once it has heard all, nothing wakes it; a publisher that seldom speaks costs no timer.
    root.now.mono_ns += 2 * ACK_DELAY_MS * 1_000_000;
    root.handle(Input::Tick);
    assert_eq!(woken(&mut root), None);
    root.publish(6, 1);
    assert_eq!(confirmed(woken(&mut root).as_deref()), 6);
}

#[test]
fn a_lazy_client_is_not_left_without_many() {
    let mut root = lazy_root();
    root.publish(2, ACK_DELAY_EVENTS_MAX - 1);
    assert_eq!(woken(&mut root), None);
    root.publish(ACK_DELAY_EVENTS_MAX + 1, 1);
    assert_eq!(confirmed(woken(&mut root).as_deref()), ACK_DELAY_EVENTS_MAX + 1);
}

#[test]
fn a_delayed_acknowledgement_goes_behind_other_messages() {
    let mut root = root();
    root.subscribe(1, "");
    root.messages();
    root.out.clear();
    delay_acks(&mut root, true);
    root.publish(1, 1);
    assert!(woken(&mut root).is_some());
    root.publish(2, 1);
    let heard = woken(&mut root).expect("it is delivered to");
    assert!(
        matches!(heard[..], [ToClient::Deliver { .. }, ToClient::Confirmed { seq, .. }]
            if seq.get() == 2),
        "{heard:?}"
    );
}

#[test]
fn who_begins_to_ask_hears_at_once_what_was_put_off() {
    let mut root = lazy_root();
    root.publish(2, 2);
    assert_eq!(woken(&mut root), None);
    delay_acks(&mut root, false);
    assert_eq!(confirmed(woken(&mut root).as_deref()), 3);
    root.publish(4, 1);
    assert_eq!(confirmed(woken(&mut root).as_deref()), 4);
}

#[test]
fn what_was_put_off_is_said_before_the_agent_stops_and_again_to_who_has_not_heard_it() {
    let mut root = lazy_root();
    root.publish(2, 2);
    assert_eq!(woken(&mut root), None);
    root.publish(2, 2);
    assert_eq!(confirmed(woken(&mut root).as_deref()), 3, "it was published again");
    root.publish(4, 1);
    assert_eq!(woken(&mut root), None);
    root.handle(Input::Stop);
    assert_eq!(confirmed(Some(&root.messages())), 4);
}
