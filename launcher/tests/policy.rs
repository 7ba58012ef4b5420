//! Policies as a user meets them: tried on recorded events, refused, and their circuit breaker.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Result, ensure};
use ftb_tests::cluster::wait_for;
use serde_json::{Value, json};
use site::{LAUNCH, Site, result, run, text};
use std::fs::File;
use std::process::{Command, Output};

const HEAD: &str = "hold_down = \"1s\"\nbreaker = { actions = 1, within = \"10m\" }\n";

fn event(name: &str, host: &str, time_s: f64) -> String {
    format!(
        "{{\"space\":\"ftb.ipmi\",\"name\":\"{name}\",\"host\":\"{host}\",\"time_s\":{time_s}}}\n"
    )
}

fn policy(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(LAUNCH).arg("policy").args(arguments).output()?)
}

/// One hot node that passes, one that does not, a fan, and then the room.
fn recorded() -> String {
    [
        event("FTB_IPMI_OVERTEMP", "node01", 100.0),
        event("FTB_IPMI_NORMAL", "node01", 103.0),
        event("FTB_IPMI_OVERTEMP", "node02", 110.5),
        event("FTB_IPMI_FANFAIL", "node04", 120.0),
        event("FTB_IPMI_OVERTEMP", "node01", 125.0),
        event("FTB_IPMI_OVERTEMP", "node03", 126.0),
        event("FTB_IPMI_FANFAIL", "another", 130.0),
    ]
    .concat()
}

#[test]
fn recorded_events_show_what_would_have_been_done() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let events = dir.path().join("events.json").display().to_string();
    std::fs::write(&events, recorded())?;
    let shown = policy(&["test", &events, "--nodes", "node[01-04]"])?;
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let expected = include_str!("policy/recorded.txt");
    assert_eq!(text(&shown.stdout), expected);

    let shown = policy(&["test", &events, "--nodes", "node[01-04]", "--json"])?;
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let lines: Vec<Value> =
        text(&shown.stdout).lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let is_done = |line: &&Value| line["action"] != "tell" && line["action"] != "unusable";
    let done: Vec<&Value> = lines.iter().filter(is_done).collect();
    let (hot, fan, cooling) = ("overheating", "fan failed", "cooling has failed");
    let expected = [
        json!({"time_s": 3.0, "action": "usable", "node": "node01", "faults": [], "words": ""}),
        json!({"time_s": 15.5, "action": "migrate", "node": "node02", "faults": [2], "words": hot}),
        json!({"time_s": 20.0, "action": "migrate", "node": "node04", "faults": [3], "words": fan}),
        json!({"time_s": 26.0, "action": "cancel", "faults": [2], "words": cooling}),
        json!({"time_s": 26.0, "action": "checkpoint", "faults": [5], "words": cooling}),
    ];
    assert_eq!(done, expected.iter().collect::<Vec<_>>());
    assert_eq!(lines.len(), 16);
    Ok(())
}

#[test]
fn bad_recorded_events_are_refused_with_their_line() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let events = dir.path().join("events.json").display().to_string();
    let good = event("FTB_IPMI_FANFAIL", "node01", 1.0);
    let refused = |more: &[&str], word: &str| -> Result<()> {
        let output = policy(&[&["test", &events], more].concat())?;
        let reported = text(&output.stderr);
        ensure!(output.status.code() == Some(64), "{word}: {:?} {reported}", output.status);
        ensure!(reported.contains(word) && reported.lines().count() == 1, "{word}: {reported}");
        ensure!(output.stdout.is_empty(), "{word}: {}", text(&output.stdout));
        Ok(())
    };
    refused(&[], "events.json: No such file")?;
    let no_time = "{\"space\":\"ftb.ipmi\",\"name\":\"A\",\"host\":\"a\"}\n";
    for (line, word) in [
        ("not json\n", "line 3: expected"),
        ("{\"space\":\"ftb.ipmi\"}\n", "line 3: missing field `name`"),
        (no_time, "line 3: the event has neither time_ns nor time_s"),
        (&event("A", "a", -1.0), "line 3: time_s is -1"),
        (&event("A", "../a", 1.0), "line 3: \"../a\" is no node"),
        (&event("A B", "a", 1.0), "line 3: "),
        (&good.replace("ftb.ipmi", "ftb..ipmi"), "line 3: event space"),
    ] {
        std::fs::write(&events, format!("{good}\n{line}"))?;
        refused(&[], word)?;
    }
    std::fs::write(&events, &good)?;
    refused(&["--nodes", "node[1-"], "--nodes")?;
    refused(&["--nodes", "node01,_x/"], "--nodes")?;
    refused(&["--policy", "/no/such/policy"], "/no/such/policy")?;
    std::fs::write(&events, [0xff, 0xfe, 0])?;
    refused(&[], "events.json: ")?;
    std::fs::write(&events, "")?;
    let nothing = policy(&["test", &events])?;
    ensure!(nothing.status.code() == Some(0) && nothing.stdout.is_empty(), "{nothing:?}");
    Ok(())
}

