//! `ftbctl publish`.

use crate::cli::Publish;
use crate::common::Common;
use crate::failure::Failure;
use crate::output::Output;
use ftb_client::{Condition, ConfirmLevel, Event, EventKind, Tag, limits};
use ftb_core::catalog::TRACE_TAG;
use serde_json::json;
use std::io::Read as _;
use std::path::Path;

/// Publishes one event; returns when it is confirmed.
pub(crate) async fn run(common: &Common, args: Publish, mut output: Output) -> Result<(), Failure> {
    let confirm = args.confirm;
    let event = event_of(args)?;
    // A wrong event is rejected before anything is started.
    event.check(limits::PAYLOAD_BYTES_MAX).map_err(Failure::usage)?;
    let (space, name, severity) = (event.space.clone(), event.name.clone(), event.severity);
    let client = common.client().build().map_err(Failure::failed)?;
    client.wait_connected(common.timeout()).await?;
    let publisher = match confirm {
        Some(level) => client.confirming(level),
        None => client.clone(),
    };
    let receipt = publisher.publish(event)?;
    let confirmed = tokio::time::timeout(common.timeout(), receipt.confirmed_level()).await;
    let (id, level) = confirmed.map_err(|_| {
        let took = crate::text::exact(common.timeout());
        Failure::no_answer(format_args!(
            "the event was sent but not confirmed within {took}: it may still be delivered"
        ))
    })??;
    if output.is_json() {
        output.json(&json!({
            "type": "published",
            "id": id.to_string(),
            "space": space.as_str(),
            "name": name.as_str(),
            "severity": severity.as_str(),
            "level": level.as_str(),
        }))?;
    } else {
        output.line(&id.to_string())?;
        if confirm == Some(ConfirmLevel::Disk) && level < ConfirmLevel::Disk {
            eprintln!("ftbctl: the event is confirmed at level {level}, not disk");
        }
    }
    output.flush()?;
    // Nothing is unconfirmed: this only detaches.
    client.close(common.timeout()).await?;
    Ok(())
}

fn event_of(args: Publish) -> Result<Event, Failure> {
    let mut event = Event::new(args.space, args.name);
    event.severity = args.severity;
    event.job_id = args.job_id;
    event.tags = args.tags.into_iter().map(|(key, value)| Tag { key, value }).collect();
    if args.trace {
        event.tags.push(Tag { key: TRACE_TAG.to_owned(), value: "true".to_owned() });
    }
    if let Some(id) = args.response_to {
        event.kind = EventKind::Response(Some(id));
    }
    if let Some((key, truth)) = args.condition {
        let expires = args.expires.unwrap_or_default().as_millis();
        let too_long = |_| Failure::usage("--expires is longer than 49 days");
        event.condition = Some(Condition {
            host: args.host,
            component: args.component,
            action: args.action,
            expires_ms: u32::try_from(expires).map_err(too_long)?,
            // This program ends; what it states stays.
            is_kept: true,
            ..Condition::new(&key, truth)
        });
    }
    event.payload = match (args.payload, args.payload_file) {
        (_, Some(path)) => read(&path)?.into(),
        (text, None) => text.unwrap_or_default().into(),
    };
    Ok(event)
}

/// Reads at most one byte more than the largest payload.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let limit = limits::PAYLOAD_BYTES_MAX as u64 + 1;
    let result = if path == Path::new("-") {
        std::io::stdin().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    let wrong = |what: &dyn std::fmt::Display| {
        Failure::usage(format_args!("payload file {}: {what}", path.display()))
    };
    result.map_err(|error| wrong(&error))?;
    if bytes.len() > limits::PAYLOAD_BYTES_MAX {
        let max = limits::PAYLOAD_BYTES_MAX;
        return Err(wrong(&format_args!("it has more than the {max} bytes of any payload")));
    }
    Ok(bytes)
}
