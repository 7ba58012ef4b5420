//! How a pod is saved into an image and brought back from it: the backend's steps, around them the order in which
//! tender, link and pipes must be touched.

use super::holder::Holder;
use super::image::{self, Facts};
use super::task::Task;
use super::words::{Said, ToTender};
use super::{ANSWER_WAIT, Ends};
use crate::backend::{Moment, PodPlace, Unit};
use crate::spec::NodeSpec;
use crate::timeline::Step;
use crate::{images, installed, saver, steps};
use ftb_launcher_core::names::{Ranks, SetId};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

impl Task {
    /// Runs what the backend has for a moment, for the pod as a whole.
    pub(super) async fn steps(
        &self,
        moment: Moment,
        set: &SetId,
        image: &Path,
    ) -> Result<(), String> {
        self.steps_with(moment, set, image, None).await
    }

    async fn steps_with(
        &self,
        moment: Moment,
        set: &SetId,
        image: &Path,
        pipes: Option<((OwnedFd, OwnedFd), (u64, u64))>,
    ) -> Result<(), String> {
        let (fds, inodes) = pipes.map_or((None, self.pipes), |(fds, inodes)| (Some(fds), inodes));
        let place = Place { pipes: inodes, ..self.place() };
        place.steps(&self.spec, moment, set, image, fds).await
    }

    fn place(&self) -> Place {
        Place {
            rank: self.ranks.keys().next().copied().unwrap_or(0),
            tender: self.tender,
            holder: self.holder.pid,
            link: self.link.clone(),
            pipes: self.pipes,
        }
    }

    /// Begins to copy what the ranks have in memory while they work, where that pays.
    pub(super) fn begin_precopy(&mut self, set: SetId) {
        let (spec, place) = (self.spec.clone(), self.place());
        self.precopy.spawn(async move {
            let image = images::path(&spec.image_dir, &set, place.rank);
            if !place.pays(&spec).await {
                return None;
            }
            if let Err(error) = image::make_parent(&image) {
                tracing::warn!(node = %spec.node, %error, "nothing is copied beforehand");
                return None;
            }
            if let Err(error) = place.steps(&spec, Moment::Precopy, &set, &image, None).await {
                tracing::warn!(node = %spec.node, error, "what was copied beforehand is not used");
                image::drop_parent(&image).ok()?;
            }
            // The image has begun, and is being fetched: it goes on from here.
            Some(set)
        });
    }

    /// Waits for a word of the tender; what else it says is heard meanwhile. An error when there is none in time.
    async fn synced(&mut self) -> Result<(), String> {
        self.say(ToTender::Sync).await;
        let wait = async {
            while let Some(said) = self.said.recv().await {
                let synced = said == Said::Synced;
                self.hear(said).await;
                if synced {
                    return true;
                }
            }
            false
        };
        match tokio::time::timeout(ANSWER_WAIT, wait).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the pod has ended".to_owned()),
            Err(_) => Err("the pod's tender does not answer".to_owned()),
        }
    }

    /// Writes the image of the pod: into the directory of its first rank; those of the others say where it is.
    pub(super) async fn save(
        &mut self,
        set: &SetId,
        leave: bool,
        space: &str,
    ) -> Result<Vec<(u32, u64)>, String> {
        self.synced().await?;
        self.input.settle().await;
        self.quiet = true;
        let root = self.spec.image_dir.clone();
        let ranks: Vec<u32> = self.ranks.keys().copied().collect();
        let first = *ranks.first().ok_or("the ranks have ended")?;
        let image = images::path(&root, set, first);
        let facts = Facts { address: self.address, pipes: self.pipes, tender: self.tender, ranks };
        let begun = self.precopied.as_ref() == Some(set);
        let made = image::make(&image, &facts, space, begun)
            .map_err(|error| format!("cannot make {}: {error}", image.display()));
        let written = match made {
            Ok(()) => self.dump(set, &image, leave).await,
            Err(error) => Err(error),
        };
        let sizes = written.and_then(|()| image::sizes(&root, set, &image, &facts.ranks));
        let sizes = sizes.and_then(|sizes| image::close(&image).map(|()| sizes));
        if sizes.is_err() {
            images::drop_set(&root, set);
        }
        sizes
    }

    async fn dump(&mut self, set: &SetId, image: &Path, leave: bool) -> Result<(), String> {
        self.steps(Moment::Save { leave }, set, image).await?;
        if leave {
            let time = Step::begin();
            // Everything that the ranks have said is in the pipe, and the pipe ends.
            let rest = async {
                while let Some(said) = self.said.recv().await {
                    self.hear(said).await;
                }
            };
            let ended = tokio::time::timeout(ANSWER_WAIT, rest).await;
            ended.map_err(|_| "the pod lives on after its dump".to_owned())?;
            time.done(&self.spec.node, "hear the last words");
        }
        Ok(())
    }

    /// Makes a pod for ranks whose image is here, as far as can be before they must come to life. It is on no bridge.
    pub(super) async fn receive(
        spec: &NodeSpec,
        number: u32,
        holder: Holder,
        set: &SetId,
        ranks: &Ranks,
        ends: Ends,
    ) -> Result<Self, String> {
        let time = Step::begin();
        let image = image_of(spec, set, ranks)?;
        let (facts, _) = Facts::read(&image, ranks)?;
        let mut task = Self::hold(spec, number, holder, facts.address, ends, false).await?;
        task.tender = facts.tender;
        time.done(&spec.node, "make the pod's network");
        task.steps(Moment::Unpack, set, &image).await?;
        Ok(task)
    }

    /// Brings the ranks of such a pod back; the PMI key-value space that was saved with them.
    pub(super) async fn revive(
        &mut self,
        incarnation: u64,
        set: &SetId,
        ranks: &Ranks,
    ) -> Result<String, String> {
        let image = image_of(&self.spec, set, ranks)?;
        let (facts, space) = Facts::read(&image, ranks)?;
        for rank in ranks.iter() {
            self.add(rank, incarnation);
        }
        let theirs = self.connect()?;
        self.steps_with(Moment::Restore, set, &image, Some((theirs, facts.pipes))).await?;
        let time = Step::begin();
        self.open().await?;
        self.probe().await;
        time.done(&self.spec.node, "join the pod's network");
        self.say(ToTender::Go).await;
        Ok(space)
    }
}

