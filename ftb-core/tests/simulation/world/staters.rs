//! Programs that only state conditions: several about one subject, some that expire, and programs
//! that die. Their events are owed to no subscriber; the table must follow them.

use super::World;
use crate::clients::{Published, Violation, broken};
use crate::events::{AGENT_SPACE, Said, seal_stated};
use ftb_core::ConfirmLevel;
use ftb_core::condition::{CHASSIS_OFF, Condition, Provenance, Subject, Truth};
use ftb_core::ident::PublisherId;
use ftb_core::node::Node;
use ftb_core::node::api::{ClientId, Input};
use ftb_core::run::Run;
use ftb_core::sealed::{Head, Sealed};
use ftb_core::severity::Severity;
use std::collections::BTreeMap;

/// What only this program states, what all state about one subject, and what expires.
const KEYS: [&str; 3] = ["OWN", "SHARED", "BRIEF"];
/// When a brief statement becomes unknown, in milliseconds.
const BRIEF_MS: u32 = 2_000;
/// After that number of rounds all state that the shared condition holds.
const MIXED_ROUNDS: u32 = 30;

/// One program, in all its lives.
pub struct Stater {
    agent: usize,
    /// `None`: it is dead.
    client: Option<ClientId>,
    id: PublisherId,
    seq: u64,
    /// Its last statement by key, in this life.
    stated: BTreeMap<&'static str, Sealed>,
}

impl World {
    /// The programs state something; at first they begin.
    pub(super) fn state_conditions(&mut self) -> Result<(), Violation> {
        if self.staters.is_empty() {
            for agent in 0..self.agents.len() {
                let id = PublisherId { account: 1_000 + agent as u64, token: 0 };
                let (client, stated) = (None, BTreeMap::new());
                self.staters.push(Stater { agent, client, id, seq: 0, stated });
                self.begin_stater(agent)?;
            }
        }
        self.state_rounds += 1;
        for at in 0..self.staters.len() {
            self.state_next(at)?;
        }
        Ok(())
    }

    /// The program of an agent dies.
    pub(super) fn kill_stater(&mut self, agent: usize) -> Result<(), Violation> {
        let Some(client) = self.staters.get_mut(agent).and_then(|stater| stater.client.take())
        else {
            return Ok(());
        };
        self.feed(agent, Input::ClientDetached { client })
    }

    /// It begins another life, if it is dead.
    pub(super) fn begin_stater(&mut self, at: usize) -> Result<(), Violation> {
        let client = self.new_client();
        let Some(stater) = self.staters.get_mut(at).filter(|stater| stater.client.is_none()) else {
            return Ok(());
        };
        stater.client = Some(client);
        stater.id.token = client.0;
        (stater.seq, stater.stated) = (0, BTreeMap::new());
        self.attach_stater(at)
    }

    /// Its agent has started: the program attaches, and states everything again.
    pub(super) fn attach_stater(&mut self, at: usize) -> Result<(), Violation> {
        let Some(stater) = self.staters.get(at).filter(|stater| stater.client.is_some()) else {
            return Ok(());
        };
        let (agent, id) = (stater.agent, stater.id);
        if self.agents[agent].node.is_none() {
            return Ok(());
        }
        let stated: Vec<Sealed> = stater.stated.values().cloned().collect();
        let client = self.new_client();
        if self.setup.losses_allowed {
            self.books.restarted.insert(id);
        }
        self.staters[at].client = Some(client);
        self.feed(agent, Input::ClientAttached { client, info: super::life::info(id) })?;
        let stated: Vec<Sealed> = stated.iter().map(|s| self.owned_by(agent, s)).collect();
        match Run::collect(stated.iter().map(Sealed::as_ref)) {
            Some(events) => self.feed(agent, Input::Restate { client, events }),
            None => Ok(()),
        }
    }

    /// A program at an agent states what the BMC of a host says of its power.
    pub fn state_power(&mut self, agent: usize, host: &str, is_off: bool) -> Result<(), Violation> {
        let client = self.new_client();
        let id = PublisherId { account: 9_000, token: client.0 };
        self.feed(agent, Input::ClientAttached { client, info: super::life::info(id) })?;
        let truth = if is_off { Truth::True } else { Truth::False };
        let condition = Condition { host: host.to_owned(), ..Condition::new(CHASSIS_OFF, truth) };
        let provenance = Provenance::direct(self.agents[agent].origin);
        let (own, severity) = (format!("node{agent}"), Severity::Error);
        let (space, name) = ("ftb.ipmi", "FTB_IPMI_CHASSIS_OFF");
        let said = Said { severity, space, name, host: &own, payload: 20 };
        let sealed = seal_stated(id, 1, &said, Some((condition, provenance)));
        let published = Published::new(self.now_ns, sealed.clone());
        self.books.published.insert(sealed.id(), published);
        self.feed(
            agent,
            Input::Publish { client, events: Run::from(sealed), confirm: ConfirmLevel::Memory },
        )
    }

