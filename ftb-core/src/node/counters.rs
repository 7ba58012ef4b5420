//! What an agent counts.

/// Declares the counters once: as fields for the code, as names for reports.
macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        /// What is counted.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Counters { $($(#[doc = $doc])* pub(crate) $name: u64),* }

        impl Counters {
            pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }

        /// The names of all counters of [`crate::node::NodeStatus`], and what each counts.
        pub fn counter_meanings() -> Vec<(&'static str, String)> {
            vec![$((stringify!($name), concat!($($doc),*).trim().to_owned())),*]
        }
    };
}

counters! {
    /// Events that were appended to the log here.
    appended,
    /// Events, reports, routes and joins of children about agents that are not below them.
    claims_refused,
    /// Events of agents that are not, or not yet, below the child that sent them.
    events_not_below,
    /// Events that children re-proposed for other hosts after a merge.
    events_of_other_logs,
    /// Reports of agents that were still below another child, and so had to wait.
    reports_held,
    /// Children lost or left.
    children_lost,
    /// Children whose clock is far off.
    clocks_differ,
    /// Logs taken over from a child.
    logs_installed,
    /// Questions and answers that found no room in the queue of a link or a client.
    control_dropped,
    /// Copies of events that came up and were logged before.
    copies,
    /// Pages of the journal that were asked for.
    history_reads,
    /// Questions for older events that had to wait because others of the user or link were open.
    history_waits,
    /// Events handed to clients.
    delivered,
    /// Dials begun.
    dials,
    /// Dials that failed.
    dials_failed,
    /// Dials that the host refused.
    dials_refused,
    /// Epochs opened here.
    epochs,
    /// Copies of a log that a standby kept when it went below another parent.
    copies_kept,
    /// Log entries that readers had not read yet when a copy that no longer has them took over.
    kept_at_take_over,
    /// Times that a copy took over that no longer had what was on its way to readers here.
    copies_outrun,
    /// Gaps that the acting root logged for epochs that no agent has re-proposed.
    fork_gaps,
    /// Logs of children that an acting root did not take over: too short, incomplete, or too late.
    installs_refused,
    /// Times that the log of the parent had nothing in common with the log here.
    logs_parted,
    /// Times that an agent outside the member list got another rank.
    renumbered,
    /// Events sent down to children.
    events_down,
    /// Events that came up from children.
    events_up,
    /// Frames of an epoch lower than our own.
    fenced,
    /// Events of clients that became part of a fold.
    folded,
    /// Folds of groups that the acting root appended.
    group_folds,
    /// Events that the acting root appended as members of groups.
    grouped,
    /// Groups that ended early: a limit, or another event of a publisher that was in them.
    groups_cut,
    /// Times that events were confirmed in memory although their publisher wants them on disk.
    confirmed_off_disk,
    /// Questions for older events that were passed up.
    history_requests,
    /// Events that were re-proposed to another log.
    re_proposed,
    /// Logs whose root and standby were lost together.
    logs_lost,
    /// Frames with an epoch or index that no honest neighbour can have come to.
    implausible,
    /// Times that filters were added to those of the subtree, or all of them merged anew.
    merges,
    /// Peers whose member list differs.
    members_differ,
    /// Links closed because of what came over them.
    misbehaved,
    /// Moves to a better parent.
    moves,
    /// Origins asked to begin another run.
    naks,
    /// Parents lost or left.
    parents_lost,
    /// Times that a client was paused.
    pauses,
    /// Times that a client was read later because its user publishes too much.
    user_slowed,
    /// Events taken from clients.
    published,
    /// Statements about conditions that a limit had no room for.
    conditions_refused,
    /// Statements about conditions that were repeated for clients here.
    conditions_repeated,
    /// Conditions that became unknown because their publisher was lost or they expired.
    conditions_unknown,
    /// Conditions that were cleared without ever being stated.
    conditions_unset,
    /// Events of clients that were refused because their publisher says too much.
    rate_shed,
    /// Hellos refused.
    refused,
    /// Own hellos refused.
    rejected,
    /// Events that were delivered here in an epoch that has lost, and came again.
    repeated,
    /// Times that own events were sent again because nothing was confirmed for long.
    resent,
    /// Events that slow readers lost.
    shed,
    /// Silent links given up.
    silent,
    /// Things that came too late to matter.
    stale,
    /// Log entries handed to the journal.
    journaled,
    /// States that cannot be: a defect of the agent.
    impossible,
    /// Times that the journal failed or was too slow.
    journal_failures,
    /// Log entries that an earlier life had left in the journal.
    restored,
    /// Standbys that were too slow.
    standby_skipped,
    /// Subscriptions that a user's budget had no room for.
    user_limited,
}
