//! The web page of an agent: who gets it, and what people see of it in headless Chromium.
//!
//! Pictures of the views are in `target/tmp/page`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod browser;
mod job;
mod simulated;

use browser::{Browser, axe};
use ftb_tests::cluster::{Cluster, Plan, binary, wait_for};
use ftb_tests::http::{self, Lines};
use serde_json::Value;
use simulated::Simulated;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// What a hostile user publishes.
const HOSTILE: &str = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script>";

/// The files of `[page]`: token and racks.
static FILES: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();

/// A cluster whose agents serve the page; every user may read the events of jobs.
async fn cluster(n: usize) -> Cluster {
    let (token, racks) = FILES.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-files");
        std::fs::create_dir_all(&folder).unwrap();
        let (token, racks) = (folder.join("token"), folder.join("racks.toml"));
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        std::fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&racks, "left = \"node[01-02]\"\nright = \"node03\"\n").unwrap();
        (token, racks)
    });
    let extra = format!(
        "[detection]\nsearch = \"300ms\"\nprobe = \"200ms\"\n\
         [[access]]\nspace = \"ftb.jl\"\nsubscribe = [\"everyone\"]\n\
         [[access]]\nspace = \"ftb.nla\"\nsubscribe = [\"everyone\"]\n\
         [page]\ntoken = {token:?}\nracks = {racks:?}\n"
    );
    Plan::new(n, 2).extra(&extra).monitored().start().await.unwrap()
}

fn publish(socket: &Path, words: &[&str]) {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    let output = command.arg("publish").args(words).arg("--agent").arg(socket).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ftbctl publish {words:?}: {errors}");
}

fn ask(address: &str, method: &str, path: &str, host: &str, more: &str) -> http::Answer {
    http::ask(address, &format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n")).unwrap()
}

#[tokio::test]
async fn what_the_page_shows_needs_its_token_this_host_and_get() {
    let cluster = cluster(1).await;
    let address = cluster.metrics_address(0).unwrap();
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/page/about.json", "/page/tree.json", "/page/conditions.json", "/page/events"] {
        let status = |more: &str| ask(&address, "GET", path, &address, more).status;
        assert_eq!(status(""), 401, "{path}");
        for wrong in ["Bearer wrong", "Basic dTpw", TOKEN, "Bearer"] {
            assert_eq!(status(&format!("Authorization: {wrong}\r\n")), 401, "{path} {wrong}");
        }
        let foreign = ask(&address, "GET", path, "evil.example", &right);
        assert_eq!(foreign.status, 421, "{path}");
        for method in ["POST", "PUT", "OPTIONS", "DELETE"] {
            let refused = ask(&address, method, path, &address, &right);
            assert_eq!(refused.status, 405, "{method} {path}");
        }
        let in_query = ask(&address, "GET", &format!("{path}?token={TOKEN}"), &address, "");
        assert_eq!(in_query.status, 401, "{path}");
    }
    let about = ask(&address, "GET", "/page/about.json", &address, &right);
    let about: Value = serde_json::from_str(&about.body).unwrap();
    assert_eq!((&about["cluster"], &about["host"]), (&"test".into(), &"node01".into()));
    assert_eq!((&about["shows_jobs"], &about["racks"][1]["name"]), (&true.into(), &"right".into()));
    assert_eq!(ask(&address, "GET", "/page/tree.json", &address, &right).status, 200);

    let page = ask(&address, "GET", "/page/", &address, "");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert_eq!(ask(&address, "GET", "/page/", "evil.example", "").status, 421);
    assert_eq!(ask(&address, "GET", "/page/../agent.toml", &address, &right).status, 404);
    // The page is not there unless it is configured; each refusal is counted.
    let metrics = http::get(&address, "/metrics").unwrap().body;
    assert!(metrics.lines().any(|line| line.contains("page_unauthorized")), "{metrics}");
    let without = Plan::new(1, 1).monitored().start().await.unwrap();
    let other = without.metrics_address(0).unwrap();
    for path in ["/page/", "/page", "/page/app.js", "/page/tree.json"] {
        assert_eq!(ask(&other, "GET", path, &other, &right).status, 404, "{path}");
    }
}

fn keys(value: &Value) -> BTreeSet<&String> {
    value.as_object().unwrap().keys().collect()
}