/// Where a pod is, for steps that run while its task does something else.
struct Place {
    rank: u32,
    tender: u32,
    holder: u32,
    link: String,
    pipes: (u64, u64),
}

impl Place {
    /// Runs what the backend has for a moment, for the pod as a whole.
    async fn steps(
        &self,
        spec: &NodeSpec,
        moment: Moment,
        set: &SetId,
        image: &Path,
        mut fds: Option<(OwnedFd, OwnedFd)>,
    ) -> Result<(), String> {
        let bridge = spec.pod.as_ref().map_or("", |net| net.bridge.as_str());
        let unit = Unit {
            job: &spec.job,
            node: &spec.node,
            set,
            size: spec.size,
            rank: self.rank,
            pid: self.tender,
            image,
            pod: Some(PodPlace {
                holder: self.holder,
                link: &self.link,
                bridge,
                pipes: self.pipes,
            }),
        };
        let env = saver::env(&unit, spec);
        for step in spec.backend.get().steps(moment, &unit) {
            let fds = if step.piped { fds.take() } else { None };
            let time = Step::begin();
            let done = steps::run(&step, &env, Path::new("/"), fds).await;
            done.map_err(|error| format!("{error}{}", image::log_error(image)))?;
            time.done(&spec.node, step.name);
        }
        Ok(())
    }

    /// Whether it pays to copy memory beforehand: there is much of it, and the kernel can tell what changes meanwhile.
    async fn pays(&self, spec: &NodeSpec) -> bool {
        let Some(criu) = spec.backend.pods().cloned() else {
            return false;
        };
        let (holder, node) = (self.holder, spec.node.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let bytes = memory_bytes(holder);
            let much = bytes >= criu.precopy_from_bytes();
            let tracked = much && installed::tracks_memory(&criu);
            if much && !tracked {
                tracing::info!(%node, bytes, "memory is not copied beforehand: the kernel does not track its changes");
            }
            tracked
        });
        looked.await.unwrap_or(false)
    }
}

/// The processes of the pod with this first process, by the ids that this host has for them.
pub(super) fn processes(holder: u32) -> impl Iterator<Item = u32> {
    let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let pod = space(holder);
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(move |pid| pod.is_some() && space(*pid) == pod)
}

/// The resident memory of the processes of a pod, in bytes.
fn memory_bytes(holder: u32) -> u64 {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096);
    let pages = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()
    };
    processes(holder).filter_map(pages).sum::<u64>().saturating_mul(page)
}

/// The image of all ranks of a pod is that of the first.
fn image_of(spec: &NodeSpec, set: &SetId, ranks: &Ranks) -> Result<PathBuf, String> {
    let first = ranks.iter().next().ok_or("no ranks to bring back")?;
    Ok(images::path(&spec.image_dir, set, first))
}
