#![allow(clippy::unwrap_used)]

use super::*;

fn rule(subject: &str, truth: Truth) -> Rule {
    Rule {
        pattern: Pattern::parse(subject).unwrap(),
        event: "FTB_FACILITY_POWER".parse().unwrap(),
        severity: Severity::Error,
        key: Some("FACILITY_POWER".parse().unwrap()),
        truth,
        action: RecommendedAction::Migrate,
    }
}

fn import() -> Import {
    let rules = vec![
        rule("dc.{rack}.power.{component}.lost", Truth::True),
        rule("dc.{rack}.power.{component}.back", Truth::False),
        rule("dc.*.{rack}.>", Truth::True),
    ];
    let hosts = vec!["node01".to_owned(), "node02".to_owned()];
    Import::new(rules, BTreeMap::from([("r07".to_owned(), hosts)]))
}

fn alarm<'a>(subject: &'a str, payload: &'a str) -> Alarm<'a> {
    Alarm { id: "FACILITY.1.7", subject, payload: payload.as_bytes(), time_ns: 1_500_000_000 }
}

fn events(subject: &str, payload: &str) -> Vec<Event> {
    match import().handle(0, alarm(subject, payload)) {
        Verdict::Publish(events) => events,
        Verdict::Terminate { log } => panic!("{log:?}"),
    }
}

#[test]
fn an_alarm_is_an_event_and_a_kept_condition_for_each_host_of_the_rack() {
    let found = events("dc.r07.power.B.lost", "feed B is off");
    let hosts: Vec<_> = found.iter().map(|event| event.tag("node").unwrap()).collect();
    assert_eq!(hosts, ["node01", "node02"]);
    let event = &found[1];
    assert_eq!((event.space.as_str(), &event.payload[..]), (SPACE, &b"feed B is off"[..]));
    let condition = event.condition.as_ref().unwrap();
    assert_eq!((condition.host.as_str(), condition.component.as_str()), ("node02", "B"));
    assert!(condition.is_kept && condition.truth == Truth::True);
    assert_eq!((event.tag("rack"), event.tag(ALARM)), (Some("r07"), Some("FACILITY.1.7")));
    assert_eq!(event.tag("alarm_time"), Some("1970-01-01T00:00:01.500Z"), "of the stream");
    assert_eq!(condition.onset_ns, 1_500_000_000, "the same when it is stated again");
    let back = events("dc.r07.power.B.back", "");
    let ended = back[0].condition.as_ref().unwrap();
    assert_eq!((ended.truth, ended.onset_ns), (Truth::False, 0));
    assert_eq!(events("dc.hall.r07.a.b", "").len(), 2, "the rest of a subject");
}

#[test]
fn the_alarms_own_time_is_kept() {
    let time = "2026-11-28T12:00:00Z";
    let event = events("dc.r07.power.A.lost", &format!("{{\"time\": {time:?}, \"w\": 3}}"));
    assert_eq!(event[0].tag("alarm_time"), Some(time));
    let event = events("dc.r07.power.A.lost", "{\"time\": \"at noon\"}");
    assert_eq!(event[0].tag("alarm_time"), Some("1970-01-01T00:00:01.500Z"));
}

#[test]
fn a_large_alarm_is_cut_between_characters() {
    let event = events("dc.r07.power.A.lost", &"\u{20ac}".repeat(1_000));
    assert_eq!(event[0].payload.len(), 1_023);
}

#[test]
fn unreadable_alarms_are_counted_and_logged_rarely() {
    let mut import = import();
    let bad = ["dc.r08.power.A.lost", "dc.r07", "dc.r07.power.A.B.lost.", "x.r07.power.A.lost"];
    let long = format!("dc.r07.power.{}.lost", "A".repeat(limits::COMPONENT_BYTES_MAX + 1));
    let control = "dc.r07.power.A\u{7}.lost";
    let mut lines = Vec::new();
    for (at, subject) in bad.into_iter().chain([&long[..], control]).enumerate() {
        match import.handle(at as u64, alarm(subject, "")) {
            Verdict::Terminate { log } => lines.extend(log),
            Verdict::Publish(events) => panic!("{subject}: {events:?}"),
        }
    }
    assert_eq!(lines, ["1 alarms are unreadable; dc.r08.power.A.lost: there is no rack \"r08\""]);
    let binary = Alarm { payload: b"\xff", ..alarm("dc.r07.power.A.lost", "") };
    let Verdict::Terminate { log } = import.handle(LOG_EVERY_MS, binary) else { panic!() };
    assert!(log.unwrap().starts_with("6 alarms are unreadable; dc.r07.power.A.lost: "));
    assert_eq!(import.counts.unreadable, 7);
    // Of a time that fits into no tag, the alarm is readable.
    let time = format!("2026-11-28T12:00:00.{}Z", "0".repeat(limits::TAG_VALUE_BYTES_MAX));
    let event = events("dc.r07.power.A.lost", &format!("{{\"time\": {time:?}}}"));
    assert_eq!(event[0].tag("alarm_time"), Some("1970-01-01T00:00:01.500Z"));
}

