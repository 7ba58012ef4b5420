//! `ftbctl silence`: maintenance, in which ftb-act and ftb-slurm leave some hosts alone.

use crate::cli::{SilenceAdd, SilenceCommand};
use crate::common::{Common, conditions_of};
use crate::failure::Failure;
use crate::output::{FAINT, Output, STRONG, styled};
use crate::text;
use core::time::Duration;
use ftb_client::silences::{self, FILTER, SILENCES_MAX};
use ftb_client::{Client, ConditionState, Event, Silence, now_ns};
use serde::Serialize;
use tokio::time::Instant;

/// How long the end of a silence may take to be visible after it was confirmed.
const END_WAIT: Duration = Duration::from_secs(1);
/// Pause between two looks for it.
const END_LOOK: Duration = Duration::from_millis(20);

/// The silences of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Silences(Vec<Silence>);

impl Silences {
    /// Reads them.
    pub(crate) async fn read(common: &Common, client: &Client) -> Result<Self, Failure> {
        let deadline = Instant::now() + common.timeout();
        let table = conditions_of(common, client, FILTER, deadline).await?;
        Ok(Self(table.states().filter_map(Silence::of).collect()))
    }

    /// The active silence that covers a condition.
    pub(crate) fn of(&self, state: &ConditionState) -> Option<&Silence> {
        let now_ns = now_ns();
        self.0.iter().find(|silence| silence.is_active(now_ns) && silence.covers(&state.subject))
    }

    /// The active silences of a host.
    pub(crate) fn of_host<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Silence> {
        let now_ns = now_ns();
        self.0
            .iter()
            .filter(move |silence| silence.is_active(now_ns) && silence.hosts.contains(host))
    }

    /// Those that hold, and those that are to begin.
    fn standing(&self) -> impl Iterator<Item = &Silence> {
        let now_ns = now_ns();
        self.0.iter().filter(move |silence| !silence.has_ended(now_ns))
    }

    fn over(&self) -> impl Iterator<Item = &Silence> {
        let now_ns = now_ns();
        self.0.iter().filter(move |silence| silence.has_ended(now_ns))
    }
}

/// Adds, lists or removes silences.
pub(crate) async fn run(
    common: &Common,
    command: SilenceCommand,
    mut output: Output,
) -> Result<(), Failure> {
    let client = common.client().build().map_err(Failure::failed)?;
    match command {
        SilenceCommand::Add(args) => add(common, &client, &args, &mut output).await?,
        SilenceCommand::List => list(common, &client, &mut output).await?,
        SilenceCommand::Remove { id } => remove(common, &client, &id).await?,
    }
    output.flush()?;
    // Nothing is unconfirmed: this only detaches.
    client.close(common.timeout()).await?;
    Ok(())
}

async fn add(
    common: &Common,
    client: &Client,
    args: &SilenceAdd,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random).map_err(Failure::failed)?;
    let id = format!("{:08x}", u32::from_be_bytes(random));
    let now_ns = now_ns();
    let times = (now_ns, args.lasts);
    let silence = Silence::new(id, &args.hosts, args.key.as_deref(), times, &args.reason);
    let silence = match args.from {
        Some(from) => silence.and_then(|s| s.beginning(now_ns, from.ahead_ns(output.utc))),
        None => silence,
    };
    let silence = silence.map_err(Failure::usage)?;
    let known = Silences::read(common, client).await?;
    if known.standing().count() >= SILENCES_MAX {
        return Err(Failure::failed(format_args!(
            "there are {SILENCES_MAX} silences: remove some first (ftbctl silence list)"
        )));
    }
    publish(common, client, silences::begin(&silence)).await?;
    // Those that are over leave the table with the next one. It is no failure if they stay.
    for over in known.over() {
        if publish(common, client, silences::end(over)).await.is_err() {
            break;
        }
    }
    match output.is_json() {
        true => output.json(&SilenceObject::from(&silence)),
        false => output.line(&silence.id),
    }
}

async fn list(common: &Common, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let known = Silences::read(common, client).await?;
    let mut standing = known.standing().peekable();
    if standing.peek().is_none() && !output.is_json() {
        output.line("no silences")?;
    }
    for silence in standing {
        if output.is_json() {
            output.json(&SilenceObject::from(silence))?;
            continue;
        }
        let until = styled(FAINT, &span_of(silence, output.utc));
        let hosts = styled(STRONG, &text::printable(&silence.list));
        let key = silence.key.as_deref().unwrap_or("all conditions");
        let (id, reason) = (text::printable(&silence.id), text::printable(&silence.reason));
        let by = format!("by uid {} on {}", silence.uid, text::printable(&silence.host));
        output.line(&format!("{id}  {hosts}  {key}  {until}  {by}  {reason}"))?;
    }
    Ok(())
}

/// `until TIME`, or `from TIME until TIME` if it begins later.
fn span_of(silence: &Silence, utc: bool) -> String {
    let until = format!("until {}", text::time(silence.until_ns, utc));
    match silence.from_ns {
        0 => until,
        from_ns => format!("from {} {until}", text::time(from_ns, utc)),
    }
}

async fn remove(common: &Common, client: &Client, id: &str) -> Result<(), Failure> {
    let known = Silences::read(common, client).await?;
    let Some(silence) = known.standing().find(|silence| silence.id == id) else {
        let id = text::printable(id);
        return Err(Failure::failed(format_args!(
            "there is no silence {id} (ftbctl silence list)"
        )));
    };
    publish(common, client, silences::end(silence)).await?;
    if client.agent().is_some_and(|agent| agent.host == silence.host) {
        return Ok(());
    }
    // An agent whose `monitors` do not name this host drops what it states about the other one.
    let deadline = Instant::now() + END_WAIT;
    while Silences::read(common, client).await?.standing().any(|other| other.id == id) {
        if Instant::now() >= deadline {
            let host = text::printable(&silence.host);
            return Err(Failure::failed(format_args!(
                "the silence still holds: remove it on {host}, where it was added, or name this \
                 host in `monitors` of the agents"
            )));
        }
        tokio::time::sleep(END_LOOK).await;
    }
    Ok(())
}

/// Publishes an event and waits until it is confirmed.
async fn publish(
    common: &Common,
    client: &Client,
    event: Result<Event, ftb_client::NameError>,
) -> Result<(), Failure> {
    let receipt = client.publish(event.map_err(Failure::failed)?)?;
    let confirmed = tokio::time::timeout(common.timeout(), receipt.confirmed()).await;
    let waited = text::exact(common.timeout());
    confirmed.map_err(|_| {
        Failure::no_answer(format_args!(
            "the silence was sent but not confirmed within {waited}: it may still be delivered"
        ))
    })??;
    Ok(())
}

#[derive(Serialize)]
struct SilenceObject<'a> {
    r#type: &'static str,
    id: &'a str,
    hosts: &'a str,
    key: Option<&'a str>,
    /// 0: when it was added.
    from_ns: u64,
    until_ns: u64,
    reason: &'a str,
    publisher_host: Option<&'a str>,
    publisher_uid: Option<u32>,
}

impl<'a> From<&'a Silence> for SilenceObject<'a> {
    fn from(silence: &'a Silence) -> Self {
        let is_known = !silence.host.is_empty();
        Self {
            r#type: "silence",
            id: &silence.id,
            hosts: &silence.list,
            key: silence.key.as_deref(),
            from_ns: silence.from_ns,
            until_ns: silence.until_ns,
            reason: &silence.reason,
            publisher_host: is_known.then_some(&silence.host),
            publisher_uid: is_known.then_some(silence.uid),
        }
    }
}
