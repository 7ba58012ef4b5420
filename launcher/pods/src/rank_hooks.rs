//! Saves the ranks of a node one by one with the commands of their backend. ([`super::pod`] saves
//! ranks in a pod, all at once.)

use crate::backend::{Moment, Unit};
use crate::images::{self, tree};
use crate::spec::NodeSpec;
use crate::steps;
use ftb_launcher_core::names::{Ranks, SetId};
use std::fs;

/// A rank to save, with its process id (0 if there is none yet).
pub type Member = (u32, u32);

/// The environment of a hook.
pub(super) fn env(unit: &Unit<'_>, spec: &NodeSpec) -> Vec<(String, String)> {
    let all = [
        ("FTB_JOB_ID", unit.job.to_string()),
        ("FTB_NODE", unit.node.to_string()),
        ("FTB_SIZE", unit.size.to_string()),
        ("FTB_RANK", unit.rank.to_string()),
        ("FTB_PID", unit.pid.to_string()),
        ("FTB_SET", unit.set.to_string()),
        ("FTB_IMAGE", unit.image.display().to_string()),
        ("FTB_IMAGE_DIR", spec.image_dir.display().to_string()),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Runs the backend's commands of a moment for one rank after the other.
///
/// # Errors
/// The rank, the command, the reason.
pub async fn run(
    spec: &NodeSpec,
    set: &SetId,
    moment: Moment,
    members: &[Member],
) -> Result<(), String> {
    for (rank, pid) in members {
        let image = images::path(&spec.image_dir, set, *rank);
        let unit = Unit {
            job: &spec.job,
            node: &spec.node,
            set,
            size: spec.size,
            rank: *rank,
            pid: *pid,
            image: &image,
            here: &image,
            pod: None,
        };
        for step in spec.backend.get().steps(moment, &unit) {
            let done = steps::run(&step, &env(&unit, spec), &spec.cwd, None).await;
            done.map_err(|error| format!("rank {rank}: {error}"))?;
        }
    }
    Ok(())
}

/// Writes and verifies the image of each rank; returns their sizes.
///
/// # Errors
/// Nothing of the set is left then.
pub async fn save(
    spec: &NodeSpec,
    set: &SetId,
    members: &[Member],
) -> Result<Vec<(u32, u64)>, String> {
    let saved = save_all(spec, set, members).await;
    if saved.is_err() {
        images::drop_set(&spec.image_dir, set);
    }
    saved
}

async fn save_all(
    spec: &NodeSpec,
    set: &SetId,
    members: &[Member],
) -> Result<Vec<(u32, u64)>, String> {
    for (rank, _) in members {
        let image = images::path(&spec.image_dir, set, *rank);
        let made = tree::remove(&image).and_then(|()| fs::create_dir_all(&image));
        made.map_err(|error| format!("cannot make {}: {error}", image.display()))?;
    }
    run(spec, set, Moment::Save { leave: false }, members).await?;
    run(spec, set, Moment::Verify, members).await?;
    let size = |rank: u32| {
        let image = images::path(&spec.image_dir, set, rank);
        let bytes = tree::bytes(&image).map_err(|error| format!("rank {rank}: {error}"))?;
        if bytes == 0 {
            return Err(format!("rank {rank}: the image {} is empty", image.display()));
        }
        Ok((rank, bytes))
    };
    members.iter().map(|(rank, _)| size(*rank)).collect()
}

/// The command line of a rank that starts from its image, if not the program's own.
pub fn restart(spec: &NodeSpec, set: &SetId, rank: u32) -> Option<Vec<String>> {
    let image = images::path(&spec.image_dir, set, rank);
    spec.backend.get().restart(&Unit {
        job: &spec.job,
        node: &spec.node,
        set,
        size: spec.size,
        rank,
        pid: 0,
        image: &image,
        here: &image,
        pod: None,
    })
}

/// Checks copied images before anything starts from them.
pub async fn verify(spec: &NodeSpec, set: &SetId, ranks: &Ranks) -> Result<(), String> {
    let members: Vec<Member> = ranks.iter().map(|rank| (rank, 0)).collect();
    run(spec, set, Moment::Verify, &members).await
}
