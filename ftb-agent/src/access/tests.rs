#![allow(clippy::unwrap_used)]
use super::*;
use ftb_core::Position;
use ftb_core::node::api::GapReason;

const ROOT: Credentials = Credentials { uid: 0, gid: 0, pid: 1 };
const AGENT: Credentials = Credentials { uid: 500, gid: 500, pid: 1 };
const ANN: Credentials = Credentials { uid: 1000, gid: 100, pid: 1 };
const BEN: Credentials = Credentials { uid: 1001, gid: 200, pid: 1 };
const CAT: Credentials = Credentials { uid: 1002, gid: 200, pid: 1 };

/// `{space = "..", ...}`
fn rule(text: &str) -> AccessRule {
    let table: toml::Table = text.parse().unwrap();
    table.try_into().unwrap()
}

fn access(rules: &[&str]) -> Arc<Access> {
    let rules: Vec<AccessRule> = rules.iter().map(|text| rule(text)).collect();
    check(&rules).unwrap();
    Arc::new(Access::new(&rules, AGENT.uid))
}

fn may_publish(allowed: &Allowed, space: &str) -> bool {
    allowed.permission(space.as_bytes()).rights != Rights::None
}

fn reading(allowed: &Allowed, space: &str) -> ReadRight {
    allowed.reading(space.as_bytes())
}

#[test]
fn without_rules_hardware_faults_come_from_root_and_the_agents_user_only() {
    let access = access(&[]);
    for (who, hardware) in [(ROOT, true), (AGENT, true), (ANN, false)] {
        let allowed = access.of(who);
        assert_eq!(may_publish(&allowed, "ftb.ipmi"), hardware);
        assert_eq!(may_publish(&allowed, "FTB.IB.hca"), hardware);
        assert_eq!(may_publish(&allowed, "ftb.drill"), hardware);
        assert_eq!(may_publish(&allowed, "ftb.silence"), hardware);
        assert!(may_publish(&allowed, "ftb.job.drill"), "of an own job");
        assert!(may_publish(&allowed, "ftb.jl"));
        assert!(may_publish(&allowed, "ftb.ibx"), "a longer part is another space");
        assert!(!may_publish(&allowed, "ftb.agent"), "not even root forges a verdict");
        assert!(!may_publish(&allowed, "ftb.agent.x"));
        assert_eq!(reading(&allowed, "ftb.agent"), ReadRight::All);
        assert_eq!(access.is_publisher(who), hardware);
    }
}

#[test]
fn without_rules_a_user_reads_its_own_events_of_jobs_and_root_reads_all() {
    let access = access(&[]);
    for space in ["ftb.jl", "ftb.nla", "FTB.MPI.mvapich2", "ftb.job"] {
        for (who, expected) in [
            (ROOT, ReadRight::All),
            (AGENT, ReadRight::All),
            (ANN, ReadRight::Own),
            (BEN, ReadRight::Own),
        ] {
            assert_eq!(reading(&access.of(who), space), expected, "{who:?} in {space}");
        }
        let ann = access.of(ANN);
        assert!(ann.may_read(space.as_bytes(), ANN.uid));
        assert!(!ann.may_read(space.as_bytes(), BEN.uid) && !ann.may_read(space.as_bytes(), 0));
    }
    assert!(access.of(ANN).may_read(b"site.x", BEN.uid) && !access.of(ANN).reads_all());
    assert!(access.of(ROOT).reads_all());
}

#[test]
fn without_rules_fatal_is_for_root_and_the_agents_user() {
    let access = access(&[]);
    for space in ["site.x", "ftb.jl", "ftb.mpi", "ftb.ftb_examples.x"] {
        for (who, max) in
            [(ROOT, Severity::Fatal), (AGENT, Severity::Fatal), (ANN, Severity::Error)]
        {
            assert_eq!(access.of(who).permission(space.as_bytes()).severity_max, max, "{space}");
        }
    }
}

