//! Whole jobs: ranks as threads, real sockets, real images, requests as the launcher makes them.
#![allow(clippy::unwrap_used)]

mod harness;

use ftb_job::{
    Config, Endpoint, Error, Job, Notice, Op, RepairCall, RepairNews, Request, RequestKind,
    RoundResult, StartState,
};
use harness::chain::*;
use harness::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

#[test]
fn results_do_not_depend_on_where_the_ranks_are() {
    let expected = undisturbed(5, 40);
    let harness = Harness::new(5);
    let program = Chain::new(Until::Iterations(40));
    let apart = harness.spawn_all(|rank| format!("n{rank}"), move |job| program.run(job));
    assert_eq!(finish_all(apart), expected);
}

#[test]
fn a_checkpoint_changes_nothing_and_each_rank_can_start_from_it() {
    let harness = Harness::new(4);
    let endless = Endless::new();
    let running = endless.start(&harness);
    for episode in 1..=3 {
        let request = checkpoint(episode, &format!("s{episode}"));
        harness.bus.request(&request, 4 * episode as usize, is_done);
    }
    let expected = endless.finish(running);

    // The whole job again from the second set, on other nodes, to the same end.
    let again = Harness::new(4);
    let running: Vec<_> = (0..4)
        .map(|rank| {
            let from = harness.set_dir(&two_nodes(rank), "s2");
            let to = again.set_dir("n9", "s2");
            std::fs::create_dir_all(&to).unwrap();
            std::fs::copy(image_path(&from, rank), image_path(&to, rank)).unwrap();
            let config = again.config(rank, "n9", 9, Some(to));
            let program = Chain::new(Until::Iterations(expected[0].0));
            again.spawn(config, move |job| program.run(job))
        })
        .collect();
    assert_eq!(finish_all(running), expected);
}

/// One migration of the ranks of a node to another, then back: the channels between them change
/// from TCP to Unix sockets and back to TCP.
#[test]
fn ranks_that_move_go_on_with_the_same_bits_over_other_channels() {
    let harness = Harness::new(4);
    let endless = Endless::new();
    let mut running = endless.start(&harness);
    let mut home = "n1";
    for (episode, target, channel) in [(5, "n0", "unix"), (6, "n7", "tcp")] {
        let of_episode = |notice: &Notice| notice.episode() == Some(episode);
        let moving = [2, 3];
        let set = format!("m{episode}");
        let request = migrate(episode, &set, &moving);
        harness.bus.request(&request, 2, |notice| is_done(notice) && of_episode(notice));
        for rank in running.split_off(2) {
            assert!(matches!(rank.join().unwrap().unwrap(), Ended::MovedAway));
        }
        harness.pmi.wait_entered(2);
        harness.copy_images(&set, home, target, &moving);
        for rank in moving {
            let restore = Some(harness.set_dir(target, &set));
            let config = harness.config(rank, target, episode, restore);
            let program = endless.program.clone();
            running.push(harness.spawn(config, move |job| {
                assert_eq!(job.channel_to(0), Some(channel));
                program.run(job)
            }));
        }
        harness.bus.request(&request, 4, |notice| is_resumed(notice) && of_episode(notice));
        home = target;
    }
    endless.finish(running);
}

/// Ranks die one after the other, the coordinator of the ranks too. Those that live stay the same
/// threads.
#[test]
fn survivors_go_back_in_place_and_the_bits_are_the_same() {
    let harness = Harness { remedied: true, ..Harness::new(4) };
    let endless = Endless::new();
    let mut running = endless.start(&harness);
    harness.bus.request(&checkpoint(1, "s1"), 4, is_done);
    for (episode, dead) in [(5, 2), (6, 0), (7, 3)] {
        let of_episode = |notice: &Notice| notice.episode() == Some(episode);
        endless.program.dies.store(dead + 1, Ordering::Relaxed);
        let dead_rank = running.remove(dead as usize);
        assert!(matches!(dead_rank.join().unwrap().unwrap(), Ended::MovedAway));
        endless.program.dies.store(0, Ordering::Relaxed);
        let node = two_nodes(dead);
        let config = harness.config(dead, &node, episode, Some(harness.set_dir(&node, "s1")));
        let program = endless.program.clone();
        running.insert(dead as usize, harness.spawn(config, move |job| program.run(job)));
        let request = rollback(episode, "s1", &[dead]);
        harness.bus.request(&request, 4, |notice| is_resumed(notice) && of_episode(notice));
    }
    // The job is as any other: it can be saved and moved.
    harness.bus.request(&checkpoint(8, "s8"), 8, is_done);
    endless.finish(running);
}

