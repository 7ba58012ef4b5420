//! `ftbctl explain`: what an event or a condition means, and what is done about it.
//!
//! The meaning comes from the catalogue. The reactions of job launchers come from policies: the
//! built-in one, those of the user's jobs on this host, or a file; those of ftb-act and ftb-slurm
//! from [`crate::local_rules`]. It needs no agent.

use crate::cli::ExplainArgs;
use crate::failure::Failure;
use crate::local_rules::{LocalPart, LocalReaction, LocalRules, Stated, stated_of};
use crate::output::{BAD, FAINT, Output, PLAIN, STRONG, WARN, styled};
use ftb_core::catalog::{CONDITIONS, ConditionEntry, EVENTS, EventEntry};
use ftb_launcher_core::policy::{self, Policy, Reaction};
use serde::Serialize;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Most entries that are shown in full; more become a list.
const FULL_MAX: usize = 2;
/// Most jobs whose policies are shown.
const JOBS_MAX: usize = 64;
/// Largest file of a job or a policy that is read.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Names at least this close to the given one are suggested.
const CLOSE: f64 = 0.85;
const SUGGESTED_MAX: usize = 3;
/// Columns of a text, behind the heading of its line.
const TEXT_COLUMNS: usize = 84;

/// An event or a condition.
#[derive(Clone, Copy)]
enum Topic {
    Event(&'static EventEntry),
    Condition(&'static ConditionEntry),
}

/// A policy, and whose it is.
struct Source {
    whose: String,
    policy: Policy,
}

pub(crate) fn run(args: &ExplainArgs, mut output: Output) -> Result<(), Failure> {
    let topics = match &args.name {
        Some(name) => matching(name),
        None => all().collect(),
    };
    if topics.is_empty() {
        return Err(Failure::usage(unknown(args.name.as_deref().unwrap_or_default())));
    }
    let sources = match &args.policy {
        Some(file) => vec![of_file(file)?],
        None => of_this_host()?,
    };
    let local = LocalRules::load(args.act.as_deref(), args.slurm.as_deref())?;
    for (at, topic) in topics.iter().enumerate() {
        if output.is_json() {
            output.json(&topic.object(&sources, &local))?;
        } else if topics.len() > FULL_MAX {
            topic.list(&mut output)?;
        } else {
            if at > 0 {
                output.line("")?;
            }
            topic.show(&sources, &mut output)?;
            for part in local.about(&topic.stated()) {
                show_local(&part, &mut output)?;
            }
        }
    }
    output.flush()
}

fn all() -> impl Iterator<Item = Topic> {
    CONDITIONS.iter().map(Topic::Condition).chain(EVENTS.iter().map(Topic::Event))
}

/// The topic with this name, else those of this event space, else those with a word that begins
/// like this.
fn matching(name: &str) -> Vec<Topic> {
    let name = name.to_ascii_uppercase();
    let exact: Vec<Topic> = all().filter(|topic| topic.name() == name).collect();
    if !exact.is_empty() {
        return exact;
    }
    let space = name.to_ascii_lowercase();
    let of_space: Vec<Topic> = all().filter(|topic| topic.space() == space).collect();
    if !of_space.is_empty() {
        return of_space;
    }
    let begins = |topic: &Topic| {
        let words = topic.name().match_indices('_').map(|(at, _)| &topic.name()[at + 1..]);
        core::iter::once(topic.name()).chain(words).any(|rest| rest.starts_with(&name))
    };
    all().filter(begins).collect()
}

/// Why there is no such name, and which were perhaps meant.
fn unknown(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    let closeness = |topic: &Topic| {
        let short = topic.name().trim_start_matches("FTB_");
        let closeness = |known: &str| strsim::jaro_winkler(known, &upper);
        let last = short.split_once('_').map_or(short, |(_, last)| last);
        [topic.name(), short, last].into_iter().map(closeness).fold(0.0, f64::max)
    };
    let mut close: Vec<(f64, &str)> = all()
        .map(|topic| (closeness(&topic), topic.name()))
        .filter(|(by, _)| *by > CLOSE)
        .collect();
    close.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let names: Vec<&str> = close.into_iter().take(SUGGESTED_MAX).map(|(_, name)| name).collect();
    let hint = match names.is_empty() {
        true => "ftbctl explain lists all names".to_owned(),
        false => format!("did you mean {}?", names.join(" or ")),
    };
    format!("{name:?} is no event or condition of ftb's programs: {hint}")
}

fn of_file(file: &Path) -> Result<Source, Failure> {
    let at = |problem: &dyn core::fmt::Display| format!("{}: {problem}", file.display());
    let text = read(file).map_err(|error| Failure::usage(at(&error)))?;
    let policy = Policy::parse(&text).map_err(|error| Failure::usage(at(&error)))?;
    Ok(Source { whose: file.display().to_string(), policy })
}

/// The built-in policy, and those of the user's jobs on this host that differ from it.
fn of_this_host() -> Result<Vec<Source>, Failure> {
    let mut texts = vec![(policy::DEFAULT.to_owned(), Vec::new())];
    for (job, text) in jobs() {
        match texts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, jobs)) => jobs.push(job),
            None => texts.push((text, vec![job])),
        }
    }
    let source = |(at, (text, jobs)): (usize, (String, Vec<String>))| {
        let policy = Policy::parse(&text).map_err(Failure::failed)?;
        let whose = match (at, jobs.join(", ")) {
            (0, jobs) if jobs.is_empty() => "built-in policy".to_owned(),
            (0, jobs) => format!("built-in policy, also of job {jobs}"),
            (_, jobs) => format!("policy of job {jobs}"),
        };
        Ok(Source { whose, policy })
    };
    texts.into_iter().enumerate().map(source).collect()
}

