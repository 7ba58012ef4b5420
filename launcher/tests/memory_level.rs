//! Checkpoints in memory with real processes: ranks, nodes and two nodes of one group are killed.
//! Images are on disks only where a test has them there. The result is always the same.
//!
//! Tests wait for lines of output and for states, never for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use site::memory::{images_below, images_on_disk, wait_protected, wait_recovered};
use site::{Site, nothing_left, ranks_of, result, start, text};
use std::process::Output;

async fn ended(job: tokio::task::JoinHandle<Result<Output>>, expected: &str) -> Result<String> {
    let output = job.await??;
    let reported = text(&output.stderr);
    ensure!(result(&output)? == expected, "{reported}");
    Ok(reported)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_rank_and_a_dead_node_come_back_from_memory_without_a_file() -> Result<()> {
    let site = Site::new(5).await?;
    let expected = site.undisturbed().await?;
    for (job, scheme) in [("ring", "xor:4"), ("pair", "buddy:1")] {
        let _ = std::fs::remove_file(site.gate());
        let options = ["--spares", "node05", "--memory", scheme, "--memory-every", "never"];
        let running = start(site.counting(job, &options));
        let set = wait_protected(&site, job, "").await?;
        kill(ranks_of(job)?.get(&1).context("no such rank")?.0, Signal::SIGKILL)?;
        wait_recovered(&site, job, 1).await?;
        kill(site.nla_of(job, "node03")?, Signal::SIGKILL)?;
        wait_recovered(&site, job, 2).await?;
        assert_eq!(images_on_disk(&site), Vec::<std::path::PathBuf>::new());
        site.release()?;
        let reported = ended(running, &expected).await?;
        let back = format!("3 ranks went back to set {set} (memory) in place");
        assert_eq!(reported.matches(&back).count(), 2, "{scheme}: {reported}");
        assert!(!reported.contains("restarts from set"), "{scheme}: {reported}");
        nothing_left(&format!("FTB_JOB_ID={job}")).await?;
    }
    Ok(())
}

/// Before a node dies: what is protected by whom, and what its death would cost.
#[tokio::test(flavor = "multi_thread")]
async fn status_shows_set_bytes_and_groups_and_what_the_death_of_a_node_would_cost() -> Result<()> {
    let site = Site::new(5).await?;
    let expected = site.undisturbed().await?;
    let options = ["--spares", "node05", "--memory", "xor:2", "--memory-every", "never"];
    let running = start(site.counting("shown", &options));
    let set = wait_protected(&site, "shown", "").await?;
    let status = site.ask(&["status", "shown", "--json"]).await?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    let memory = &status["memory"];
    assert_eq!(memory["set"], *set);
    assert_eq!(memory["groups"], serde_json::json!([["node01", "node03"], ["node02", "node04"]]));
    let bytes = |key: &str| memory[key].as_u64().context("no number");
    // In groups of two the parity is as large as the larger share.
    assert!(bytes("bytes")? > 0 && bytes("protection_bytes")? >= bytes("bytes")?, "{memory}");
    let lost = site.ask(&["status", "shown", "--what-if", "node03"]).await?;
    assert_eq!(
        lost,
        format!("rank 2 dies, node05 takes its place, and all ranks go back to set {set} (memory)")
    );
    let idle = site.ask(&["status", "shown", "--what-if", "node05"]).await?;
    assert_eq!(idle, "it has no ranks: all ranks go on");
    let unknown = site::run(site.command(&["status", "shown", "--what-if", "node77"])).await?;
    assert_eq!(unknown.status.code(), Some(64), "{}", text(&unknown.stderr));
    // What was said is what happens.
    let lost = site.ask(&["status", "shown", "--what-if", "node03", "--json"]).await?;
    let lost: serde_json::Value = serde_json::from_str(&lost)?;
    kill(site.nla_of("shown", "node03")?, Signal::SIGKILL)?;
    wait_recovered(&site, "shown", 1).await?;
    let spare = lost["spare"].as_str().context("no spare")?;
    let status = site.ask(&["status", "shown", "--json"]).await?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    assert_eq!(status["nodes"][spare]["ranks"], lost["ranks"], "{status}");
    site.release()?;
    let reported = ended(running, &expected).await?;
    let set = lost["set"].as_str().context("no set")?;
    let back = format!("3 ranks went back to set {set} (memory) in place, started again were 2 on");
    assert!(reported.contains(&back) && lost["ends"] == false, "{reported}");
    nothing_left("FTB_JOB_ID=shown").await
}

/// Images of ranks that are on the disks of the nodes and in no store.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_rank_comes_back_from_the_disks_of_the_nodes_without_a_store() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    for (job, options) in [
        ("local", &["--disk-every", "200ms"][..]),
        ("again", &["--disk-every", "200ms", "--on-death", "restart"]),
    ] {
        let _ = std::fs::remove_file(site.gate());
        let running = start(site.counting(job, options));
        let set = site
            .wait("a set on disks", async || {
                let Ok(status) = site.ask(&["status", job, "--json"]).await else {
                    return Ok(None);
                };
                let status: serde_json::Value = serde_json::from_str(&status)?;
                Ok(status["disks"]["set"].as_str().map(str::to_owned))
            })
            .await?;
        let lost = site.ask(&["status", job, "--what-if", "node03"]).await?;
        assert!(lost.contains("no set to go back to: the job ends"), "{lost}");
        kill(ranks_of(job)?.get(&1).context("no such rank")?.0, Signal::SIGKILL)?;
        wait_recovered(&site, job, 0).await?;
        let folder = |name: &str| site.jobs.path().join(job).join(name);
        assert_eq!(images_below(&folder("sets")), Vec::<std::path::PathBuf>::new());
        // Of the sets before nothing is left.
        site.wait("one set on disks", async || {
            let files = images_below(&folder("nodes"));
            let sets: std::collections::BTreeSet<_> =
                files.iter().filter_map(|file| file.parent()?.file_name()).collect();
            Ok((sets.len() == 1).then_some(()))
        })
        .await?;
        site.release()?;
        let reported = ended(running, &expected).await?;
        let back = ["went back to set disk-", "restarts from set disk-"];
        assert!(back.iter().any(|back| reported.contains(back)), "{set}: {reported}");
        nothing_left(&format!("FTB_JOB_ID={job}")).await?;
    }
    Ok(())
}