#[tokio::test]
async fn the_simulated_documents_have_the_shape_of_an_agents() {
    let cluster = cluster(1).await;
    let address = cluster.metrics_address(0).unwrap();
    let more = format!("Authorization: Bearer {TOKEN}\r\n");
    let mut lines = Lines::open(&address, "/page/events?since=60", &more).unwrap();
    publish(cluster.socket(0), &["ftb.ipmi", "X", "text", "-t", "node=node01"]);
    let event = loop {
        let line = lines.next_line().unwrap();
        let event = line.strip_prefix("data: ").map(|text| text.parse::<Value>().unwrap());
        if let Some(event) = event.filter(|event| event["name"] == "X") {
            break event;
        }
    };
    assert_eq!(keys(&event), keys(&simulated::event(1, 1)));
    publish(cluster.socket(0), &["site.x", "X", "--condition", "BAD", "-s", "error"]);
    let row = wait_for("the condition", async || {
        let answer = ask(&address, "GET", "/page/conditions.json", &address, &more);
        let table: Value = serde_json::from_str(&answer.body)?;
        Ok(table["conditions"].get(0).cloned())
    });
    let row = cluster.must(row.await).await;
    assert_eq!(keys(&row), keys(&simulated::condition("node01", 1)));
}

/// Events of a job, as launcher and launch agents publish them.
fn publish_job(socket: &Path) {
    let state = |node: &str, change: &str| {
        let node = format!("node={node}");
        let words = ["ftb.nla", "FTB_NLA_STATE", change, "--job-id", "sim-7", "-t", &node];
        publish(socket, &[&words[..], &["-t", "episode=1"]].concat());
    };
    state("node01", "MIGRATION_SPARE->MIGRATION_READY");
    state("node02", "MIGRATION_ARM->MIGRATION_INACTIVE");
    state("node03", "MIGRATION_INACTIVE->MIGRATION_SPARE");
    // What every object of a program has is no state.
    state("node04", "X->constructor");
    let phases = "phases=leave=126 copy=107 restart=58 join=165";
    for (number, kind, outcome) in [("1", "start", "done"), ("2", "migration", "failed")] {
        let (number, kind) = (format!("episode={number}"), format!("kind={kind}"));
        let outcome = format!("outcome={outcome}");
        let words = ["ftb.jl", "FTB_JL_EPISODE", HOSTILE, "--job-id", "sim-7", "-t", &number];
        let more = ["-t", &kind, "-t", &outcome, "-t", phases, "-t", "why=a fan", "-t", "choice=x"];
        publish(socket, &[&words[..], &more].concat());
    }
    let words = ["ftb.jl", "FTB_CHECKPOINT", "ck-3", "--job-id", "sim-7", "-t", "episode=3"];
    publish(socket, &words);
    publish_hang(socket, "FTB_JL_HUNG");
}

fn publish_hang(socket: &Path, name: &str) {
    let words = ["ftb.jl", name, "rank 2", "--job-id", "sim-7", "-t", "episode=3"];
    publish(socket, &[&words[..], &["-t", "kind=steps", "-t", "rank=2"]].concat());
}

/// A job is shown as hung as long as a rank is; what has the focus is renewed, and keeps it.
fn watch_a_hang_end(browser: &Browser, socket: &Path) {
    let is = |state: &str| {
        format!("document.querySelector('#jobs summary .tag').textContent === '{state}'")
    };
    browser.wait(&is("hung"));
    browser.run("document.querySelector('#jobs summary').focus()");
    publish_hang(socket, "FTB_JL_HANG_OVER");
    browser.wait(&is("running"));
    assert_eq!(browser.text("return document.activeElement.tagName"), "SUMMARY");
}

fn open_view(browser: &Browser, view: &str) {
    browser.click(&format!("nav a[href='#{view}']"));
    browser.wait(&format!("!document.getElementById('view-{view}').hidden"));
}

/// No text of an event became an element, and nothing ran.
fn assert_harmless(browser: &Browser) {
    let found = browser
        .number("return document.querySelectorAll(':is(#main, #drawer) :is(img, script)').length");
    assert_eq!(found, 0.0);
    assert_eq!(browser.run("return window.hit ?? null"), Value::Null);
}

/// All views for a person who prefers dark colours and no motion.
fn examine_in_the_dark(browser: &Browser, axe: &str) {
    let dark = [("prefers-color-scheme", "dark"), ("prefers-reduced-motion", "reduce")];
    browser.prefer(&dark);
    let moves = "return getComputedStyle(document.querySelector('.dot')).animationName";
    assert_eq!(browser.text(moves), "none");
    for view in ["nodes", "tree", "events", "jobs"] {
        open_view(browser, view);
        browser.examine(&format!("{view}-dark"), axe);
    }
}

