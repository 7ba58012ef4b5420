#![allow(clippy::unwrap_used)]
use super::set::FILTERS_MAX;
use super::*;
use crate::ident::{EventId, PublisherId};
use crate::sealed::{GroupHead, Head, Sealed, Span};
use bytes::Bytes;

fn event(space: &str, name: &str, severity: Severity, host: &str, job: &str) -> Sealed {
    event_of(0, space, name, severity, host, job)
}

fn event_of(
    uid: u32,
    space: &str,
    name: &str,
    severity: Severity,
    host: &str,
    job: &str,
) -> Sealed {
    let mut bytes = Vec::new();
    let mut span = |text: &str| {
        let start = u32::try_from(bytes.len()).unwrap();
        bytes.extend_from_slice(text.as_bytes());
        Span { start, len: u32::try_from(text.len()).unwrap() }
    };
    let id = EventId { publisher: PublisherId { account: 1, token: 2 }, seq: 3.into() };
    let (space, name, host, job_id) = (span(space), span(name), span(host), span(job));
    let head = Head {
        id,
        severity,
        uid,
        pid: 1,
        republished: false,
        covers: 0,
        is_traced: false,
        time_ns: 0,
        space,
        name,
        host,
        job_id,
        client_name: Span::default(),
        condition: None,
        is_member: false,
        group: None,
        is_counted: false,
    };
    Sealed::new(head, Bytes::from(bytes)).unwrap()
}

fn filter(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|error| panic!("{}", error.pointed(text)))
}

#[test]
fn all_conditions_must_hold() {
    let fan = event("ftb.ipmi", "FTB_IPMI_FANFAIL", Severity::Error, "node007", "42");
    for wanted in [
        "",
        "event_space=ftb.ipmi.*, severity>=error, hostname=node[001-032]",
        "event_space=FTB.IPMI",
        "event_space=ftb.*",
        "event_space=*",
        "event_space=ftb.all",
        "event_space=all.ipmi",
        "severity=ERROR",
        "severity=error|fatal",
        "severity>info , severity<fatal",
        "severity!=info",
        "event_name=ftb_ipmi_*",
        "event_name=X|FTB_IPMI_FANFAIL, jobid=42",
        "host_name=node*",
        "client_name=all",
    ] {
        assert!(filter(wanted).matches(&fan), "{wanted}");
    }
    for unwanted in [
        "event_space=ftb",
        "event_space=ftb.ipmi.bmc",
        "event_space=ftb.ib.*|ftb.jl",
        "severity<error",
        "severity=fatal",
        "hostname=node[008-032]",
        "jobid=4",
        "client_name=x",
        "event_name=FANFAIL",
    ] {
        assert!(!filter(unwanted).matches(&fan), "{unwanted}");
    }
}

#[test]
fn a_trailing_star_wants_the_space_itself_and_below() {
    let matches =
        |text: &str, space| filter(text).matches(&event(space, "X", Severity::Info, "", ""));
    assert!(matches("event_space=ftb.*", "ftb"));
    assert!(matches("event_space=ftb.*", "ftb.a.b.c"));
    assert!(matches("event_space=ftb.*.c", "ftb.b.c"));
    assert!(!matches("event_space=ftb.*.c", "ftb.c"));
    assert!(matches("event_space=ftb.mv*.c", "ftb.mvapich2.c"));
    assert!(!matches("event_space=ftb.*", "ftbx"));
}

#[test]
fn errors_point_at_the_column() {
    for (text, column, word) in [
        ("severity>=loud", 11, "unknown severity"),
        ("sev=error", 1, "unknown key"),
        ("severity", 1, "no '='"),
        ("severity=", 10, "missing"),
        ("severity=info,,jobid=1", 15, "between the commas"),
        ("event_space=ftb..x", 13, "empty part"),
        ("event_space=ftb.i b", 18, "event space"),
        ("hostname=node[3-1]", 15, "backwards"),
        ("jobid=1, jobid=2", 10, "twice"),
        ("jobid>1", 6, "severities only"),
        ("severity>fatal", 10, "no severity"),
        ("hostname=a,b", 12, "no '='"),
        ("event_name=a||b", 14, "alternative"),
        ("uid=root", 5, "number of a user"),
        ("uid=1|-2", 7, "number of a user"),
        ("uid>=1", 4, "severities only"),
    ] {
        let error = Filter::parse(text).unwrap_err();
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.reason.contains(word), "{text}: {error}");
    }
    assert!(Filter::parse(&"x".repeat(5000)).unwrap_err().reason.contains("at most"));
}

