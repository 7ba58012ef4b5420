//! Rules that every backend keeps.

#![allow(clippy::unwrap_used)]

use super::*;
use core::net::Ipv4Addr;

const COMMAND: &str = r#"
    [backend.command]
    pre = ["hook", "pre", "{rank}"]
    checkpoint = ["hook", "save", "{pid}", "{image}/state-{rank}-of-{size}"]
    resume = ["hook", "resume"]
    verify = ["hook", "verify", "{image}"]
    restart = ["hook", "restart", "{set}", "{job}", "{node}"]
    deadline = "5s"
"#;

fn all() -> Vec<Choice> {
    vec![Choice::App, Choice::parse(COMMAND).unwrap(), Choice::Criu(Criu::default())]
}

fn with_unit<T>(run: impl FnOnce(&Unit<'_>) -> T) -> T {
    let (job, node) = (JobId::new("job").unwrap(), NodeName::new("node01").unwrap());
    let set = SetId::new("set-000007").unwrap();
    let pod = PodPlace { pause: 71, link: "ftb0", bridge: "br0", pipes: (81, 82), holder: None };
    let image = Path::new("/images/set-000007/rank-3.img");
    run(&Unit {
        job: &job,
        node: &node,
        set: &set,
        size: 4,
        rank: 3,
        pid: 61,
        image,
        here: image,
        pod: Some(pod),
    })
}

const MOMENTS: [Moment; 8] = [
    Moment::Precopy,
    Moment::Prepare,
    Moment::Save { leave: false },
    Moment::Save { leave: true },
    Moment::Release,
    Moment::Verify,
    Moment::Unpack,
    Moment::Restore,
];

#[test]
fn the_sample_has_the_defaults_of_criu_and_every_hook() {
    let sample = include_str!("../../../../deploy/config/backend.toml");
    assert_eq!(Choice::parse(sample).unwrap(), Choice::Criu(Criu::default()));
    let all = ftb_tests::samples::with_all_keys(sample);
    let (criu, hooks) = all.split_once("[backend.command]").unwrap();
    let criu = Choice::parse(criu).unwrap();
    assert!(criu.pods().is_some() && criu != Choice::Criu(Criu::default()), "{criu:?}");
    let hooks = Choice::parse(&format!("[backend.command]{hooks}")).unwrap();
    assert!(matches!(hooks, Choice::Command(_)), "{hooks:?}");
}

#[test]
fn every_backend_keeps_the_rules_of_a_backend() {
    for choice in all() {
        let backend = choice.get();
        let agent = backend.manner().saver == Saver::Agent;
        let needs: Vec<String> =
            backend.needs().iter().map(|need| need.program.display().to_string()).collect();
        with_unit(|unit| {
            for moment in MOMENTS {
                let steps = backend.steps(moment, unit);
                assert!(agent || steps.is_empty(), "ranks that save themselves need no steps");
                for step in &steps {
                    let known = |word: &&String| needs.contains(word) || *word == "sh";
                    let (what, name) = (&step.argv, backend.name());
                    assert!(
                        step.argv.first().as_ref().is_some_and(known),
                        "{name}: {what:?} not asked for"
                    );
                    assert!(!step.deadline.is_zero() && !step.name.is_empty());
                    assert!(!step.argv.iter().any(|word| word.is_empty()), "{what:?}");
                }
            }
            let writes = |moment| {
                let steps = backend.steps(moment, unit);
                let image = unit.image.display().to_string();
                steps.iter().any(|step| step.argv.iter().any(|word| word.contains(&image)))
            };
            assert_eq!(writes(Moment::Save { leave: false }), agent, "{}", backend.name());
            // What is prepared can be undone.
            let prepares = !backend.steps(Moment::Prepare, unit).is_empty();
            assert!(!prepares || !backend.steps(Moment::Release, unit).is_empty());
            // Ranks that move alone are restored by commands, others by their command line.
            let restores = !backend.steps(Moment::Restore, unit).is_empty();
            assert_eq!(restores, backend.manner().moves == Moves::Alone);
            assert!(!restores || backend.restart(unit).is_none());
        });
        let text = serde_json::to_string(&choice).unwrap();
        assert_eq!(
            serde_json::from_str::<Choice>(&text).unwrap(),
            choice,
            "it survives the way to the nodes"
        );
    }
}

#[test]
fn hooks_get_the_facts() {
    with_unit(|unit| {
        let choice = Choice::parse(COMMAND).unwrap();
        let step = &choice.get().steps(Moment::Save { leave: false }, unit)[0];
        let wanted = ["hook", "save", "61", "/images/set-000007/rank-3.img/state-3-of-4"];
        assert_eq!(step.argv, wanted);
        assert_eq!(step.deadline, Duration::from_secs(5));
        let restart = choice.get().restart(unit).unwrap();
        assert_eq!(restart, ["hook", "restart", "set-000007", "job", "node01"]);
    });
}

#[test]
fn criu_keeps_what_goes_on_and_takes_what_leaves() {
    with_unit(|unit| {
        let criu = Criu::default();
        let has = |moment, word: &str| {
            criu.steps(moment, unit).iter().any(|step| step.argv.iter().any(|w| w == word))
        };
        assert!(has(Moment::Save { leave: false }, "--leave-running"));
        assert!(!has(Moment::Save { leave: true }, "--leave-running"));
        assert!(has(Moment::Restore, "fd[5]:pipe:[81]") && has(Moment::Restore, "fd[6]:pipe:[82]"));
        // A running rank may send a reset, which TCP never repeats: the network stays while one
        // runs.
        assert!(criu.steps(Moment::Prepare, unit).is_empty());
        for leave in [false, true] {
            let steps = criu.steps(Moment::Save { leave }, unit);
            assert!(steps[0].argv.ends_with(&["nomaster".to_owned()]), "{steps:?}");
        }
        assert!(has(Moment::Release, "br0"));
    });
}

#[test]
fn each_job_on_a_shared_bridge_has_a_block_of_addresses_of_its_own() {
    let own = Criu::default();
    let first = [Ipv4Addr::new(10, 198, 0, 1), Ipv4Addr::new(10, 198, 0, 2)];
    assert_eq!(own.addresses(2, 7).unwrap(), first, "no other job is on its bridge");
    let error = own.addresses(1 << 16, 0).unwrap_err();
    assert!(error.contains("for 65534 nodes, not for 65536"), "{error}");
    let shared = "[backend.criu]\nbridge = \"br0\"\nnetwork = \"10.0.0.0\"\nprefix = 29\n";
    let shared = Choice::parse(shared).unwrap();
    let addresses = |mark| shared.pods().unwrap().addresses(2, mark).unwrap();
    let all: std::collections::BTreeSet<_> = (0..3).flat_map(addresses).collect();
    let usable: Vec<_> = (1..7).map(|host| Ipv4Addr::new(10, 0, 0, host)).collect();
    assert!(all.into_iter().eq(usable), "three jobs have all six, each other ones");
    assert_eq!(addresses(3), addresses(0));
}

#[test]
fn a_bad_backend_file_is_refused_with_its_reason() {
    for (text, word) in [
        ("[backend.dmtcp]\n", "dmtcp"),
        ("[backend.command]\npre = [\"true\"]\n", "checkpoint"),
        ("[backend.command]\ncheckpoint = []\n", "nothing is ever saved"),
        ("[backend.command]\ncheckpoint = [\"save\", \"{rnak}\"]\n", "{rnak} is not known"),
        ("[backend.command]\ncheckpoint = [\"save\"]\ndeadline = \"0s\"\n", "deadline"),
        ("[backend.command]\ncheckpoint = [\"save\"]\nverfiy = [\"x\"]\n", "line 3"),
        ("[backend.criu]\nprefix = 31\n", "prefix"),
        ("[backend.criu]\nnetwork = \"10.0.0.1\"\n", "network"),
        ("[backend.criu]\nbridge = \"../x\"\n", "bridge"),
    ] {
        let error = Choice::parse(text).unwrap_err();
        assert!(error.contains(word) && !error.contains('\n'), "{text}: {error}");
    }
    assert!(Choice::read("/no/such/file").unwrap_err().contains("/no/such/file"));
    assert!(Choice::read("command").unwrap_err().contains("[backend.command]"));
}
