//! Warns before a certificate or a revocation list of this agent ends.
//!
//! A state machine without I/O and clock. It announces `FTB_CERTIFICATE_EXPIRES` 30, 7 and 1 days
//! before, which the pairs of conditions turn into a condition of this host, and
//! `FTB_CERTIFICATE_RENEWED` after a reload with files that end later. Not responsible for: reading
//! files.

use ftb_core::catalog::names;
use ftb_core::node::api::Announcement;
use ftb_core::{Now, Severity};
use ftb_transport::tls::validity::Validity;

const DAY_NS: u64 = 86_400 * 1_000_000_000;
/// The wall clock may jump: the time is compared at least this often.
const CHECK_NS: u64 = 3600 * 1_000_000_000;

/// How near the end of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Far,
    Month,
    Week,
    Day,
    Over,
}

impl Stage {
    /// All but the first, with the time before the end at which they begin, in days.
    const BEGINNINGS: [(Self, u64); 4] =
        [(Self::Month, 30), (Self::Week, 7), (Self::Day, 1), (Self::Over, 0)];

    fn of(until_ns: u64, now_ns: u64) -> Self {
        let begun = |days: u64| until_ns.saturating_sub(days * DAY_NS) <= now_ns;
        let begun = Self::BEGINNINGS.into_iter().rev().find(|(_, days)| begun(*days));
        begun.map_or(Self::Far, |(stage, _)| stage)
    }

    fn severity(self) -> Severity {
        if self >= Self::Day { Severity::Error } else { Severity::Warning }
    }
}

/// The files of this agent, and what was announced about them.
#[derive(Debug, Default)]
pub struct Expiry {
    host: String,
    files: Vec<(Validity, Stage)>,
    is_stated: bool,
    next_ns: Option<u64>,
}

impl Expiry {
    /// Of an agent on this host, without files.
    pub fn new(host: &str) -> Self {
        Self { host: host.to_owned(), ..Self::default() }
    }

    /// Takes the files of a start or a reload.
    pub fn on_files(&mut self, now: Now, files: Vec<Validity>) -> Option<Announcement> {
        let staged = |file: Validity| {
            let stage = Stage::of(ns(&file), now.wall_ns);
            (file, stage)
        };
        let before = std::mem::replace(&mut self.files, files.into_iter().map(staged).collect());
        self.arm(now);
        let is_near = self.files.iter().any(|(_, stage)| *stage != Stage::Far);
        if std::mem::replace(&mut self.is_stated, is_near) && !is_near {
            return Some(self.announcement(
                names::FTB_CERTIFICATE_RENEWED,
                Severity::Info,
                Vec::new(),
                "certificates and revocation lists do not end soon any more".to_owned(),
            ));
        }
        (is_near && before != self.files).then(|| self.warning(now))
    }

    /// Compares the time with the ends of the files.
    pub fn on_time(&mut self, now: Now) -> Option<Announcement> {
        self.arm(now);
        let mut is_nearer = false;
        for (file, stage) in &mut self.files {
            let reached = Stage::of(ns(file), now.wall_ns);
            // A clock that was set back withdraws nothing.
            is_nearer |= reached > *stage;
            *stage = reached.max(*stage);
        }
        self.is_stated |= is_nearer;
        is_nearer.then(|| self.warning(now))
    }

    /// When the first of the files ends, in Unix nanoseconds.
    pub fn first_end_ns(&self) -> Option<u64> {
        self.files.iter().map(|(file, _)| ns(file)).min()
    }

    /// When [`Self::on_time`] is due, on the monotonic clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.next_ns
    }

    fn arm(&mut self, now: Now) {
        let beginnings = |file: &Validity| {
            let until_ns = ns(file);
            Stage::BEGINNINGS.map(|(_, days)| until_ns.saturating_sub(days * DAY_NS))
        };
        let all = self.files.iter().flat_map(|(file, _)| beginnings(file));
        let next_ns = all.filter(|begin_ns| *begin_ns > now.wall_ns).min();
        self.next_ns = next_ns
            .map(|begin_ns| now.mono_ns.saturating_add(CHECK_NS.min(begin_ns - now.wall_ns)));
    }

    fn warning(&self, now: Now) -> Announcement {
        let near = || self.files.iter().filter(|(_, stage)| *stage != Stage::Far);
        let stage = near().map(|(_, stage)| *stage).max().unwrap_or(Stage::Far);
        let ends = near().map(|(file, _)| format!("{} {}", file.file, ends(file, now)));
        let text = ends.collect::<Vec<String>>().join("; ");
        let first = near().min_by_key(|(file, _)| file.until);
        let tags = first.map_or_else(Vec::new, |(file, _)| {
            let days = ns(file).saturating_sub(now.wall_ns) / DAY_NS;
            let until = file.until.as_secs().to_string();
            vec![("file", file.file.clone()), ("until", until), ("days", days.to_string())]
        });
        self.announcement(names::FTB_CERTIFICATE_EXPIRES, stage.severity(), tags, text)
    }

    fn announcement(
        &self,
        name: &'static str,
        severity: Severity,
        tags: Vec<(&'static str, String)>,
        payload: String,
    ) -> Announcement {
        let tags = [("host", self.host.clone())].into_iter().chain(tags).collect();
        Announcement { name, severity, tags, payload, condition: None, about: None }
    }
}

fn ns(file: &Validity) -> u64 {
    u64::try_from(file.until.as_nanos()).unwrap_or(u64::MAX)
}