#[test]
fn the_canonical_text_reads_back_as_the_same_filter() {
    for text in [
        "",
        "event_space=ftb.ipmi.*, severity>=error, hostname=node[001-032]",
        "severity!=warning, event_name=a*|b, jobid=7, client_name=x",
        "event_space=all.b.c, hostname=a*|b",
        "jobid=7, uid=1000|0, client_name=x",
    ] {
        let parsed = filter(text);
        assert_eq!(filter(&parsed.to_string()), parsed, "{text}");
    }
}

#[test]
fn covering_is_never_claimed_where_it_does_not_hold() {
    let texts = [
        "",
        "severity>=error",
        "severity=error",
        "event_space=ftb.*",
        "event_space=ftb.ipmi",
        "event_space=*.ipmi",
        "event_space=ftb.ip*",
        "event_space=ftb.ipmi, severity=fatal",
        "event_name=FTB_*",
        "event_name=FTB_IPMI_*|X",
        "event_name=FTB_IPMI_FANFAIL",
        "hostname=node[1-3]",
        "hostname=node2",
        "hostname=node*",
        "jobid=1",
    ];
    let mut events = Vec::new();
    for space in ["ftb", "ftb.ipmi", "ftb.ib", "x.ipmi", "ftb.ipmi.deep"] {
        for name in ["FTB_IPMI_FANFAIL", "FTB_X", "X"] {
            for severity in Severity::ALL {
                for host in ["node1", "node2", "node9", "login"] {
                    events.push(event(space, name, severity, host, "1"));
                }
            }
        }
    }
    let mut claimed = 0;
    for a in texts {
        for b in texts {
            let (wide, narrow) = (filter(a), filter(b));
            if wide.covers(&narrow) {
                claimed += 1;
                for event in &events {
                    assert!(wide.matches(event) || !narrow.matches(event), "{a:?} covers {b:?}");
                }
            }
        }
    }
    assert!(claimed > 2 * texts.len(), "covering is hardly ever seen: {claimed}");
    assert!(filter("event_space=ftb.*").covers(&filter("event_space=ftb.ip*.x, severity=info")));
    assert!(filter("hostname=node*").covers(&filter("hostname=node[1-9]")));
}

#[test]
fn a_set_keeps_only_what_is_not_covered() {
    let mut set = FilterSet::new();
    assert!(set.insert(&filter("severity=error")));
    assert!(set.insert(&filter("event_space=ftb.ib")));
    assert!(!set.insert(&filter("severity=error, event_space=x")));
    assert!(set.insert(&filter("severity>=error")));
    assert_eq!(set.filters().len(), 2);
    assert!(set.insert(&Filter::everything()));
    assert_eq!(set.filters(), [Filter::everything()]);
}

#[test]
fn a_set_that_grows_too_large_wants_more_never_less() {
    let jobs: Vec<Filter> =
        (0..1000).map(|job| filter(&format!("event_space=ftb.mpi, jobid={job}"))).collect();
    let set = FilterSet::merge(&jobs);
    assert_eq!(set.filters(), [filter("event_space=ftb.mpi")]);
    let spaces: Vec<Filter> = (0..1000).map(|n| filter(&format!("event_space=s{n}"))).collect();
    let set = FilterSet::merge(&spaces);
    assert!(set.filters().len() <= FILTERS_MAX);
    assert!(spaces.iter().all(|filter| set.covers(filter)));
}

