//! ftb-act as its unit starts it: an ordinary user of the name ftb-act, under the built-in rules
//! of the agents.

use crate::next;
use crate::site::{ACT, Pager, Site};
use ftb_client::{Delivery, Start, Truth};
use ftb_tests::cluster::{Cluster, Plan};
use ftb_tests::skip::skip;
use ftb_tests::user::{ORDINARY, impossible};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Gives the agent, which follows, a table of users of its own.
const ACCOUNTS: &str = "mount --bind \"$1\" /etc/passwd\nshift\nexec \"$@\"";

/// Two agents on a host that has the account ftb-act.
async fn cluster() -> Cluster {
    let mut cluster = Plan::new(2, 2).prepare().unwrap();
    let users = cluster.dir().join("passwd");
    let known = fs::read_to_string("/etc/passwd").unwrap();
    let known: Vec<&str> = known.lines().filter(|line| !line.starts_with("ftb-act:")).collect();
    let uid = ORDINARY[0];
    fs::write(&users, format!("{}\nftb-act:x:{uid}:{uid}::/:\n", known.join("\n"))).unwrap();
    let users = users.to_str().unwrap();
    let around = ["unshare", "--mount", "sh", "-ec", ACCOUNTS, "sh", users].map(str::to_owned);
    for rank in 0..2 {
        cluster.through(rank, &around);
        cluster.run(rank).unwrap();
    }
    let whole = cluster.wait_whole().await;
    cluster.must(whole).await;
    open(cluster.dir(), 0o711);
    cluster
}

fn open(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A folder as systemd makes one for a unit.
fn state_folder(site: &Site, name: &str, uid: u32) {
    let folder = site.cluster.dir().join(name);
    fs::create_dir(&folder).unwrap();
    open(&folder, 0o700);
    chown(&folder, Some(uid), Some(uid)).unwrap();
}

/// ftb-act of an ordinary user, where this user can run it.
fn program(site: &Site, uid: u32) -> Command {
    let path = site.cluster.dir().join("ftb-act");
    if !path.exists() {
        fs::copy(ACT, &path).unwrap();
        open(&path, 0o755);
    }
    let mut command = Command::new(path);
    command.uid(uid).gid(uid).current_dir("/");
    command
}

fn rule(name: &str, then: &str) -> String {
    let key = name.to_ascii_uppercase();
    format!("[[rule]]\nname = \"{name}\"\nconditions = [\"{key}\"]\nwithin = \"1ms\"\n{then}\n")
}

/// A site with a rule of each kind, a file that programs may write, and one of root.
async fn site(pager: &Pager) -> (Site, PathBuf, PathBuf) {
    let site = Site::of(cluster().await, "");
    open(&site.config, 0o644);
    state_folder(&site, "act-state", ORDINARY[0]);
    let secret = site.cluster.dir().join("secret");
    fs::write(&secret, "").unwrap();
    open(&secret, 0o600);
    let (line, written) = ("echo $(id -u) >>$0.lines && echo >>$1", "touch.lines");
    let lines = site.cluster.dir().join(written);
    fs::write(&lines, "").unwrap();
    open(&lines, 0o666);
    let touch = site.cluster.dir().join("touch");
    site.add(&rule("drain", "then = \"drain\""));
    site.add(&rule("page", &format!("then = \"webhook\"\nurl = \"http://{}/\"", pager.address)));
    site.add(&rule("notice", "then = \"publish\"\nevent = \"site.act NOTICE\""));
    site.add(&rule("forged", "then = \"publish\"\nevent = \"ftb.ipmi FTB_IPMI_NORMAL\""));
    site.add(&rule(
        "write",
        &format!(
            "then = \"exec\"\nprogram = [\"/bin/sh\", \"-c\", {line:?}, {touch:?}, {secret:?}]"
        ),
    ));
    (site, lines, secret)
}

/// Another user with the same configuration: no state of ftb-act, and no drain.
async fn another_user_gets_nothing_done(site: &mut Site) {
    let mut other = program(site, ORDINARY[1]);
    let output = other.arg("run").arg("--config").arg(&site.config).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("Permission denied"), "{errors}");
    let text = fs::read_to_string(&site.config).unwrap();
    fs::write(&site.config, text.replace("act-state", "other-state")).unwrap();
    state_folder(site, "other-state", ORDINARY[1]);
    fs::write(site.cluster.dir().join("act.log"), "").unwrap();
    site.start_as(program(site, ORDINARY[1]));
    site.state("n05", "DRAIN", Truth::True).await;
    site.wait("the refusal", async || {
        let log = site.log();
        let mut refused = log.lines().filter(|line| line.contains("not confirmed"));
        refused.any(|line| line.contains("ftb.act")).then_some(())
    })
    .await;
    assert!(!site.out_of_service().contains("n05"), "{}", site.out_of_service());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_ftb_act_acts_and_gets_no_right_beyond_its_event_space() {
    if let Some(why) = impossible() {
        return skip(&why);
    }
    let pager = Pager::start();
    let (mut site, lines, secret) = site(&pager).await;
    let mut all = site.client.subscribe("", Start::Now).await.unwrap();
    let mut events = site.client.subscribe("event_space=ftb.act", Start::Now).await.unwrap();
    site.start_as(program(&site, ORDINARY[0]));

    for key in ["DRAIN", "PAGE", "NOTICE", "WRITE", "FORGED"] {
        site.state("n03", key, Truth::True).await;
    }
    // It takes other hosts out of service, under its own name.
    site.wait("the drain", async || site.out_of_service().contains("OUT_OF_SERVICE").then_some(()))
        .await;
    site.wait("the page", async || (pager.requests().len() == 1).then_some(())).await;
    // Its programs are this user too.
    let [_, rule, result] = next(&mut events, "FTB_ACT_FAILED").await;
    // What a program says is in the log only: every user reads the event.
    assert_eq!((&rule[..], &result[..]), ("write", "exit code 2"));
    let log = site.log();
    assert!(log.contains("Permission denied"), "{log}");
    assert_eq!(fs::read_to_string(&lines).unwrap(), format!("{}\n", ORDINARY[0]));
    assert_eq!(fs::metadata(&secret).unwrap().len(), 0);
    site.wait("the refusal", async || {
        site.log().contains("an event is not confirmed").then_some(())
    })
    .await;
    let refused = site.log();
    let refused = refused.lines().find(|line| line.contains("not confirmed")).unwrap();
    assert!(refused.contains("ftb.ipmi"), "{refused}");
    site.state("n04", "PAGE", Truth::True).await;
    site.wait("another page", async || (pager.requests().len() == 2).then_some(())).await;
    let folder = site.cluster.dir().join("act-state");
    assert_eq!(fs::metadata(folder.join("state")).unwrap().uid(), ORDINARY[0]);
    site.kill();

    // Behind this event all earlier ones have come: the forged one is not among them.
    site.state("last", "LAST", Truth::True).await;
    let mut notices = 0;
    loop {
        let Some(Delivery::Event(received)) = all.next().await else { panic!("it has ended") };
        let event = &received.event;
        assert_ne!(event.name.as_str(), "FTB_IPMI_NORMAL");
        notices += usize::from(event.name.as_str() == "NOTICE");
        if received.stated.as_ref().is_some_and(|stated| stated.condition.key.as_str() == "LAST") {
            break;
        }
    }
    assert_eq!(notices, 1);

    another_user_gets_nothing_done(&mut site).await;
}