fn ends(file: &Validity, now: Now) -> String {
    let left_ns = ns(file).saturating_sub(now.wall_ns);
    match left_ns / DAY_NS {
        0 if left_ns == 0 => "has ended".to_owned(),
        0 => "ends within a day".to_owned(),
        1 => "ends in 1 day".to_owned(),
        days => format!("ends in {days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const START_NS: u64 = 20_000 * DAY_NS;

    /// A clock that was never set: the monotonic one begins at 5 s.
    fn at(after_ns: u64) -> Now {
        Now { mono_ns: 5_000_000_000 + after_ns, wall_ns: START_NS + after_ns }
    }

    fn ends_after(file: &str, days: u64) -> Validity {
        Validity { file: file.to_owned(), until: Duration::from_nanos(START_NS + days * DAY_NS) }
    }

    /// Days and severities of what is announced until the machine sleeps for good.
    fn run(expiry: &mut Expiry) -> Vec<(u64, Severity, String)> {
        let (mut announced, mut steps) = (Vec::new(), 0);
        while let Some(deadline_ns) = expiry.deadline_ns() {
            let now = at(deadline_ns - 5_000_000_000);
            if let Some(Announcement { severity, payload, .. }) = expiry.on_time(now) {
                announced.push(((now.wall_ns - START_NS) / DAY_NS, severity, payload));
            }
            steps += 1;
            assert!(steps < 100_000, "it never sleeps");
        }
        announced
    }

    #[test]
    fn each_file_is_announced_30_7_and_1_days_before_its_end_and_at_its_end() {
        let mut expiry = Expiry::new("node01");
        assert_eq!(expiry.on_files(at(0), vec![ends_after("agent.pem", 825)]), None);
        let announced = run(&mut expiry);
        let days: Vec<_> = announced.iter().map(|(day, severity, _)| (*day, *severity)).collect();
        let (warning, error) = (Severity::Warning, Severity::Error);
        assert_eq!(days, [(795, warning), (818, warning), (824, error), (825, error)]);
        let texts: Vec<&str> = announced.iter().map(|(_, _, text)| &**text).collect();
        assert_eq!(texts[0], "agent.pem ends in 30 days");
        assert_eq!(texts[2..], ["agent.pem ends in 1 day", "agent.pem has ended"]);
    }

    #[test]
    fn a_start_with_a_file_that_ends_soon_is_announced_at_once_and_a_reload_clears_it() {
        let mut expiry = Expiry::new("node01");
        let files = vec![ends_after("agent.pem", 20), ends_after("ca.pem", 3000)];
        let first = expiry.on_files(at(0), files.clone()).expect("announced at once");
        assert_eq!((first.name, first.severity), ("FTB_CERTIFICATE_EXPIRES", Severity::Warning));
        assert_eq!(first.payload, "agent.pem ends in 20 days");
        let tag = |key| first.tags.iter().find(|(k, _)| *k == key).map(|(_, value)| &**value);
        assert_eq!(
            (tag("host"), tag("days"), tag("file")),
            (Some("node01"), Some("20"), Some("agent.pem"))
        );
        assert_eq!(expiry.on_files(at(1), files), None, "a reload of the same files");
        let renewed = vec![ends_after("agent.pem", 825), ends_after("ca.pem", 3000)];
        let cleared = expiry.on_files(at(DAY_NS), renewed.clone()).expect("cleared");
        assert_eq!(cleared.name, "FTB_CERTIFICATE_RENEWED");
        assert_eq!(expiry.on_files(at(2 * DAY_NS), renewed), None);
    }

    #[test]
    fn the_worst_file_decides_and_one_event_names_all() {
        let mut expiry = Expiry::new("node01");
        let files =
            vec![ends_after("agent.pem", 29), ends_after("ca.pem", 1), ends_after("crl.pem", 500)];
        let first = expiry.on_files(at(1), files).expect("announced");
        assert_eq!(first.severity, Severity::Error);
        assert_eq!(first.payload, "agent.pem ends in 28 days; ca.pem ends within a day");
        let left = vec![ends_after("agent.pem", 29)];
        let milder = expiry.on_files(at(2), left).expect("the condition is another one");
        assert_eq!(milder.severity, Severity::Warning);
        assert_eq!(
            expiry.on_files(at(3), Vec::new()).map(|a| a.name),
            Some("FTB_CERTIFICATE_RENEWED")
        );
        assert_eq!(expiry.deadline_ns(), None, "without certificates there is nothing to do");
    }

    #[test]
    fn a_clock_that_is_set_on_is_noticed_within_an_hour_and_one_that_is_set_back_clears_nothing() {
        let mut expiry = Expiry::new("node01");
        assert_eq!(expiry.on_files(at(0), vec![ends_after("agent.pem", 400)]), None);
        assert_eq!(expiry.deadline_ns(), Some(at(CHECK_NS).mono_ns));
        let jumped = Now { wall_ns: START_NS + 395 * DAY_NS, ..at(CHECK_NS) };
        let first = expiry.on_time(jumped).expect("the new time counts");
        assert_eq!(first.payload, "agent.pem ends in 5 days");
        assert_eq!(expiry.on_time(at(2 * CHECK_NS)), None);
        assert_eq!(expiry.on_time(Now { wall_ns: jumped.wall_ns, ..at(3 * CHECK_NS) }), None);
    }
}