/// The user's jobs on this host with the texts of their policies. What cannot be read is left out:
/// `ftb-launch ps` reports it.
fn jobs() -> Vec<(String, String)> {
    let Some(entries) = jobs_dir().and_then(|dir| fs::read_dir(dir).ok()) else {
        return Vec::new();
    };
    let own = fs::metadata("/proc/self").map(|own| own.uid()).ok();
    let is_own = |path: &PathBuf| {
        let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir);
        found.map(|found| found.uid()) == own
    };
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.sort();
    let policy = |dir: PathBuf| {
        let text = read(&dir.join("job.json")).ok()?;
        let job: serde_json::Value = serde_json::from_str(&text).ok()?;
        let text = |key: &str| job.get(key)?.as_str().map(str::to_owned);
        Some((text("job")?, text("policy")?))
    };
    dirs.into_iter().filter(is_own).take(JOBS_MAX).filter_map(policy).collect()
}

/// Where `ftb-launch` keeps jobs.
fn jobs_dir() -> Option<PathBuf> {
    let var = |key: &str| std::env::var_os(key).filter(|v| !v.is_empty()).map(PathBuf::from);
    var("FTB_JOBS_DIR")
        .or_else(|| var("XDG_STATE_HOME").map(|dir| dir.join("ftb/jobs")))
        .or_else(|| var("HOME").map(|dir| dir.join(".local/state/ftb/jobs")))
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    fs::File::open(file)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

impl Topic {
    fn name(&self) -> &'static str {
        match self {
            Self::Event(event) => event.name,
            Self::Condition(condition) => condition.key,
        }
    }

    fn space(&self) -> &'static str {
        match self {
            Self::Event(event) => event.space,
            Self::Condition(_) => "",
        }
    }

    fn list(&self, output: &mut Output) -> Result<(), Failure> {
        let (what, text) = match self {
            Self::Event(event) => (event.severity.to_ascii_uppercase(), event.cause),
            Self::Condition(condition) => ("condition".to_owned(), condition.meaning),
        };
        let first = text.split(". ").next().unwrap_or(text);
        let first = first.split(": ").next().unwrap_or(first).trim_end_matches('.');
        output.line(&format!("{:<33} {what:<21} {first}", self.name()))
    }

    /// The rules of a policy about it.
    fn reactions(&self, policy: &Policy) -> Vec<Reaction> {
        match self {
            Self::Event(event) => {
                let keys: Vec<&str> = event.sets().map(|condition| condition.key).collect();
                policy.reactions(event.space, event.name, &keys)
            }
            Self::Condition(condition) => policy.reactions("", "", &[condition.key]),
        }
    }

    /// The conditions that it begins, as they are stated.
    fn stated(&self) -> Vec<Stated> {
        match self {
            Self::Event(event) => {
                event.sets().map(|entry| (entry, event.space, event.worst())).collect()
            }
            Self::Condition(condition) => stated_of(condition),
        }
    }

    fn show(&self, sources: &[Source], output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Event(event) => show_event(event, output)?,
            Self::Condition(condition) => show_condition(condition, output)?,
        }
        for Source { whose, policy } in sources {
            let shadow = if policy.is_shadow() { " (shadow: only reported)" } else { "" };
            let reactions = self.reactions(policy);
            let heading = format!("a job with the {whose}{shadow}");
            if reactions.is_empty() {
                output.line(&format!("  {heading}: does nothing"))?;
                continue;
            }
            output.line(&format!("  {heading}, the first rule that holds:"))?;
            for Reaction { rule, action, when } in reactions {
                let action = styled(STRONG, action);
                let when = if when.is_empty() { String::new() } else { format!("  ({when})") };
                output.line(&format!("    {action}  rule {rule:?}{when}"))?;
            }
        }
        Ok(())
    }

    /// What programs do about it: launchers first.
    fn all_reactions(&self, sources: &[Source], local: &LocalRules) -> Vec<ReactionObject> {
        let launcher = |source: &Source| {
            let (policy, shadow) = (source.whose.clone(), source.policy.is_shadow());
            let of = move |Reaction { rule, action, when }| {
                let (program, action) = ("ftb-launch", action.to_owned());
                ReactionObject { program, policy: policy.clone(), rule, action, when, shadow }
            };
            self.reactions(&source.policy).into_iter().map(of)
        };
        let mut all: Vec<ReactionObject> = sources.iter().flat_map(launcher).collect();
        for LocalPart { program, file, reactions } in local.about(&self.stated()) {
            let policy = file.display().to_string();
            let of = |LocalReaction { rule, action, when, is_observed: shadow }| ReactionObject {
                program,
                policy: policy.clone(),
                rule,
                action,
                when,
                shadow,
            };
            all.extend(reactions.unwrap_or_default().into_iter().map(of));
        }
        all
    }

    fn object(&self, sources: &[Source], local: &LocalRules) -> ExplainObject {
        let words = |tags: &'static str| tags.split_whitespace().collect();
        let keys = |conditions: &mut dyn Iterator<Item = &'static ConditionEntry>| {
            conditions.map(|condition| condition.key).collect()
        };
        let reactions = self.all_reactions(sources, local);
        match self {
            Self::Event(event) => ExplainObject {
                r#type: "event-entry",
                name: event.name,
                space: Some(event.space),
                publisher: Some(event.publisher),
                severity: event.severity.split(", ").collect(),
                cause: event.cause,
                payload: Some(payload_of(event)),
                tags: words(event.tags),
                subject: None,
                action: None,
                sets: keys(&mut event.sets()),
                clears: keys(&mut event.clears()),
                set_by: &[],
                cleared_by: &[],
                reactions,
            },
            Self::Condition(condition) => ExplainObject {
                r#type: "condition-entry",
                name: condition.key,
                space: None,
                publisher: None,
                severity: Vec::new(),
                cause: condition.meaning,
                payload: None,
                tags: Vec::new(),
                subject: Some(condition.subject),
                action: Some(condition.action),
                sets: Vec::new(),
                clears: Vec::new(),
                set_by: condition.set_by,
                cleared_by: condition.cleared_by,
                reactions,
            },
        }
    }
}