/// The spare computed the parity of the node that it replaced: its group bears another loss.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_lost_one_after_the_other_come_back_from_one_set() -> Result<()> {
    let site = Site::new(6).await?;
    let expected = site.undisturbed().await?;
    let options = ["--spares", "node[05-06]", "--memory", "xor:4", "--memory-every", "never"];
    let running = start(site.counting("again", &options));
    wait_protected(&site, "again", "").await?;
    for (recoveries, node) in [(1, "node02"), (2, "node05")] {
        kill(site.nla_of("again", node)?, Signal::SIGKILL)?;
        wait_recovered(&site, "again", recoveries).await?;
    }
    site.release()?;
    let reported = ended(running, &expected).await?;
    assert_eq!(reported.matches("(memory) in place").count(), 4, "{reported}");
    nothing_left("FTB_JOB_ID=again").await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_of_one_group_lead_to_the_store_and_without_one_to_an_end_with_the_reason()
-> Result<()> {
    let site = Site::new(6).await?;
    let expected = site.undisturbed().await?;
    for (job, stored) in [("stored", true), ("bare", false)] {
        let _ = std::fs::remove_file(site.gate());
        let options = ["--spares", "node[05-06]", "--memory", "xor:4", "--memory-every", "300ms"];
        let running = start(site.counting(job, &options));
        let first = wait_protected(&site, job, "").await?;
        if stored {
            site.ask(&["checkpoint", job]).await?;
        }
        // One that is newer than the set in the store.
        let second = wait_protected(&site, job, &first).await?;
        wait_protected(&site, job, &second).await?;
        let nodes = [site.nla_of(job, "node02")?, site.nla_of(job, "node04")?];
        for node in nodes {
            kill(node, Signal::SIGKILL)?;
        }
        if stored {
            wait_recovered(&site, job, 0).await?;
            site.release()?;
            let reported = ended(running, &expected).await?;
            assert!(reported.contains("in memory is lost: of its group"), "{reported}");
            assert!(reported.contains("set set-"), "{reported}");
        } else {
            let output = running.await??;
            let reported = text(&output.stderr);
            assert!(!output.status.success(), "{reported}");
            assert!(reported.contains("in memory is lost: of its group"), "{reported}");
            assert!(reported.contains("there is no set to restart from"), "{reported}");
        }
        nothing_left(&format!("FTB_JOB_ID={job}")).await?;
    }
    Ok(())
}

/// The next generation is protected while the job works; the one before is freed.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_saves_itself_in_memory_goes_back_to_the_newest_generation() -> Result<()> {
    let site = Site::new(5).await?;
    let expected = site.undisturbed().await?;
    let options = ["--spares", "node05", "--memory", "xor:2", "--memory-every", "200ms"];
    let running = start(site.counting("often", &options));
    let mut set = String::new();
    for _ in 0..4 {
        set = wait_protected(&site, "often", &set).await?;
    }
    let first = set.clone();
    kill(site.nla_of("often", "node01")?, Signal::SIGKILL)?;
    wait_protected(&site, "often", &set).await?;
    site.release()?;
    let reported = ended(running, &expected).await?;
    let line = reported.lines().find(|line| line.contains("went back to set mem-"));
    let line = line.with_context(|| reported.clone())?;
    let set = line.split("set ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(set >= Some(&first), "{first}: {line}");
    nothing_left("FTB_JOB_ID=often").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_protected_is_refused_before_anything_starts() -> Result<()> {
    let site = Site::new(2).await?;
    for (options, why) in [
        (&["-n", "1", "--memory", "xor:4"][..], "at least 2 nodes"),
        (&["-n", "2", "--memory", "raid:6"], "expected buddy:K"),
        (&["-n", "2", "--memory", "xor:2", "--memory-bytes", "900TiB"], "available memory"),
        (&["-n", "2", "--memory-every", "1s"], "--memory <SCHEME>"),
    ] {
        let count = site.count.display().to_string();
        let output = site::run(site.launch(options, &[&count, "1"])).await?;
        let reported = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{options:?}: {reported}");
        assert!(reported.contains(why), "{options:?}: {reported}");
    }
    Ok(())
}

/// A budget that is too small is found at the first checkpoint. The job goes on without.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_images_do_not_fit_goes_on_and_reports_both_numbers() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    let options = ["--memory", "xor:4", "--memory-bytes", "100"];
    let running = start(site.counting("tight", &options));
    site.wait_met("tight").await?;
    site.release()?;
    let reported = ended(running, &expected).await?;
    assert!(reported.contains("100 are allowed (--memory-bytes)"), "{reported}");
    nothing_left("FTB_JOB_ID=tight").await
}
