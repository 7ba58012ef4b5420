//! `ftbctl doctor`: what is wrong with ftb itself, on this host and in the tree, and what to do.
//!
//! Responsible for: asking the agents, and judging their answers ([`judge`] is without I/O). Each
//! finding names its fix. Not responsible for: faults of the hardware (`ftbctl conditions`).

mod programs;

use crate::cli::DoctorArgs;
use crate::common::Common;
use crate::failure::Failure;
use crate::output::{BAD, FAINT, GOOD, Output, WARN, styled};
use crate::text;
use core::time::Duration;
use ftb_client::admin::{Admin, AdminError};
use ftb_client::now_ns;
use ftb_core::hostlist::fold;
use ftb_proto::v1::{
    AgentReport, AgentRole, JournalState, MemberState, ReportsReply, StatusReply, TreeReply,
    TrustReport,
};
use nix::unistd::geteuid;
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

/// A clock that differs by more from this host's is reported; the time that the answers took comes
/// on top.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(1);
/// Certificates that end within this time are reported.
const CERTIFICATE_SOON: Duration = Duration::from_secs(30 * 86_400);
/// The same, as an error.
const CERTIFICATE_NOW: Duration = Duration::from_secs(86_400);

/// Unproven statements are reported for this time after the last of them.
const UNPROVEN_FOR: Duration = Duration::from_secs(86_400);

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// Nothing is wrong: something could not be examined.
    Note,
    Warning,
    Error,
}

impl Grade {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    grade: Grade,
    /// One of [`AREAS`].
    area: &'static str,
    /// A host list; empty: this host.
    hosts: String,
    what: String,
    fix: String,
}

/// What is examined, in the order of the report.
const AREAS: [&str; 7] =
    ["configuration", "socket", "tree", "versions", "clocks", "certificates", "journals"];

impl Finding {
    fn new(grade: Grade, area: &'static str, what: impl Into<String>, fix: &str) -> Self {
        Self { grade, area, hosts: String::new(), what: what.into(), fix: fix.to_owned() }
    }

    fn of<'a>(mut self, hosts: impl IntoIterator<Item = &'a str>) -> Self {
        self.hosts = folded(hosts);
        self
    }
}

fn folded<'a>(hosts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hosts: Vec<String> = hosts.into_iter().map(text::printable).collect();
    hosts.sort();
    fold(hosts.iter().map(String::as_str))
}

/// What the agents answered.
struct Answers {
    /// This program's release.
    version: &'static str,
    status: StatusReply,
    tree: TreeReply,
    reports: ReportsReply,
    /// When the reports were asked for, and when they were there, in Unix nanoseconds.
    asked_ns: u64,
    answered_ns: u64,
}

/// Examines this host and the tree.
pub(crate) async fn run(
    common: &Common,
    args: &DoctorArgs,
    mut output: Output,
) -> Result<(), Failure> {
    let mut findings = configuration(&args.config, &common.socket());
    let (mut agents, mut left_out) = (0, 0);
    match ask(common).await {
        Ok(answers) => {
            (agents, left_out) = (answers.reports.reports.len(), answers.reports.omitted);
            findings.extend(judge(&answers));
            let clients = answers.status.clients.iter().map(|client| client.pid);
            let agent = programs::agent_at(&common.socket()).await;
            findings.extend(programs::old(agent.into_iter().chain(clients)));
        }
        Err(error) => findings.push(no_answer(&common.socket(), &error)),
    }
    for finding in &findings {
        show(&mut output, finding)?;
    }
    summary(&mut output, &findings, (agents, left_out))?;
    output.flush()?;
    if is_healthy(&findings) { Ok(()) } else { Err(Failure::Code(ftb_cli::FAILED)) }
}

fn is_healthy(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.grade == Grade::Note)
}

/// The file of the agent, or its key, is closed to this user: that is right unless it is root, or
/// the user of the agent, who has the folder of the socket.
fn denied(what: String, socket: &Path) -> Vec<Finding> {
    let folder = socket.parent().and_then(|folder| std::fs::metadata(folder).ok());
    let is_own = folder.is_some_and(|folder| folder.uid() == geteuid().as_raw());
    let (grade, fix) = match is_own || geteuid().is_root() {
        true => (Grade::Warning, "open it to the user of the agent"),
        false => (Grade::Note, "to examine it too, run as root"),
    };
    vec![Finding::new(grade, AREAS[0], what, fix)]
}