#[test]
fn the_hosts_of_a_filter_take_no_more_memory_than_their_ranges() {
    let long = "a".repeat(240);
    let wide = filter(&format!("hostname={long}[000001-262144]"));
    assert!(wide.weight() < 2048, "{} bytes", wide.weight());
    let covered = filter(&format!("hostname={long}[000007-262143]"));
    assert!(wide.covers(&covered) && !covered.covers(&wide));
    assert!(filter("hostname=aa*").covers(&wide) && !filter("hostname=b*").covers(&wide));
}

#[test]
fn a_filter_beyond_its_bounds_in_memory_or_in_text_is_refused() {
    let error = Filter::parse("severity=info, hostname=n[1-100000]5").unwrap_err();
    assert_eq!(error.column, 25);
    assert!(error.reason.contains("name fewer ranges"), "{error}");
    // An agent tells its parent the canonical text.
    let error = Filter::parse("hostname=n[1-1500]5").unwrap_err();
    assert!(error.reason.contains("when written out: at most 4096"), "{error}");
    let numbers: Vec<String> = (100..1100).step_by(2).map(|n| n.to_string()).collect();
    let long = filter(&format!("hostname=n[{}]", numbers.join(",")));
    assert!(long.weight() <= crate::limits::FILTER_WEIGHT_MAX, "{} bytes", long.weight());
    assert_eq!(filter(&long.to_string()), long);
}

#[test]
fn a_filter_wants_the_folds_of_groups_or_their_single_events() {
    let plain = event("ftb.ib", "FTB_IB_PORT_ERR", Severity::Error, "node007", "");
    let with = |is_member, group| {
        let head = Head { is_member, group, ..*plain.head() };
        let mut bytes = plain.bytes().to_vec();
        bytes.extend_from_slice(b"node[001-032]");
        Sealed::new(head, Bytes::from(bytes)).unwrap()
    };
    let hosts = Span { start: u32::try_from(plain.len()).unwrap(), len: 13 };
    let group = Some(GroupHead { count: 32, hosts, members: Span::default() });
    let (member, fold) = (with(true, None), with(false, group));
    for (text, of) in [
        ("", [true, false, true]),
        ("folds=yes", [true, false, true]),
        ("folds=no", [true, true, false]),
        ("hostname=node[020-040]", [false, false, true]),
        ("hostname=node03*", [false, false, true]),
        ("hostname=node033", [false, false, false]),
        ("hostname=node007, folds=no", [true, true, false]),
        ("subject=node007", [false, false, false]),
    ] {
        let filter = filter(text);
        assert_eq!([&plain, &member, &fold].map(|event| filter.matches(event)), of, "{text}");
        assert_eq!(Filter::parse(&filter.to_string()), Ok(filter));
    }
    let (folds, single) = (filter(""), filter("folds=no"));
    assert!(!folds.covers(&single) && !single.covers(&folds));
    assert!(single.covers(&filter("condition=HEAT")) && !folds.covers(&filter("condition=HEAT")));
    assert!(Filter::parse("folds=maybe").is_err());
    let many: Vec<Filter> = (0..100).map(|at| filter(&format!("event_space=a.b{at}"))).collect();
    let set = FilterSet::merge(many.iter().chain([&single]));
    assert!(set.covers(&folds) && set.covers(&single) && set.filters().len() == 2);
}

#[test]
fn a_filter_may_name_the_users_whose_events_it_wants() {
    let of = |uid| event_of(uid, "ftb.jl", "X", Severity::Info, "node1", "42");
    let (one, two) = (filter("jobid=42, uid=1000"), filter("jobid=42, uid=1001|1000|1001"));
    assert!(one.matches(&of(1000)) && !one.matches(&of(0)) && !one.matches(&of(1001)));
    assert!(two.matches(&of(1000)) && two.matches(&of(1001)));
    assert_eq!(two.to_string(), "jobid=42, uid=1000|1001");
    assert!(two.covers(&one) && !one.covers(&two));
    let all = filter("jobid=42");
    assert!(all.covers(&one) && !one.covers(&all));
    assert_eq!(one.of_users(None), all);
    assert_eq!(all.of_users(one.uids()), one);
    assert!(two.weight() > one.weight());
}
