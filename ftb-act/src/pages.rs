//! What ftb-act states about its own requests: that no web server takes those of a rule.
//!
//! A state machine without I/O and clock. A page that does not arrive must be seen elsewhere: as a
//! condition of the rule, for which another rule may send a request to another server.
//!
//! Not responsible for: repeating a request ([`crate::post`]), the order that it belongs to
//! ([`crate::act`]).

use crate::act::{PAGE_FAILED, Row, SPACE};
use ftb_client::{Subject, Truth};
use std::collections::{BTreeMap, BTreeSet};

/// A request that was given up is stated for this time at least, also if another one is taken.
const GIVEN_UP_FOR_NS: u64 = 60 * 1_000_000_000;

/// What a request has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageNews {
    /// For a minute no server has taken it; it is repeated: why.
    Late(String),
    /// It was given up: why.
    GivenUp(String),
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

/// The requests of a rule that fail.
#[derive(Debug, Default)]
struct FailingRule {
    /// Orders whose requests are late.
    late: BTreeSet<u64>,
    /// When a request was given up for the last time, in Unix nanoseconds.
    given_up_ns: Option<u64>,
    /// Since then a request was taken.
    is_taken: bool,
    /// It is stated. A row alone does not say so: it may be older than what was published last.
    is_stated: bool,
}

