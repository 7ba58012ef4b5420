//! `--backend auto`: which backend a job gets where the user names none. Decided before anything
//! starts, since pods are made with the ranks. `docs/launcher.md` has the rule for users.

use super::{Choice, Criu};

/// What the decision needs.
#[derive(Debug)]
pub struct Seen<'a> {
    /// For messages: the program.
    pub program: &'a str,
    /// The program, or a file named on its command line, contains ftb-job.
    pub links_ftb_job: bool,
    /// There is a spare, or the job is saved by itself: else no remedy would ever need a backend.
    pub is_useful: bool,
    /// All nodes are this host: pods of several hosts need a bridge that only the user can name.
    pub is_local: bool,
}

/// The backend, and what is to be told about it. `pods` looks whether pods can be made here; it is
/// asked only where that matters.
pub fn decide(
    seen: &Seen<'_>,
    pods: impl FnOnce() -> Result<(), String>,
) -> (Choice, Option<String>) {
    let program = seen.program;
    if seen.links_ftb_job || !seen.is_useful {
        return (Choice::App, None);
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
                "backend criu: {program} does not contain ftb-job, so its ranks run in pods with a \
                 network of their own (--backend app: without pods)"
            );
            (Choice::Criu(Criu::default()), Some(words))
        }
        Err(why) => {
            let words = format!(
                "backend app: {program} does not contain ftb-job, and pods cannot be made: \
                 {why}"
            );
            (Choice::App, Some(words))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const UNMODIFIED: Seen<'_> =
        Seen { program: "solver", links_ftb_job: false, is_useful: true, is_local: true };

    fn decided(seen: &Seen<'_>, pods: Result<(), String>) -> (&'static str, String) {
        let (choice, words) = decide(seen, || pods);
        (choice.get().name(), words.unwrap_or_default())
    }

    #[test]
    fn an_unmodified_program_gets_pods_where_they_can_be_made() {
        let (name, words) = decided(&UNMODIFIED, Ok(()));
        assert!(name == "criu" && words.contains("--backend app"), "{words}");
        let (name, words) = decided(&UNMODIFIED, Err("criu needs root".to_owned()));
        assert!(name == "app" && words.contains("criu needs root"), "{words}");
        let far = Seen { is_local: false, ..UNMODIFIED };
        let (name, words) = decided(&far, Ok(()));
        assert!(name == "app" && words.contains("bridge"), "{words}");
    }

    #[test]
    fn a_program_of_ftb_job_and_a_job_without_remedies_get_no_pods_and_no_message() {
        for seen in
            [Seen { links_ftb_job: true, ..UNMODIFIED }, Seen { is_useful: false, ..UNMODIFIED }]
        {
            let (choice, words) = decide(&seen, || panic!("it does not matter"));
            assert_eq!((choice, words), (Choice::App, None));
        }
    }
}