#[tokio::test]
async fn every_view_shows_a_real_cluster_to_everyone_and_runs_nothing_of_hostile_events() {
    let Some(browser) = Browser::open() else { return };
    // Without axe-core only its part is left out.
    let axe = axe().unwrap_or_default();
    let cluster = cluster(3).await;
    let (socket, address) = (cluster.socket(2), cluster.metrics_address(0).unwrap());
    let state = |severity: &str, key: &str, component: &str| {
        let words = ["ftb.test", "BAD", HOSTILE, "-s", severity, "--condition", key];
        publish(socket, &[&words[..], &["--component", component]].concat());
    };
    state("error", "FANFAIL", "<b>fan</b>");
    state("warning", "PORT_DEGRADED", "mlx5_0");
    publish(
        socket,
        &["ftb.test", "HOSTILE", HOSTILE, "-s", "error", "-t", &format!("a={HOSTILE}")],
    );
    publish_job(socket);

    browser.go(&format!("http://{address}/page/"));
    browser.wait("!document.getElementById('login').hidden");
    browser.examine("login", &axe);
    browser.press("not the token at all, not at all");
    browser.press(&browser::ENTER.to_string());
    browser.wait("document.getElementById('login-error').textContent.includes('refuses')");
    // The field has the focus again.
    browser.press(&format!("{TOKEN}{}", browser::ENTER));
    browser.wait("document.querySelectorAll('#grid .cell').length === 3");
    browser.wait("document.querySelector('[data-host=node03]').classList.contains('is-error')");
    assert_eq!(browser.text("return document.querySelector('.rack-name').innerText")[..4], *"left");
    browser.wait("document.getElementById('fresh').dataset.state === 'live'");
    let named = "return document.querySelector('[data-host=node03]').getAttribute('aria-label')";
    let named = browser.text(named);
    assert!(named.contains("ERROR") && named.contains("FANFAIL"), "{named}");
    browser.examine("nodes", &axe);
    browser.click("[data-host=node03]");
    browser.wait("document.getElementById('drawer-body').innerText.includes('onerror')");
    assert_harmless(&browser);
    browser.examine("node", &axe);

    open_view(&browser, "tree");
    browser.wait("document.querySelectorAll('#tree .node').length === 3");
    browser.examine("tree", &axe);
    open_view(&browser, "events");
    let hostile = "[...document.querySelectorAll('#events tr')].find((row) => \
                   row.innerText.includes('HOSTILE') && row.innerText.includes('onerror'))";
    browser.wait(hostile);
    assert_harmless(&browser);
    browser.examine("events", &axe);
    browser.run(&format!("{hostile}.querySelector('button').click()"));
    browser.wait("document.getElementById('drawer-body').innerText.includes('a = <img')");
    browser.examine("event", &axe);
    open_view(&browser, "jobs");
    browser.wait("document.querySelectorAll('#jobs .episode').length === 3");
    browser.wait("document.querySelectorAll('#jobs .jobnode').length === 4");
    let job = browser.text("return document.getElementById('jobs').innerText");
    for part in
        ["sim-7", "node02", "inactive", "leave 126 ms", "failed", "open", "<img", "constructor"]
    {
        assert!(job.contains(part), "{part}: {job}");
    }
    assert_harmless(&browser);
    browser.examine("jobs", &axe);
    watch_a_hang_end(&browser, socket);

    examine_in_the_dark(&browser, &axe);
    let wrong: Vec<String> =
        browser.log().into_iter().filter(|line| !line.contains("401")).collect();
    assert_eq!(wrong, [""; 0], "nothing failed, and the policy of content stopped nothing");
}

#[tokio::test]
async fn a_filter_counts_at_the_agent_and_a_wrong_one_is_explained() {
    let Some(browser) = Browser::open() else { return };
    let cluster = cluster(2).await;
    let address = cluster.metrics_address(1).unwrap();
    for (space, name, severity) in
        [("site.a", "MILD", "info"), ("site.a", "BAD", "error"), ("site.b", "OTHER", "error")]
    {
        publish(cluster.socket(0), &[space, name, "-s", severity]);
    }
    browser.go(&format!("http://{address}/page/#token={TOKEN}"));
    browser.wait("document.querySelectorAll('#grid .cell').length === 2");
    let url = browser.text("return location.href");
    assert!(!url.contains(TOKEN), "the token leaves the address bar: {url}");
    open_view(&browser, "events");
    let names = "[...document.querySelectorAll('#events tr.event button')].map((b) => b.innerText)";
    browser.wait(&format!("{names}.includes('MILD') && {names}.includes('OTHER')"));
    browser.run("document.getElementById('f-severity').value = 'error'");
    browser.click("#f-space");
    browser.press(&format!("site.a{}", browser::ENTER));
    browser.wait(&format!("{names}.includes('BAD')"));
    let seen = browser.run(&format!("return {names}"));
    assert_eq!(seen, serde_json::json!(["BAD"]));
    browser.click("#pause");
    publish(cluster.socket(0), &["site.a", "LATER", "-s", "error"]);
    browser.wait("/paused, 1 wait/.test(document.getElementById('events-note').textContent)");
    assert_eq!(browser.run(&format!("return {names}")), serde_json::json!(["BAD"]));
    browser.click("#pause");
    browser.wait(&format!("{names}[0] === 'LATER'"));
    browser.click("#f-space");
    browser.press(&format!("!{}", browser::ENTER));
    browser.wait("document.getElementById('events-error').textContent.includes('column')");

    // A token that is given while the page is open leaves the address bar too, and counts.
    browser.run("location.hash = '#token=wrong%zz'");
    browser.wait("document.getElementById('login-error').textContent.includes('refuses')");
    let url = browser.text("return location.href");
    assert!(!url.contains("wrong"), "{url}");
}