/// The areas of which all could be examined.
fn examined(findings: &[Finding]) -> Vec<&'static str> {
    let has_note =
        |area: &&str| findings.iter().any(|one| one.grade == Grade::Note && one.area == *area);
    AREAS.into_iter().filter(|area| !has_note(area)).collect()
}

async fn ask(common: &Common) -> Result<Answers, AdminError> {
    let admin = Admin::connect(&common.socket(), common.timeout()).await?;
    let asked_ns = now_ns();
    let (mut one, mut two, mut three) = (admin.clone(), admin.clone(), admin);
    let (status, tree, reports) = tokio::join!(one.status(), two.tree(), three.reports());
    let answered_ns = now_ns();
    let (status, tree) = (status?, tree?);
    // An agent of an older release knows no reports.
    let reports = reports.unwrap_or_else(|_| ReportsReply {
        silent: vec![status.host.clone()],
        ..ReportsReply::default()
    });
    let version = env!("CARGO_PKG_VERSION");
    Ok(Answers { version, status, tree, reports, asked_ns, answered_ns })
}

/// Lets the agent's own program check its file.
pub(crate) fn configuration(file: &Path, socket: &Path) -> Vec<Finding> {
    let finding = |grade, what: String, fix: &str| vec![Finding::new(grade, AREAS[0], what, fix)];
    let shown = file.display();
    match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let fix = "write one with ftbctl init, or give --config FILE";
            return finding(Grade::Warning, format!("{shown} does not exist"), fix);
        }
        Err(error) => return denied(format!("{shown}: {error}"), socket),
        Ok(_) => {}
    }
    let beside = std::env::current_exe().map(|own| own.with_file_name("ftb-agent"));
    let program = beside.ok().filter(|path| path.is_file());
    let program = program.unwrap_or_else(|| "ftb-agent".into());
    let checked = Command::new(&program).args(["--check-config", "--config"]).arg(file).output();
    let output = match checked {
        Ok(output) => output,
        Err(error) => {
            let what = format!("{} cannot be started: {error}", program.display());
            return finding(Grade::Warning, what, "install ftb-agent beside ftbctl");
        }
    };
    let (errors, words) =
        (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let line = text::printable(errors.lines().next().unwrap_or_default());
    let line = line.strip_prefix("ftb-agent: ").unwrap_or(&line).to_owned();
    match output.status.success() {
        _ if line.contains("Permission denied") => denied(line, socket),
        false => finding(Grade::Error, line, "correct the line that the message names"),
        true if !line.is_empty() => finding(Grade::Warning, line, "renew it: ftbctl ca issue"),
        true if words.contains("is not in the list") => finding(
            Grade::Warning,
            text::printable(words.trim()),
            "add the host to members on all hosts, or set host to its name there",
        ),
        true => Vec::new(),
    }
}

fn no_answer(socket: &Path, error: &AdminError) -> Finding {
    let what = text::printable(&error.to_string());
    let fix = match std::fs::metadata(socket) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "start it: systemctl start ftb-agent; elsewhere give --agent-socket or FTB_AGENT_SOCKET"
        }
        Err(_) => "ask as a user who may open the folder of the socket",
        Ok(_) => "read journalctl -u ftb-agent, then systemctl restart ftb-agent",
    };
    Finding::new(Grade::Error, AREAS[1], what, fix)
}

/// What is wrong, as the answers say.
fn judge(answers: &Answers) -> Vec<Finding> {
    let mut findings = tree(answers);
    findings.extend(versions(answers));
    findings.extend(clocks(answers));
    findings.extend(certificates(answers));
    findings.extend(trust(answers));
    findings.extend(journals(answers));
    findings
}

