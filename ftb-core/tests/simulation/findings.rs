//! What two agents should have in common and do not is found once, and its end is reported once.

use crate::claims::{Parent, SECOND};
use ftb_core::frame::{Close, Frame, Hello};

const HOUR: u64 = 3_600 * SECOND;

/// How often each of the two events was announced, always about `b`.
fn said(parent: &Parent, names: [&str; 2]) -> [usize; 2] {
    let tags = names.map(|name| parent.announced(name));
    let of_b = |tags: &Vec<(&str, String)>| tags.starts_with(&[("host", "b".into())]);
    assert!(tags.iter().flatten().all(of_b), "{tags:?}");
    tags.map(|tags| tags.len())
}

/// `b` comes anew.
fn returns(parent: &mut Parent, change: impl Fn(Hello) -> Hello) {
    parent.say(1, Frame::Close(Close { stopping: false, reason: "test".into() }));
    let hello = parent.hello_of(1);
    parent.connect(1, change(hello));
}

#[test]
fn clocks_that_differ_agree_again_after_thirty_seconds() {
    let mut parent = Parent::new();
    let names = ["FTB_CLOCKS_DIFFER", "FTB_CLOCKS_AGREE"];
    returns(&mut parent, |hello| Hello { wall_ns: hello.wall_ns + HOUR, ..hello });
    assert_eq!(said(&parent, names), [1, 0]);
    // It is right for a while, and wrong again.
    parent.pass(20 * SECOND, &[1, 2]);
    parent.beat(1, HOUR);
    parent.pass(29 * SECOND, &[1, 2]);
    assert_eq!(said(&parent, names), [1, 0]);
    parent.pass(2 * SECOND, &[1, 2]);
    assert_eq!(said(&parent, names), [1, 1]);
    // A heartbeat alone finds nothing: it may have waited long.
    parent.beat(1, HOUR);
    parent.pass(60 * SECOND, &[1, 2]);
    assert_eq!(said(&parent, names), [1, 1]);
}

#[test]
fn member_lists_that_differed_agree_again_with_the_next_hello_or_below_another_parent() {
    let names = ["FTB_MEMBERS_DIFFER", "FTB_MEMBERS_AGREE"];
    let other = |hello| Hello { members_digest: 7, ..hello };
    let mut parent = Parent::new();
    returns(&mut parent, other);
    returns(&mut parent, other);
    assert_eq!(said(&parent, names), [1, 0]);
    returns(&mut parent, |hello| hello);
    assert_eq!(said(&parent, names), [1, 1]);
    returns(&mut parent, other);
    assert_eq!(said(&parent, names), [2, 1]);
    parent.say(1, Frame::Close(Close { stopping: false, reason: "moves".into() }));
    parent.pass(59 * SECOND, &[2]);
    assert_eq!(said(&parent, names), [2, 1]);
    parent.pass(2 * SECOND, &[2]);
    assert_eq!(said(&parent, names), [2, 2]);
}

#[test]
fn member_lists_that_were_loaded_again_agree_while_the_link_stays() {
    let names = ["FTB_MEMBERS_DIFFER", "FTB_MEMBERS_AGREE"];
    let mut parent = Parent::new();
    returns(&mut parent, |hello| Hello { members_digest: 7, ..hello });
    for digest in [0, 7] {
        parent.beat_with(1, digest);
        parent.pass(2 * SECOND, &[1, 2]);
        assert_eq!(said(&parent, names), [1, 0], "{digest}");
    }
    let digest = parent.hello_of(1).members_digest;
    parent.beat_with(1, digest);
    parent.pass(2 * SECOND, &[1, 2]);
    assert_eq!(said(&parent, names), [1, 1]);
}

/// What strangers invent takes no room from what is found about children.
#[test]
fn many_refused_agents_hide_no_claim() {
    let mut parent = Parent::new();
    for number in 0..300 {
        returns(&mut parent, |hello| Hello {
            cluster: "other".into(),
            host: format!("invented{number}"),
            ..hello
        });
    }
    assert_eq!(parent.announced("FTB_AGENT_REFUSED").len(), 256);
    let hello = parent.hello_of(1);
    parent.connect(1, hello);
    parent.claim(1, 2);
    assert_eq!(parent.announced("FTB_CLAIM_REFUSED").len(), 1);
}

#[test]
fn an_agent_with_the_certificate_of_another_is_reported_as_that_one() {
    let mut parent = Parent::new();
    let hello = parent.hello_of(1);
    parent.connect_as(1, Some("n7"), hello);
    let named = vec![("host", "n7".into()), ("by", "a".into())];
    assert_eq!(parent.announced("FTB_AGENT_REFUSED"), [named]);
}

#[test]
fn an_agent_that_was_refused_is_accepted_again_or_has_stopped_asking() {
    let names = ["FTB_AGENT_REFUSED", "FTB_AGENT_ACCEPTED"];
    let stranger = |hello| Hello { cluster: "other".into(), ..hello };
    let mut parent = Parent::new();
    returns(&mut parent, stranger);
    assert_eq!(said(&parent, names), [1, 0]);
    let hello = parent.hello_of(1);
    parent.connect(1, hello);
    assert_eq!(said(&parent, names), [1, 1]);
    returns(&mut parent, stranger);
    parent.pass(1_199 * SECOND, &[2]);
    assert_eq!(said(&parent, names), [2, 1]);
    parent.pass(2 * SECOND, &[2]);
    assert_eq!(said(&parent, names), [2, 2]);
}
