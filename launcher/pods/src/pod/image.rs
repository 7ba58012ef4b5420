//! The image of a pod: CRIU's files, facts about the pod, the PMI key-value space. It is the
//! directory of the pod's first rank; the images of its other ranks refer to it.

use crate::backend::{PARENT, work_dir};
use crate::document::{self, Document};
use crate::images::{self, growing, packed, tree};
use core::net::Ipv4Addr;
use ftb_launcher_core::names::{Ranks, SetId};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// The file with the facts about a pod.
const FACTS: &str = "pod.json";
/// The file with the PMI key-value space.
const SPACE: &str = "pmi";

/// Facts about a pod beside its dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) address: Ipv4Addr,
    /// Inode numbers of the supervisor's pipes, as its dump names them.
    pub(super) pipes: (u64, u64),
    pub(super) supervisor: u32,
    pub(super) ranks: Vec<u32>,
}

impl Document for Facts {
    /// The supervisor in the image sends packets; that of version 1 sent frames.
    const VERSION: u32 = 2;
}

impl Facts {
    /// Reads the facts and the PMI key-value space for these ranks.
    pub(super) fn read(image: &Path, ranks: &Ranks) -> Result<(Self, String), String> {
        let fail = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        let (place, pmi) = (image.join(FACTS), image.join(SPACE));
        let facts: Self = document::open(&place)
            .and_then(document::decode)
            .map_err(|error| fail(&place, error))?;
        if !facts.ranks.iter().copied().eq(ranks.iter()) {
            let there = facts.ranks.iter().copied().collect::<Ranks>().brief();
            let wanted = ranks.brief();
            return Err(format!("the image is of ranks {there} together, not of {wanted}"));
        }
        let work = work_dir(image);
        fs::create_dir_all(&work).map_err(|error| fail(&work, error))?;
        let space = fs::read_to_string(&pmi).map_err(|error| fail(&pmi, error))?;
        Ok((facts, space))
    }
}

/// Makes the directories of an image that begins with memory copied beforehand.
pub(super) fn make_parent(image: &Path) -> io::Result<()> {
    make_dirs(image)?;
    fs::create_dir(image.join(PARENT))
}

/// Drops what was copied beforehand; the dump will be complete without it.
pub(super) fn drop_parent(image: &Path) -> io::Result<()> {
    tree::remove(&image.join(PARENT))
}

fn make_dirs(image: &Path) -> io::Result<()> {
    for dir in [image, &work_dir(image)] {
        tree::remove(dir)?;
        fs::create_dir_all(dir)?;
    }
    Ok(())
}

/// Makes the directories of an image and writes the facts. `begun`: [`make_parent`] made them.
pub(super) fn make(image: &Path, facts: &Facts, space: &str, started: bool) -> io::Result<()> {
    if !started {
        make_dirs(image)?;
    }
    fs::write(image.join(FACTS), document::encode(facts)?)?;
    fs::write(image.join(SPACE), space)
}

/// The sizes of the images of all ranks. Writes the references of ranks that are in another's
/// image.
pub(super) fn sizes(
    root: &Path,
    set: &SetId,
    image: &Path,
    ranks: &[u32],
) -> Result<Vec<(u32, u64)>, String> {
    let fail = |error: io::Error| format!("{}: {error}", image.display());
    let mut sizes = Vec::new();
    for (at, rank) in ranks.iter().enumerate() {
        if at == 0 {
            let bytes = if set.is_in_memory() { packed::bytes } else { tree::bytes };
            sizes.push((*rank, bytes(image).map_err(fail)?));
        } else {
            let text = format!("in the image of rank {}\n", ranks[0]);
            fs::write(images::path(root, set, *rank), &text).map_err(fail)?;
            sizes.push((*rank, text.len() as u64));
        }
    }
    Ok(sizes)
}

/// Marks the image as whole, for a reader that follows it.
pub(super) fn close(image: &Path) -> Result<(), String> {
    let mark = image.join(growing::WHOLE);
    fs::write(&mark, "").map_err(|error| format!("{}: {error}", mark.display()))
}

/// The last error in CRIU's logs, as the end of a message. Programs that CRIU calls (nft) write
/// there too; only CRIU's own errors name a source file.
pub(super) fn log_error(image: &Path) -> String {
    let text = |name: &str| fs::read_to_string(work_dir(image).join(name)).unwrap_or_default();
    let last = |text: &str| {
        let errors = || {
            text.lines().rev().filter(|line| line.contains("Error (") && !line.contains("RLIMIT"))
        };
        // The last lines may only say that it failed.
        let why = |line: &&str| !line.contains("FAILED") && !line.contains("failed with");
        errors().find(why).or_else(|| errors().next()).map(|line| format!(": {line}"))
    };
    let logs = ["restore.log", "dump.log", "pre-dump.log"];
    logs.into_iter().find_map(|name| last(&text(name))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_pod_comes_back_whole_or_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let set = SetId::new("set-1").unwrap();
        let image = images::path(root.path(), &set, 2);
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let facts = Facts { address, pipes: (1, 2), supervisor: 1001, ranks: vec![2, 3] };
        make(&image, &facts, "a=b\n", false).unwrap();
        let sizes = sizes(root.path(), &set, &image, &facts.ranks).unwrap();
        assert_eq!(sizes.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [2, 3]);
        let both = Ranks::from_iter([2, 3]);
        assert_eq!(Facts::read(&image, &both).unwrap(), (facts, "a=b\n".to_owned()));
        let error = Facts::read(&image, &Ranks::from_iter([2])).unwrap_err();
        assert!(error.contains("ranks 2,3 together"), "{error}");
        fs::write(image.join(FACTS), r#"{"address":"10.0.0.1","supervisor":1001}"#).unwrap();
        let error = Facts::read(&image, &both).unwrap_err();
        assert!(error.contains("pod.json: it has version 1"), "{error}");
        fs::write(
            work_dir(&image).join("dump.log"),
            "x\nError (criu): RLIMIT\nError (a): b\nError: nft\ny\n",
        )
        .unwrap();
        assert_eq!(log_error(&image), ": Error (a): b");
    }
}