fn tree(answers: &Answers) -> Vec<Finding> {
    let found = |grade, what: &str, fix: &str| Finding::new(grade, AREAS[2], what, fix);
    let in_state = |state| {
        let nodes = answers.tree.nodes.iter().filter(move |node| node.state() == state);
        nodes.map(|node| &node.host[..]).collect::<Vec<&str>>()
    };
    let states = [
        (
            MemberState::Dead,
            Grade::Error,
            "the host does not answer",
            "repair or power on the host",
        ),
        (MemberState::Lost, Grade::Error, "no agent runs", "systemctl start ftb-agent there"),
        (MemberState::Suspect, Grade::Warning, "silent", "check its network and load"),
        (
            MemberState::Absent,
            Grade::Warning,
            "not in the tree: stopped in order, or never seen",
            "start ftb-agent there, or remove the host from members",
        ),
    ];
    let mut findings = Vec::new();
    if answers.status.role() == AgentRole::Searching {
        let fix = "open the port of agents to the first hosts of members; compare certificates, \
                   cluster and members (ftbctl status: rejected, dials_failed)";
        findings.push(found(Grade::Error, "the local agent finds no parent", fix));
    } else if !answers.tree.complete {
        let fix = "ask again in some seconds; else see the log of the acting root";
        findings.push(found(Grade::Error, "the acting root does not answer in time", fix));
    }
    for (state, grade, what, fix) in states {
        let hosts = in_state(state);
        if !hosts.is_empty() {
            findings.push(found(grade, what, fix).of(hosts));
        }
    }
    // Older releases do not report; they are in the tree all the same.
    let is_up = |host: &&String| in_state(MemberState::Up).contains(&&host[..]);
    let silent: Vec<&str> =
        answers.reports.silent.iter().filter(is_up).map(String::as_str).collect();
    if !silent.is_empty() {
        let fix = "upgrade ftb-agent there; if it is of this release, see its log";
        let what = "no report: an older release, or too slow (agents below it were not asked)";
        findings.push(found(Grade::Warning, what, fix).of(silent));
    }
    findings.extend(outliers(
        &answers.reports.reports,
        |report| report.members_digest,
        |_, _| {
            let what = "members differ from those of most agents".to_owned();
            let fix = "install the same member list everywhere, then systemctl reload ftb-agent";
            Finding::new(Grade::Error, AREAS[2], what, fix)
        },
    ));
    findings
}

/// One finding for each value that is not that of most agents.
fn outliers<K: Ord + Clone>(
    reports: &[AgentReport],
    key: impl Fn(&AgentReport) -> K,
    finding: impl Fn(&K, &K) -> Finding,
) -> Vec<Finding> {
    let mut groups: BTreeMap<K, Vec<&str>> = BTreeMap::new();
    for report in reports {
        groups.entry(key(report)).or_default().push(&report.host);
    }
    let Some((usual, _)) = groups.iter().max_by_key(|(_, hosts)| hosts.len()) else {
        return Vec::new();
    };
    let others = groups.iter().filter(|(key, _)| *key != usual);
    others.map(|(key, hosts)| finding(key, usual).of(hosts.iter().copied())).collect()
}

fn versions(answers: &Answers) -> Vec<Finding> {
    let mut findings = outliers(
        &answers.reports.reports,
        |report| report.version.clone(),
        |version, usual| {
            let (version, usual) = (text::printable(version), text::printable(usual));
            let what = format!("agents of release {version}, most are of {usual}");
            Finding::new(
                Grade::Warning,
                AREAS[3],
                what,
                "finish the upgrade: one release at a time",
            )
        },
    );
    let local = &answers.status.version;
    if local != answers.version {
        let (local, own) = (text::printable(local), answers.version);
        let what = format!("the agent is of release {local}, ftbctl of {own}");
        let fix = "systemctl restart ftb-agent after an upgrade; install both from one package";
        findings.push(Finding::new(Grade::Warning, AREAS[3], what, fix));
    }
    findings
}

/// How far a clock is certainly off: it was read between the request and the answer.
fn clock_error(report: &AgentReport, answers: &Answers) -> (Duration, &'static str) {
    let behind = answers.asked_ns.saturating_sub(report.wall_ns);
    let ahead = report.wall_ns.saturating_sub(answers.answered_ns);
    match behind > ahead {
        true => (Duration::from_nanos(behind), "behind"),
        false => (Duration::from_nanos(ahead), "ahead of"),
    }
}

