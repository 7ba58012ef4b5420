//! What the agent is compiled for: the loads that it is put under while an instrumented one counts which
//! of its code runs how often (`deploy/dev/profiled-agent.sh`).
//!
//! An agent is mostly at rest, and the event of a fault mostly comes alone: it finds the agent's code cold,
//! and what costs time then is how many lines of it lie on its way and how often that way jumps. A compiler
//! that knows the way lays it out in a row and puts everything else aside. So single events come first here; what
//! comes in bulk is run for as long as it needs to count as no less than the way.
//!
//! Responsible for: those loads, each of which must deliver everything in order. Not responsible for: building
//! the agent, nor for what is made of the counts.

use crate::case::Row;
use crate::load::{Load, Mode};
use crate::run::{Effort, run_to_the_end};
use crate::server::System;
use crate::server::agents::Layout;
use anyhow::{Context as _, Result};

/// Bytes of an event.
const EVENT_BYTES: usize = 200;
/// Before each load, in milliseconds.
const WARM_UP_MS: u64 = 100;

/// One load on one layout, for so many milliseconds.
struct Lesson(Layout, Load, u64);

/// Puts agents under all the loads, one after the other, and ends each in order.
///
/// # Errors
/// A load cannot be run, an event is lost, or an agent does not end in order.
pub(crate) fn train() -> Result<()> {
    let lessons = lessons();
    for (place, Lesson(layout, load, measure_ms)) in lessons.iter().enumerate() {
        let row = Row::new(format!("{:?}", load.mode), System::Ftb(*layout), load.clone());
        let name = layout.name().replace("**", "");
        println!("{}/{}: {name}, {}", place + 1, lessons.len(), row.label);
        let effort =
            Effort { warm_up_ms: WARM_UP_MS, measure_ms: *measure_ms, repetitions: Some(1) };
        run_to_the_end(&row, effort).with_context(|| format!("{name}, {}", row.label))?;
    }
    Ok(())
}

fn lessons() -> Vec<Lesson> {
    let (one, chain) = (Layout::ONE, Layout::chain(3));
    let load = |mode| Load::new(mode, EVENT_BYTES);
    let (rare, often, full) = (Mode::Paced(1_000), Mode::Paced(10_000), Mode::Full);
    vec![
        Lesson(one, load(rare), 2_500),
        Lesson(one, load(often), 1_500),
        Lesson(one, load(Mode::Paced(100_000)), 700),
        Lesson(one, load(Mode::PingPong), 1_500),
        Lesson(chain, load(rare), 1_000),
        Lesson(chain.tls(), load(rare), 1_000),
        Lesson(chain.tls(), load(Mode::PingPong), 700),
        Lesson(one.journal(), load(rare), 700),
        Lesson(one.journal(), load(Mode::Acknowledged), 100),
        Lesson(one, load(full), 150),
        Lesson(one, load(full).typed(), 100),
        Lesson(one, load(full).publishers(8), 100),
        Lesson(one, load(full).subscribers(16), 100),
        Lesson(one, load(full).bystanders(8, 1_000), 100),
        Lesson(one, Load::new(full, 4_096), 100),
        Lesson(chain, load(full), 150),
        Lesson(chain.tls(), load(full), 150),
    ]
}
