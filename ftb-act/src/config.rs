//! The configuration file: format, defaults and checks. Each mistake is named with its place.

use crate::act::{GroupBy, Mode, Rule, Rules, Then};
use ftb_client::daemon::{Failure, load_config};
use ftb_core::condition::RecommendedAction;
use ftb_core::hostlist::Hostlist;
use ftb_core::{EventName, EventSpace, Severity, racks};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most rules.
const RULES_MAX: usize = 256;
/// Longest name of a rule in bytes.
const NAME_BYTES_MAX: usize = 48;
/// Longest time for further conditions, longest program, and how long a request is repeated by
/// default: a fault may take the network to the pager with it.
const HOUR: Duration = Duration::from_secs(3_600);
/// How long a request is repeated at most.
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Longest program by default.
const MINUTE: Duration = Duration::from_secs(60);

type Spanned<T> = toml::Spanned<T>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    agent_socket: Option<PathBuf>,
    state: PathBuf,
    /// The certificates of those who may vouch for web servers.
    ca: Option<PathBuf>,
    racks: Option<Spanned<PathBuf>>,
    breaker: BreakerTable,
    profile: Vec<ProfileTable>,
    rule: Vec<Spanned<RuleTable>>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            agent_socket: None,
            state: "/var/lib/ftb-act".into(),
            ca: None,
            racks: None,
            breaker: BreakerTable::default(),
            profile: Vec::new(),
            rule: Vec::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BreakerTable {
    hosts: usize,
    #[serde(with = "humantime_serde")]
    within: Duration,
    percent: usize,
}