fn clocks(answers: &Answers) -> Vec<Finding> {
    let mut sides: BTreeMap<&str, (Duration, Vec<&str>)> = BTreeMap::new();
    for report in &answers.reports.reports {
        let (error, side) = clock_error(report, answers);
        if error > CLOCKS_APART_MAX {
            let (worst, hosts) = sides.entry(side).or_default();
            *worst = error.max(*worst);
            hosts.push(&report.host);
        }
    }
    let finding = |(side, (worst, hosts)): (&str, (Duration, Vec<&str>))| {
        let worst = text::duration(worst);
        let what = format!("clocks are up to {worst} {side} the clock of this host");
        let fix = "synchronise clocks: systemctl enable --now chrony, then chronyc tracking";
        Finding::new(Grade::Warning, AREAS[4], what, fix).of(hosts)
    };
    sides.into_iter().map(finding).collect()
}

fn certificates(answers: &Answers) -> Vec<Finding> {
    let fix = "ftbctl ca issue HOSTLIST, install the files, systemctl reload ftb-agent";
    let left = |report: &AgentReport| {
        let end_ns = report.certificates_end_ns?;
        Some(Duration::from_nanos(end_ns.saturating_sub(answers.answered_ns)))
    };
    let ending = |from: Option<Duration>, until: Duration| {
        let reports = answers.reports.reports.iter().filter(move |report| {
            left(report).is_some_and(|left| left <= until && from.is_none_or(|from| left > from))
        });
        reports.map(|report| &report.host[..]).collect::<Vec<&str>>()
    };
    let spans = [
        (Grade::Error, None, CERTIFICATE_NOW, "certificates or revocation lists end within a day"),
        (
            Grade::Warning,
            Some(CERTIFICATE_NOW),
            CERTIFICATE_SOON,
            "certificates or revocation lists end within 30 days",
        ),
    ];
    let mut findings = outliers(
        &answers.reports.reports,
        |report| report.secured,
        |secured, _| {
            let what = match secured {
                true => "agents require certificates, most do not",
                false => "agents accept others without certificates, most do not",
            };
            Finding::new(Grade::Error, AREAS[5], what, "give all agents the same [tls] settings")
        },
    );
    for (grade, from, until, what) in spans {
        let hosts = ending(from, until);
        if !hosts.is_empty() {
            findings.push(Finding::new(grade, AREAS[5], what, fix).of(hosts));
        }
    }
    findings
}

fn journals(answers: &Answers) -> Vec<Finding> {
    let mut findings = Vec::new();
    let reports = &answers.reports.reports;
    let hosts = |is: &dyn Fn(&AgentReport) -> bool| {
        let some = reports.iter().filter(|report| is(report));
        some.map(|report| report.host.clone()).collect::<Vec<String>>()
    };
    let failed = hosts(&|report| report.journal == Some(false));
    let local = answers.status.journal.as_ref();
    let is_local_failed = local.is_some_and(|journal| journal.state() == JournalState::Degraded);
    if !failed.is_empty() || is_local_failed {
        let fix = "check the disk and its free space, then systemctl restart ftb-agent";
        let what = "the journal has failed: events are in memory only";
        let finding = Finding::new(Grade::Error, AREAS[6], what, fix);
        findings.push(finding.of(failed.iter().map(String::as_str)));
    }
    let defects = hosts(&|report| report.impossible > 0);
    if !defects.is_empty() {
        let fix = "report it with ftbctl status and the log of the agent";
        let what = "a defect: the agent was in a state that cannot be";
        let finding = Finding::new(Grade::Warning, AREAS[6], what, fix);
        findings.push(finding.of(defects.iter().map(String::as_str)));
    }
    findings
}

