//! What the clients of one user make the agent hold in memory.
//!
//! A user has one budget, `user_bytes`. Clients, subscriptions and filters count with what they
//! cost; a subscription beyond the budget is refused. What is left of the budget holds events for
//! slow subscriptions. If they need more, the user's subscriptions lose the mildest events first,
//! all of them at once, and report gaps. Subscriptions of other users keep theirs.
//!
//! All these users together have one as well, `users_bytes`: one person may have many user ids. If
//! they need more, the user that holds the most loses events first, FATAL ones only beyond a
//! quarter more, and who holds more than an equal share gets no further subscription.
//!
//! Responsible for: the sums, and what is shed because of them. Not responsible for: what one
//! subscription may hold (`lag_bytes`, [`crate::log::reader`]).

use crate::filter::Filter;
use crate::limits::{BATCH_BYTES_TARGET, CLIENT_BYTES, SUBSCRIPTION_BYTES};
use crate::node::api::{ClientId, ToClient};
use crate::node::cx::Cx;
use crate::node::delivery::clients::Client;
use crate::node::delivery::{Delivery, ReadCx};
use crate::severity::Severity;
use crate::trace::TraceStep;
use std::collections::{BTreeMap, BTreeSet};

/// Batches of events that may be on their way to one client, at most.
const BATCHES_PER_CLIENT: usize = 8;
/// The smallest batch that a client of a user with very many is sent.
const BATCH_BYTES_MIN: usize = 4 * 1024;

/// The budgets of all users with clients here.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    users: BTreeMap<u32, User>,
    /// Users with a budget.
    bounded: usize,
    /// What they hold together at most.
    total: usize,
    /// It is counted anew, and shed, if it is more than that.
    count_at: usize,
}

#[derive(Debug, Default)]
struct User {
    /// It has a budget.
    is_bounded: bool,
    clients: usize,
    /// Bytes of clients, subscriptions and filters.
    fixed: usize,
    subscriptions: usize,
    /// Bytes of filters alone: an event is compared with all that may want its space.
    filter_bytes: usize,
    /// Upper bound of the bytes that wait for slow subscriptions: reads are not subtracted at once.
    lag_max: usize,
    /// They are counted anew, and shed, if more than these may wait.
    count_at: usize,
}

/// What a subscription counts for.
fn bytes_of(filter: &Filter) -> usize {
    SUBSCRIPTION_BYTES + filter.weight()
}

/// Events that wait for a client, in bytes.
fn lag_of(client: &Client) -> usize {
    let readers = client.subscriptions.values().map(|found| found.reader.held_bytes());
    let control = client.control.iter().map(|message| match message {
        ToClient::Deliver { items, .. } => items.iter().map(|(_, run)| run.len()).sum(),
        _ => 0,
    });
    readers.chain(control).sum()
}

impl User {
    fn held(&self) -> usize {
        self.fixed.saturating_add(self.lag_max)
    }

    fn end_subscription(&mut self, filter: &Filter) {
        self.subscriptions = self.subscriptions.saturating_sub(1);
        self.filter_bytes = self.filter_bytes.saturating_sub(filter.weight());
    }

    /// What is full for one more subscription: the number, the limit and its key.
    fn full_for(&self, filter: &Filter, cx: &Cx) -> Option<(usize, usize, &'static str)> {
        let weight = filter.weight();
        let bounds = [
            (self.fixed, bytes_of(filter), cx.config.user_bytes, "user_bytes"),
            (self.subscriptions, 1, cx.config.user_subscriptions, "user_subscriptions"),
            (self.filter_bytes, weight, cx.config.user_filter_bytes, "user_filter_bytes"),
        ];
        let full = bounds.into_iter().find(|(used, more, max, _)| used + more > *max);
        full.map(|(used, _, max, key)| (used, max, key))
    }
}

impl Budgets {
    pub(super) fn attached(&mut self, cx: &Cx, uid: u32) {
        let is_bounded = !cx.config.unbounded_uids.contains(&uid);
        self.users.entry(uid).or_insert_with(|| {
            self.bounded += usize::from(is_bounded);
            User { is_bounded, ..User::default() }
        });
        self.change(uid, |user| {
            user.clients += 1;
            user.fixed += CLIENT_BYTES;
        });
    }

    /// Changes what counts of a user, and the total with it.
    fn change<T>(&mut self, uid: u32, change: impl FnOnce(&mut User) -> T) -> Option<T> {
        let user = self.users.get_mut(&uid)?;
        let before = user.held();
        let changed = change(user);
        if user.is_bounded {
            self.total = self.total.saturating_sub(before).saturating_add(user.held());
        }
        Some(changed)
    }

