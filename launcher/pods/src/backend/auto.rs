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
    /// There is a spare or a checkpoint interval, also of memory; otherwise no backend is needed.
    pub is_useful: bool,
    /// All nodes are this host. Pods on several hosts need a bridge that only the user can name.
    pub is_local: bool,
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
        Library::Neither if seen.is_useful => {}
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
                "backend app: {program} does not contain ftb-job or ftb_loop, and pods cannot be \
                 made: {why}"
            );
            (Choice::App, Some(words))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const UNMODIFIED: JobFacts<'_> =
        JobFacts { program: "solver", has: Library::Neither, is_useful: true, is_local: true };

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
    fn a_program_of_ftb_job_or_a_job_without_spares_gets_no_pods() {
        for (seen, expected) in [
            (JobFacts { has: Library::Job, ..UNMODIFIED }, Choice::App),
            (JobFacts { is_useful: false, ..UNMODIFIED }, Choice::App),
            (JobFacts { has: Library::Loop, ..UNMODIFIED }, Choice::Loop),
            (JobFacts { has: Library::Loop, is_useful: false, ..UNMODIFIED }, Choice::Loop),
        ] {
            let (choice, words) = decide(&seen, || panic!("it does not matter"));
            assert_eq!((choice, words), (expected, None));
        }
    }
}