#[tokio::test]
async fn an_agent_that_is_gone_is_shown_as_gone_and_its_stream_resumes_without_a_loss() {
    let Some(browser) = Browser::open() else { return };
    let mut cluster = cluster(3).await;
    let address = cluster.metrics_address(2).unwrap();
    browser.go(&format!("http://{address}/page/#token={TOKEN}"));
    browser.wait("document.querySelectorAll('#grid .cell.is-clear').length === 3");
    open_view(&browser, "events");
    publish(cluster.socket(0), &["site.a", "BEFORE"]);
    let has =
        |name: &str| format!("document.getElementById('events').innerText.includes('{name}')");
    browser.wait(&has("BEFORE"));
    cluster.crash(2).unwrap();
    publish(cluster.socket(0), &["site.a", "MEANWHILE"]);
    browser.wait("document.getElementById('fresh').dataset.state === 'lost'");
    browser.wait("document.body.classList.contains('is-old')");
    let banner = browser.text("return document.getElementById('banner').textContent");
    assert!(banner.contains("has not answered since"), "{banner}");
    let fresh = browser.text("return document.getElementById('fresh-text').textContent");
    assert!(fresh.starts_with("no answer for "), "{fresh}");
    open_view(&browser, "nodes");
    browser.shot("gone");
    cluster.run(2).unwrap();
    browser.wait("document.getElementById('fresh').dataset.state === 'live'");
    browser.wait("!document.body.classList.contains('is-old')");
    publish(cluster.socket(0), &["site.a", "AFTER"]);
    open_view(&browser, "events");
    browser.wait(&has("AFTER"));
    browser.wait(&has("MEANWHILE"));
    let before = browser.number(
        "return [...document.querySelectorAll('#events tr.event')]
            .filter((row) => row.innerText.includes('BEFORE')).length",
    );
    assert_eq!(before, 1.0, "what was seen is not shown again");

    // Another agent is lost: the page of this one says so.
    cluster.crash(1).unwrap();
    open_view(&browser, "nodes");
    browser.wait("document.querySelector('[data-host=node02]').classList.contains('is-down')");
    let chip = browser.text("return document.getElementById('chips').textContent");
    assert!(chip.contains("1 lost or dead"), "{chip}");
    browser.shot("lost");
}

/// How long 4,096 nodes took.
fn print_times(browser: &Browser, all: Duration) {
    let render =
        browser.number("return Math.round(performance.getEntriesByName('ftb-render')[0].duration)");
    let shown = browser.number("document.body.offsetHeight; return Math.round(performance.now())");
    eprintln!("4,096 nodes: elements {render} ms, shown after {shown} ms, with the load {all:?}");
    // Ten times the goal, for a busy machine: a page whose time grows with the square takes longer.
    assert!(render < 10_000.0, "{render} ms");
}