#[test]
fn a_rule_says_the_highest_severity_and_who_is_named_publishes_any() {
    let access = self::access(&[
        "space = \"ftb.mpi\"\nseverity_max = \"fatal\"",
        "space = \"site.noise\"\nseverity_max = \"info\"",
        "space = \"site.disk\"\npublish = [\"uid:1000\"]",
    ]);
    let max = |space: &str| access.of(ANN).permission(space.as_bytes()).severity_max;
    assert_eq!(max("ftb.mpi.x"), Severity::Fatal);
    assert_eq!(max("site.noise"), Severity::Info);
    assert_eq!(max("site.disk"), Severity::Fatal);
    assert_eq!(access.of(ROOT).permission(b"site.noise").severity_max, Severity::Fatal);
    assert_eq!(reading(&access.of(ANN), "ftb.mpi"), ReadRight::Own, "as the built-in rule");
    assert!(access.is_publisher(ANN) && !access.is_publisher(BEN));
}

#[test]
fn the_longest_space_decides_and_configured_rules_replace_built_in_ones() {
    let access = access(&[
        "space = \"ftb.ipmi\"\npublish = [\"gid:100\"]",
        "space = \"site.*\"\npublish = \"uid:1000\"\nsubscribe = \"uid:1000\"",
        "space = \"site.public\"\npublish = \"everyone\"\nsubscribe = \"everyone\"",
        "space = \"site.own\"\nsubscribe = [\"own\", \"uid:1001\"]",
        "space = \"ftb.ib.hca\"",
    ]);
    let (ann, ben) = (access.of(ANN), access.of(BEN));
    assert!(may_publish(&ann, "ftb.ipmi") && !may_publish(&ben, "ftb.ipmi"));
    assert!(!may_publish(&access.of(ROOT), "ftb.ipmi"), "replaced, not added to");
    assert!(!may_publish(&ann, "ftb.ib.hca") && may_publish(&access.of(ROOT), "ftb.ib.hca"));
    assert!(may_publish(&ann, "site.x") && !may_publish(&ben, "site.x"));
    assert_eq!(reading(&ben, "site.x"), ReadRight::None);
    assert_eq!(reading(&ben, "site.public.y"), ReadRight::All);
    assert_eq!(
        (reading(&ann, "site.own"), reading(&ben, "site.own")),
        (ReadRight::Own, ReadRight::All)
    );
}

#[test]
fn only_root_and_publishers_of_protected_spaces_state_conditions() {
    let access = access(&["space = \"site.*\"\npublish = [\"uid:1000\"]"]);
    for (who, space, rights) in [
        (ROOT, "ftb.ipmi", Rights::StateAnyHost),
        (ROOT, "ftb.app", Rights::StateOwnHost),
        (AGENT, "ftb.app", Rights::StateOwnHost),
        (ANN, "ftb.app", Rights::Publish),
        (ANN, "ftb.ipmi", Rights::None),
        (ANN, "site.disk", Rights::StateOwnHost),
        (AGENT, "ftb.ipmi", Rights::StateAnyHost),
        (ROOT, "ftb.agent", Rights::None),
    ] {
        let found = access.of(who).permission(space.as_bytes()).rights;
        assert_eq!(found, rights, "{who:?} in {space}");
    }
}

#[test]
fn each_publishers_account_publishes_in_its_own_space_only() {
    let account = |name: &str| match name {
        "ftb-ipmi" => Some(Who::Uid(ANN.uid)),
        "ftb-ib" => Some(Who::Uid(BEN.uid)),
        "ftb-bridge" | "slurm" => Some(Who::Uid(CAT.uid)),
        _ => None,
    };
    let access = Arc::new(Access::with_accounts(&[], AGENT.uid, account));
    for (who, space, rights) in [
        (ANN, "ftb.ipmi", Rights::StateAnyHost),
        (ANN, "ftb.ib", Rights::None),
        (BEN, "ftb.ib", Rights::StateOwnHost),
        (BEN, "ftb.ipmi", Rights::None),
        (BEN, "ftb.facility", Rights::None),
        (CAT, "ftb.facility", Rights::StateAnyHost),
        (CAT, "ftb.ipmi", Rights::None),
        (ANN, "ftb.slurm", Rights::None),
        (CAT, "ftb.slurm", Rights::StateAnyHost),
        (ANN, "site", Rights::Publish),
        (ANN, "ftb.agent", Rights::None),
    ] {
        let permission = access.of(who).permission(space.as_bytes());
        assert_eq!(permission.rights, rights, "{who:?} in {space}");
        let has_faults = matches!(rights, Rights::StateOwnHost | Rights::StateAnyHost);
        assert!(!has_faults || permission.severity_max == Severity::Fatal, "{space}");
    }
    assert!(access.is_publisher(ANN) && access.is_publisher(BEN), "places are kept for them");
}

