//! A rank beside a launch agent that the test plays.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::rank_socket::AgentPacket;
use std::thread;

fn config(pairs: &[(&str, &str)]) -> LoopConfig {
    let lookup = |name: &str| {
        let found = pairs.iter().find(|(key, _)| *key == name)?;
        Some(found.1.to_owned())
    };
    LoopConfig::from_lookup(&lookup).unwrap()
}

fn save(set: &str, loop_id: Option<u64>) -> AgentPacket {
    AgentPacket::Save { episode: 7, set: set.to_owned(), loop_id }
}

/// The next packet of the rank.
fn next(agent: &RankSocket) -> RankPacket {
    agent.receive().unwrap().unwrap().0
}

/// A save failed with a reason that names its image.
fn assert_failed(packet: &RankPacket, of: &str) {
    let RankPacket::Failed { set, reason } = packet else { panic!("{packet:?}") };
    assert!(set == of && reason.starts_with("image "), "{packet:?}");
}

/// Protects the memory of a test, which outlives its loop.
#[expect(unsafe_code, reason = "memory of the test")]
fn protect(looping: &mut Looping, name: &str, memory: &mut [u8]) -> Result<(), LoopError> {
    // SAFETY: the tests keep it until the end, and use it between calls only.
    unsafe { looping.protect(name, memory.as_mut_ptr(), memory.len()) }
}

const RANK: [(&str, &str); 3] = [("FTB_JOB_ID", "job-1"), ("FTB_RANK", "2"), ("FTB_SIZE", "4")];

#[test]
fn without_a_launcher_it_counts() {
    let mut looping = Looping::new(config(&[]), None);
    protect(&mut looping, "state", &mut [1]).unwrap();
    assert_eq!([0; 3].map(|_| looping.pass().unwrap()), [0, 1, 2]);
    assert_eq!((looping.place().rank(), looping.place().size()), (0, 1));
    let of_mpi = config(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("FTB_IMAGE_DIR", "")]);
    assert_eq!((of_mpi.rank, of_mpi.size, of_mpi.image_dir), (1, 2, None));
}

#[test]
fn wrong_arguments_are_refused_with_the_reason_and_change_nothing() {
    let mut looping = Looping::new(config(&[]), None);
    let mut state = [0; 8];
    protect(&mut looping, "state", &mut state).unwrap();
    let long = "x".repeat(64);
    for (name, words) in [
        ("state", "protected already"),
        ("", "1 to 63 bytes"),
        (&long, "1 to 63 bytes"),
        ("a\nb", "no control characters"),
    ] {
        let error = protect(&mut looping, name, &mut state).unwrap_err();
        assert!(error.to_string().contains(words) && error.code() == -3, "{error}");
    }
    let start = state.as_mut_ptr();
    for (start, bytes, words) in [
        (std::ptr::null_mut(), 8, "NULL"),
        (start, 0, "0 bytes"),
        (start, usize::MAX, "not writable"),
        (start, 1 << 45, "not writable"),
        (b"constant".as_ptr().cast_mut(), 8, "not writable"),
    ] {
        #[expect(unsafe_code, reason = "nothing is protected")]
        // SAFETY: it is refused.
        let error = unsafe { looping.protect("other", start, bytes) }.unwrap_err();
        assert!(error.to_string().contains(words) && error.code() == -3, "{error}");
    }
    assert_eq!(looping.pass().unwrap(), 0);
    let late = protect(&mut looping, "late", &mut state).unwrap_err();
    assert!(late.to_string().contains("before the first ftb_loop"), "{late}");
}

/// Orders arrive while the program works; only the call at the agreed id saves.
#[test]
fn the_state_at_the_agreed_loop_id_comes_back_to_the_bit() {
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().display().to_string();
    let of = [&RANK[..], &[("FTB_IMAGE_DIR", &images)]].concat();
    let (agent, theirs) = RankSocket::pair().unwrap();
    let mut looping = Looping::new(config(&of), Some(RankSocket::new(theirs)));
    let (mut grid, mut sum) = (vec![0; 3 << 20], [0; 8]);
    protect(&mut looping, "grid", &mut grid).unwrap();
    protect(&mut looping, "sum", &mut sum).unwrap();
    let mut work = |looping: &mut Looping| {
        let id = looping.pass().unwrap();
        grid.fill(u8::try_from(id).unwrap() + 1);
        sum = (id * 3).to_le_bytes();
        id
    };
    assert_eq!(work(&mut looping), 0);
    agent.send(&AgentPacket::Where, None).unwrap();
    agent.send(&save("set-000007", Some(3)), None).unwrap();
    assert_eq!([1, 2, 3, 4].map(|_| work(&mut looping)), [1, 2, 3, 4]);
    let at = next(&agent);
    assert!(matches!(at, RankPacket::At { loop_id: 1, .. }), "{at:?}");
    let RankPacket::Saved { set, bytes } = next(&agent) else { panic!("it is saved") };
    assert!(set == "set-000007" && bytes > 3 << 20, "{set}: {bytes}");
    let restore = dir.path().join("set-000007").display().to_string();
    let of = [&of[..], &[("FTB_RESTORE", &restore), ("FTB_MEMORY_FIRST", "1")]].concat();
    let (_agent, theirs) = RankSocket::pair().unwrap();
    let mut again = Looping::new(config(&of), Some(RankSocket::new(theirs)));
    let (mut grid, mut sum) = (vec![0; 3 << 20], [0; 8]);
    protect(&mut again, "grid", &mut grid).unwrap();
    protect(&mut again, "sum", &mut sum).unwrap();
    assert_eq!(again.pass().unwrap(), 3);
    assert!(grid.iter().all(|byte| *byte == 3), "what iteration 2 left");
    assert_eq!(u64::from_le_bytes(sum), 6);
    assert_eq!(again.pass().unwrap(), 4);
    refused_unless_the_same(&of);
}

