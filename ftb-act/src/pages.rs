//! What ftb-act states about its own requests: that no web server takes those of a rule.
//!
//! A state machine without I/O and clock. A page that does not arrive must be seen elsewhere: as a
//! condition of the rule, for which another rule may send a request to another server.
//!
//! Not responsible for: repeating a request ([`crate::post`]), the order that it belongs to
//! ([`crate::act`]).

use crate::act::{PAGE_FAILED, Row, SPACE};
use ftb_client::{Subject, Truth};
use std::collections::BTreeSet;

/// What a request has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageNews {
    /// For a minute no server has taken it, or it was given up: why.
    Failing(String),
    /// A server has taken it.
    Taken,
}

/// What is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageNotice {
    /// The rule.
    pub rule: String,
    /// Whether its requests fail.
    pub is_failing: bool,
    /// Text for people.
    pub text: String,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Pages {
    /// The host of this ftb-act.
    host: String,
    /// Of these rules it is stated that their requests fail.
    failing: BTreeSet<String>,
}

impl Pages {
    /// Of the ftb-act on this host, with what a former one has stated: `rules` have requests. What
    /// they did not deliver is stated again, because its statement ended with that ftb-act; what is
    /// stated of a rule that has no requests any more ends.
    pub fn new<'a>(
        host: &str,
        rows: impl IntoIterator<Item = &'a Row>,
        rules: &BTreeSet<&str>,
    ) -> (Self, Vec<PageNotice>) {
        let mut pages = Self { host: host.to_owned(), failing: BTreeSet::new() };
        let mut notices = Vec::new();
        for row in rows.into_iter().filter(|row| row.truth != Truth::False) {
            let Some(rule) = pages.rule_of(&row.subject, &row.space) else { continue };
            // Subjects have the spelling of the rule: hosts alone are in lower case.
            let is_failing = rules.contains(&rule[..]);
            let text = match is_failing {
                true => row.message.clone(),
                false => "the rule has no requests any more".to_owned(),
            };
            if is_failing {
                pages.failing.insert(rule.clone());
            }
            notices.push(PageNotice { rule, is_failing, text });
        }
        (pages, notices)
    }

    /// The rule of a condition that the ftb-act of this host has stated.
    fn rule_of(&self, subject: &Subject, space: &str) -> Option<String> {
        let is_own = subject.key() == PAGE_FAILED
            && space == SPACE
            && subject.host().eq_ignore_ascii_case(&self.host);
        is_own.then(|| subject.component().to_owned())
    }

    /// The table has a new statement. A person may end it by hand.
    pub fn on_row(&mut self, subject: &Subject, truth: Truth, space: &str) {
        let Some(rule) = self.rule_of(subject, space) else { return };
        if truth == Truth::False {
            self.failing.remove(&rule);
        }
    }

    /// What is stated about the requests of a rule, if that changes.
    pub fn on_news(&mut self, rule: &str, news: PageNews) -> Option<PageNotice> {
        let (is_failing, text) = match news {
            PageNews::Failing(why) => (true, why),
            PageNews::Taken => (false, "a request was taken".to_owned()),
        };
        let is_new = match is_failing {
            true => self.failing.insert(rule.to_owned()),
            false => self.failing.remove(rule),
        };
        is_new.then(|| PageNotice { rule: rule.to_owned(), is_failing, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_client::{RecommendedAction, Severity};

    fn row(host: &str, rule: &str, truth: Truth) -> Row {
        Row {
            subject: Subject::new(host, rule, PAGE_FAILED),
            truth,
            severity: Severity::Error,
            action: RecommendedAction::Watch,
            onset_ns: 5,
            space: SPACE.to_owned(),
            message: "pager: status 503".to_owned(),
            silence: None,
        }
    }

    fn notice(rule: &str, is_failing: bool, text: &str) -> PageNotice {
        PageNotice { rule: rule.to_owned(), is_failing, text: text.to_owned() }
    }

    #[test]
    fn a_page_that_no_server_takes_is_stated_once_until_one_is_taken() {
        let (mut pages, former) = Pages::new("Node1", [], &BTreeSet::from(["pager"]));
        assert_eq!(former, []);
        let failing = || PageNews::Failing("pager: status 503".to_owned());
        assert_eq!(pages.on_news("pager", PageNews::Taken), None);
        let stated = Some(notice("pager", true, "pager: status 503"));
        assert_eq!(pages.on_news("pager", failing()), stated);
        assert_eq!(pages.on_news("pager", failing()), None);
        let ended = Some(notice("pager", false, "a request was taken"));
        assert_eq!(pages.on_news("pager", PageNews::Taken), ended);
        // A person may end it; the next failure is another one.
        assert_eq!(pages.on_news("pager", failing()), stated);
        pages.on_row(&Subject::new("node2", "pager", PAGE_FAILED), Truth::False, SPACE);
        assert_eq!(pages.on_news("pager", failing()), None, "that was of another ftb-act");
        pages.on_row(&Subject::new("node1", "pager", PAGE_FAILED), Truth::False, SPACE);
        assert_eq!(pages.on_news("pager", failing()), stated);
    }

    #[test]
    fn what_a_former_life_has_stated_lasts_while_its_rule_has_requests() {
        let rows = [
            row("node1", "pager", Truth::Unknown),
            row("node1", "gone", Truth::True),
            row("node1", "well", Truth::False),
            row("node2", "pager", Truth::True),
        ];
        let (mut pages, former) = Pages::new("node1", &rows, &BTreeSet::from(["pager", "well"]));
        let ended = notice("gone", false, "the rule has no requests any more");
        assert_eq!(former, [notice("pager", true, "pager: status 503"), ended]);
        assert!(pages.on_news("pager", PageNews::Taken).is_some());
    }
}
