//! `--backend auto`: chooses the backend before anything starts, because pods are made with the
//! ranks. `docs/launcher.md` has the rule.

use super::{Choice, Criu};

/// A library by which a program saves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// ftb-job.
    Job,
    /// `ftb_loop`, in C or Python.
    Loop,
    Neither,
}

/// The facts of the decision.
#[derive(Debug)]
pub struct JobFacts<'a> {
    pub program: &'a str,
    /// What the program, or a file named on its command line, contains.
    pub has: Library,
    pub use_of_pods: UseOfPods,
    /// All nodes are this host. Pods on several hosts need a bridge that only the user can name.
    pub is_local: bool,
}

/// What pods would be for. Their start takes time: a job that is neither saved nor moved, and a
/// command on one node for which nothing of the kind was asked, run without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UseOfPods {
    /// Nodes with ranks.
    pub nodes: usize,
    pub has_spares: bool,
    /// The job is saved in memory.
    pub in_memory: bool,
    /// The job is saved at an interval, the default one included.
    pub is_saved: bool,
    /// The user has named that interval, or a policy with one.
    pub is_named: bool,
}

impl UseOfPods {
    const fn is_any(self) -> bool {
        let by_interval = self.is_saved && (self.is_named || self.nodes > 1);
        self.has_spares || self.in_memory || by_interval
    }
}

/// The backend and a message about it. `pods` checks whether pods can be made; it is called only if
/// that matters.
pub fn decide(
    seen: &JobFacts<'_>,
    pods: impl FnOnce() -> Result<(), String>,
) -> (Choice, Option<String>) {
    let program = seen.program;
    match seen.has {
        Library::Loop => return (Choice::Loop, None),
        Library::Neither if seen.use_of_pods.is_any() => {}
        Library::Job | Library::Neither => return (Choice::App, None),
    }
    let checked = match seen.is_local {
        true => pods(),
        false => Err(
            "several hosts need a bridge that joins their pods: name it in a --backend file with a \
             table [backend.criu]"
                .to_owned(),
        ),
    };
    match checked {
        Ok(()) => {
            let words = format!(
                "backend criu: {program} does not contain ftb-job or ftb_loop, so its ranks run in \
                 pods with a network of their own (--backend app: without pods)"
            );
            (Choice::Criu(Criu::default()), Some(words))
        }
        Err(why) => {
            let words = format!(
                "backend app: {program} cannot be saved: it does not contain ftb-job or ftb_loop, \
                 and pods cannot be made: {why}"
            );
            (Choice::App, Some(words))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// By default a job is saved, without that anyone has named an interval.
    const DEFAULT: UseOfPods = UseOfPods {
        nodes: 2,
        has_spares: false,
        in_memory: false,
        is_saved: true,
        is_named: false,
    };
    const ONE_NODE: UseOfPods = UseOfPods { nodes: 1, ..DEFAULT };
    const NEVER: UseOfPods = UseOfPods { is_saved: false, is_named: true, ..DEFAULT };
    const UNMODIFIED: JobFacts<'_> =
        JobFacts { program: "solver", has: Library::Neither, use_of_pods: DEFAULT, is_local: true };

    fn decided(seen: &JobFacts<'_>, pods: Result<(), String>) -> (&'static str, String) {
        let (choice, words) = decide(seen, || pods);
        (choice.get().name(), words.unwrap_or_default())
    }

    #[test]
    fn an_unmodified_program_gets_pods_where_they_can_be_made() {
        let (name, words) = decided(&UNMODIFIED, Ok(()));
        assert!(name == "criu" && words.contains("--backend app"), "{words}");
        let (name, words) = decided(&UNMODIFIED, Err("criu needs root".to_owned()));
        assert!(name == "app" && words.contains("criu needs root"), "{words}");
        let far = JobFacts { is_local: false, ..UNMODIFIED };
        let (name, words) = decided(&far, Ok(()));
        assert!(name == "app" && words.contains("bridge"), "{words}");
    }

    #[test]
    fn pods_are_made_where_a_job_is_saved_or_moved_and_not_for_a_command_on_one_node() {
        for (use_of_pods, expected) in [
            (DEFAULT, "criu"),
            (ONE_NODE, "app"),
            (UseOfPods { is_named: true, ..ONE_NODE }, "criu"),
            (UseOfPods { has_spares: true, ..ONE_NODE }, "criu"),
            (UseOfPods { in_memory: true, ..ONE_NODE }, "criu"),
            (NEVER, "app"),
            (UseOfPods { has_spares: true, ..NEVER }, "criu"),
            (UseOfPods { in_memory: true, ..NEVER }, "criu"),
        ] {
            let seen = JobFacts { use_of_pods, ..UNMODIFIED };
            assert_eq!(decided(&seen, Ok(())).0, expected, "{use_of_pods:?}");
        }
    }

    #[test]
    fn what_needs_no_pods_gets_none_without_a_word() {
        for (seen, expected) in [
            (JobFacts { has: Library::Job, ..UNMODIFIED }, Choice::App),
            (JobFacts { use_of_pods: ONE_NODE, ..UNMODIFIED }, Choice::App),
            (JobFacts { has: Library::Loop, ..UNMODIFIED }, Choice::Loop),
            (JobFacts { has: Library::Loop, use_of_pods: ONE_NODE, ..UNMODIFIED }, Choice::Loop),
        ] {
            let (choice, words) = decide(&seen, || panic!("it does not matter"));
            assert_eq!((choice, words), (expected, None));
        }
    }
}