    pub(super) fn detached(&mut self, client: &Client) {
        let uid = client.uid;
        let filters = client.subscriptions.values().map(|found| bytes_of(&found.filter));
        let fixed = CLIENT_BYTES + filters.sum::<usize>();
        let left = self.change(uid, |user| {
            user.clients = user.clients.saturating_sub(1);
            user.fixed = user.fixed.saturating_sub(fixed);
            for found in client.subscriptions.values() {
                user.end_subscription(&found.filter);
            }
            user.lag_max = user.lag_max.saturating_sub(lag_of(client));
            if user.clients == 0 {
                (user.fixed, user.lag_max) = (0, 0);
            }
            user.clients
        });
        debug_assert!(left.is_some(), "UserIsCounted");
        if left == Some(0)
            && let Some(gone) = self.users.remove(&uid)
        {
            self.bounded = self.bounded.saturating_sub(usize::from(gone.is_bounded));
        }
    }

    pub(super) fn unsubscribed(&mut self, uid: u32, filter: &Filter) {
        self.change(uid, |user| {
            user.fixed = user.fixed.saturating_sub(bytes_of(filter));
            user.end_subscription(filter);
        });
    }

    /// More waits for a slow subscription; whether it has to be counted anew.
    pub(super) fn grew(&mut self, uid: u32, bytes: usize) -> bool {
        let grown = self.change(uid, |user| {
            user.lag_max = user.lag_max.saturating_add(bytes);
            user.lag_max > user.count_at
        });
        bytes > 0 && grown == Some(true)
    }

    /// Whether all users together may hold too much: it has to be counted anew.
    fn is_over(&self, cx: &Cx) -> bool {
        self.total > self.count_at.max(cx.config.users_bytes)
    }

    /// What each user may hold while all together hold too much.
    fn share(&self, cx: &Cx) -> usize {
        cx.config.users_bytes / self.bounded.max(1)
    }
}

impl Delivery {
    /// The budget of a user; `None`: the user has no bound of its own.
    fn budget_of(&self, cx: &Cx, uid: u32) -> Option<usize> {
        let is_bounded = self.budgets.users.get(&uid).is_some_and(|user| user.is_bounded);
        is_bounded.then_some(cx.config.user_bytes)
    }

    /// What is left of a user's budget for slow subscriptions.
    fn lag_room(&self, cx: &Cx, uid: u32) -> usize {
        let fixed = self.budgets.users.get(&uid).map_or(0, |user| user.fixed);
        self.budget_of(cx, uid).map_or(usize::MAX, |max| max.saturating_sub(fixed))
    }

    /// The same, without what may wait already.
    pub(super) fn lag_left(&self, cx: &Cx, uid: u32) -> usize {
        let used = self.budgets.users.get(&uid).map_or(0, |user| user.lag_max);
        self.lag_room(cx, uid).saturating_sub(used)
    }

    /// Counts a subscription, if the user's budget has room for it.
    ///
    /// # Errors
    /// What to tell the client.
    pub(super) fn count_subscription(
        &mut self,
        cx: &mut Cx,
        uid: u32,
        filter: &Filter,
    ) -> Result<(), String> {
        let (bytes, max) = (bytes_of(filter), self.budget_of(cx, uid));
        let total_max = cx.config.users_bytes;
        if self.budgets.total + bytes > total_max {
            // What was read since does not count.
            self.bounded_users().into_iter().for_each(|uid| self.recount(uid));
        }
        let (total, share) = (self.budgets.total, self.budgets.share(cx));
        let Some(user) = self.budgets.users.get(&uid) else {
            cx.impossible("UserIsCounted");
            return Ok(());
        };
        if let Some((used, max, key)) = max.and_then(|_| user.full_for(filter, cx)) {
            cx.counters.user_limited += 1;
            return Err(format!(
                "clients and subscriptions of user {uid} take {used} of {max} that a user may take \
                 of this agent (limits.{key}): end others"
            ));
        }
        if max.is_some() && total + bytes > total_max && user.held() + bytes > share {
            cx.counters.user_limited += 1;
            return Err(format!(
                "all users take {total} of {total_max} that they may take of this agent \
                 (limits.users_bytes), and user {uid} more than its share: end other subscriptions"
            ));
        }
        self.budgets.change(uid, |user| {
            user.fixed += bytes;
            user.subscriptions += 1;
            user.filter_bytes += filter.weight();
            // It leaves less room for what waits.
            user.count_at = user.count_at.min(max.map_or(usize::MAX, |max| max - user.fixed));
        });
        Ok(())
    }

    /// How many bytes of events one message to a client may have, and whether the events must not
    /// pin what they are a part of: where a user has many clients, all of them together may have a
    /// quarter of the budget on the way.
    pub(super) fn batch_bytes(&self, cx: &Cx, client: ClientId, bytes_max: usize) -> (usize, bool) {
        let Some(uid) = self.clients.get(&client).map(|client| client.uid) else {
            return (bytes_max, false);
        };
        let Some(max) = self.budget_of(cx, uid) else { return (bytes_max, false) };
        let max = max.min(self.budgets.share(cx));
        let clients = self.budgets.users.get(&uid).map_or(1, |user| user.clients.max(1));
        let share = max / 4 / (BATCHES_PER_CLIENT * clients);
        let is_small = share < bytes_max.min(BATCH_BYTES_TARGET);
        (if is_small { share.max(BATCH_BYTES_MIN) } else { bytes_max }, is_small)
    }