/// All are called back while one that was just started has not yet said whether it can: that is not
/// too early.
#[test]
fn one_that_is_called_back_before_it_says_that_it_can_goes_back() {
    let harness = Harness { remedied: true, ..Harness::new(4) };
    let endless = Endless::new();
    let mut running = endless.start(&harness);
    harness.bus.request(&checkpoint(1, "s1"), 4, is_done);
    endless.program.dies.store(2 + 1, Ordering::Relaxed);
    assert!(matches!(running.remove(2).join().unwrap().unwrap(), Ended::MovedAway));
    endless.program.dies.store(0, Ordering::Relaxed);
    let node = two_nodes(2);
    let config = harness.config(2, &node, 5, Some(harness.set_dir(&node, "s1")));
    let (program, speaks) = (endless.program.clone(), Arc::new(AtomicBool::new(false)));
    let late = Arc::clone(&speaks);
    let run = move |job: Job| {
        while !late.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        program.run(job)
    };
    running.insert(2, harness.spawn(config, run));
    let resumed =
        |episode| move |notice: &Notice| is_resumed(notice) && notice.episode() == Some(episode);
    harness.bus.request(&rollback(5, "s1", &[2]), 3, resumed(5));
    harness.bus.publish(&rollback(6, "s1", &[]));
    speaks.store(true, Ordering::Relaxed);
    harness.bus.request(&rollback(6, "s1", &[]), 4, resumed(6));
    endless.finish(running);
}

#[test]
fn a_program_that_begins_again_learns_what_it_is() {
    let harness = Harness { remedied: true, ..Harness::new(3) };
    let (enough, dies) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(9)));
    let (own_enough, own_dies) = (Arc::clone(&enough), Arc::clone(&dies));
    let program = move |mut job: Job| {
        let mut starts = Vec::new();
        let lives = job.reinit(|job, start| {
            starts.push(start);
            job.restore(&mut ())?;
            loop {
                job.progress(&())?;
                let mut done = [u64::from(own_enough.load(Ordering::Relaxed))];
                job.allreduce(Op::Max, &mut done)?;
                let dies = own_dies.load(Ordering::Relaxed) == job.rank();
                if dies || done == [1] {
                    return Ok(!dies);
                }
            }
        })?;
        if !lives {
            return Ok(Ended::MovedAway);
        }
        job.finalize()?;
        Ok(Ended::Finished(starts))
    };
    let mut running = harness.spawn_all(two_nodes, program.clone());
    harness.bus.request(&checkpoint(1, "s1"), 3, is_done);
    dies.store(1, Ordering::Relaxed);
    assert!(matches!(running.remove(1).join().unwrap().unwrap(), Ended::MovedAway));
    dies.store(9, Ordering::Relaxed);
    let node = two_nodes(1);
    let config = harness.config(1, &node, 5, Some(harness.set_dir(&node, "s1")));
    running.insert(1, harness.spawn(config, program));
    harness.bus.request(&rollback(5, "s1", &[1]), 3, |notice| {
        is_resumed(notice) && notice.episode() == Some(5)
    });
    enough.store(true, Ordering::Relaxed);
    let lived = vec![StartState::New, StartState::Restarted];
    assert_eq!(finish_all(running), [lived.clone(), vec![StartState::Added], lived]);
}

#[test]
fn who_cannot_go_back_says_so_at_once() {
    let harness = Harness { remedied: true, ..Harness::new(2) };
    let enough = Arc::new(AtomicBool::new(false));
    let program = {
        let enough = Arc::clone(&enough);
        move |mut job: Job| {
            let mut done = [0];
            while done == [0] {
                let _ = job.safe_point(&())?;
                done = [u64::from(enough.load(Ordering::Relaxed))];
                job.allreduce(Op::Max, &mut done)?;
            }
            job.finalize()?;
            Ok(Ended::Finished(()))
        }
    };
    let running = harness.spawn_all(two_nodes, program);
    let refused = |notice: &Notice| matches!(notice, Notice::RollbackFailed { episode: 3, .. });
    // Rank 1 counts as dead: it says nothing.
    let said = harness.bus.request(&rollback(3, "s1", &[1]), 1, refused);
    assert_eq!(said[0].0, 0);
    enough.store(true, Ordering::Relaxed);
    finish_all(running);
}

#[test]
fn one_rank_that_hears_the_request_is_enough() {
    let harness = Harness::new(3);
    let endless = Endless::new();
    let running = endless.start(&harness);
    harness.bus.request_of(&checkpoint(1, "s1"), |rank| rank == 2, 3, is_done);
    endless.finish(running);
}