#[test]
fn spaces_in_which_ordinary_users_may_not_publish_are_protected() {
    let names = |access: Arc<Access>| {
        access.protected().iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    let built_in =
        ["ftb.ipmi", "ftb.ib", "ftb.facility", "ftb.act", "ftb.slurm", "ftb.drill", "ftb.silence"];
    assert_eq!(names(access(&[])), [&["ftb.agent"], &built_in[..]].concat());
    let open = access(&[
        "space = 'site.*'\npublish = 'root'",
        "space = 'site.open'\npublish = 'everyone'",
    ]);
    for (space, is_protected) in
        [("site.x", true), ("Site.Open.y", false), ("ftb.agent.x", true), ("ftb.app", false)]
    {
        assert_eq!(open.is_protected(space.as_bytes()), is_protected, "{space}");
    }
    let site = [
        "space = \"site.*\"\npublish = [\"root\"]",
        "space = \"ftb.ib\"\npublish = [\"everyone\"]",
    ];
    let without_ib =
        ["ftb.ipmi", "ftb.facility", "ftb.act", "ftb.slurm", "ftb.drill", "ftb.silence"];
    assert_eq!(names(access(&site)), [&["ftb.agent", "site"], &without_ib[..]].concat());
}

#[test]
fn a_gap_names_no_space_that_its_reader_may_not_read() {
    let access = access(&["space = \"secret\"\nsubscribe = [\"root\"]"]);
    let gap = |names: &[&str]| Gap {
        after: Position::ZERO,
        until: Position::ZERO,
        reason: GapReason::Shed,
        count: Some(7),
        severity_max: Some(Severity::Error),
        spaces: Spaces::named(names.iter().copied()).unwrap(),
    };
    let (ann, root) = (access.of(ANN), access.of(ROOT));
    let public = gap(&["site.x"]);
    assert_eq!(ann.readable_gap(public.clone()), Some(public));
    assert_eq!(ann.readable_gap(gap(&["secret.plan"])), None);
    assert_eq!(root.readable_gap(gap(&["secret.plan"])), Some(gap(&["secret.plan"])));
    let part = Gap { count: None, severity_max: None, ..gap(&["site.x"]) };
    assert_eq!(ann.readable_gap(gap(&["secret.plan", "site.x"])), Some(part));
    assert_eq!(ann.readable_gap(gap(&["ftb.mpi.bens_code"])), Some(gap(&["ftb.mpi"])));
}

#[test]
fn a_mistaken_rule_is_rejected() {
    let error = |text: &str| Who::try_from(text.to_owned()).unwrap_err();
    assert!(error("no-such-user-here").contains("no user"));
    assert!(error("uid:x").contains("no number"));
    assert!(error("role:x").contains("expected everyone"));
    assert_eq!(Who::try_from("root".to_owned()), Ok(Who::Uid(0)));
    let own = rule("space = \"site\"\npublish = \"own\"");
    assert!(check(&[own]).unwrap_err().contains("is for subscribe"));
}

#[test]
fn changed_rules_reach_a_client_that_is_attached() {
    let mut allowed = access(&[]).of(ANN);
    assert!(may_publish(&allowed, "site"));
    allowed.refresh(&access(&["space = \"*\"\npublish = [\"root\"]"]));
    assert!(!may_publish(&allowed, "site"));
}
