//! What happened, when: the events of the run as lines for people, and the phases between them.

use ftb_client::Received;
use std::fmt;
use std::time::Duration;

/// One line of the timeline.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    /// Unix nanoseconds on this machine's clock.
    pub(crate) at_ns: u64,
    /// The program and its host.
    pub(crate) who: String,
    /// What, in a few words.
    pub(crate) what: String,
}

/// The lines in order, and the moments that phases are measured between.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    moments: Vec<Moment>,
    marks: Marks,
    /// The events that are in it, in short.
    reported: Vec<String>,
}

/// When each step was over, Unix nanoseconds; the last one where every rank takes a step.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    fan_stopped: Option<u64>,
    fan_failed: Option<u64>,
    migrate: Option<u64>,
    suspended: Option<u64>,
    phase_one: Option<u64>,
    copied: Option<u64>,
    phase_two: Option<u64>,
    restarted: Option<u64>,
    resumed: Option<u64>,
}

/// A part of the way from the failed fan to the running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    /// What is done in it.
    pub(crate) name: &'static str,
    /// How long it took; `None` where its end was not seen.
    pub(crate) took: Option<Duration>,
    /// Whether it is bound by the BMC's poll interval or by bytes of images: not our own doing.
    pub(crate) outside: bool,
}

impl Timeline {
    /// A process outside the backplane did something.
    pub(crate) fn note(&mut self, at_ns: u64, who: &str, what: impl Into<String>) {
        self.moments.push(Moment { at_ns, who: who.to_owned(), what: what.into() });
    }

    /// The demonstration has stopped the fan.
    pub(crate) fn fan_stopped(&mut self, at_ns: u64, node: &str) {
        self.marks.fan_stopped = Some(at_ns);
        self.note(at_ns, &format!("BMC of {node}"), "CPU 1 FAN stands still");
    }

    /// An event of the backplane.
    pub(crate) fn event(&mut self, received: &Received) {
        let event = &received.event;
        let at = event.time_ns;
        let payload = String::from_utf8_lossy(&event.payload).into_owned();
        let reported = format!("{} {} {payload}", event.name, received.host);
        if self.reported.contains(&reported) {
            // Requests and answers of the launcher are repeated on purpose; once is enough here.
            return;
        }
        let marks = &mut self.marks;
        let migrating = marks.migrate.is_some();
        let what = match event.name.as_str() {
            "FTB_IPMI_FANFAIL" => {
                marks.fan_failed.get_or_insert(at);
                format!("a fan of {payload} has failed")
            }
            "FTB_MIGRATE" => {
                marks.migrate.get_or_insert(at);
                format!("move everything away from {payload}")
            }
            "FTB_MPI_SUSPENDED" if migrating => {
                marks.suspended = Some(at);
                format!("rank {payload} is silent")
            }
            "FTB_MIGRATE_PIC" => {
                marks.phase_one.get_or_insert(at);
                format!("phase I complete: the ranks of {payload} are saved and gone")
            }
            "FTB_NLA_COPIED" => {
                marks.copied.get_or_insert(at);
                format!("images copied ({} bytes)", event.tag("bytes").unwrap_or("?"))
            }
            "FTB_MIGRATE_IPT" => {
                marks.phase_two.get_or_insert(at);
                format!("phase II: start them there: {payload}")
            }
            "FTB_NLA_RESTARTED" => {
                marks.restarted.get_or_insert(at);
                format!("ranks {payload} start from their images")
            }
            "FTB_MPI_RESUMED" if migrating => {
                marks.resumed = Some(at);
                format!("rank {payload} computes again")
            }
            "FTB_NLA_STATE" => payload,
            "FTB_JL_EPISODE" => payload,
            _ => return,
        };
        self.reported.push(reported);
        let source = match event.client_name.as_str() {
            "" => received.host.clone(),
            client => format!("{client} on {}", received.host),
        };
        self.note(at, &source, format!("{:<18} {what}", event.name.as_str()));
    }

    /// The way from the failed fan to the running job, step by step.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        let m = &self.marks;
        let phase = |name, from: Option<u64>, to: Option<u64>, outside| Phase {
            name,
            took: from.zip(to).map(|(from, to)| Duration::from_nanos(to.saturating_sub(from))),
            outside,
        };
        vec![
            phase("BMC poll: the fan is seen failing", m.fan_stopped, m.fan_failed, true),
            phase("the launcher decides", m.fan_failed, m.migrate, false),
            phase("every rank is silent", m.migrate, m.suspended, false),
            phase("images written, ranks gone", m.suspended, m.phase_one, true),
            phase("images copied and verified", m.phase_one, m.copied, true),
            phase("phase II is reported", m.copied, m.phase_two, false),
            phase("ranks started on the spare", m.phase_two, m.restarted, false),
            phase("barrier, all compute", m.restarted, m.resumed, false),
        ]
    }

    /// Whether the whole way was seen.
    pub(crate) fn complete(&self) -> bool {
        self.phases().iter().all(|phase| phase.took.is_some())
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut moments = self.moments.clone();
        moments.sort_by_key(|moment| moment.at_ns);
        let zero = self.marks.fan_stopped.or(moments.first().map(|first| first.at_ns));
        let zero = zero.unwrap_or_default();
        for Moment { at_ns, who, what } in &moments {
            // Nanoseconds of a demonstration are far from the bounds of i64.
            let ms = (*at_ns as i128 - zero as i128) as f64 / 1e6;
            writeln!(f, "  {ms:>+10.1} ms  {who:<22} {what}")?;
        }
        Ok(())
    }
}

/// The phases as a table, with what our own code took in all.
pub(crate) fn table(phases: &[Phase]) -> String {
    let mut text = String::new();
    let mut own = Duration::ZERO;
    for phase in phases {
        let took = phase.took.map_or("not seen".to_owned(), ms);
        let mark = if phase.outside { "  (BMC poll interval or image bytes)" } else { "" };
        text += &format!("  {:<36} {took:>10}{mark}\n", phase.name);
        if !phase.outside {
            own += phase.took.unwrap_or_default();
        }
    }
    text + &format!("  {:<36} {:>10}\n", "all but BMC poll and images", ms(own))
}

fn ms(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1e3)
}
