//! `ftb-act status`: the breaker, and the orders that are saved.

use crate::act::{Order, Saved, Stage};
use comfy_table::{Table, presets};
use serde_json::{Value, json};
use std::fmt::Write as _;

const COLUMNS: [&str; 6] = ["ORDER", "STAGE", "ACTION", "RULE", "HOSTS", "CONDITIONS"];

/// The state for people.
pub fn text(saved: &Saved) -> String {
    let breaker = &saved.breaker;
    let mut text = match breaker.is_open {
        true => format!("breaker open: {} (ftb-act resume closes it)\n", breaker.reason),
        false => "breaker closed\n".to_owned(),
    };
    text.push_str(&table(saved.orders.iter().filter(|order| order.stage != Stage::Over)));
    let over = saved.orders.iter().filter(|order| order.stage == Stage::Over).count();
    let _ = writeln!(text, "{over} orders are done whose conditions still hold");
    text
}

/// The orders that are not over, with the names of the columns.
fn table<'a>(orders: impl Iterator<Item = &'a Order>) -> String {
    let row = |order: &Order| {
        let (kind, stage) = (order.kind.as_str(), order.stage.as_str());
        [&order.id.to_string(), stage, kind, &order.rule, &order.host_list(), &causes(order)]
            .map(str::to_owned)
    };
    let rows: Vec<_> = orders.map(row).collect();
    if rows.is_empty() {
        return "no orders\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).add_row(COLUMNS).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn causes(order: &Order) -> String {
    match order.causes.split_first() {
        None => String::new(),
        Some((first, [])) => first.subject.to_string(),
        Some((first, rest)) => format!("{} and {} more", first.subject, rest.len()),
    }
}

/// What `ftb-act resume` says where no condition says that a breaker is open. The state may say
/// that one is, or be another user's.
pub fn no_breaker(saved: Option<Saved>) -> &'static str {
    match saved.is_some_and(|saved| saved.breaker.is_open) {
        true => {
            "the state says that the breaker is open, but no condition does: restart ftb-act, \
             which states it again, then repeat this command"
        }
        false => "no breaker is open",
    }
}

/// The state for programs.
pub fn json(saved: &Saved) -> Value {
    let order = |order: &Order| {
        let conditions: Vec<String> =
            order.causes.iter().map(|cause| cause.subject.to_string()).collect();
        json!({
            "id": order.id,
            "rule": order.rule,
            "action": order.kind.as_str(),
            "stage": order.stage.as_str(),
            "group": order.group,
            "hosts": order.host_list(),
            "conditions": conditions,
        })
    };
    json!({
        "type": "act",
        "breaker": { "open": saved.breaker.is_open, "reason": saved.breaker.reason },
        "orders": saved.orders.iter().map(order).collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::{Cause, Kind};
    use ftb_core::condition::Subject;

    #[test]
    fn a_breaker_that_is_open_on_disk_alone_is_named() {
        let mut saved = Saved::default();
        assert_eq!(no_breaker(Some(saved.clone())), "no breaker is open");
        saved.breaker.is_open = true;
        assert!(no_breaker(Some(saved)).contains("restart ftb-act"));
        assert_eq!(no_breaker(None), "no breaker is open");
    }

    #[test]
    fn orders_are_a_table_and_those_that_are_over_a_number() {
        let order = |id, rule: &str, hosts: &[&str], stage| Order {
            id,
            rule: rule.to_owned(),
            kind: Kind::Drain,
            group: String::new(),
            causes: vec![
                Cause { subject: Subject::new("node07", "", "LEAK"), onset_ns: 1 };
                hosts.len()
            ],
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            stage,
            changes_hosts: true,
            is_persons: false,
            passes: false,
        };
        let mut saved = Saved::default();
        assert_eq!(
            text(&saved),
            "breaker closed\nno orders\n0 orders are done whose conditions still hold\n"
        );
        saved.orders = vec![
            order(7, "leak", &["node07", "node08"], Stage::Live),
            order(12, "a longer rule", &["node09"], Stage::Drained),
            order(13, "leak", &["node10"], Stage::Over),
        ];
        let text = text(&saved);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "ORDER  STAGE    ACTION  RULE           HOSTS        CONDITIONS");
        assert!(lines[2].starts_with("7      live     drain   leak           node[07-08]  "));
        assert!(lines[2].ends_with(" and 1 more"), "{text}");
        assert!(lines[3].starts_with("12     drained  drain   a longer rule  node09       "));
        assert_eq!(lines[4], "1 orders are done whose conditions still hold");
        assert_eq!(lines.len(), 5);
    }
}
