//! What tests see of a job in the memory of its nodes.

use super::Site;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The launcher's state of a job.
pub fn state_of(site: &Site, job: &str) -> Result<serde_json::Value> {
    let path = site.jobs.path().join(job).join("state.json");
    let state: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
    Ok(state["jl"].clone())
}

/// Waits until a set in memory counts that is not `before`, with nothing under way; its name.
pub async fn wait_protected(site: &Site, job: &str, before: &str) -> Result<String> {
    site.wait("a set in memory", async || {
        let Ok(state) = state_of(site, job) else { return Ok(None) };
        let set = state["job"]["memory"]["set"].as_str().map(str::to_owned);
        Ok(set.filter(|set| set != before && state["open"].is_null()))
    })
    .await
}

/// Waits until this number of recoveries is over.
pub async fn wait_recovered(site: &Site, job: &str, recoveries: u64) -> Result<()> {
    site.wait("the job to be whole again", async || {
        let state = state_of(site, job)?;
        let over = state["open"].is_null() && state["job"]["met"] == true;
        let counted = state["job"]["restarts"].as_u64() >= Some(recoveries);
        Ok((over && counted).then_some(()))
    })
    .await
}

/// Images of ranks and pods below a folder, unfinished ones too.
pub fn images_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let below = |path: PathBuf| match path.is_dir() {
        true => images_below(&path),
        false => vec![path],
    };
    let files = entries.flat_map(|entry| below(entry.path()));
    // The state of the job is written beside its file, too.
    let is_image = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".img") || name.ends_with(".part") && name != "state.json.part"
    };
    files.filter(is_image).collect()
}

/// Images on any disk of the jobs: of the store, and of nodes, whose folders are beside the agents.
pub fn images_on_disk(site: &Site) -> Vec<PathBuf> {
    [images_below(site.jobs.path()), images_below(site.cluster.dir())].concat()
}
