//! The dry run: every sensor of every node once, with reading, limits and verdict.

use crate::bmc::{Bmc, BmcError};
use crate::config::{Config, WatchedNode};
use crate::event::number;
use crate::inventory;
use crate::monitor::{Judgement, Reading, THRESHOLD_NAMES, Watched, judge};
use crate::rules::Rule;
use crate::watch::{Row, read_once};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The sensors of a node, or the reason why there are none.
pub struct NodeTable {
    /// Host name of the node.
    pub node: String,
    /// Name of the BMC.
    pub bmc: String,
    /// Sensors with their readings.
    pub rows: Result<Vec<Row>, BmcError>,
    /// Indices of rules that match no sensor.
    pub unmatched: Vec<usize>,
}

/// Reads all nodes in parallel.
pub async fn read_all(config: &Config) -> Vec<NodeTable> {
    let rules: Arc<[Rule]> = config.rules.clone().into();
    let tasks: Vec<_> = config
        .nodes
        .iter()
        .map(|node| tokio::spawn(read_one(node.clone(), Arc::clone(&rules))))
        .collect();
    let mut tables = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.await {
            Ok(table) => tables.push(table),
            Err(error) => tracing::error!(%error, "reading a node failed"),
        }
    }
    tables
}

async fn read_one(node: WatchedNode, rules: Arc<[Rule]>) -> NodeTable {
    let mut table = NodeTable {
        bmc: node.target.name(),
        node: node.node,
        rows: Ok(Vec::new()),
        unmatched: Vec::new(),
    };
    let mut bmc = match Bmc::connect(&node.target).await {
        Ok(bmc) => bmc,
        Err(error) => {
            table.rows = Err(error);
            return table;
        }
    };
    let read = async {
        let inventory = inventory::read(&mut bmc, &rules, &mut None).await?;
        let rows = read_once(&mut bmc, inventory.watched).await?;
        Ok((rows, inventory.unmatched))
    };
    match read.await {
        Ok((rows, unmatched)) => (table.rows, table.unmatched) = (Ok(rows), unmatched),
        Err(error) => table.rows = Err(error),
    }
    bmc.close().await;
    table
}

/// The verdict on a single reading, as a word.
fn verdict(watched: &Watched, reading: &Result<Reading, String>) -> String {
    let reading = match reading {
        Ok(reading) => reading,
        Err(_) if watched.sensor.event_only => return "events only".to_owned(),
        Err(why) => return format!("unavailable ({why})"),
    };
    match judge(watched, reading, false, false) {
        Judgement::Good if watched.is_judged() => "ok".to_owned(),
        Judgement::Good if watched.sensor.is_threshold() => "no limits".to_owned(),
        Judgement::Good => "not judged".to_owned(),
        Judgement::Warning => "warning".to_owned(),
        Judgement::Bad(cause) => format!("BAD ({})", cause.as_str()),
        Judgement::Unknown if reading.raw.is_none() => "no reading".to_owned(),
        Judgement::Unknown => "unknown".to_owned(),
    }
}

fn shown(watched: &Watched, reading: &Result<Reading, String>) -> String {
    match reading {
        Ok(Reading { value: Some(value), .. }) => {
            format!("{} {}", number(*value), watched.sensor.unit).trim_end().to_owned()
        }
        Ok(Reading { raw: Some(_), states, .. }) => format!("states {states:#06x}"),
        _ => String::new(),
    }
}

/// The table as text.
pub fn text(tables: &[NodeTable]) -> String {
    const HEADS: [&str; 8] =
        ["NODE", "SENSOR", "NUMBER", "TYPE", "ENTITY", "READING", "CRITICAL", "VERDICT"];
    let mut lines: Vec<[String; 8]> = vec![HEADS.map(str::to_owned)];
    for table in tables {
        for (watched, reading) in table.rows.iter().flatten() {
            let sensor = &watched.sensor;
            let low = watched.limits[1].map(|limit| format!("<= {}", number(limit)));
            let high = watched.limits[4].map(|limit| format!(">= {}", number(limit)));
            let limits: Vec<_> = low.into_iter().chain(high).collect();
            lines.push([
                table.node.clone(),
                sensor.name.clone(),
                format!("{:02X}h", sensor.key.number),
                watched.policy.class.as_str().to_owned(),
                sensor.entity.to_string(),
                shown(watched, reading),
                limits.join(", "),
                verdict(watched, reading),
            ]);
        }
    }
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..HEADS.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let row = cells.collect::<Vec<_>>().join("  ");
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out
}

/// The table as JSON: one object per line and sensor.
pub fn json_lines(tables: &[NodeTable]) -> String {
    let mut out = String::new();
    for table in tables {
        for (watched, reading) in table.rows.iter().flatten() {
            out.push_str(&json_row(table, watched, reading).to_string());
            out.push('\n');
        }
    }
    out
}

fn json_row(table: &NodeTable, watched: &Watched, result: &Result<Reading, String>) -> Value {
    let reading = result.as_ref().ok();
    let sensor = &watched.sensor;
    let mut thresholds = Map::new();
    for (name, limit) in THRESHOLD_NAMES.iter().zip(watched.limits) {
        if let Some(limit) = limit {
            thresholds.insert((*name).to_owned(), json!(limit));
        }
    }
    json!({
        "node": table.node,
        "bmc": table.bmc,
        "sensor": sensor.name,
        "number": sensor.key.number,
        "owner": sensor.key.owner.to_string(),
        "type": watched.policy.class.as_str(),
        "sensor_type": crate::sdr::sensor_type_name(sensor.sensor_type),
        "entity": sensor.entity.to_string(),
        "entity_name": sensor.entity.name(),
        "cools": watched.cools,
        "reading": reading.and_then(|reading| reading.value),
        "unit": sensor.unit,
        "states": reading.filter(|_| !sensor.is_threshold()).map(|reading| reading.states),
        "thresholds": thresholds,
        "hysteresis": watched.hysteresis,
        "verdict": verdict(watched, result),
    })
}