fn payload_of(event: &EventEntry) -> &'static str {
    if event.payload.is_empty() { "text for people" } else { event.payload }
}

fn show_event(event: &EventEntry, output: &mut Output) -> Result<(), Failure> {
    let name = styled(STRONG, event.name);
    output.line(&format!("{name}  event of {}, published by {}", event.space, event.publisher))?;
    paragraph(output, "cause", event.cause)?;
    let style = match event.severity.split(", ").next() {
        Some("info") => PLAIN,
        Some("warning") => WARN,
        _ => BAD,
    };
    let severity = styled(style, &event.severity.to_ascii_uppercase());
    output.line(&format!("  {:<11} {severity}", "severity"))?;
    paragraph(output, "payload", payload_of(event))?;
    if !event.tags.is_empty() {
        let note = if event.tags.contains('?') { "   (?: not always)" } else { "" };
        paragraph(output, "tags", &format!("{}{note}", event.tags))?;
    }
    for condition in event.sets() {
        let ConditionEntry { key, subject, action, .. } = condition;
        paragraph(output, "sets", &format!("{key} of {subject}; recommended: {action}"))?;
        paragraph(output, "", condition.meaning)?;
        if !condition.cleared_by.is_empty() {
            paragraph(output, "", &format!("Cleared by {}.", condition.cleared_by.join(", ")))?;
        }
    }
    for condition in event.clears() {
        paragraph(output, "clears", &format!("{} of {}", condition.key, condition.subject))?;
    }
    Ok(())
}