/// What the certificates are to prove.
fn trust(answers: &Answers) -> Vec<Finding> {
    let warning = |what: String, fix: &str| Finding::new(Grade::Warning, AREAS[5], what, fix);
    let reports = answers.reports.reports.iter();
    let states: Vec<(&str, &TrustReport)> =
        reports.filter_map(|report| Some((&report.host[..], report.trust.as_ref()?))).collect();
    let mut findings = Vec::new();
    let nameless = states.iter().filter(|(_, trust)| trust.monitors_digest == 0);
    let nameless: Vec<&str> = nameless.map(|(host, _)| *host).collect();
    if !nameless.is_empty() {
        let what = "no monitors are set: the key of any host can state conditions of all others";
        let fix = "name the hosts whose programs watch others in monitors of agent.toml (none: \
                   monitors = \"\"), then systemctl reload ftb-agent";
        findings.push(warning(what.to_owned(), fix).of(nameless));
    }
    let named = |report: &&AgentReport| {
        report.trust.as_ref().is_some_and(|trust| trust.monitors_digest != 0)
    };
    let named: Vec<AgentReport> = answers.reports.reports.iter().filter(named).cloned().collect();
    findings.extend(outliers(
        &named,
        |report| report.trust.as_ref().map(|trust| trust.monitors_digest),
        |_, _| {
            let what = "monitors differ from those of most agents: conditions count on some hosts";
            let fix = "install the same monitors everywhere, then systemctl reload ftb-agent";
            warning(what.to_owned(), fix)
        },
    ));
    let since_ns = answers.answered_ns.saturating_sub(UNPROVEN_FOR.as_nanos() as u64);
    let mut publishers: BTreeMap<&str, (u64, Vec<&str>)> = BTreeMap::new();
    for (host, trust) in &states {
        if trust.unproven > 0 && trust.unproven_ns >= since_ns {
            let (count, agents) = publishers.entry(&trust.unproven_host).or_default();
            *count += trust.unproven;
            agents.push(host);
        }
    }
    findings.extend(publishers.into_iter().map(|(publisher, (count, agents))| {
        let publisher = text::printable(publisher);
        let what = format!("{count} unproven conditions, the last from {publisher}, not delivered");
        let fix = format!(
            "read why: journalctl -u ftb-agent, kind conditions_unproven. Add {publisher} to \
             monitors if it watches others, or upgrade its agent; else revoke its key: ftbctl ca \
             revoke {publisher}"
        );
        warning(what, &fix).of(agents)
    }));
    findings
}

pub(crate) fn show(output: &mut Output, finding: &Finding) -> Result<(), Failure> {
    let Finding { grade, area, hosts, what, fix } = finding;
    if output.is_json() {
        return output.json(&json!({
            "type": "finding",
            "severity": grade.as_str(),
            "area": area,
            "hosts": hosts,
            "what": what,
            "fix": fix,
        }));
    }
    let style = match grade {
        Grade::Note => FAINT,
        Grade::Warning => WARN,
        Grade::Error => BAD,
    };
    let word = styled(style, &format!("{:<7}", grade.as_str()));
    let subject = if hosts.is_empty() { String::new() } else { format!("{hosts}: ") };
    output.line(&format!("{word}  {area}: {subject}{what}"))?;
    output.line(&format!("         {}", styled(FAINT, &format!("fix: {fix}"))))
}