#[test]
fn four_thousand_nodes_are_shown_and_every_one_is_reached_by_keys() {
    let Some(browser) = Browser::open() else { return };
    let server = Simulated::start(4096, 1);
    browser.go("about:blank");
    let begun = Instant::now();
    browser.go(&format!("http://{}/page/#token={TOKEN}", server.address));
    browser.wait("document.querySelectorAll('#grid .cell').length === 4096");
    print_times(&browser, begun.elapsed());
    browser.shot("nodes-4096");

    let focused = |browser: &Browser| browser.text("return document.activeElement.dataset.host");
    let tabs = "return document.querySelectorAll('#grid [tabindex=\"0\"]').length";
    assert_eq!(browser.number(tabs), 1.0);
    browser.run("document.querySelector('#grid [tabindex=\"0\"]').focus()");
    assert_eq!(focused(&browser), "node0001");
    for (key, host) in [
        (browser::RIGHT, "node0002"),
        (browser::DOWN, "node0010"),
        (browser::LEFT, "node0009"),
        (browser::UP, "node0001"),
        (browser::END, "node0064"),
        (browser::DOWN, "node0072"),
        (browser::UP, "node0064"),
        (browser::PAGE_DOWN, "node0065"),
        (browser::HOME, "node0065"),
    ] {
        browser.press(&key.to_string());
        assert_eq!(focused(&browser), host, "{key:?}");
    }
    assert_eq!(browser.number(tabs), 1.0);
    let outline = "return getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.text(outline), "solid", "the focus is visible");
    browser.press(&browser::ENTER.to_string());
    browser.wait("document.activeElement.id === 'drawer-title'");
    assert_eq!(browser.text("return document.activeElement.textContent"), "node0065");
    browser.press(&browser::ESCAPE.to_string());
    assert_eq!(focused(&browser), "node0065");

    browser.run("document.activeElement.blur(); document.getElementById('skip').focus()");
    browser.press(&browser::ENTER.to_string());
    browser.wait("document.activeElement.id === 'main'");
    browser.click("#find");
    browser.press("node0200");
    browser.wait("document.querySelectorAll('#grid .cell').length === 1");

    open_view(&browser, "tree");
    browser.run("document.querySelector('#tree [tabindex=\"0\"]').focus()");
    let rows =
        |browser: &Browser| browser.number("return document.querySelectorAll('#tree li').length");
    assert_eq!(rows(&browser), 17.0);
    browser.press(&[browser::DOWN, browser::RIGHT].iter().collect::<String>());
    browser.wait("document.activeElement.getAttribute('aria-expanded') === 'true'");
    assert_eq!(rows(&browser), 33.0);
    browser.press(&browser::LEFT.to_string());
    assert_eq!(rows(&browser), 17.0);
    browser.click("#tree-open");
    browser.wait("document.querySelectorAll('#tree li').length === 4096");
    browser.shot("tree-4096");
    browser.resize(500, 900);
    for view in ["nodes", "tree", "events", "jobs"] {
        open_view(&browser, view);
        browser.shot(&format!("{view}-phone"));
        let over = "return document.documentElement.scrollWidth - innerWidth";
        assert!(browser.number(over) <= 0.0, "{view} is wider than a phone");
    }
}

/// Prints how long clicks take meanwhile.
#[test]
fn ten_thousand_events_a_second_leave_the_page_responsive() {
    let Some(browser) = Browser::open() else { return };
    let server = Simulated::start(4096, 10_000);
    browser.go(&format!("http://{}/page/#token={TOKEN}", server.address));
    browser.wait("document.querySelectorAll('#grid .cell').length === 4096");
    open_view(&browser, "events");
    // From here on: the longest time between two frames, and from a click to its handling.
    browser.run(
        "window.slowest = 0; let before = performance.now();
         const frame = (now) => { window.slowest = Math.max(window.slowest, now - before);
             before = now; requestAnimationFrame(frame); };
         requestAnimationFrame(frame);
         window.clicks = [];
         addEventListener('click', (event) =>
             window.clicks.push(performance.now() - event.timeStamp), true);",
    );
    let received = "Number(/^([\\d,]+) event/.exec(\
                    document.getElementById('events-note').textContent)?.[1].replaceAll(',', ''))";
    browser.wait(&format!("{received} > 20000"));
    for _ in 0..5 {
        browser.click("#pause");
        browser.wait("document.getElementById('pause').getAttribute('aria-pressed') === 'true'");
        browser.click("#pause");
        browser.wait("document.getElementById('pause').getAttribute('aria-pressed') === 'false'");
    }
    browser.wait(&format!("{received} > 60000"));
    assert!(browser.number("return document.querySelectorAll('#events tr').length") <= 300.0);
    let note = browser.text("return document.getElementById('events-note').textContent");
    assert!(note.contains("came too fast to be shown"), "{note}");
    let slowest = browser.number("return Math.round(window.slowest)");
    open_view(&browser, "nodes");
    browser.click("[data-host=node0003]");
    browser.wait("document.getElementById('drawer-title').textContent === 'node0003'");
    open_view(&browser, "events");
    let rate = browser.text("return document.getElementById('rate').textContent");
    let clicks = browser.run("return window.clicks.map(Math.round)");
    eprintln!(
        "sent {}; {note}; {rate}; clicks handled after {clicks} ms; longest frame {slowest} ms",
        server.sent()
    );
    browser.shot("events-flood");
}
