//! `ftb-act status`: the breaker, and the orders that are saved.

use crate::act::{Order, Saved, Stage};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The state for people.
pub fn text(saved: &Saved) -> String {
    let breaker = &saved.breaker;
    let mut text = match breaker.is_open {
        true => format!("breaker open: {} (ftb-act resume closes it)\n", breaker.reason),
        false => "breaker closed\n".to_owned(),
    };
    let shown = saved.orders.iter().filter(|order| order.stage != Stage::Over);
    for order in shown {
        let (id, kind, stage) = (order.id, order.kind.as_str(), order.stage.as_str());
        // Writing to a text cannot fail.
        let _ = write!(text, "{id:<6} {stage:<10} {kind:<8} {:<20} ", order.rule);
        let _ = writeln!(text, "{}{}", order.host_list(), causes(order));
    }
    let over = saved.orders.iter().filter(|order| order.stage == Stage::Over).count();
    let _ = writeln!(text, "{over} orders are done whose conditions still hold");
    text
}

fn causes(order: &Order) -> String {
    match order.causes.split_first() {
        None => String::new(),
        Some((first, [])) => format!("  {}", first.subject),
        Some((first, rest)) => format!("  {} and {} more", first.subject, rest.len()),
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