#[test]
fn what_alarms_have_set_and_the_table_has_lost_is_stated_again() {
    // Behind `>` is an alarm that is not imported.
    let lost = |subjects: &[&str], known: &[(&str, &str)]| {
        let alarms = subjects.iter().map(|subject| match subject.strip_prefix('>') {
            Some(subject) => (alarm(subject, ""), false),
            None => (alarm(subject, ""), true),
        });
        let known = known.iter().map(|(host, feed)| Subject::new(host, feed, "FACILITY_POWER"));
        let events = import().lost(alarms, &known.collect());
        let subject = |event: &Event| {
            let condition = event.condition.as_ref().unwrap();
            assert_eq!((condition.truth, event.tag(ALARM)), (Truth::True, Some("FACILITY.1.7")));
            format!("{} {}", condition.host, condition.component)
        };
        events.iter().map(subject).collect::<Vec<_>>()
    };
    let (a, b) = ("dc.r07.power.A.lost", "dc.r07.power.B.lost");
    assert_eq!(lost(&[a, b], &[]), ["node01 A", "node01 B", "node02 A", "node02 B"]);
    // The table has it, or a person has cleared it there.
    assert_eq!(lost(&[a], &[("node01", "A")]), ["node02 A"]);
    // An alarm and its end have two subjects: the later one counts.
    assert_eq!(lost(&[a, "dc.r07.power.A.back"], &[]), [""; 0]);
    assert_eq!(lost(&["dc.r07.power.A.back", a], &[]), ["node01 A", "node02 A"]);
    // Its end waits to be imported. An alarm that waits is stated when it is.
    assert_eq!(lost(&[a, ">dc.r07.power.A.back"], &[]), [""; 0]);
    assert_eq!(lost(&[">dc.r07.power.A.lost", b], &[]), ["node01 B", "node02 B"]);
    assert_eq!(lost(&["dc.r99.power.A.lost", "other"], &[]), [""; 0], "no rule can read them");
}

#[test]
fn a_wrong_subject_of_a_rule_is_rejected() {
    for (subject, why) in [
        ("dc.leak", "must have {rack} once"),
        ("dc.{rack}.{rack}", "must have {rack} once"),
        ("dc.{rack}..x", "has an empty token"),
        ("dc.>.{rack}", "has > before its end"),
        ("dc.{rack}.a*", "has the token \"a*\": wildcards and names stand alone"),
        ("{rack}.{component}.{component}", "has {component} more than once"),
    ] {
        assert_eq!(Pattern::parse(subject), Err(why.to_owned()), "{subject}");
    }
}

#[test]
fn a_failure_that_lasts_is_logged_ever_more_rarely_and_a_refused_alarm_is_given_up() {
    let mut retries = Retries::default();
    let lines = (0..1_000).filter(|_| retries.on_failure("denied")).count();
    assert_eq!((lines, retries.pause()), (10, Duration::from_secs(16)));
    assert!(retries.on_failure("no stream"), "another problem has its line");
    assert_eq!(retries.pause(), Duration::from_secs(1));
    let refusals = |retries: &mut Retries, id: &str, count: u32| {
        (0..count).filter(|_| retries.on_refused(id)).count()
    };
    assert_eq!(refusals(&mut retries, "F.1.7", REFUSALS_MAX - 1), 0);
    assert_eq!(refusals(&mut retries, "F.1.8", REFUSALS_MAX - 1), 0, "each alarm for itself");
    assert!(retries.on_refused("F.1.8"));
    retries.on_success();
    assert_eq!(refusals(&mut retries, "F.1.8", 1), 0);
}
