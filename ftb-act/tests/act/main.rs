//! ftb-act between real agents, real programs and a real web server, and killed at each step.
#![allow(clippy::unwrap_used, missing_docs)]

mod site;
mod user;
mod web;

use ftb_client::{ConditionState, Conditions, Delivery, Start, Subscription, Truth};
use ftb_tests::cluster::{PATIENCE, Plan, binary};
use ftb_tests::forged;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::{ACT, Pager, Site};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::time::timeout;

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The next event of this name: payload, rule and result.
async fn next(events: &mut Subscription, name: &str) -> [String; 3] {
    loop {
        let delivery = timeout(PATIENCE, events.next()).await.expect(name);
        let Some(Delivery::Event(received)) = delivery else { continue };
        let event = &received.event;
        if event.name.as_str() == name {
            let tag = |key| event.tag(key).unwrap_or_default().to_owned();
            let payload = String::from_utf8_lossy(&event.payload).into_owned();
            return [payload, tag("rule"), tag("result")];
        }
    }
}

fn is_alive(pid: &str) -> bool {
    kill(Pid::from_raw(pid.parse().unwrap()), None).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_hosts_of_a_rack_that_lose_power_are_one_page_and_no_drain_storm() {
    let pager = Pager::start();
    let rules = format!(
        "[[rule]]\nname = \"page\"\nconditions = [\"CHASSIS_OFF\"]\nthen = \"webhook\"\n\
         url = \"http://{}/page\"\ngroup_by = \"rack\"\nwithin = \"1ms\"\n\
         [[rule]]\nname = \"off\"\nconditions = [\"CHASSIS_OFF\"]\nthen = \"drain\"\n\
         within = \"1ms\"\n",
        pager.address
    );
    let mut site = Site::new(&rules).await;
    for number in 17..=32 {
        site.state(&format!("n{number}"), "CHASSIS_OFF", Truth::True).await;
    }
    // All of them are in its first table, however slow this machine is.
    site.start();
    site.wait("all refused", async || (site.orders("refused") == 16).then_some(())).await;
    site.wait("the page", async || (site.orders("over") == 1).then_some(())).await;
    let requests = pager.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0].1["hosts"], "n[17-32]");
    assert_eq!(site.out_of_service().trim(), "no conditions");
    let is_watch = |state: &ConditionState| {
        state.subject.component() == "ftb.act" && state.truth == Truth::True
    };
    site.wait("its watch", async || {
        let mut watches = Conditions::open(&site.client, "condition=WATCHED").await.unwrap();
        watches.load().await.unwrap();
        watches.states().any(is_watch).then_some(())
    })
    .await;
    // It stays so over a crash; a person lets it pass, once, for what still holds.
    site.kill();
    site.start();
    site.state("n17", "CHASSIS_OFF", Truth::False).await;
    site.wait("fifteen", async || (site.orders("refused") == 15).then_some(())).await;
    assert_eq!(site.act(&["resume"]).status.code(), Some(0));
    site.wait("the drains", async || (site.orders("drained") == 15).then_some(())).await;
    assert_eq!(site.out_of_service().lines().count(), 15);
    assert_eq!(pager.requests().len(), 1);
    assert_eq!(site.act(&["resume"]).status.code(), Some(1), "no breaker is open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_once_and_an_interrupted_one_is_reported() {
    let mut site = Site::new("").await;
    // What it leaves in its group ends with it; what has left the group holds up no report.
    let left = r#"sleep 1000 &
setsid sh -c 'echo $$ >>"$0.left"; exec sleep 200' "$0" &
until grep -sqx $! "$0.left"; do sleep 0.1; done"#;
    let more = format!("[ -e \"$0.go\" ] || exec sleep 1000\n{left}");
    let (program, ran) = site.program("reset", "", &more);
    site.add(&format!(
        "[[rule]]\nname = \"reset\"\nconditions = [\"GPU\"]\nthen = \"exec\"\nwithin = \"1ms\"\n\
         program = [{program:?}, \"{{hosts}}\", \"$(no shell)\"]\n"
    ));
    let mut events = site.client.subscribe("event_space=ftb.act", Start::Now).await.unwrap();
    site.start();
    site.state("n01", "GPU", Truth::True).await;
    site.wait("the program", async || (lines(&ran).len() == 1).then_some(())).await;
    let line = &lines(&ran)[0];
    assert!(line.starts_with("n01 $(no shell) "), "{line}");
    let pid = line.rsplit(' ').next().unwrap().to_owned();
    // Killed while it runs: the program ends with it, and is not run again, but reported.
    site.kill();
    site.wait("its end", async || (!is_alive(&pid)).then_some(())).await;
    site.start();
    let [hosts, rule, result] = next(&mut events, "FTB_ACT_FAILED").await;
    assert_eq!((&hosts[..], &rule[..]), ("n01", "reset"));
    assert!(result.starts_with("interrupted"), "{result}");
    site.wait("the report", async || (site.orders("over") == 1).then_some(())).await;
    // The next onset is another one; its program ends by itself.
    fs::write(site.cluster.dir().join("reset.go"), "").unwrap();
    site.state("n01", "GPU", Truth::False).await;
    site.state("n01", "GPU", Truth::True).await;
    assert_eq!(next(&mut events, "FTB_ACT_DONE").await, ["n01", "reset", "exit code 0"]);
    site.wait("the end", async || (site.orders("over") == 1).then_some(())).await;
    site.kill();
    site.start();
    // Behind this one, an older order would have run.
    site.state("n02", "GPU", Truth::True).await;
    assert_eq!(next(&mut events, "FTB_ACT_DONE").await[0], "n02");
    assert_eq!(lines(&ran).len(), 3);
    for pid in lines(&site.cluster.dir().join("reset.left")) {
        kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).expect("it still runs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_end_with_ftb_act_and_at_their_time_limit() {
    let mut site = Site::new("").await;
    // When its line is there, it is ready for the signal.
    let polite = "trap 'echo >$0.term; exit' TERM";
    let (program, ran) = site.program("hang", polite, "sleep 1000 & wait");
    let rule = |name: &str, limit: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\nconditions = [\"{name}\"]\nthen = \"exec\"\n\
             within = \"1ms\"\nprogram = [{program:?}]\ntime_limit = \"{limit}\"\n"
        )
    };
    site.add(&(rule("SHORT", "3s") + &rule("LONG", "1h")));
    let mut events = site.client.subscribe("event_space=ftb.act", Start::Now).await.unwrap();
    site.start();
    site.state("n01", "SHORT", Truth::True).await;
    let [_, rule, result] = next(&mut events, "FTB_ACT_FAILED").await;
    assert_eq!((&rule[..], &result[..]), ("SHORT", "it was ended after 3s"));
    let asked = site.cluster.dir().join("hang.term");
    fs::remove_file(&asked).expect("SIGTERM came first");
    site.state("n01", "LONG", Truth::True).await;
    site.wait("the program", async || (lines(&ran).len() == 2).then_some(())).await;
    let pids: Vec<String> = lines(&ran).iter().map(|line| line.trim().to_owned()).collect();
    let act = i32::try_from(site.act.as_ref().unwrap().id()).unwrap();
    kill(Pid::from_raw(act), Signal::SIGTERM).unwrap();
    let status = site.act.take().unwrap().wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(asked.exists(), "SIGTERM came first");
    for pid in pids {
        site.wait("its end", async || (!is_alive(&pid)).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_repeated_with_its_key_until_the_server_takes_it() {
    let pager = Pager::start();
    pager.answer(503);
    let mut site = Site::new(&format!(
        "[[rule]]\nname = \"page\"\nconditions = [\"GPU\"]\nthen = \"webhook\"\n\
         url = \"http://{}/page\"\nwithin = \"1ms\"\ntime_limit = \"10m\"\n",
        pager.address
    ))
    .await;
    site.start();
    site.state("n01", "GPU", Truth::True).await;
    site.wait("a request", async || (!pager.requests().is_empty()).then_some(())).await;
    site.kill();
    let before = pager.requests().len();
    site.start();
    site.wait("a repetition", async || (pager.requests().len() > before).then_some(())).await;
    pager.answer(200);
    site.wait("the end", async || (site.orders("over") == 1).then_some(())).await;
    let keys: Vec<String> = pager.requests().into_iter().map(|(key, _)| key).collect();
    assert!(keys.iter().all(|key| *key == keys[0] && !key.is_empty()), "{keys:?}");
    let log = site.log();
    assert!(log.contains("posts to ") && !log.contains("/page"), "no secret is logged: {log}");
}

/// The holder of the key of the acting root has written a fault into the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_condition_runs_no_program_and_drains_no_host() {
    let cluster = forged::start(Plan::new(2, 2), "n01", "CARD", "GPU").await.unwrap();
    let shown = |rank: usize| {
        let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
        let output = command.arg("--agent").arg(cluster.socket(rank)).arg("conditions").output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert!(shown(0).contains("GPU"), "the root has it: {}", shown(0));
    assert!(!shown(1).contains("GPU"), "no other agent shows it: {}", shown(1));
    let mut site = Site::at(1, cluster, "");
    let (program, ran) = site.program("reset", "", "");
    site.add(&format!(
        "[[rule]]\nname = \"reset\"\nconditions = [\"GPU\"]\nthen = \"exec\"\nwithin = \"1ms\"\n\
         program = [{program:?}, \"{{hosts}}\"]\n\
         [[rule]]\nname = \"off\"\nconditions = [\"GPU\"]\nthen = \"drain\"\nwithin = \"1ms\"\n"
    ));
    // What the first table has is known before what follows.
    site.start();
    site.state("n02", "GPU", Truth::True).await;
    site.wait("the honest drain", async || (site.orders("drained") == 1).then_some(())).await;
    site.wait("the honest one", async || (!lines(&ran).is_empty()).then_some(())).await;
    assert_eq!(lines(&ran).len(), 1, "{:?}", lines(&ran));
    assert!(lines(&ran)[0].starts_with("n02 "), "{:?}", lines(&ran));
    assert!(site.out_of_service().starts_with("n02"), "{}", site.out_of_service());
    assert_eq!(site.out_of_service().lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_saved_is_not_done() {
    let mut site = Site::new("").await;
    let (program, ran) = site.program("reset", "", "");
    site.add(&format!(
        "[[rule]]\nname = \"reset\"\nconditions = [\"GPU\"]\nthen = \"exec\"\nwithin = \"1ms\"\n\
         program = [{program:?}]\n"
    ));
    // No file may grow beyond some KiB: a disk that is full.
    let mut command = Command::new("sh");
    let line = "ulimit -f 8; trap '' XFSZ; exec \"$0\" run --config \"$1\"";
    let log = fs::File::create(site.cluster.dir().join("full.log")).unwrap();
    command.args(["-c", line, ACT]).arg(&site.config).stdin(Stdio::null());
    site.act = Some(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let errors = site.act.as_mut().unwrap().stderr.take().unwrap();
    std::thread::spawn(move || {
        let (mut errors, mut log) = (errors, log);
        std::io::copy(&mut errors, &mut log)
    });
    let full = || fs::read_to_string(site.cluster.dir().join("full.log")).unwrap_or_default();
    let mut started = 0;
    while !full().contains("cannot be saved") {
        started += 1;
        assert!(started <= 200, "{}", full());
        site.state("n01", "GPU", Truth::True).await;
        let is_settled = async || {
            let is_full = full().contains("cannot be saved");
            (is_full || lines(&ran).len() == started).then_some(())
        };
        site.wait("the program, or a full disk", is_settled).await;
        site.state("n01", "GPU", Truth::False).await;
    }
    let saved = fs::read_to_string(site.cluster.dir().join("act-state/state")).unwrap();
    let live = saved.lines().filter(|line| line.contains("\"live\"")).count();
    assert!(lines(&ran).len() <= live, "{} ran, {live} were saved", lines(&ran).len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silence_holds_actions_back_and_a_replay_does_nothing() {
    let mut site = Site::new("").await;
    let (program, ran) = site.program("reset", "", "");
    site.add(&format!(
        "[[rule]]\nname = \"reset\"\nconditions = [\"GPU\"]\nthen = \"exec\"\nwithin = \"1ms\"\n\
         program = [{program:?}, \"{{hosts}}\"]\n"
    ));
    let ftbctl = |words: &[&str]| {
        let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
        let output = command.arg("--agent").arg(site.cluster.socket(1)).args(words).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    };
    let silence = ["silence", "add", "n[01-16]", "--for", "1h", "--reason", "new cards"];
    let id = ftbctl(&silence);
    let (socket, config) = (site.cluster.socket(1).to_owned(), site.config.clone());
    site.start();
    site.state("n01", "GPU", Truth::True).await;
    site.state("n17", "GPU", Truth::True).await;
    site.wait("the other host", async || (lines(&ran).len() == 1).then_some(())).await;
    assert!(lines(&ran)[0].starts_with("n17 "), "{:?}", lines(&ran));
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    command.arg("--agent").arg(socket).args(["silence", "remove", &id]);
    assert!(command.status().unwrap().success());
    site.wait("the silenced host", async || (lines(&ran).len() == 2).then_some(())).await;
    site.kill();
    let mut replay = Command::new(ACT);
    replay.args(["run", "--dry-run", "--since", "7d", "--config"]).arg(config);
    let output = replay.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let runs: Vec<&str> = text.lines().filter(|line| line.contains("reset runs")).collect();
    assert_eq!(runs.len(), 2, "{text}");
    assert!(runs[0].ends_with(": n17") && runs[1].ends_with(": n01"), "{text}");
    assert!(text.ends_with("2 actions\n"), "{text}");
    assert_eq!(lines(&ran).len(), 2, "a replay does nothing");
    assert!(!site.cluster.dir().join("act-state/state.new").exists());
}

/// As `ftbctl init` writes it: no host may speak about others.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_says_that_no_drain_of_another_host_counts() {
    let drains = "[[rule]]\nname = \"off\"\nconditions = [\"GPU\"]\nthen = \"drain\"\n";
    for (monitors, code) in [("", 1), ("node01", 0)] {
        let plan = Plan::new(2, 2).certified().extra(&format!("monitors = \"{monitors}\"\n"));
        let site = Site::of(plan.start().await.unwrap(), "");
        assert_eq!(site.act(&["check"]).status.code(), Some(0), "it drains nothing");
        site.add(drains);
        let output = site.act(&["check"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert_eq!(errors.contains("Name it in `monitors`"), code == 1, "{errors}");
    }
}

/// The conditions of requests that hold: host and rule of each.
async fn failing_pages(site: &Site) -> Vec<String> {
    let mut conditions = Conditions::open(&site.client, "condition=PAGE_FAILED").await.unwrap();
    conditions.load().await.unwrap();
    let holding = conditions.states().filter(|state| state.truth == Truth::True);
    holding.map(|state| state.subject.component().to_owned()).collect()
}

/// Two web servers: one takes no page. The other one says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_does_not_arrive_is_a_condition_and_a_page_elsewhere() {
    let (pager, chat) = (Pager::start(), Pager::start());
    pager.answer(503);
    let rule = |name: &str, keys: &str, address: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\nconditions = [{keys}]\nthen = \"webhook\"\n\
             url = \"http://{address}/SECRET\"\nwithin = \"1ms\"\ntime_limit = \"2s\"\n"
        )
    };
    let own = "[[profile]]\nhosts = \"node01\"\nmode = \"drain\"\n";
    let rules = rule("pager", "\"GPU\", \"PAGE_FAILED\"", &pager.address);
    let mut site = Site::new(&(own.to_owned() + &rules)).await;
    site.add(&rule("chat", "\"PAGE_FAILED\"", &chat.address));
    site.start();
    site.state("n01", "GPU", Truth::True).await;
    site.wait("the page elsewhere", async || (!chat.requests().is_empty()).then_some(())).await;
    let said = &chat.requests()[0].1["conditions"][0];
    assert_eq!((&said["key"], &said["component"]), (&"PAGE_FAILED".into(), &"pager".into()));
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("status 503") && !message.contains("SECRET"), "{message}");
    assert_eq!(failing_pages(&site).await, ["pager"]);
    // It lasts over a crash, and ends with the next request that is taken.
    site.kill();
    site.wait("no statement of it", async || failing_pages(&site).await.is_empty().then_some(()))
        .await;
    site.start();
    site.wait("it again", async || (failing_pages(&site).await == ["pager"]).then_some(())).await;
    pager.answer(200);
    site.state("n02", "GPU", Truth::True).await;
    site.wait("its end", async || failing_pages(&site).await.is_empty().then_some(())).await;
    let keys = pager.requests().into_iter().map(|(_, body)| body["conditions"][0]["key"].clone());
    assert!(keys.into_iter().all(|key| key == "GPU"), "the rule does not page about itself");
}