impl FailingRule {
    /// Whether no page is missing any more.
    fn is_over(&self, now_ns: u64) -> bool {
        let is_seen = self.given_up_ns.is_none_or(|at| now_ns.abs_diff(at) >= GIVEN_UP_FOR_NS);
        self.is_taken && self.late.is_empty() && is_seen
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Pages {
    /// The host of this ftb-act.
    host: String,
    /// The rules of which it may be stated that their requests fail.
    failing: BTreeMap<String, FailingRule>,
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
        let mut pages = Self { host: host.to_owned(), failing: BTreeMap::new() };
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
                let stated = FailingRule { is_stated: true, ..FailingRule::default() };
                pages.failing.insert(rule.clone(), stated);
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

    /// The table has a new statement: a person may end it by hand. It may also be an older one of
    /// this ftb-act, which comes when the next is published. So no row alone ends what is known of
    /// requests, and after each the next failure is stated, perhaps twice.
    pub fn on_row(&mut self, subject: &Subject, truth: Truth, space: &str) {
        let Some(rule) = self.rule_of(subject, space) else { return };
        match truth {
            // The next request that is taken ends it.
            Truth::True => drop(self.failing.entry(rule).or_default()),
            Truth::False => {
                let Some(known) = self.failing.get_mut(&rule) else { return };
                known.is_stated = false;
                if known.late.is_empty() && known.given_up_ns.is_none() {
                    self.failing.remove(&rule);
                }
            }
            Truth::Unknown => {}
        }
    }

    /// What is stated about the requests of a rule, if that changes with the request of an order.
    pub fn on_news(
        &mut self,
        now_ns: u64,
        (rule, order): (&str, u64),
        news: PageNews,
    ) -> Option<PageNotice> {
        let why = match news {
            PageNews::Late(why) => {
                self.failing.entry(rule.to_owned()).or_default().late.insert(order);
                why
            }
            PageNews::GivenUp(why) => {
                let known = self.failing.entry(rule.to_owned()).or_default();
                known.late.remove(&order);
                (known.given_up_ns, known.is_taken) = (Some(now_ns), false);
                why
            }
            PageNews::Taken => {
                let known = self.failing.get_mut(rule)?;
                known.late.remove(&order);
                known.is_taken = true;
                return self.end(now_ns, rule);
            }
        };
        let known = self.failing.get_mut(rule)?;
        let is_new = !core::mem::replace(&mut known.is_stated, true);
        is_new.then(|| PageNotice { rule: rule.to_owned(), is_failing: true, text: why })
    }

    /// Time has passed: what ends of what was given up.
    pub fn on_tick(&mut self, now_ns: u64) -> Vec<PageNotice> {
        let rules: Vec<String> = self.failing.keys().cloned().collect();
        rules.iter().filter_map(|rule| self.end(now_ns, rule)).collect()
    }

    fn end(&mut self, now_ns: u64, rule: &str) -> Option<PageNotice> {
        self.failing.get(rule)?.is_over(now_ns).then_some(())?;
        let (rule, _) = self.failing.remove_entry(rule)?;
        Some(PageNotice { rule, is_failing: false, text: "a request was taken".to_owned() })
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

    /// A moment, in nanoseconds.
    const NOW: u64 = 1_000 * GIVEN_UP_FOR_NS;

    fn late() -> PageNews {
        PageNews::Late("pager: status 503".to_owned())
    }

    fn given_up() -> PageNews {
        PageNews::GivenUp("pager: status 503".to_owned())
    }

    fn started() -> Pages {
        let (pages, former) = Pages::new("Node1", [], &BTreeSet::from(["pager"]));
        assert_eq!(former, []);
        pages
    }

    fn stated() -> Option<PageNotice> {
        Some(notice("pager", true, "pager: status 503"))
    }

    fn ended() -> Option<PageNotice> {
        Some(notice("pager", false, "a request was taken"))
    }

    #[test]
    fn a_page_that_no_server_takes_is_stated_once_until_it_is_taken() {
        let mut pages = started();
        let mut news = |order, news| pages.on_news(NOW, ("pager", order), news);
        assert_eq!(news(1, PageNews::Taken), None);
        assert_eq!(news(2, late()), stated());
        assert_eq!(news(3, late()), None);
        assert_eq!(news(4, PageNews::Taken), None, "two others wait");
        assert_eq!(news(2, PageNews::Taken), None, "one other waits");
        assert_eq!(news(3, PageNews::Taken), ended());
        // A person may end it; the next failure is another one.
        assert_eq!(news(5, late()), stated());
        let by_hand = |host| Subject::new(host, "pager", PAGE_FAILED);
        pages.on_row(&by_hand("node2"), Truth::False, SPACE);
        let mut news = |order, news| pages.on_news(NOW, ("pager", order), news);
        assert_eq!(news(6, late()), None, "that was of another ftb-act");
        pages.on_row(&by_hand("node1"), Truth::False, SPACE);
        assert_eq!(pages.on_news(NOW, ("pager", 7), late()), stated());
    }

    #[test]
    fn a_page_that_was_given_up_is_stated_for_a_minute_and_until_another_is_taken() {
        let mut pages = started();
        assert_eq!(pages.on_news(NOW, ("pager", 1), late()), stated());
        assert_eq!(pages.on_news(NOW, ("pager", 1), given_up()), None);
        assert_eq!(pages.on_tick(NOW + 2 * GIVEN_UP_FOR_NS), [], "none was taken");
        assert_eq!(pages.on_news(NOW + 1, ("pager", 2), PageNews::Taken), None);
        assert_eq!(pages.on_tick(NOW + GIVEN_UP_FOR_NS - 1), []);
        assert_eq!(pages.on_tick(NOW + GIVEN_UP_FOR_NS).pop(), ended());
        assert_eq!(pages.on_news(NOW, ("pager", 3), given_up()), stated(), "it was never late");
        let later = NOW + GIVEN_UP_FOR_NS;
        assert_eq!(pages.on_news(later, ("pager", 4), PageNews::Taken), ended());
    }

    /// The table repeats what is published, and may do so when the next is published.
    #[test]
    fn an_echo_of_its_own_statements_hides_no_later_one() {
        let row = |pages: &mut Pages, truth| {
            pages.on_row(&Subject::new("node1", "pager", PAGE_FAILED), truth, SPACE);
        };
        let mut pages = started();
        assert_eq!(pages.on_news(NOW, ("pager", 1), PageNews::Taken), None);
        assert_eq!(pages.on_news(NOW, ("pager", 2), late()), stated());
        row(&mut pages, Truth::False);
        row(&mut pages, Truth::True);
        assert_eq!(pages.on_news(NOW, ("pager", 2), PageNews::Taken), ended());
        // Its end is published between the echoes.
        assert_eq!(pages.on_news(NOW, ("pager", 3), late()), stated());
        row(&mut pages, Truth::False);
        assert_eq!(pages.on_news(NOW, ("pager", 3), PageNews::Taken), ended());
        row(&mut pages, Truth::True);
        // The echo of a former failure does not stand for the next one.
        assert_eq!(pages.on_news(NOW, ("pager", 4), late()), stated());
        row(&mut pages, Truth::False);
        row(&mut pages, Truth::True);
        assert_eq!(pages.on_news(NOW, ("pager", 4), PageNews::Taken), ended());
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
        assert_eq!(pages.on_news(NOW, ("pager", 1), PageNews::Taken), self::ended());
    }
}
