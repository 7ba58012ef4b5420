//! `ftbctl top`: the cluster, live.
//!
//! [`model`] is the state machine, [`view`] makes lines of it; [`source`] asks the agent,
//! [`terminal`] has keys and screen.

mod model;
mod source;
mod terminal;
mod view;

use crate::cli::Top;
use crate::common::Common;
use crate::events;
use crate::failure::Failure;
use crate::output::Output;
use core::time::Duration;
use ftb_client::now_ns;
use model::{Model, News};
use serde_json::json;
use source::Sources;
use std::io::IsTerminal as _;
use terminal::{Screen, Typed};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use view::Clock;

/// News that wait to be shown. When it is full, the subscriptions wait.
const NEWS_MAX: usize = 1_024;
/// Shortest time between two frames.
const FRAME: Duration = Duration::from_millis(50);
/// Frames after which the ages are drawn again without news.
const AGES: u32 = 20;

/// Shows the cluster.
pub(crate) async fn run(common: &Common, args: Top, output: Output) -> Result<(), Failure> {
    events::check(&args.filter)?;
    if args.once {
        return once(common, &args, output).await;
    }
    if output.is_json() {
        return Err(Failure::usage("--json needs --once"));
    }
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !is_terminal {
        return Err(Failure::usage("this is no terminal: --once prints one frame"));
    }
    let utc = output.utc;
    // It locks standard output, which a panic of another thread needs to give the screen back.
    drop(output);
    let sources = Sources::open(common, &args.filter).await?;
    let (sender, news) = mpsc::channel(NEWS_MAX);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut screen = Screen::take()?;
    tokio::select! {
        done = show(&mut screen, Model::new(&args.filter), news, utc) => done,
        () = sources.follow(common.clone(), args.interval, sender) => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

/// Draws news and obeys keys until the user leaves.
async fn show(
    screen: &mut Screen,
    mut model: Model,
    mut news: mpsc::Receiver<News>,
    utc: bool,
) -> Result<(), Failure> {
    let mut keys = terminal::keys();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_changed, mut idle) = (true, 0);
    loop {
        tokio::select! {
            typed = keys.recv() => match typed {
                Some(Typed::Key(key)) if model.on_key(key) => return Ok(()),
                Some(Typed::Closed) | None => return Ok(()),
                Some(Typed::Key(_) | Typed::Resized) => is_changed = true,
            },
            Some(first) = news.recv() => {
                model.on_news(now_ns(), first);
                is_changed = true;
            }
            _ = frames.tick() => {
                idle += 1;
                if is_changed || idle >= AGES {
                    model.refresh();
                    let clock = Clock { now_ns: now_ns(), utc };
                    screen.terminal().draw(|frame| view::draw(frame, &model, clock))?;
                    (is_changed, idle) = (false, 0);
                }
            }
        }
    }
}

/// Prints one frame.
async fn once(common: &Common, args: &Top, mut output: Output) -> Result<(), Failure> {
    let sources = Sources::open(common, &args.filter).await?;
    let mut model = Model::new(&args.filter);
    for (at_ns, news) in sources.once(common, args.interval).await? {
        model.on_news(at_ns, news);
    }
    model.refresh();
    if output.is_json() {
        output.json(&object(&model))?;
    } else {
        let clock = Clock { now_ns: now_ns(), utc: output.utc };
        output.raw(view::text(&model, clock).as_bytes())?;
    }
    output.flush()
}

/// The frame as JSON, without events (`ftbctl events --json` has them).
fn object(model: &Model) -> serde_json::Value {
    let agents = model.agents.clone().unwrap_or_default();
    let states = agents.states.iter().map(|(state, (count, hosts))| {
        let word = ftb_client::json::state_word(*state);
        json!({ "state": word, "count": count, "hosts": hosts })
    });
    let conditions = model.groups().into_iter().map(|group| {
        json!({
            "severity": group.severity.as_str(),
            "unknown": group.is_unknown,
            "key": group.key,
            "component": group.component,
            "count": group.hosts.len(),
            "hosts": group.folded,
            "onset_ns": group.onset_ns,
        })
    });
    json!({
        "type": "top",
        "root": agents.root,
        "standby": agents.standby,
        "complete": agents.is_complete,
        "agents": states.collect::<Vec<_>>(),
        "events_per_s": model.rate(),
        "conditions": conditions.collect::<Vec<_>>(),
    })
}
