//! FMI's log ring beside the launcher: how many hops the news of a death makes. A rank has links to
//! those 1, 2, 4, ... behind it; each rank that sees a link end ends its own
//! (`launcher/benches/notify.rs` does it with processes).

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::VecDeque;
use std::fmt::Write as _;

/// Hops from the death of a rank until the last one knows.
fn hops(size: usize) -> usize {
    let distances: Vec<usize> = (0..).map(|k| 1 << k).take_while(|of| *of < size).collect();
    let mut known = vec![None; size];
    known[0] = Some(0);
    let mut next = VecDeque::from([0]);
    while let Some(rank) = next.pop_front() {
        let hop = known[rank].unwrap() + 1;
        let ahead = distances.iter().map(|distance| (rank + distance) % size);
        let behind = distances.iter().map(|distance| (rank + size - distance) % size);
        for other in ahead.chain(behind) {
            if known[other].is_none() {
                known[other] = Some(hop);
                next.push_back(other);
            }
        }
    }
    known.into_iter().map(Option::unwrap).max().unwrap()
}

/// Agents between the root and the deepest one, if each has `fanout` children.
fn depth(agents: usize, fanout: usize) -> usize {
    let (mut depth, mut level, mut all) = (0, 1, 1);
    while all < agents {
        level *= fanout;
        all += level;
        depth += 1;
    }
    depth
}

/// Rank, launch agent, agents up to the root and down to that of the launcher; the launcher; up
/// and down again, to all ranks. The launcher runs on a host of the deepest level.
fn hops_by_launcher(nodes: usize) -> usize {
    let depth = depth(nodes, 16);
    (2 + 2 * depth + 1) + (1 + 2 * depth + 1)
}

/// FMI, IV.C: half of the binary logarithm, rounded up.
#[test]
fn the_news_of_a_death_reaches_all_ranks_of_a_log_ring_in_the_hops_of_the_paper() {
    for size in 2..=1024_usize {
        let bound = (size.next_power_of_two().ilog2() as usize).div_ceil(2);
        assert!(hops(size) <= bound, "{size}");
        assert!(!size.is_power_of_two() || hops(size) == bound, "{size}");
    }
}

#[test]
fn the_page_has_the_hops() {
    let mut table =
        String::from("| ranks, 64 on a node | log ring | links of a rank | launcher |\n");
    table.push_str("|--:|--:|--:|--:|\n");
    for size in [8, 64, 256, 1024, 8192_usize] {
        let (nodes, links) = (size.div_ceil(64), 2 * size.next_power_of_two().ilog2());
        let (ring, launcher) = (hops(size), hops_by_launcher(nodes));
        writeln!(table, "| {size} | {ring} | {links} | {launcher} |").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../job/fmi.md");
    let book = std::fs::read_to_string(path).unwrap();
    let (start, end) = ("<!-- hops -->\n", "<!-- end -->");
    let (head, rest) = book.split_once(start).unwrap();
    let (_, tail) = rest.split_once(end).unwrap();
    ftb_fuzz::kept::assert_file_is_current(path, format!("{head}{start}{table}{end}{tail}"));
}