#[test]
fn an_abort_before_the_image_keeps_the_rank_where_it_is() {
    let harness = Harness::new(3);
    let endless = Endless::new();
    let running = endless.start(&harness);
    // Published first, so it certainly comes before the image.
    harness.bus.publish(&abort(4));
    harness.bus.request(&migrate(4, "m4", &[2]), 3, is_resumed);
    endless.finish(running);
    assert!(!harness.bus.notices().iter().any(|(_, notice)| is_done(notice)));
}

#[test]
fn a_rank_that_cannot_write_its_image_stays_and_says_why() {
    let harness = Harness::new(4);
    // Where node n1 would make its directory there is a file.
    std::fs::write(harness.image_dir("n1"), "").unwrap();
    let endless = Endless::new();
    let running = endless.start(&harness);
    let request = migrate(4, "m4", &[2, 3]);
    let failed = |notice: &Notice| matches!(notice, Notice::CheckpointFailed { .. });
    for (rank, notice) in harness.bus.request(&request, 2, failed) {
        assert!(rank >= 2);
        let Notice::CheckpointFailed { reason, .. } = notice else {
            continue;
        };
        assert!(reason.contains(&format!("rank-{rank}.img")), "{reason}");
    }
    harness.bus.request(&request, 4, is_resumed);
    harness.bus.request(&checkpoint(5, "s5"), 2, is_done);
    endless.finish(running);
}

#[test]
fn a_repeated_request_is_answered_again_and_done_once() {
    let harness = Harness::new(2);
    let endless = Endless::new();
    let running = endless.start(&harness);
    let request = checkpoint(1, "s1");
    harness.bus.request(&request, 2, is_resumed);
    let answered = harness.bus.count(is_done);
    harness.bus.publish(&request);
    harness.bus.wait_for(answered + 2, is_done);
    endless.finish(running);
    let suspended = |notice: &Notice| matches!(notice, Notice::Suspended { .. });
    assert_eq!(harness.bus.count(suspended), 2);
}

/// One rank that was checkpointed once into set `s1`; its result.
fn checkpointed_once(harness: &Harness) -> Outcome {
    let endless = Endless::new();
    let running = endless.start(harness);
    harness.bus.request(&checkpoint(1, "s1"), 1, is_done);
    endless.finish(running)[0]
}

#[test]
fn a_changed_image_is_never_restored() {
    let harness = Harness::new(1);
    let expected = checkpointed_once(&harness);
    let set = harness.set_dir("n0", "s1");
    let path = image_path(&set, 0);
    let whole = std::fs::read(&path).unwrap();
    let middle = whole.len() / 2;
    let mut changed = whole.clone();
    changed[middle] ^= 0x10;
    let start = |rank_file: &[u8]| {
        std::fs::write(&path, rank_file).unwrap();
        let again = Harness::new(1);
        let config = again.config(0, "n0", 2, Some(set.clone()));
        let program = Chain::new(Until::Iterations(expected.0));
        again.spawn(config, move |job| program.run(job))
    };
    for bad in [&changed[..], &whole[..middle]] {
        let error = failure(start(bad));
        assert_eq!(error.exit_code(), 65);
        assert!(error.to_string().contains("rank-0.img"), "{error}");
    }
    assert_eq!(finish(start(&whole)), expected);
}