impl Default for BreakerTable {
    fn default() -> Self {
        Self { hosts: 8, within: Duration::from_secs(600), percent: 10 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileTable {
    hosts: Spanned<String>,
    mode: ModeWord,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeWord {
    Observe,
    Drain,
    Act,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    name: Spanned<String>,
    #[serde(default)]
    conditions: Vec<Spanned<String>>,
    #[serde(default)]
    spaces: Vec<Spanned<String>>,
    severity: Option<Spanned<String>>,
    #[serde(default)]
    recommended: Vec<Spanned<String>>,
    then: ThenWord,
    program: Option<Spanned<Vec<String>>>,
    url: Option<Spanned<String>>,
    event: Option<Spanned<String>>,
    event_severity: Option<Spanned<String>>,
    group_by: Option<Spanned<GroupWord>>,
    #[serde(default, with = "humantime_serde")]
    within: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    time_limit: Option<Duration>,
    changes_hosts: Option<Spanned<bool>>,
    until: Option<Spanned<UntilWord>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ThenWord {
    Exec,
    Webhook,
    Publish,
    Drain,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GroupWord {
    Host,
    Rack,
    Cluster,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum UntilWord {
    Cleared,
    Person,
}

/// A mistake and the byte where it is.
struct Mistake(usize, String);

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Socket of the agent; `None` for the default.
    pub agent: Option<PathBuf>,
    /// The folder of the state.
    pub state: PathBuf,
    /// PEM file with the CAs of web servers; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// What an administrator has decided.
    pub rules: Rules,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Bad input: the file, the place and the problem.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        load_config(path, Self::parse)
    }

    /// Reads and checks a text. Reads the rack file that it names, or the default one if a
    /// rule groups by rack.
    ///
    /// # Errors
    /// The problem, with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            placed(text, at, &error.message().replace('\n', " "))
        })?;
        Self::check(file).map_err(|Mistake(at, problem)| placed(text, at, &problem))
    }

    fn check(file: File) -> Result<Self, Mistake> {
        let by_rack = |rule: &Spanned<RuleTable>| {
            matches!(rule.get_ref().group_by.as_ref().map(Spanned::get_ref), Some(GroupWord::Rack))
        };
        let needs_racks = file.rule.iter().any(by_rack);
        let racks = match &file.racks {
            Some(path) => {
                read_racks(path.as_ref()).map_err(|problem| Mistake(path.span().start, problem))?
            }
            // A file that others need may be wrong, or closed to ftb-act, if no rule needs it.
            None if needs_racks && Path::new(racks::PATH).exists() => {
                read_racks(Path::new(racks::PATH)).map_err(|problem| Mistake(0, problem))?
            }
            None => Vec::new(),
        };
        if file.rule.len() > RULES_MAX {
            return Err(Mistake(0, format!("more than {RULES_MAX} rules")));
        }
        let mut names = BTreeSet::new();
        let mut rules = Vec::new();
        for table in file.rule {
            let at = table.get_ref().name.span().start;
            let rule = rule_of(table, !racks.is_empty())?;
            if !names.insert(rule.name.clone()) {
                return Err(Mistake(at, format!("two rules are called {:?}", rule.name)));
            }
            rules.push(rule);
        }
        let profiles = file.profile.iter().map(|table| {
            let mode = match table.mode {
                ModeWord::Observe => Mode::Observe,
                ModeWord::Drain => Mode::Drain,
                ModeWord::Act => Mode::Act,
            };
            let hosts = Hostlist::parse(table.hosts.get_ref());
            let hosts = hosts.map_err(|error| mistake(&table.hosts, &error))?;
            Ok((hosts, mode))
        });
        let breaker = file.breaker;
        if breaker.hosts == 0 || !(1..=100).contains(&breaker.percent) {
            return Err(Mistake(
                0,
                "breaker: hosts must be 1 or more, percent 1 to 100".to_owned(),
            ));
        }
        let rules = Rules {
            rules,
            profiles: profiles.collect::<Result<_, _>>()?,
            racks,
            breaker_hosts: breaker.hosts,
            breaker_within: breaker.within,
            breaker_percent: breaker.percent,
        };
        Ok(Self { agent: file.agent_socket, state: file.state, ca: file.ca, rules })
    }
}

fn placed(text: &str, at: usize, problem: &str) -> String {
    let (line, column) = ftb_core::text::place(text, at);
    format!("line {line}, column {column}: {problem}")
}

fn mistake<T>(place: &Spanned<T>, problem: &dyn std::fmt::Display) -> Mistake {
    Mistake(place.span().start, problem.to_string())
}

fn severity(word: Option<&Spanned<String>>, default: Severity) -> Result<Severity, Mistake> {
    let Some(word) = word else { return Ok(default) };
    word.get_ref()
        .parse()
        .map_err(|error: <Severity as core::str::FromStr>::Err| mistake(word, &error))
}

fn rule_of(spanned: Spanned<RuleTable>, has_racks: bool) -> Result<Rule, Mistake> {
    let at = spanned.span().start;
    let table = spanned.into_inner();
    let name = table.name.get_ref();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
        let problem = "a name has 1 to 48 letters, digits, '-', '_' and '.'";
        return Err(mistake(&table.name, &problem));
    }
    for key in &table.conditions {
        let plain = key.get_ref().strip_suffix('*').unwrap_or(key.get_ref());
        if !plain.is_empty() || key.get_ref().is_empty() {
            EventName::check(plain).map_err(|error| mistake(key, &error))?;
        }
    }
    for space in &table.spaces {
        EventSpace::check(space.get_ref()).map_err(|error| mistake(space, &error))?;
    }
    let recommended = table.recommended.iter().map(|word| {
        let action = word.get_ref().parse::<RecommendedAction>();
        action.map_err(|error| mistake(word, &error))
    });
    let group_by = match table.group_by.as_ref().map(Spanned::get_ref) {
        None | Some(GroupWord::Host) => GroupBy::Host,
        Some(GroupWord::Rack) => GroupBy::Rack,
        Some(GroupWord::Cluster) => GroupBy::Cluster,
    };
    let misplaced = table.group_by.as_ref().filter(|_| {
        (group_by == GroupBy::Rack && !has_racks)
            || (group_by != GroupBy::Host && table.then == ThenWord::Drain)
    });
    if let Some(word) = misplaced {
        let problem = "needs a rack file (racks), and is for exec, webhook and publish";
        return Err(mistake(word, &problem));
    }
    let then = then_of(&table, at)?;
    let is_exec = table.then == ThenWord::Exec;
    if let Some(word) = table.changes_hosts.as_ref().filter(|_| !is_exec) {
        return Err(mistake(word, &"is for then = \"exec\""));
    }
    let changes = table.changes_hosts.as_ref().is_none_or(|word| *word.get_ref());
    let within = table.within.unwrap_or(Duration::from_secs(5));
    if within > HOUR {
        return Err(Mistake(at, format!("{name}: within is more than 1 hour")));
    }
    Ok(Rule {
        name: name.clone(),
        keys: table.conditions.iter().map(|key| key.get_ref().to_ascii_uppercase()).collect(),
        spaces: table.spaces.iter().map(|space| space.get_ref().clone()).collect(),
        severity: severity(table.severity.as_ref(), Severity::Error)?,
        recommended: recommended.collect::<Result<_, _>>()?,
        changes_hosts: table.then == ThenWord::Drain || (is_exec && changes),
        then,
        group_by,
        within,
    })
}

fn then_of(table: &RuleTable, at: usize) -> Result<Then, Mistake> {
    let name = table.name.get_ref();
    let needs = |key: &str, what: &str| Mistake(at, format!("{name}: {key} is missing: {what}"));
    let unfit = [
        ("program", table.program.as_ref().map(Spanned::span), ThenWord::Exec),
        ("url", table.url.as_ref().map(Spanned::span), ThenWord::Webhook),
        ("event", table.event.as_ref().map(Spanned::span), ThenWord::Publish),
        ("until", table.until.as_ref().map(Spanned::span), ThenWord::Drain),
    ];
    for (key, span, wanted) in unfit {
        if let Some(span) = span.filter(|_| table.then != wanted) {
            return Err(Mistake(span.start, format!("{key} does not fit to `then`")));
        }
    }
    let (default, most, hours) = match table.then {
        ThenWord::Webhook => (HOUR, DAY, "24 hours"),
        _ => (MINUTE, HOUR, "1 hour"),
    };
    let time_limit = table.time_limit.unwrap_or(default);
    if time_limit.is_zero() || time_limit > most {
        return Err(Mistake(at, format!("{name}: time_limit must be up to {hours}")));
    }
    match table.then {
        ThenWord::Exec => {
            let program = table.program.as_ref();
            let program = program.ok_or_else(|| needs("program", "[\"/path\", \"{hosts}\"]"))?;
            if !program.get_ref().first().is_some_and(|first| first.starts_with('/')) {
                return Err(mistake(program, &"the program must be an absolute path"));
            }
            Ok(Then::Exec { program: program.get_ref().clone(), time_limit })
        }
        ThenWord::Webhook => {
            let url = table.url.as_ref().ok_or_else(|| needs("url", "http:// or https://"))?;
            crate::post::check_url(url.get_ref()).map_err(|problem| mistake(url, &problem))?;
            Ok(Then::Webhook { url: url.get_ref().clone(), time_limit })
        }
        ThenWord::Publish => {
            let event = table.event.as_ref().ok_or_else(|| needs("event", "\"site.act NAME\""))?;
            let (space, name) = event.get_ref().split_once(' ').unwrap_or_default();
            let space = EventSpace::new(space).map_err(|error| mistake(event, &error))?;
            let name = EventName::new(name).map_err(|error| mistake(event, &error))?;
            let severity = severity(table.event_severity.as_ref(), Severity::Warning)?;
            Ok(Then::Publish { space, name, severity })
        }
        ThenWord::Drain => {
            let is_persons =
                table.until.as_ref().is_some_and(|u| *u.get_ref() == UntilWord::Person);
            Ok(Then::Drain { is_persons })
        }
    }
}

/// The rack file: `RACK = "HOSTLIST"`, as ftb-bridge and the agent's web page read it. Older
/// releases had lines `RACK HOSTLIST`: they are read too.
fn read_racks(path: &Path) -> Result<Vec<(String, Hostlist)>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let table = match toml::from_str::<BTreeMap<String, String>>(&text) {
        Ok(table) => table,
        Err(error) => return old_racks(&text, &error).map_err(|why| format!("{shown}: {why}")),
    };
    let racks = racks::check(&table).map_err(|error| format!("{shown}: {error}"))?;
    Ok(racks.into_iter().collect())
}