    fn state_next(&mut self, at: usize) -> Result<(), Violation> {
        let Some(stater) = self.staters.get_mut(at) else { return Ok(()) };
        let (agent, Some(client)) = (stater.agent, stater.client) else { return Ok(()) };
        if self.agents[agent].node.is_none() {
            return Ok(());
        }
        stater.seq += 1;
        let (seq, id) = (stater.seq, stater.id);
        let key = KEYS[(seq % 3) as usize];
        let truth = match key {
            "BRIEF" => Truth::True,
            "SHARED" if self.state_rounds > MIXED_ROUNDS => Truth::True,
            _ if (seq / 3 + at as u64).is_multiple_of(3) => Truth::False,
            _ => Truth::True,
        };
        let host = if key == "SHARED" { "shared".to_owned() } else { format!("node{agent}") };
        let expires_ms = if key == "BRIEF" { BRIEF_MS } else { 0 };
        let is_kept = self.setup.condition_rows.is_some() && key == "OWN";
        let condition = Condition { host, expires_ms, is_kept, ..Condition::new(key, truth) };
        let provenance = Provenance::direct(self.agents[agent].origin);
        let own = format!("node{agent}");
        let said = Said {
            severity: Severity::Error,
            space: AGENT_SPACE,
            name: "SAYS",
            host: &own,
            payload: 20,
        };
        let sealed = seal_stated(id, seq, &said, Some((condition, provenance)));
        let head = Head { time_ns: self.now(agent).wall_ns, ..*sealed.head() };
        let sealed = Sealed::new(head, sealed.bytes().clone()).unwrap();
        self.staters[at].stated.insert(key, sealed.clone());
        let published = Published::new(self.now_ns, sealed.clone());
        self.books.published.insert(sealed.id(), published);
        self.feed(
            agent,
            Input::Publish { client, events: Run::from(sealed), confirm: ConfirmLevel::Memory },
        )
    }

    /// *NeverFalselyClear* and *ConditionsConverge* for these programs, when all is at rest.
    pub(super) fn check_staters(&self, root: usize, node: &Node) -> Result<(), Violation> {
        let table = node.conditions();
        let found =
            |host: &str, key: &str| table.get(&Subject::new(host, "", key)).map(|row| row.truth);
        for stater in &self.staters {
            let host = format!("node{}", stater.agent);
            let brief = found(&host, "BRIEF");
            if brief == Some(Truth::False) {
                return broken("NeverFalselyClear", format!("root {root}: {host} BRIEF is clear"));
            }
            let (own, last) = (found(&host, "OWN"), last_of(stater, "OWN"));
            // After a merge a former statement may stand until the next repetition, or be unknown:
            // never is it falsely clear.
            let is_right = match (stater.client, last) {
                (None, _) => matches!(own, None | Some(Truth::Unknown)),
                (Some(_), Some(Truth::True)) => matches!(own, Some(Truth::True | Truth::Unknown)),
                (Some(_), _) => true,
            };
            if !is_right {
                let what = format!(
                    "{host} has stated {last:?} (alive: {}), root {root} says {own:?}",
                    stater.client.is_some()
                );
                return broken("ConditionsConverge", what);
            }
        }
        let alive = || self.staters.iter().filter(|stater| stater.client.is_some());
        let mut lasts = alive().map(|stater| last_of(stater, "SHARED")).peekable();
        let all_hold = lasts.peek().is_some() && lasts.all(|last| last == Some(Truth::True));
        match found("shared", "SHARED") {
            None | Some(Truth::False) if all_hold => {
                broken("NeverFalselyClear", format!("root {root}: SHARED is clear, all state it"))
            }
            _ => Ok(()),
        }
    }
}

fn last_of(stater: &Stater, key: &str) -> Option<Truth> {
    Some(stater.stated.get(key)?.as_ref().condition()?.head().truth)
}