fn summary(
    output: &mut Output,
    findings: &[Finding],
    (agents, left_out): (usize, u32),
) -> Result<(), Failure> {
    let count = |grade| findings.iter().filter(|finding| finding.grade == grade).count();
    let (errors, warnings) = (count(Grade::Error), count(Grade::Warning));
    if output.is_json() {
        return output.json(&json!({
            "type": "doctor",
            "agents": agents,
            "omitted": left_out,
            "errors": errors,
            "warnings": warnings,
            "areas": examined(findings),
        }));
    }
    let more = if left_out > 0 { format!(", {left_out} left out") } else { String::new() };
    if is_healthy(findings) {
        let areas = examined(findings).join(", ");
        let line = format!("healthy: {agents} agents reported{more}; {areas}");
        return output.line(&styled(GOOD, &line));
    }
    output.line(&format!("{errors} errors, {warnings} warnings; {agents} agents reported{more}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_proto::v1::TreeNode;

    const NOW_NS: u64 = 1_800_000_000_000_000_000;

    fn report(number: u64) -> AgentReport {
        AgentReport {
            host: format!("node{number:02}"),
            rank: u32::try_from(number).ok(),
            version: "1.0.0".to_owned(),
            wall_ns: NOW_NS,
            certificates_end_ns: Some(NOW_NS + 200 * 86_400_000_000_000),
            secured: true,
            journal: Some(true),
            members_digest: 7,
            impossible: 0,
            trust: Some(TrustReport { monitors_digest: 5, ..TrustReport::default() }),
        }
    }

    /// Six agents of which nothing is wrong.
    fn healthy() -> Answers {
        let node = |number: u64| TreeNode {
            host: format!("node{number:02}"),
            state: MemberState::Up.into(),
            ..TreeNode::default()
        };
        Answers {
            version: "1.0.0",
            status: StatusReply {
                version: "1.0.0".to_owned(),
                role: AgentRole::Member.into(),
                ..StatusReply::default()
            },
            tree: TreeReply { nodes: (1..=6).map(node).collect(), complete: true },
            reports: ReportsReply { reports: (1..=6).map(report).collect(), ..Default::default() },
            asked_ns: NOW_NS - 1_000_000,
            answered_ns: NOW_NS + 1_000_000,
        }
    }

    /// The only finding after a change: area, hosts, and what it says.
    #[track_caller]
    fn found(change: impl FnOnce(&mut Answers), area: &str, hosts: &str, word: &str) {
        let mut answers = healthy();
        change(&mut answers);
        let findings = judge(&answers);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((finding.area, &finding.hosts[..]), (area, hosts), "{finding:?}");
        assert!(finding.what.contains(word) && !finding.fix.is_empty(), "{finding:?}");
    }

    #[test]
    fn nothing_is_found_in_a_healthy_tree() {
        assert_eq!(judge(&healthy()), []);
    }

    #[test]
    fn each_fault_is_found_with_its_hosts_and_its_fix() {
        let all = |answers: &mut Answers, f: &dyn Fn(&mut AgentReport)| {
            answers.reports.reports[2..4].iter_mut().for_each(f);
        };
        let two = "node[03-04]";
        found(|a| all(a, &|r| r.version = "0.9.0".into()), "versions", two, "0.9.0, most");
        found(|a| a.status.version = "0.9.0".into(), "versions", "", "ftbctl of 1.0.0");
        found(|a| all(a, &|r| r.wall_ns -= 9_000_000_000), "clocks", two, "8s behind");
        found(|a| all(a, &|r| r.wall_ns += 9_000_000_000), "clocks", two, "8s ahead of");
        let ends = |days: u64| {
            move |r: &mut AgentReport| {
                r.certificates_end_ns = Some(NOW_NS + days * 86_400_000_000_000);
            }
        };
        found(|a| all(a, &ends(20)), "certificates", two, "30 days");
        found(|a| all(a, &ends(0)), "certificates", two, "within a day");
        found(|a| all(a, &|r| r.secured = false), "certificates", two, "without");
        found(|a| all(a, &|r| r.journal = Some(false)), "journals", two, "failed");
        found(|a| all(a, &|r| r.impossible = 1), "journals", two, "defect");
        found(|a| all(a, &|r| r.members_digest = 8), "tree", two, "members differ");
        let trust = |change: fn(&mut TrustReport)| {
            move |r: &mut AgentReport| change(r.trust.as_mut().unwrap())
        };
        found(|a| all(a, &trust(|t| t.monitors_digest = 0)), "certificates", two, "no monitors");
        found(|a| all(a, &trust(|t| t.monitors_digest = 6)), "certificates", two, "differ");
        let unproven = trust(|t| {
            (t.unproven, t.unproven_ns, t.unproven_host) = (3, NOW_NS, "node09".to_owned());
        });
        found(
            |a| all(a, &unproven),
            "certificates",
            two,
            "6 unproven conditions, the last from node09",
        );
        found(|a| a.tree.complete = false, "tree", "", "acting root");
        found(|a| a.status.set_role(AgentRole::Searching), "tree", "", "no parent");
        found(|a| a.tree.nodes[4].set_state(MemberState::Lost), "tree", "node05", "no agent");
        found(|a| a.tree.nodes[4].set_state(MemberState::Dead), "tree", "node05", "host");
        found(|a| a.reports.silent.push("node06".into()), "tree", "node06", "no report");
    }

    /// A counter never falls; agents of an older release say nothing of trust.
    #[test]
    fn unproven_conditions_of_days_ago_and_agents_without_a_word_are_no_finding() {
        let mut answers = healthy();
        for report in &mut answers.reports.reports[..3] {
            let trust = report.trust.as_mut().unwrap();
            (trust.unproven, trust.unproven_ns) = (3, NOW_NS - 90_000_000_000_000);
        }
        answers.reports.reports[3].trust = None;
        assert_eq!(judge(&answers), []);
    }

    #[test]
    fn a_clock_within_the_time_of_the_answer_is_not_called_wrong() {
        let mut answers = healthy();
        (answers.asked_ns, answers.answered_ns) = (NOW_NS - 1_500_000_000, NOW_NS + 1_500_000_000);
        for report in &mut answers.reports.reports[..3] {
            report.wall_ns += 2_400_000_000;
        }
        assert_eq!(judge(&answers), []);
    }
}