/// Memory of another name or size is not restored from that set.
fn refused_unless_the_same(of: &[(&str, &str)]) {
    for (name, bytes, words) in
        [("grid", 9, "grid had 3145728 bytes and has 9 now"), ("field", 9, "sum (8 bytes) is not")]
    {
        let (_agent, theirs) = RankSocket::pair().unwrap();
        let mut other = Looping::new(config(of), Some(RankSocket::new(theirs)));
        let mut memory = vec![5; bytes];
        protect(&mut other, name, &mut memory).unwrap();
        for _ in 0..2 {
            let error = other.pass().unwrap_err();
            assert!(error.to_string().contains(words) && error.code() == -65, "{error}");
        }
        assert!(memory.iter().all(|byte| *byte == 5), "nothing was written");
    }
}

/// A call in which the image of the rank is refused. An order arrives before the answer.
fn passed_while_refused(agent: &RankSocket, looping: &mut Looping) -> u64 {
    thread::scope(|threads| {
        let rank = threads.spawn(|| looping.pass().unwrap());
        assert!(matches!(next(agent), RankPacket::Put { .. }));
        agent.send(&AgentPacket::Where, None).unwrap();
        agent.send(&AgentPacket::Refused("too small".to_owned()), None).unwrap();
        rank.join().unwrap()
    })
}

#[test]
fn a_save_that_fails_or_comes_too_late_is_reported_and_the_rank_goes_on_until_its_agent_is_gone() {
    let (agent, theirs) = RankSocket::pair().unwrap();
    let mut looping = Looping::new(config(&RANK), Some(RankSocket::new(theirs)));
    // Without memory for images and without a directory it reports why it is not saved.
    for set in ["mem-000008", "set-000008"] {
        agent.send(&save(set, Some(looping.next)), None).unwrap();
        if set == "mem-000008" {
            assert_eq!(passed_while_refused(&agent, &mut looping), 0);
        } else {
            looping.pass().unwrap();
            assert!(matches!(next(&agent), RankPacket::At { loop_id: 1, .. }), "it was asked");
        }
        assert_failed(&next(&agent), set);
    }
    agent.send(&save("mem-000009", Some(1)), None).unwrap();
    assert_eq!(looping.pass().unwrap(), 2);
    assert_eq!(next(&agent), RankPacket::Missed { set: "mem-000009".to_owned() });
    agent.send(&AgentPacket::Ok, None).unwrap();
    assert_eq!(looping.pass().unwrap_err().code(), -1, "no order");
    drop(agent);
    assert_eq!(looping.pass().unwrap_err().code(), -1);
}

/// The order reaches the first call, however early it was sent.
#[test]
fn the_first_call_waits_for_the_first_save() {
    let first = [&RANK[..], &[("FTB_MEMORY_FIRST", "1")]].concat();
    let (agent, theirs) = RankSocket::pair().unwrap();
    let mut looping = Looping::new(config(&first), Some(RankSocket::new(theirs)));
    let rank = thread::spawn(move || looping.pass().map_err(|error| error.code()));
    agent.send(&save("set-000002", None), None).unwrap();
    assert_failed(&next(&agent), "set-000002");
    assert_eq!(rank.join().unwrap(), Ok(0));
}

/// As by Ctrl-C in Python.
#[test]
fn a_first_call_that_is_interrupted_is_the_first_one_again() {
    let first = [&RANK[..], &[("FTB_MEMORY_FIRST", "1")]].concat();
    let (agent, theirs) = RankSocket::pair().unwrap();
    let mut looping = Looping::new(config(&first), Some(RankSocket::new(theirs)));
    let error = looping.pass_while(&mut || false).unwrap_err();
    assert!(
        matches!(&error, LoopError::Agent(of) if of.kind() == ErrorKind::Interrupted),
        "{error}"
    );
    protect(&mut looping, "state", &mut [1; 8]).unwrap();
    agent.send(&save("set-000002", None), None).unwrap();
    assert_eq!(looping.pass_while(&mut || false).unwrap(), 0);
    assert_failed(&next(&agent), "set-000002");
}
