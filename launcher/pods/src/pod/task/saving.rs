//! Saves a pod into an image and restores it: the backend's commands, and the order of the steps
//! around them.

use super::Task;
use crate::backend::{Moment, PodPlace, Unit};
use crate::images::{self, ImagePath};
use crate::pod::image::{self, Facts};
use crate::pod::ipc::{FromSupervisor, ToSupervisor};
use crate::pod::pause::PauseProcess;
use crate::pod::processes::{memory_bytes, own_bytes};
use crate::pod::{ANSWER_WAIT, PodChannels};
use crate::spec::NodeSpec;
use crate::timeline::Stopwatch;
use crate::{installed, owner, rank_hooks, steps};
use ftb_launcher_core::names::{Ranks, SetId};
use std::os::fd::OwnedFd;
use std::path::Path;

impl Task {
    /// Runs the backend's commands of a moment for the whole pod.
    pub(super) async fn steps(
        &self,
        moment: Moment,
        set: &SetId,
        image: &ImagePath,
    ) -> Result<(), String> {
        self.steps_with(moment, set, image, None).await
    }

    async fn steps_with(
        &self,
        moment: Moment,
        set: &SetId,
        image: &ImagePath,
        pipes: Option<((OwnedFd, OwnedFd), (u64, u64))>,
    ) -> Result<(), String> {
        let (fds, inodes) = pipes.map_or((None, self.pipes), |(fds, inodes)| (Some(fds), inodes));
        let place = Place { pipes: inodes, ..self.place() };
        place.steps(&self.spec, moment, set, image, fds).await
    }

    fn place(&self) -> Place {
        Place {
            rank: self.ranks.keys().next().copied().unwrap_or(0),
            supervisor: self.supervisor,
            pause: self.pause.pid,
            link: self.link.clone(),
            pipes: self.pipes,
        }
    }

    /// Copies the memory of running ranks beforehand, where that pays.
    pub(super) fn begin_precopy(&mut self, set: SetId) {
        let (spec, place) = (self.spec.clone(), self.place());
        self.precopy.spawn(async move {
            let image = spec.image(&set, place.rank);
            if !place.pays(&spec).await {
                return None;
            }
            if let Err(error) = image::make_parent(&image.here) {
                tracing::warn!(node = %spec.node, %error, "nothing is copied beforehand");
                return None;
            }
            if let Err(error) = place.steps(&spec, Moment::Precopy, &set, &image, None).await {
                tracing::warn!(node = %spec.node, error, "what was copied beforehand is not used");
                image::drop_parent(&image.here).ok()?;
            }
            // The image has begun and is being fetched; it continues.
            Some(set)
        });
    }