fn show_condition(condition: &ConditionEntry, output: &mut Output) -> Result<(), Failure> {
    let name = styled(STRONG, condition.key);
    output.line(&format!("{name}  condition of {}", condition.subject))?;
    paragraph(output, "meaning", condition.meaning)?;
    paragraph(output, "recommended", condition.action)?;
    for (heading, names) in [("set by", condition.set_by), ("cleared by", condition.cleared_by)] {
        if !names.is_empty() {
            paragraph(output, heading, &names.join(", "))?;
        }
    }
    let now = styled(FAINT, &format!("ftbctl conditions --key {}", condition.key));
    output.line(&format!("  {:<11} {now}", "now"))
}

/// What a program of the site does.
fn show_local(part: &LocalPart<'_>, output: &mut Output) -> Result<(), Failure> {
    let LocalPart { program, file, reactions } = part;
    let reactions = match reactions {
        Err(why) => return output.line(&format!("  {program}: {why}")),
        Ok(reactions) if reactions.is_empty() => {
            return output.line(&format!("  {program} ({}): does nothing", file.display()));
        }
        Ok(reactions) => reactions,
    };
    output.line(&format!("  {program} ({}), each that holds:", file.display()))?;
    for LocalReaction { rule, action, when, is_observed } in reactions {
        let action = styled(STRONG, action);
        let rule = if rule.is_empty() { String::new() } else { format!("  rule {rule:?}") };
        let shadow = if *is_observed { ", only logged" } else { "" };
        output.line(&format!("    {action}{shadow}{rule}  ({when})"))?;
    }
    Ok(())
}

/// A heading, and a text that is broken into lines.
fn paragraph(output: &mut Output, heading: &str, text: &str) -> Result<(), Failure> {
    let (mut line, mut heading) = (String::new(), heading);
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > TEXT_COLUMNS {
            output.line(&format!("  {heading:<11} {line}"))?;
            (line, heading) = (String::new(), "");
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    output.line(&format!("  {heading:<11} {line}"))
}

/// An entry for programs; proto/json.md describes the fields.
#[derive(Serialize)]
struct ExplainObject {
    r#type: &'static str,
    name: &'static str,
    space: Option<&'static str>,
    publisher: Option<&'static str>,
    severity: Vec<&'static str>,
    cause: &'static str,
    payload: Option<&'static str>,
    tags: Vec<&'static str>,
    subject: Option<&'static str>,
    action: Option<&'static str>,
    sets: Vec<&'static str>,
    clears: Vec<&'static str>,
    set_by: &'static [&'static str],
    cleared_by: &'static [&'static str],
    reactions: Vec<ReactionObject>,
}

#[derive(Serialize)]
struct ReactionObject {
    program: &'static str,
    policy: String,
    rule: String,
    action: String,
    when: String,
    shadow: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str) -> Vec<&'static str> {
        matching(name).iter().map(Topic::name).collect()
    }

    #[test]
    fn a_name_a_key_a_space_or_a_beginning_is_found() {
        assert_eq!(names("ftb_ipmi_fanfail"), ["FTB_IPMI_FANFAIL"]);
        assert_eq!(names("fan"), ["FANFAIL", "FTB_IPMI_FANFAIL"]);
        assert_eq!(names("FANFAIL"), ["FANFAIL"]);
        assert!(names("ftb.ib").iter().all(|name| name.starts_with("FTB_IB_")));
        assert!(names("FTB_MIGRATE_").contains(&"FTB_MIGRATE_PIC"));
        assert_eq!(names("nothing"), [""; 0]);
    }

    #[test]
    fn a_typing_mistake_gets_the_names_that_were_meant() {
        assert!(unknown("FTB_IPMI_FANFIAL").contains("did you mean FTB_IPMI_FANFAIL"));
        assert!(unknown("overtmp").contains("OVERTEMP"));
        assert!(unknown("xyzzy").contains("lists all names"));
    }
}
