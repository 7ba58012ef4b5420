//! What a rule does about a condition, in words: `ftbctl explain`. Not responsible for: whether the
//! condition holds or is silenced, and the breaker.

use super::rules::{GroupBy, Rule, Rules, Then};
use super::{BREAKER_OPEN, OUT_OF_SERVICE};
use ftb_core::Severity;
use ftb_core::condition::{RecommendedAction, SILENCED, WATCHED};

/// What a rule does about a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The name of the rule.
    pub rule: String,
    /// What it does.
    pub action: String,
    /// When, and where, in words.
    pub when: String,
    /// No host has a profile that allows it.
    pub is_observed: bool,
}

/// What the rules do about a condition that is stated in this event space with at most this
/// severity. All of them act.
pub fn reactions(
    rules: &Rules,
    key: &str,
    space: &str,
    action: RecommendedAction,
    worst: Severity,
) -> Vec<Reaction> {
    if [WATCHED, SILENCED, OUT_OF_SERVICE, BREAKER_OPEN].contains(&key) {
        return Vec::new();
    }
    let about = |rule: &&Rule| rule.severity <= worst && rule.is_about(key, space, action);
    rules.rules.iter().filter(about).map(|rule| reaction(rules, rule)).collect()
}

fn reaction(rules: &Rules, rule: &Rule) -> Reaction {
    let allowed = rules.profiles.iter().filter(|(_, mode)| {
        let (kind, changes) = (rule.then.kind(), rule.changes_hosts);
        mode.allows(kind, changes)
    });
    let hosts: Vec<String> = allowed.map(|(hosts, _)| hosts.to_string()).collect();
    let group = match rule.group_by {
        GroupBy::Host => "host",
        GroupBy::Rack => "rack",
        GroupBy::Cluster => "cluster",
    };
    let place = match hosts.is_empty() {
        true => "no host has a profile that allows it".to_owned(),
        false => format!("on {}", hosts.join(",")),
    };
    let (severity, within) = (rule.severity.as_str(), rule.within.as_secs_f64());
    let severity = severity.to_ascii_lowercase();
    let when = format!(
        "severity {severity} or worse; {place}; one order for each {group}, after {within} s"
    );
    let is_observed = hosts.is_empty();
    Reaction { rule: rule.name.clone(), action: words(&rule.then), when, is_observed }
}

fn words(then: &Then) -> String {
    match then {
        Then::Exec { program, .. } => format!("run {}", program.join(" ")),
        Then::Webhook { url, .. } => format!("post to {}", shown(url)),
        Then::Publish { space, name, severity } => {
            format!("publish {} {space} {name}", severity.as_str())
        }
        Then::Drain { is_persons: true } => {
            "drain, until a person clears OUT_OF_SERVICE".to_owned()
        }
        Then::Drain { is_persons: false } => "drain, until the condition clears".to_owned(),
    }
}

/// An address without its path, which may hold a token.
fn shown(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    &url[..end]
}

#[cfg(test)]
mod tests {
    use super::reactions;
    use crate::config::Config;
    use ftb_core::Severity;
    use ftb_core::condition::RecommendedAction::{Migrate, Replace};

    const RULES: &str = r#"
        [[profile]]
        hosts = "node[01-04]"
        mode = "drain"
        [[rule]]
        name = "fans"
        conditions = ["FAN*"]
        spaces = ["ftb.ipmi"]
        then = "drain"
        [[rule]]
        name = "reset"
        then = "exec"
        program = ["/sbin/reset", "{hosts}"]
        [[rule]]
        name = "ticket"
        severity = "warning"
        recommended = ["replace"]
        then = "webhook"
        url = "https://tickets.example/token"
        group_by = "cluster"
    "#;

    #[test]
    fn the_rules_about_a_condition_say_what_they_do_where_and_when() {
        let rules = Config::parse(RULES).expect("good").rules;
        let of = |key, space, action, worst| reactions(&rules, key, space, action, worst);
        let fan = of("FANFAIL", "ftb.ipmi", Migrate, Severity::Error);
        let words =
            |at: usize| (fan[at].rule.as_str(), fan[at].action.as_str(), fan[at].is_observed);
        assert_eq!(words(0), ("fans", "drain, until the condition clears", false));
        assert_eq!(words(1), ("reset", "run /sbin/reset {hosts}", true), "{fan:?}");
        let when = "severity error or worse; on node[01-04]; one order for each host, after 5 s";
        assert_eq!((fan.len(), fan[0].when.as_str()), (2, when));
        // Another event space, another recommendation, a mild one, and what no rule is about.
        assert_eq!(of("FANFAIL", "site.x", Migrate, Severity::Error).len(), 1);
        let mild = of("PSUFAIL", "ftb.ipmi", Replace, Severity::Warning);
        assert_eq!((mild.len(), mild[0].action.as_str()), (1, "post to https://tickets.example"));
        for key in ["WATCHED", "SILENCED", "OUT_OF_SERVICE", "BREAKER_OPEN"] {
            assert_eq!(of(key, "ftb.act", Replace, Severity::Fatal), []);
        }
        // A service that fails is a page, and no reason to change its host.
        let service = of("SLURM_UNREACHABLE", "ftb.slurm", Replace, Severity::Error);
        let rules: Vec<&str> = service.iter().map(|reaction| reaction.rule.as_str()).collect();
        assert_eq!(rules, ["ticket"]);
    }
}
