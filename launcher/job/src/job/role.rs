//! What a rank is doing, as FMI has it: bootstrapping (H1), connecting (H2) or running (H3).
//! `roles.md` is the table; a test renders it. Pure.

/// A state of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// H1: it uses no link, and meets all others in a barrier, which gives the new addresses.
    Bootstrapping,
    /// H2: it sends what waited; a link is made, or used again, by its first message.
    Connecting,
    /// H3: the program communicates.
    Running,
    /// H3, but the program has not taken the state of the set that the job goes on from.
    Returning,
}

/// What happens to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoleEvent {
    /// All ranks are in the barrier.
    Met,
    /// What waited is sent.
    Connected,
    /// The same, in a process that was started from an image or goes back to one.
    ConnectedFromSet,
    /// Other ranks have died, and the launcher calls this one back.
    CalledBack,
    /// The program has taken its state: `FMI_Loop`, `Job::restore`.
    Taken,
    /// Ranks move at a safe point.
    Moving,
}

impl Role {
    /// The state after an event; `None` where it cannot happen.
    pub(crate) fn after(self, event: RoleEvent) -> Option<Self> {
        match (self, event) {
            (Self::Bootstrapping, RoleEvent::Met) => Some(Self::Connecting),
            (Self::Connecting, RoleEvent::Connected) => Some(Self::Running),
            (Self::Connecting, RoleEvent::ConnectedFromSet) => Some(Self::Returning),
            (Self::Returning, RoleEvent::Taken) => Some(Self::Running),
            (Self::Running, RoleEvent::Moving) | (_, RoleEvent::CalledBack) => {
                Some(Self::Bootstrapping)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fmt::Write as _;

    const ROLES: [(Role, &str, &str); 4] = [
        (Role::Bootstrapping, "bootstrapping (H1)", "wait, or have not begun"),
        (Role::Connecting, "connecting (H2)", "wait, or have not begun"),
        (Role::Running, "running (H3)", "communicate"),
        (Role::Returning, "running (H3), returning", "fail until the program takes its state"),
    ];
    const EVENTS: [(RoleEvent, &str); 6] = [
        (RoleEvent::Met, "all ranks are in the barrier"),
        (RoleEvent::Connected, "what waited is sent, in a process that began anew or moved"),
        (RoleEvent::ConnectedFromSet, "what waited is sent, in a process that goes on from a set"),
        (RoleEvent::CalledBack, "other ranks have died (notified)"),
        (RoleEvent::Taken, "the program takes its state: `FMI_Loop`, `Job::restore`"),
        (RoleEvent::Moving, "ranks move at a safe point"),
    ];

    fn name(of: Role) -> &'static str {
        ROLES.iter().find(|(role, ..)| *role == of).unwrap().1
    }

    fn page() -> String {
        let mut page = String::from(
            "# The states of a rank of ftb-job\n\n\
             FMI's states of a process (H1 to H3), and what the calls of the program do in each.\n\
             A test renders this page from `role.rs`; with `FTB_BLESS=1` it writes it. A process\n\
             begins in H1, also one that replaces another.\n\n\
             | state | calls |\n|---|---|\n",
        );
        for (_, state, calls) in ROLES {
            writeln!(page, "| {state} | {calls} |").unwrap();
        }
        page.push_str("\n| event |");
        ROLES.iter().for_each(|(_, state, _)| write!(page, " {state} |").unwrap());
        page.push_str("\n|---|---|---|---|---|\n");
        for (event, words) in EVENTS {
            write!(page, "| {words} |").unwrap();
            for (role, ..) in ROLES {
                let next = role.after(event).map_or("–", name);
                write!(page, " {next} |").unwrap();
            }
            page.push('\n');
        }
        page
    }

    #[test]
    fn the_page_has_the_table_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/job/roles.md");
        ftb_tests::man::assert_file_is_current(path, page());
    }

    #[test]
    fn every_state_can_be_left_and_leads_back_to_running() {
        for (begin, ..) in ROLES {
            let mut reached = vec![begin];
            let mut at = 0;
            while let Some(role) = reached.get(at).copied() {
                for next in EVENTS.iter().filter_map(|(event, _)| role.after(*event)) {
                    if !reached.contains(&next) {
                        reached.push(next);
                    }
                }
                at += 1;
            }
            assert_eq!(reached.len(), ROLES.len(), "{begin:?} reaches {reached:?}");
        }
    }
}
