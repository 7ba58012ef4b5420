//! Saves the ranks of a node that do not save themselves, one by one, with the commands of their backend. (Ranks in
//! a pod are saved by [`super::pod`], all at once.)

use super::images::{self, Origin, Outlives};
use super::secret::Secret;
use super::spec::NlaSpec;
use super::timeline::Step;
use super::{steps, tree};
use crate::backend::{Moment, Unit};
use crate::names::{Episode, Ranks, SetId};
use std::fs;

/// A rank that is to be saved, with its process id (0: it has none yet).
pub type Member = (u32, u32);

/// The environment of a hook: the facts that are in its command line too.
pub(super) fn env(unit: &Unit<'_>, spec: &NlaSpec) -> Vec<(String, String)> {
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

/// Runs everything that the backend has for a moment, for one rank after the other.
///
/// # Errors
/// One line: which rank, which command, why.
pub async fn run(
    spec: &NlaSpec,
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
            pod: None,
        };
        for step in spec.backend.get().steps(moment, &unit) {
            let done = steps::run(&step, &env(&unit, spec), &spec.cwd, None).await;
            done.map_err(|error| format!("rank {rank}: {error}"))?;
        }
    }
    Ok(())
}

/// Writes and verifies the image of each rank into a directory of its own. Returns their sizes.
///
/// # Errors
/// One line. Nothing of the set is left then.
pub async fn save(
    spec: &NlaSpec,
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
    spec: &NlaSpec,
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

/// Images that are to be copied here.
#[derive(Clone, Debug)]
pub struct CopyOf {
    /// For which remedy.
    pub episode: Episode,
    /// `host:port` of the server that has them, or will have them.
    pub from: String,
    /// Of which set.
    pub set: SetId,
    /// Whose.
    pub ranks: Ranks,
}

/// Fetches images and looks at them; their bytes.
///
/// # Errors
/// One line.
pub async fn take(spec: &NlaSpec, from: &str, set: &SetId, ranks: &Ranks) -> Result<u64, String> {
    let time = Step::begin();
    let (whole, server, which, of) = (spec.clone(), from.to_owned(), set.clone(), ranks.clone());
    let task = tokio::task::spawn_blocking(move || {
        let secret = Secret::new(&whole.token);
        // Those of a migration are asked for before the ranks have left, where they leave by themselves.
        let early = whole.backend.pods().is_some() && which.migration().is_some();
        let from = Origin { server: &server, secret: &secret, early };
        images::fetch(from, &whole.image_dir, &which, &of, Outlives::Nothing)
    });
    let fetched = task.await.map_err(|error| error.to_string())?;
    let fetched = fetched.inspect_err(|error| tracing::info!(node = %spec.node, error))?;
    time.done(&spec.node, "copy the images");
    verify(spec, set, ranks).await?;
    Ok(fetched.iter().map(|(bytes, _)| bytes).sum())
}

/// Looks at images that were copied here, before anything starts from them.
///
/// # Errors
/// One line.
async fn verify(spec: &NlaSpec, set: &SetId, ranks: &Ranks) -> Result<(), String> {
    let members: Vec<Member> = ranks.iter().map(|rank| (rank, 0)).collect();
    run(spec, set, Moment::Verify, &members).await
}

/// What a rank is started as from its image, where that is not its own command line.
pub fn restart(spec: &NlaSpec, set: &SetId, rank: u32) -> Option<Vec<String>> {
    let image = images::path(&spec.image_dir, set, rank);
    spec.backend.get().restart(&Unit {
        job: &spec.job,
        node: &spec.node,
        set,
        size: spec.size,
        rank,
        pid: 0,
        image: &image,
        pod: None,
    })
}