/// The lines of older releases; `#` begins a comment. A file that is neither of both is reported as
/// the TOML that it should be.
fn old_racks(text: &str, error: &toml::de::Error) -> Result<Vec<(String, Hostlist)>, String> {
    let mut racks = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (name, list) = match line.split_once(char::is_whitespace) {
            Some((name, list)) if !line.contains('=') => (name, list),
            _ => {
                let at = error.span().map_or(0, |span| span.start);
                return Err(placed(text, at, &error.message().replace('\n', " ")));
            }
        };
        let hosts = Hostlist::parse(list.trim());
        let hosts = hosts.map_err(|error| format!("line {}: {error}", index + 1))?;
        racks.push((name.to_owned(), hosts));
    }
    Ok(racks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_good_and_changes_nothing_until_it_is_edited() {
        let sample = include_str!("../../deploy/config/act.toml");
        let config = Config::parse(sample).expect("the sample is good");
        assert!(config.rules.rules.is_empty() && config.rules.profiles.is_empty());
        // All that it shows as a comment is good too; the rack file is the reader's.
        let shown: String = sample
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(""))
            .filter(|line| !line.starts_with("racks"))
            .map(|line| line.replace("\"rack\"", "\"host\""))
            .flat_map(|line| [line, "\n".to_owned()])
            .collect();
        let config = Config::parse(&shown).expect("what it shows is good");
        assert!(config.rules.rules.len() >= 4 && config.rules.profiles.len() == 2);
    }

    #[test]
    fn the_rack_file_is_that_of_the_other_programs_and_the_old_form_is_read_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("racks.toml");
        let racks = |text: &str| {
            std::fs::write(&path, text).expect("it is written");
            let config =
                Config::parse(&format!("racks = {path:?}")).map(|config| config.rules.racks);
            let shown = |(name, hosts): (String, Hostlist)| format!("{name} {hosts}");
            config.map(|racks| racks.into_iter().map(shown).collect::<Vec<_>>())
        };
        let expected = Ok(vec!["r01 n[01-16]".to_owned(), "r02 n[17-32]".to_owned()]);
        assert_eq!(racks("# racks\nr01 = \"n[01-16]\"\nr02 = \"n[17-32]\" # new\n"), expected);
        assert_eq!(racks("r01 n[01-16] # the first\n\nr02 n[17-32]\n"), expected);
        for (text, problem) in [
            ("r01 = \"n[01-\"\n", "racks.toml: rack r01: "),
            ("r01 n[01-16]\nr02 n[17-\n", "racks.toml: line 2: "),
            ("r01 = \"n1\"\nr02 = n2\n", "racks.toml: line 2, column "),
        ] {
            let found = racks(text).expect_err(text);
            assert!(found.contains(problem), "{text}: {found}");
        }
    }

    #[test]
    fn a_mistake_is_named_with_line_and_column() {
        let problem = |text: &str| Config::parse(text).expect_err(text);
        let rule = |more: &str| format!("[[rule]]\nname = \"a\"\nthen = \"drain\"\n{more}\n");
        assert!(problem("\nstat = 1").starts_with("line 2, column 1: unknown field `stat`"));
        let text = problem("[[profile]]\nhosts = \"node[1-\"\nmode = \"act\"");
        assert!(text.starts_with("line 2, column 9: host list, column"), "{text}");
        let text = problem(&rule("conditions = [\"FANFAIL\", \"no key\"]"));
        assert!(text.starts_with("line 4, column 26: "), "{text}");
        for (more, place) in [
            ("url = \"http://x\"", "line 4, column 7: url does not fit"),
            ("severity = \"bad\"", "line 4, column 12: "),
            ("group_by = \"rack\"", "line 4, column 12: needs a rack file"),
            ("changes_hosts = false", "line 4, column 17: is for then"),
            ("[[rule]]\nname = \"a\"\nthen = \"drain\"", "line 5, column 8: two rules"),
            ("[[rule]]\nname = \"b\"\nthen = \"exec\"", "line 4, column 1: b: program is missing"),
            ("[[rule]]\nname = \"b\"\nthen = \"exec\"\nprogram = [\"x\"]", "line 7, column 11"),
            ("[[rule]]\nname = \"b\"\nthen = \"webhook\"\nurl = \"x\"", "line 7, column 7"),
        ] {
            let text = problem(&rule(more));
            assert!(text.starts_with(place), "{more}: {text}");
        }
    }

    #[test]
    fn a_request_is_repeated_for_an_hour_by_default_and_a_day_at_most() {
        let limit = |then: &str, more: &str| {
            let text = format!("[[rule]]\nname = \"a\"\nthen = {then}\n{more}");
            let config = Config::parse(&text)?;
            match config.rules.rules[0].then {
                Then::Webhook { time_limit, .. } | Then::Exec { time_limit, .. } => Ok(time_limit),
                _ => Err(text),
            }
        };
        let (page, run) = ("\"webhook\"\nurl = \"http://x/\"", "\"exec\"\nprogram = [\"/x\"]");
        assert_eq!(limit(page, ""), Ok(HOUR));
        assert_eq!(limit(page, "time_limit = \"24h\""), Ok(DAY));
        assert!(limit(page, "time_limit = \"25h\"").is_err());
        assert_eq!(limit(run, ""), Ok(MINUTE));
        assert!(limit(run, "time_limit = \"2h\"").is_err());
    }
}
