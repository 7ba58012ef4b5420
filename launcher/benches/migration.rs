//! How long the ranks of a node are away when their pod moves, by the size of what they hold: an unmodified MPI program
//! (`tests/stencil.c`) of two ranks in two pods on this host, one of which moves from node to node. Prints the phases, and the
//! longest step that the rank that stayed has seen; see docs/checkpoint.md. `cargo bench -p ftb-launcher --bench migration`
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/site/mod.rs"]
mod site;

use anyhow::{Context as _, Result, ensure};
use core::time::Duration;
use site::fixture::{Fixture, results};
use site::{Site, start, text};

/// Moves of each size; the median is what is told, with the best and the worst.
const MOVES: usize = 3;
/// Between two of them.
const BETWEEN: Duration = Duration::from_secs(4);
/// Columns of the plate; two of a rank's rows are this many times sixteen bytes.
const COLUMNS: usize = 2048;

fn main() -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        for mib in [1, 16, 64, 256] {
            moves(mib).await?;
        }
        Ok(())
    })
}

async fn moves(mib: usize) -> Result<()> {
    let site = Site::without_examples(2 + MOVES).await?;
    let Some(stencil) = Fixture::stencil(&site)? else { return Ok(()) };
    let mut words = stencil.words();
    let (rows, columns) = ((mib << 20) / (16 * COLUMNS), COLUMNS.to_string());
    let rows = rows.max(1).to_string();
    words[1..4].copy_from_slice(&["8", &rows, &columns]);
    let job = format!("moves-{mib}");
    let all = ["-n", "2", "--backend", &stencil.backend, "--job", &job];
    let spares = format!("node[03-{:02}]", 2 + MOVES);
    let nodes = ["--hosts", "node[01-02]", "--spares", &spares];
    let running = start(site.launch(&[&all[..], &nodes].concat(), &words));
    site.wait_met(&job).await?;
    for node in 2..2 + MOVES {
        site.ask(&["migrate", &job, site.cluster.host(node - 1)]).await?;
        // The ranks get on with their step before the next one.
        tokio::time::sleep(BETWEEN).await;
    }
    site.release()?;
    let output = running.await??;
    results(&output)?;
    let told = text(&output.stderr);
    let mut phases: Vec<[u64; 3]> = told.lines().filter_map(phases).collect();
    ensure!(phases.len() == MOVES, "{told}");
    let mut of = |which: usize| {
        phases.sort_by_key(|move_| move_[which]);
        let ms = |at: usize| phases[at][which];
        format!("{} ms ({} to {})", ms(MOVES / 2), ms(0), ms(MOVES - 1))
    };
    let (leave, copy, restart) = (of(0), of(1), of(2));
    let pause = text(&output.stdout);
    let pause = pause.lines().find_map(|line| line.strip_prefix("pause ")).context("no pause")?;
    println!("{mib} MiB: leave {leave}, copy {copy}, restart {restart}; longest step {pause} ms");
    Ok(())
}

/// `... moved from ... [leave=136 copy=24 restart=137]`
fn phases(line: &str) -> Option<[u64; 3]> {
    let (words, phases) = line.split_once(" [")?;
    let mut of = phases.trim_end_matches(']').split(' ');
    let mut next = |name: &str| of.next()?.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
    let found = [next("leave")?, next("copy")?, next("restart")?];
    words.contains("moved from").then_some(found)
}