    /// More waits for subscriptions of a user than may: counts it, and sheds.
    pub(super) fn enforce_budget(&mut self, cx: &mut ReadCx<'_>, uid: u32) {
        // Each count looks at all subscriptions of the user: some must come before the next.
        let slack = cx.config.user_bytes / 16;
        let room = self.lag_room(cx, uid);
        let mut held = self.count_lag(uid);
        if held > room {
            // Somewhat more is shed than must be: the next event does not need the same again.
            while held > room - room / 8 {
                let Some(severity) = self.mildest_of(uid) else { break };
                if severity == Severity::Fatal && held <= room.saturating_add(room / 4) {
                    break;
                }
                self.shed_of(cx, uid, severity);
                held = self.count_lag(uid);
            }
        }
        self.budgets.change(uid, |user| {
            user.lag_max = held;
            user.count_at = room.max(held.saturating_add(slack));
        });
    }

    /// If more waits for all users together than may: counts it, and sheds what the user with the
    /// most has, in turn. Events that are FATAL go last, and only beyond a quarter more.
    pub(super) fn enforce_total(&mut self, cx: &mut ReadCx<'_>) {
        if !self.budgets.is_over(cx) {
            return;
        }
        self.bounded_users().into_iter().for_each(|uid| self.recount(uid));
        let (max, slack) = (cx.config.users_bytes, cx.config.users_bytes / 16);
        let fatal_max = max.saturating_add(max / 4);
        self.shed_until(cx, max, Severity::Error);
        self.shed_until(cx, fatal_max, Severity::Fatal);
        self.budgets.count_at = self.budgets.total.saturating_add(slack).min(fatal_max);
    }

    /// Sheds what is not more severe, if all users together hold more than `max`.
    fn shed_until(&mut self, cx: &mut ReadCx<'_>, max: usize, severest: Severity) {
        if self.budgets.total <= max {
            return;
        }
        let mut users = self.bounded_users();
        // Somewhat more is shed than must be: the next event does not need the same again.
        let until = max - cx.config.users_bytes / 16;
        while self.budgets.total > until {
            let held = |uid: &&u32| self.budgets.users.get(*uid).map_or(0, User::held);
            let Some(uid) = users.iter().max_by_key(held).copied() else { break };
            match self.mildest_of(uid).filter(|severity| *severity <= severest) {
                Some(severity) => {
                    self.shed_of(cx, uid, severity);
                    self.recount(uid);
                }
                None => drop(users.remove(&uid)),
            }
        }
    }

    fn bounded_users(&self) -> BTreeSet<u32> {
        let bounded = self.budgets.users.iter().filter(|(_, user)| user.is_bounded);
        bounded.map(|(uid, _)| *uid).collect()
    }

    fn recount(&mut self, uid: u32) {
        let held = self.count_lag(uid);
        self.budgets.change(uid, |user| user.lag_max = held);
    }

    /// Counts what waits for the subscriptions of all users anew.
    pub(super) fn count_budgets(&mut self, cx: &mut ReadCx<'_>) {
        let uids: Vec<u32> = self.budgets.users.keys().copied().collect();
        uids.into_iter().for_each(|uid| self.enforce_budget(cx, uid));
    }

    /// More waits for a subscription of a client.
    pub(super) fn subscription_grew(
        &mut self,
        cx: &mut ReadCx<'_>,
        client: ClientId,
        bytes: usize,
    ) {
        let Some(uid) = self.clients.get(&client).map(|client| client.uid) else {
            return cx.impossible("SubscriberIsAttached");
        };
        if self.budgets.grew(uid, bytes) {
            self.enforce_budget(cx, uid);
        }
        self.enforce_total(cx);
    }

    fn clients_of(&self, uid: u32) -> impl Iterator<Item = &Client> {
        self.clients.values().filter(move |client| client.uid == uid)
    }

    fn count_lag(&self, uid: u32) -> usize {
        self.clients_of(uid).map(lag_of).sum()
    }

    fn mildest_of(&self, uid: u32) -> Option<Severity> {
        let found = self.clients_of(uid).flat_map(|client| client.subscriptions.values());
        found.filter_map(|found| found.reader.mildest()).min()
    }

    fn shed_of(&mut self, cx: &mut ReadCx<'_>, uid: u32, severity: Severity) {
        let now_ns = cx.now.wall_ns;
        for (id, client) in self.clients.iter_mut().filter(|(_, client)| client.uid == uid) {
            for found in client.subscriptions.values_mut() {
                let before = found.reader.shed;
                found.reader.shed_all(severity, cx.log.epochs());
                cx.counters.shed += found.reader.shed - before;
                for run in found.reader.take_shed_traced() {
                    cx.trace.note_run(now_ns, &run, TraceStep::Shed, id.0);
                }
            }
        }
    }
}