#[test]
fn an_image_of_another_job_rank_or_set_is_refused() {
    let harness = Harness::new(1);
    checkpointed_once(&harness);
    let set = harness.set_dir("n0", "s1");
    let other_set = harness.set_dir("n0", "s2");
    std::fs::create_dir_all(&other_set).unwrap();
    std::fs::copy(image_path(&set, 0), image_path(&other_set, 0)).unwrap();

    let config = harness.config(0, "n0", 2, Some(set));
    let mut other_job = config.clone();
    other_job.job_id = "job-2".into();
    let mut wrong_set = config;
    wrong_set.restore = Some(other_set);
    for (config, word) in [(other_job, "another job"), (wrong_set, "another set")] {
        let program = Chain::new(Until::Iterations(1));
        let error = failure(harness.spawn(config, move |job| program.run(job)));
        assert_eq!(error.exit_code(), 65);
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_program_that_forgets_to_restore_is_stopped_at_its_first_safe_point() {
    let harness = Harness::new(1);
    checkpointed_once(&harness);
    let config = harness.config(0, "n0", 2, Some(harness.set_dir("n0", "s1")));
    let forgetful = |mut job: Job| job.safe_point(&()).map(|_| Ended::Finished(()));
    let error = failure(harness.spawn(config, forgetful));
    assert!(matches!(error, Error::NotRestored { .. }), "{error}");
}

#[test]
fn a_rank_that_dies_is_reported_to_those_that_wait_for_it() {
    let harness = Harness::new(3);
    let program = |mut job: Job| {
        job.barrier()?;
        if job.rank() == 1 {
            return Ok(Ended::Finished(()));
        }
        job.recv(1, 0)?;
        Ok(Ended::Finished(()))
    };
    let mut running = harness.spawn_all(two_nodes, program);
    for rank in [2, 0] {
        let error = failure(running.remove(rank));
        assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
    }
    finish_all(running);
}

/// A peer without the secret is refused: nothing of what it sends reaches the program.
#[test]
fn strangers_at_the_socket_of_a_rank_are_turned_away_and_the_job_goes_on() {
    let harness = Harness::new(4);
    let endless = Endless::new();
    let running = endless.start(&harness);
    for rank in 0..4 {
        let endpoint =
            Endpoint::decode(rank, &harness.pmi.value(&format!("ftb-addr-{rank}")).unwrap())
                .unwrap();
        let address = endpoint.addresses["tcp"].clone();
        let hello_without_secret = [b"FTBJ\0\x01\0\0".as_slice(), &[0; 48]].concat();
        // Of earlier versions: the secret itself, as a word that anyone may repeat.
        let (from, to) = ((rank ^ 1).to_le_bytes(), rank.to_le_bytes());
        let spoken = [b"FTBJ\0\x02\0\0", &from[..], &to, &[0; 8], &endpoint.token, &[0; 16]];
        let spoken = spoken.concat();
        let http = &b"GET / HTTP/1.1\r\n\r\n"[..];
        for words in [http, &[0xff; 200], &hello_without_secret, &spoken] {
            let mut stranger = TcpStream::connect(&address).unwrap();
            // The rank may be quicker to end it than this to speak.
            stranger.write_all(words).and_then(|()| stranger.shutdown(Shutdown::Write)).ok();
            // An end or a reset, and no answer before it but the random challenge.
            let mut answer = Vec::new();
            stranger.read_to_end(&mut answer).ok();
            assert!(answer.len() <= 16, "{answer:?}");
        }
    }
    endless.finish(running);
}

/// Other threads of a program may send while the channels are suspended: it stays outstanding and
/// follows when they are resumed.
#[test]
fn messages_of_other_threads_survive_suspensions_in_order() {
    const BURST: u32 = 50;
    let enough = Arc::new(AtomicBool::new(false));
    let harness = Harness::new(2);
    let program = {
        let enough = Arc::clone(&enough);
        move |mut job: Job| {
            let sender = job.sender();
            let peer = 1 - job.rank();
            let (bursts, asked) = mpsc::channel::<()>();
            let sending = thread::spawn(move || {
                let mut numbers = 0_u32..;
                for () in asked {
                    for number in numbers.by_ref().take(BURST as usize) {
                        sender.send(peer, 1, &number.to_le_bytes())?;
                    }
                }
                Ok::<_, Error>(())
            });
            bursts.send(()).unwrap();
            let mut received = 0_u32;
            let mut done = [0];
            while done == [0] {
                // The other thread sends these while this one suspends.
                bursts.send(()).unwrap();
                let _ = job.safe_point(&())?;
                for number in received..received + BURST {
                    assert_eq!(job.recv(peer, 1)?, number.to_le_bytes());
                }
                received += BURST;
                done = [u64::from(enough.load(Ordering::Relaxed))];
                job.allreduce(Op::Max, &mut done)?;
            }
            drop(bursts);
            sending.join().unwrap()?;
            job.finalize()?;
            Ok(Ended::Finished(()))
        }
    };
    let running = harness.spawn_all(two_nodes, program);
    let mut resumed = 0;
    for episode in (1..=20).map(|half| 2 * half) {
        resumed += 2;
        harness.bus.request(&checkpoint(episode, "s"), resumed, is_resumed);
        // No rank leaves: the end-points are torn down and made again.
        resumed += 2;
        let request = migrate(episode + 1, "m", &[9]);
        harness.bus.request(&request, resumed, is_resumed);
    }
    enough.store(true, Ordering::Relaxed);
    finish_all(running);
}

#[test]
fn a_request_that_comes_at_the_end_is_refused_and_no_rank_hangs() {
    let harness = Harness::new(3);
    let program = |mut job: Job| {
        let _ = job.safe_point(&())?;
        job.barrier()?;
        Ok(Ended::Finished(job))
    };
    let jobs: Vec<Job> = harness
        .spawn_all(two_nodes, program)
        .into_iter()
        .map(|running| match running.join().unwrap() {
            Ok(Ended::Finished(job)) => job,
            _ => panic!("the rank did not come so far"),
        })
        .collect();
    harness.bus.publish(&checkpoint(1, "s1"));
    let ending: Vec<_> =
        jobs.into_iter().map(|job| thread::spawn(move || job.finalize())).collect();
    for rank in ending {
        rank.join().unwrap().unwrap();
    }
    assert!(!harness.bus.notices().iter().any(|(_, notice)| is_done(notice)));
}

/// Every rank speaks to every other at once: of the two connections of a pair one counts, and
/// nothing is lost.
#[test]
fn ranks_that_dial_each_other_at_once_have_one_link() {
    for _ in 0..5 {
        let program = |mut job: Job| {
            let own = job.rank();
            let others = || (0..8).filter(move |rank| *rank != own);
            for to in others() {
                job.send(to, 1, &[own as u8])?;
            }
            for from in others() {
                assert_eq!(job.recv(from, 1)?, [from as u8]);
            }
            job.finalize()?;
            Ok(Ended::Finished(()))
        };
        finish_all(Harness::new(8).spawn_all(two_nodes, program));
    }
}

#[test]
fn collectives_give_all_ranks_the_same() {
    let harness = Harness::new(6);
    let program = |mut job: Job| {
        let rank = u64::from(job.rank());
        let mut sums = [rank, 1];
        job.allreduce(Op::Sum, &mut sums)?;
        let mut extremes = [f64::from(job.rank()) - 2.5];
        job.allreduce(Op::Min, &mut extremes)?;
        let mut word = if rank == 4 { b"hello".to_vec() } else { Vec::new() };
        job.broadcast(4, &mut word)?;
        let gathered = job.gather(2, &[rank as u8])?;
        assert!(job.broadcast(6, &mut word).is_err());
        let mut uneven = vec![0_u64; job.rank() as usize];
        let uneven = job.allreduce(Op::Max, &mut uneven);
        Ok(Ended::Finished((sums, extremes[0], word, gathered, uneven.is_err())))
    };
    for (rank, result) in finish_all(harness.spawn_all(two_nodes, program)).into_iter().enumerate()
    {
        let (sums, least, word, gathered, _) = result;
        assert_eq!((sums, least, word), ([15, 6], -2.5, b"hello".to_vec()));
        let expected: Vec<Vec<u8>> =
            if rank == 2 { (0..6).map(|r| vec![r]).collect() } else { vec![] };
        assert_eq!(gathered, expected);
    }
}

/// It dies between the decision about the end and its goodbye.
#[test]
fn a_death_at_the_very_end_holds_no_other_rank_back() {
    let harness = Harness { remedied: true, ..Harness::new(2) };
    let (ended, ends) = mpsc::channel();
    let (heard, hears) = mpsc::channel();
    let (dies, lives) = mpsc::channel::<()>();
    let config = |rank| Config { goes_on: true, ..harness.config(rank, "n0", 0, None) };
    let first = harness.spawn(config(0), move |mut job| {
        job.send(1, 7, b"a link")?;
        job.finalize()?;
        ended.send(()).unwrap();
        Ok(Ended::Finished(()))
    });
    let second = harness.spawn(config(1), move |mut job| {
        job.recv(0, 7)?;
        heard.send(job.recv(0, 7).unwrap_err()).unwrap();
        lives.recv().unwrap_err();
        Ok(Ended::Finished(()))
    });
    harness.bus.wait_for(1, |notice| matches!(notice, Notice::Repair { .. }));
    let tell = |dead: &[u32], decided| {
        let (dead, revoked) = (dead.iter().copied().collect(), Vec::new());
        let kind = RequestKind::Repair(RepairNews { dead, revoked, seen: 0, decided });
        harness.bus.publish(&Request { episode: 0, kind });
    };
    let asks = |(_, notice): (u32, Notice)| match notice {
        Notice::Repair { call, .. } => Some(call),
        _ => None,
    };
    let RepairCall { comm, round, kind, flag, next, .. } =
        harness.bus.notices().into_iter().find_map(asks).unwrap();
    let (kind, dead) = (Some(kind), [].into_iter().collect());
    tell(&[], Some(RoundResult { comm, first: 0, round, kind, flag, dead, acked: true, next }));
    assert!(matches!(hears.recv().unwrap(), Error::PeerFinished { rank: 0 }));
    tell(&[1], None);
    ends.recv_timeout(ftb_job::limits::HELLO_TIMEOUT).unwrap();
    drop(dies);
    finish_all(vec![first, second]);
}