/// One for each way in which a rule can never match or act: refused by `policy check` and before a
/// job starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_can_never_match_is_refused_with_its_line_and_the_way_out() -> Result<()> {
    let site = Site::without_examples(1).await?;
    let file = site.jobs.path().join("policy.toml");
    let name = file.display().to_string();
    let fan = |name: &str, more: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\nspace = \"ftb.ipmi\"\nevents = \
             [\"FTB_IPMI_FANFAIL\"]\naction = \"migrate\"\n{more}"
        )
    };
    let none = fan("none", "").replace("[\"FTB_IPMI_FANFAIL\"]", "[]");
    for (rules, words) in [
        (none, "line 3: rule \"none\" can never match: it has neither events nor conditions"),
        (fan("zero", "count = 0\n"), "line 3: rule \"zero\": count is 0: at least 1 is meant"),
        (
            fan("many", "count = 5000\n"),
            "line 3: rule \"many\" can never match: count is 5000, and 4096 events are remembered \
             at most",
        ),
        (
            fan("at once", "count = 2\nwithin = \"0s\"\n"),
            "line 3: rule \"at once\" can never match: nothing happens twice within 0s: say \
             within = \"60s\"",
        ),
        (
            fan("all", "nodes_over = 1.0\n"),
            "line 3: rule \"all\" can never match: nodes_over is 1: it is a share of the job's \
             nodes, from 0 to below 1, as 0.5",
        ),
        (
            fan("first", "") + &fan("second", "count = 3\n"),
            "line 8: rule \"second\" can never act: rule \"first\" before it takes the same \
             events: put it before, or take it out",
        ),
    ] {
        std::fs::write(&file, format!("{HEAD}{rules}"))?;
        let checked = policy(&["check", &name])?;
        let launched = run(site.launch(&["-n", "1", "--policy", &name], &["true"])).await?;
        for output in [checked, launched] {
            let reported = text(&output.stderr);
            ensure!(output.status.code() == Some(64), "{words}: {:?} {reported}", output.status);
            ensure!(
                reported.contains(words) && reported.lines().count() == 1,
                "{words}: {reported}"
            );
        }
    }
    let jobs = std::fs::read_dir(site.jobs.path())?.count();
    ensure!(jobs == 1, "nothing was started, and the policy file is all that is there: {jobs}");
    Ok(())
}

/// The second action opens the breaker; later ones are only reported until a person closes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_breaker_that_real_events_have_opened_is_closed_by_a_person() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    let file = site.jobs.path().join("policy.toml");
    let rule = "[[rule]]\nname = \"fan failed\"\nspace = \"ftb.ipmi\"\nevents = \
                [\"FTB_IPMI_FANFAIL\"]\naction = \"migrate\"\n";
    std::fs::write(&file, format!("{HEAD}{rule}"))?;
    let reported = site.jobs.path().join("reported");
    let policy = file.display().to_string();
    let mut command = site.counting("weary", &["--spares", "node[03-04]", "--policy", &policy]);
    let printed = site.jobs.path().join("printed");
    let mut launcher =
        command.stdout(File::create(&printed)?).stderr(File::create(&reported)?).spawn()?;
    site.wait_met("weary").await?;
    let has_reported = async |words: &str| {
        wait_for(&format!("the launcher to say {words:?}"), async || {
            Ok(std::fs::read_to_string(&reported)?.contains(words).then_some(()))
        })
        .await
    };
    let client = ftb_client::Client::builder("test").agent(site.cluster.socket(0)).build()?;
    let fails = async |node: &str| -> Result<()> {
        let event = ftb_client::event("ftb.ipmi", "FTB_IPMI_FANFAIL")?.tag("node", node).build();
        client.publish(event)?.confirmed().await?;
        Ok(())
    };
    fails("node02").await?;
    has_reported("on node02, rule fan failed): ranks 2,3 moved from node02 to node03").await?;
    fails("node01").await?;
    let open = "fault 2: the circuit breaker opens, nothing is done: would migrate";
    has_reported(&format!("{open} (fan failed, node node01)")).await?;
    let answer = site.ask(&["policy", "reset", "weary"]).await?;
    assert_eq!(answer, "the policy acts again");
    fails("node01").await?;
    has_reported("on node01, rule fan failed): ranks 0,1 moved from node01 to node04").await?;
    site.release()?;
    let status = tokio::task::spawn_blocking(move || launcher.wait()).await??;
    let (stdout, stderr) = (std::fs::read(&printed)?, std::fs::read(&reported)?);
    assert_eq!(result(&Output { status, stdout, stderr })?, expected);
    let unknown = run(site.command(&["policy", "reset", "unknown"])).await?;
    assert_eq!(unknown.status.code(), Some(64), "{}", text(&unknown.stderr));
    Ok(())
}
