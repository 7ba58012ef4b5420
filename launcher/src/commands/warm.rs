//! `--warm-spares` and `--warm-local`: which jobs can have processes that wait for a rank to
//! replace.

use super::Program;
use super::place::Where;
use crate::cli::RunOptions;
use crate::program;
use ftb_launcher_core::jl::OnDeath;
use ftb_launcher_core::manner::Saver;
use ftb_launcher_core::names::RANKS_PER_NODE_MAX;
use ftb_launcher_core::warm::WarmProcesses;
use ftb_launcher_pods::backend::auto::Library;

pub(super) fn wanted(how: &RunOptions) -> WarmProcesses {
    let number = |option: Option<u32>| option.unwrap_or_default();
    WarmProcesses { spare: number(how.warm_spares), local: number(how.warm_local) }
}

/// Whether the job can have those that are wanted.
///
/// # Errors
/// Why it cannot.
pub(super) fn check(
    program: &Program,
    how: &RunOptions,
    place: &Where,
    on_death: OnDeath,
) -> Result<(), String> {
    let WarmProcesses { spare, local } = wanted(how);
    let (name, number) = match (spare, local) {
        (0, 0) => return Ok(()),
        (0, local) => ("--warm-local", local),
        (spare, local) => ("--warm-spares", spare.max(local)),
    };
    if number as usize > RANKS_PER_NODE_MAX {
        let most = RANKS_PER_NODE_MAX;
        return Err(format!("{name} {number}: at most {most} are allowed on a node"));
    }
    if spare > 0 && place.plan.spares.is_empty() {
        return Err(format!("{name}: the job has no spares: name some with --spares"));
    }
    let backend = program.backend.get();
    if program.backend.pods().is_some() {
        return Err(format!(
            "{name}: the ranks live in pods (backend {}) and come back as they were saved: no \
             process that waits can take their place",
            backend.name()
        ));
    }
    if backend.manner().saver != Saver::Ranks {
        return Err(format!(
            "{name}: a process waits in the initialization of ftb-job, which programs of backend \
             {} do not have: link ftb-job and use --backend app",
            backend.name()
        ));
    }
    if on_death == OnDeath::Continue {
        return Err(format!(
            "{name}: with --on-death continue no process takes the place of a dead rank"
        ));
    }
    check_program(program, how).map_err(|why| format!("{name}: {why}"))
}

/// What the user is to know of a job that can have them.
pub(super) fn note(warm: WarmProcesses, on_death: OnDeath) -> Option<String> {
    let word = match on_death {
        OnDeath::Stop => "stop",
        OnDeath::Shrink => "shrink",
        OnDeath::Rollback | OnDeath::Restart | OnDeath::Continue => return None,
    };
    (warm.local > 0).then(|| {
        format!(
            "--warm-local: with --on-death {word} a rank that dies is not replaced on its node: \
             only other restarts use its parked processes"
        )
    })
}

/// Whether the program links ftb-job; a person who names the backend knows it.
fn check_program(program: &Program, how: &RunOptions) -> Result<(), String> {
    if how.backend.as_deref().is_some_and(|backend| backend != super::AUTO) {
        return Ok(());
    }
    let path = program.env.iter().rev().find(|(key, _)| key == "PATH");
    let path = path.map_or("", |(_, value)| value);
    if program::library_of(&program.argv, path, &program.cwd) == Library::Job {
        return Ok(());
    }
    Err("ftb-job is not found in the program, and another program would not wait: if it uses a \
         shared libftbjob, add --backend app"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_for_ranks_that_are_not_replaced_on_their_node_are_named() {
        let (spare, local) = (1, 1);
        let noted = |local, on_death| note(WarmProcesses { spare, local }, on_death);
        for (on_death, word) in [(OnDeath::Stop, "stop"), (OnDeath::Shrink, "shrink")] {
            let words = noted(local, on_death).unwrap_or_default();
            assert!(words.contains(&format!("--on-death {word} a rank")), "{words}");
            assert_eq!(noted(0, on_death), None);
        }
        assert_eq!(noted(local, OnDeath::Rollback), None);
    }
}