    /// Waits until the supervisor has handled all messages. Handles its own messages meanwhile.
    async fn synced(&mut self) -> Result<(), String> {
        self.say(ToSupervisor::Sync).await;
        let wait = async {
            while let Some(said) = self.said.recv().await {
                let synced = said == FromSupervisor::Synced;
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
            Err(_) => Err("the pod's supervisor does not answer".to_owned()),
        }
    }

    /// Writes the image of the pod into the directory of its first rank; the images of the other
    /// ranks refer to it. `room`: most bytes of an image in memory.
    pub(super) async fn save(
        &mut self,
        set: &SetId,
        leave: bool,
        space: &str,
        room: Option<u64>,
    ) -> Result<Vec<(u32, u64)>, String> {
        self.synced().await?;
        self.input.settle();
        self.quiet = true;
        if let Some(room) = room {
            self.check_room(room).await?;
        }
        let root = self.spec.root(set);
        let ranks: Vec<u32> = self.ranks.keys().copied().collect();
        let first = *ranks.first().ok_or("the ranks have ended")?;
        let image = self.spec.image(set, first);
        let facts =
            Facts { address: self.address, pipes: self.pipes, supervisor: self.supervisor, ranks };
        let started = self.precopied.as_ref() == Some(set);
        let made = image::make(&image.here, &facts, space, started)
            .map_err(|error| format!("cannot make {}: {error}", image.here.display()));
        let written = match made {
            Ok(()) => self.dump(set, &image, leave).await,
            Err(error) => Err(error),
        };
        let sizes = written.and_then(|()| image::sizes(&root, set, &image.here, &facts.ranks));
        let sizes = match set.is_in_memory() {
            // It is sent when it is whole.
            true => sizes,
            false => sizes.and_then(|sizes| image::close(&image.here).map(|()| sizes)),
        };
        if sizes.is_err() {
            images::drop_set(&root, set);
        }
        sizes
    }

    /// Whether the image of the pod fits into memory, as far as one can tell before the dump.
    async fn check_room(&self, room: u64) -> Result<(), String> {
        let pause = self.pause.pid;
        let needed = tokio::task::spawn_blocking(move || own_bytes(pause)).await;
        let needed = needed.map_err(|error| error.to_string())?;
        if needed <= room {
            return Ok(());
        }
        Err(format!(
            "the memory for checkpoints is too small: the pod has about {needed} bytes to save, \
             {room} are left (--memory-bytes)"
        ))
    }

    async fn dump(&mut self, set: &SetId, image: &ImagePath, leave: bool) -> Result<(), String> {
        self.steps(Moment::Save { leave }, set, image).await?;
        if leave {
            let time = Stopwatch::start();
            // All output of the ranks is in the pipe, and the pipe ends.
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

    /// Prepares a pod for ranks whose image is here. It joins no bridge.
    pub(in crate::pod) async fn receive(
        spec: &NodeSpec,
        number: u32,
        pause: PauseProcess,
        set: &SetId,
        ranks: &Ranks,
        ends: PodChannels,
    ) -> Result<Self, String> {
        let time = Stopwatch::start();
        let image = image_of(spec, set, ranks)?;
        let (facts, _) = Facts::read(&image.here, ranks)?;
        let mut task = Self::hold(spec, number, pause, facts.address, ends, false).await?;
        task.supervisor = facts.supervisor;
        time.done(&spec.node, "make the pod's network");
        task.steps(Moment::Unpack, set, &image).await?;
        Ok(task)
    }

    /// Restores the ranks of a prepared pod; returns the saved PMI key-value space.
    pub(in crate::pod) async fn revive(
        &mut self,
        incarnation: u64,
        set: &SetId,
        ranks: &Ranks,
    ) -> Result<String, String> {
        let image = image_of(&self.spec, set, ranks)?;
        let (facts, space) = Facts::read(&image.here, ranks)?;
        for rank in ranks.iter() {
            self.add(rank, incarnation);
        }
        let theirs = self.connect()?;
        self.steps_with(Moment::Restore, set, &image, Some((theirs, facts.pipes))).await?;
        let time = Stopwatch::start();
        self.open().await?;
        self.probe().await;
        time.done(&self.spec.node, "join the pod's network");
        self.say(ToSupervisor::Go).await;
        Ok(space)
    }
}

/// The identity of a pod, for commands that run beside its task.
struct Place {
    rank: u32,
    supervisor: u32,
    pause: u32,
    link: String,
    pipes: (u64, u64),
}

impl Place {
    /// Runs the backend's commands of a moment for the whole pod.
    async fn steps(
        &self,
        spec: &NodeSpec,
        moment: Moment,
        set: &SetId,
        image: &ImagePath,
        mut fds: Option<(OwnedFd, OwnedFd)>,
    ) -> Result<(), String> {
        let bridge = spec.pod.as_ref().map_or("", |net| net.bridge.as_str());
        let holder = spec.pod.as_ref().and_then(|net| net.holder);
        let unit = Unit {
            job: &spec.job,
            node: &spec.node,
            set,
            size: spec.size,
            rank: self.rank,
            pid: self.supervisor,
            image: &image.inside,
            here: &image.here,
            pod: Some(PodPlace {
                pause: self.pause,
                link: &self.link,
                bridge,
                pipes: self.pipes,
                holder,
            }),
        };
        let env = rank_hooks::env(&unit, spec);
        for mut step in spec.backend.get().steps(moment, &unit) {
            step.argv.splice(..0, owner::words(holder));
            let fds = if step.piped { fds.take() } else { None };
            let time = Stopwatch::start();
            let done = steps::run(&step, &env, Path::new("/"), fds).await;
            done.map_err(|error| format!("{error}{}", image::log_error(&image.here)))?;
            time.done(&spec.node, step.name);
        }
        Ok(())
    }

    /// Whether a copy beforehand pays: there is much memory, and the kernel tracks changes.
    async fn pays(&self, spec: &NodeSpec) -> bool {
        let Some(criu) = spec.backend.pods().cloned() else {
            return false;
        };
        let (pause, node) = (self.pause, spec.node.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let bytes = memory_bytes(pause);
            let much = bytes >= criu.precopy_from_bytes();
            let tracked = much && installed::tracks_memory(&criu);
            if much && !tracked {
                tracing::info!(%node, bytes, "memory is not copied beforehand: the kernel does \
                                              not track its changes");
            }
            tracked
        });
        looked.await.unwrap_or(false)
    }
}

/// The image of a pod is that of its first rank.
fn image_of(spec: &NodeSpec, set: &SetId, ranks: &Ranks) -> Result<ImagePath, String> {
    let first = ranks.iter().next().ok_or("no ranks to bring back")?;
    Ok(spec.image(set, first))
}
