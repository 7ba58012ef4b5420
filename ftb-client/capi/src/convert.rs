//! An event of the backplane as C sees it, and the other way round.
//!
//! Space, name, severity, job id and client name are the same on both sides. What the backplane has
//! no field for travels in tags: `cifts.seqnum`, `cifts.process` (`PID@STARTTIME`) and, where it is
//! not spelled in lower case, `cifts.severity`. A C payload is always 368 bytes: the zeros at its
//! end do not travel and are put back. The host is the one that the publisher's agent vouches for.

use crate::abi::{
    ClientId, Code, EVENT_NORMAL, EVENT_RESPONSE, EventHandle, EventProperties, LocationId,
    MAX_PAYLOAD_DATA, MAX_PID_TIME, MAX_SEVERITY, ReceiveEvent,
};
use crate::space;
use crate::text::{bounded, field, lossy};
use ftb_client::{EventId, EventKind, EventView, Severity, Tag};

pub(crate) const TAG_SEQNUM: &str = "cifts.seqnum";
pub(crate) const TAG_PROCESS: &str = "cifts.process";
pub(crate) const TAG_SEVERITY: &str = "cifts.severity";

/// What a payload ends with that was longer than C can have.
const CUT_OFF: &[u8; 4] = b"...\0";

/// The payload and kind of a publication.
pub(crate) fn properties(properties: Option<&EventProperties>) -> Result<(EventKind, &[u8]), Code> {
    let Some(properties) = properties else { return Ok((EventKind::Normal, &[])) };
    let kind = match properties.event_type {
        EVENT_NORMAL => EventKind::Normal,
        EVENT_RESPONSE => EventKind::Response(None),
        _ => return Err(Code::InvalidEventType),
    };
    let payload = &properties.event_payload;
    let end = payload.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    Ok((kind, &payload[..end]))
}

/// The tags of a publication.
pub(crate) fn tags(seqnum: u16, process: &str, spelling: &[u8; MAX_SEVERITY]) -> Vec<Tag> {
    let tag = |key: &str, value: String| Tag { key: key.to_owned(), value };
    let mut tags = vec![tag(TAG_SEQNUM, seqnum.to_string()), tag(TAG_PROCESS, process.to_owned())];
    let spelling = bounded(spelling);
    if spelling.iter().any(u8::is_ascii_uppercase) {
        tags.push(tag(TAG_SEVERITY, lossy(spelling)));
    }
    tags
}

/// What C sees of a delivered event, read where it lies.
pub(crate) struct Parts<'a> {
    pub(crate) id: EventId,
    pub(crate) host: &'a str,
    pub(crate) pid: u32,
    pub(crate) space: &'a str,
    pub(crate) name: &'a str,
    pub(crate) severity: Severity,
    pub(crate) client_name: &'a str,
    pub(crate) job_id: &'a str,
    pub(crate) kind: EventKind,
    pub(crate) payload: &'a [u8],
    tags: OwnTags<'a>,
}

/// The tags of this library, as far as an event has them.
#[derive(Default)]
pub(crate) struct OwnTags<'a> {
    seqnum: Option<&'a str>,
    process: Option<&'a str>,
    severity: Option<&'a str>,
}

impl<'a> OwnTags<'a> {
    /// The first of each.
    fn of(tags: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut own = Self::default();
        for (key, value) in tags {
            let found = match key {
                TAG_SEQNUM => &mut own.seqnum,
                TAG_PROCESS => &mut own.process,
                TAG_SEVERITY => &mut own.severity,
                _ => continue,
            };
            found.get_or_insert(value);
        }
        own
    }
}

impl<'a> From<EventView<'a>> for Parts<'a> {
    fn from(event: EventView<'a>) -> Self {
        Self {
            id: event.id(),
            host: event.host(),
            pid: event.pid(),
            space: event.space(),
            name: event.name(),
            severity: event.severity(),
            client_name: event.client_name(),
            job_id: event.job_id(),
            kind: event.kind(),
            payload: event.payload(),
            tags: OwnTags::of(event.tags()),
        }
    }
}

/// An event as it is delivered to C.
pub(crate) fn delivered(event: &Parts<'_>) -> ReceiveEvent {
    let seqnum = event.tags.seqnum.and_then(|text| text.parse().ok());
    let process = event.tags.process.and_then(|text| text.split_once('@'));
    let process =
        process.and_then(|(pid, start)| Some((pid.parse().ok()?, field(start.as_bytes()))));
    let (pid, pid_starttime): (i32, [u8; MAX_PID_TIME]) = process.unwrap_or_else(|| {
        (i32::try_from(event.pid).unwrap_or(0), field(&hexadecimal(event.id.publisher.token)))
    });
    ReceiveEvent {
        event_space: field(space::three_parts(event.space).as_bytes()),
        event_name: field(event.name.as_bytes()),
        severity: spelled(event.severity, event.tags.severity),
        client_jobid: field(event.job_id.as_bytes()),
        client_name: field(event.client_name.as_bytes()),
        client_extension: 0,
        pad0: 0,
        // The last 16 bits of the publisher's count where it is none of ours.
        seqnum: seqnum.unwrap_or((event.id.seq.get() & 0xffff) as u16),
        incoming_src: LocationId { hostname: field(event.host.as_bytes()), pid_starttime, pid },
        event_type: match event.kind {
            EventKind::Normal => EVENT_NORMAL,
            EventKind::Response(_) => EVENT_RESPONSE,
        },
        event_payload: payload(event.payload),
        pad1: [0; 3],
    }
}

/// A number as 16 digits.
fn hexadecimal(number: u64) -> [u8; 16] {
    core::array::from_fn(|place| {
        let digit = (number >> (60 - 4 * place)) as u8 & 0xf;
        if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
    })
}

/// The publisher's spelling if it is one of that severity.
fn spelled(severity: Severity, spelling: Option<&str>) -> [u8; MAX_SEVERITY] {
    let word = severity.as_str();
    if let Some(spelling) = spelling.filter(|spelling| spelling.eq_ignore_ascii_case(word)) {
        return field(spelling.as_bytes());
    }
    let mut field: [u8; MAX_SEVERITY] = field(word.as_bytes());
    field.make_ascii_lowercase();
    field
}

fn payload(bytes: &[u8]) -> [u8; MAX_PAYLOAD_DATA] {
    let mut payload = [0; MAX_PAYLOAD_DATA];
    if bytes.len() <= MAX_PAYLOAD_DATA {
        payload[..bytes.len()].copy_from_slice(bytes);
    } else {
        let kept = MAX_PAYLOAD_DATA - CUT_OFF.len();
        payload[..kept].copy_from_slice(&bytes[..kept]);
        payload[kept..].copy_from_slice(CUT_OFF);
    }
    payload
}

/// The handle that the publisher of this event was given.
pub(crate) fn event_handle(event: &ReceiveEvent) -> Result<EventHandle, Code> {
    let parts = space::split_loosely(bounded(&event.event_space)).ok_or(Code::EventspaceFormat)?;
    let [region, comp_cat, comp] = parts.map(field);
    Ok(EventHandle {
        event_name: event.event_name,
        severity: event.severity,
        client_id: ClientId {
            region,
            comp_cat,
            comp,
            client_name: event.client_name,
            ext: event.client_extension,
        },
        pad: 0,
        seqnum: event.seqnum,
        location_id: event.incoming_src,
    })
}

/// Whether both name the same publication. Texts are compared without case.
pub(crate) fn same_event(a: &EventHandle, b: &EventHandle) -> bool {
    fn texts(handle: &EventHandle) -> [&[u8]; 8] {
        let (client, location) = (&handle.client_id, &handle.location_id);
        [
            bounded(&handle.event_name),
            bounded(&handle.severity),
            bounded(&client.region),
            bounded(&client.comp_cat),
            bounded(&client.comp),
            bounded(&client.client_name),
            bounded(&location.hostname),
            bounded(&location.pid_starttime),
        ]
    }
    texts(a).iter().zip(texts(b)).all(|(a, b)| a.eq_ignore_ascii_case(b))
        && a.client_id.ext == b.client_id.ext
        && a.seqnum == b.seqnum
        && a.location_id.pid == b.location_id.pid
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;
    use ftb_client::{Event, PublisherId, event as builder};

    /// An event of the backplane as it is delivered to C.
    fn received(event: &Event) -> ReceiveEvent {
        let publisher = PublisherId { account: 1, token: 0xabc };
        delivered(&Parts {
            id: EventId { publisher, seq: 65537.into() },
            host: "node07",
            pid: 4242,
            space: event.space.as_str(),
            name: event.name.as_str(),
            severity: event.severity,
            client_name: &event.client_name,
            job_id: &event.job_id,
            kind: event.kind,
            payload: &event.payload,
            tags: OwnTags::of(event.tags.iter().map(|tag| (&tag.key[..], &tag.value[..]))),
        })
    }

    /// A delivered event with these fields, for tests of other modules.
    pub(crate) fn event(space: &str, name: &str, severity: &str) -> ReceiveEvent {
        let mut event = received(&builder("a.b.c", "X").unwrap().build());
        event.event_space = field(space.as_bytes());
        event.event_name = field(name.as_bytes());
        event.severity = field(severity.as_bytes());
        event
    }

    #[test]
    fn what_rust_publishes_has_everything_that_c_needs() {
        let long = "x".repeat(400);
        let event = builder("ftb.ipmi", &"N".repeat(40)).unwrap();
        let event = event.severity(Severity::Error).job_id("j".repeat(20)).payload(long);
        let event = received(&event.build());
        assert_eq!(bounded(&event.event_space), b"ftb.ipmi.none");
        assert_eq!(bounded(&event.event_name), "N".repeat(31).as_bytes());
        assert_eq!(bounded(&event.severity), b"error");
        assert_eq!(bounded(&event.client_jobid), "j".repeat(15).as_bytes());
        assert_eq!((event.seqnum, event.event_type), (1, EVENT_NORMAL));
        assert_eq!(bounded(&event.incoming_src.hostname), b"node07");
        assert_eq!(bounded(&event.incoming_src.pid_starttime), b"0000000000000abc");
        assert_eq!(event.incoming_src.pid, 4242);
        assert_eq!(&event.event_payload[360..], b"xxxx...\0");
        assert!(event_handle(&event).is_ok());
    }

    #[test]
    fn what_c_publishes_comes_back_to_the_byte() {
        let mut published = EventProperties { event_type: 2, event_payload: [0; _] };
        published.event_payload[..5].copy_from_slice(b"a\0b\xff\x01");
        let (kind, payload) = properties(Some(&published)).unwrap();
        assert_eq!((kind, payload), (EventKind::Response(None), &b"a\0b\xff\x01"[..]));
        let mut event = builder("FTB.a.b", "Xyz").unwrap().severity(Severity::Fatal).build();
        event.kind = kind;
        event.payload = Bytes::copy_from_slice(payload);
        event.tags = tags(65535, "99@1700000000.5", &field(b"FaTaL"));
        let event = received(&event);
        assert_eq!(event.event_payload, published.event_payload);
        assert_eq!((event.event_type, event.seqnum), (2, 65535));
        assert_eq!(bounded(&event.severity), b"FaTaL");
        assert_eq!(bounded(&event.incoming_src.pid_starttime), b"1700000000.5");
        assert_eq!(event.incoming_src.pid, 99);
        published.event_payload = [0xee; _];
        assert_eq!(properties(Some(&published)).unwrap().1.len(), MAX_PAYLOAD_DATA);
        published.event_type = 0;
        assert_eq!(properties(Some(&published)), Err(Code::InvalidEventType));
    }

    #[test]
    fn tags_that_make_no_sense_are_not_believed() {
        let mut event = builder("a.b.c", "X").unwrap().build();
        for (key, value) in [(TAG_SEQNUM, "99999"), (TAG_PROCESS, "x@y"), (TAG_SEVERITY, "fatal")] {
            event.tags.push(Tag { key: key.to_owned(), value: value.to_owned() });
        }
        let event = received(&event);
        assert_eq!((event.seqnum, event.incoming_src.pid), (1, 4242));
        assert_eq!(bounded(&event.severity), b"info");
    }

    #[test]
    fn handles_differ_by_every_part() {
        let original = event_handle(&event("a.b.c", "X", "info")).unwrap();
        assert!(same_event(&original, &original));
        let mut upper = original;
        upper.severity = field(b"INFO");
        assert!(same_event(&original, &upper), "case does not count");
        let changes: [fn(&mut EventHandle); 11] = [
            |handle| handle.event_name = field(b"Y"),
            |handle| handle.severity = field(b"fatal"),
            |handle| handle.client_id.region = field(b"z"),
            |handle| handle.client_id.comp_cat = field(b"z"),
            |handle| handle.client_id.comp = field(b"z"),
            |handle| handle.client_id.client_name = field(b"z"),
            |handle| handle.client_id.ext = 1,
            |handle| handle.seqnum = 9,
            |handle| handle.location_id.hostname = field(b"z"),
            |handle| handle.location_id.pid_starttime = field(b"z"),
            |handle| handle.location_id.pid = 1,
        ];
        for change in changes {
            let mut other = original;
            change(&mut other);
            assert!(!same_event(&original, &other));
        }
        assert_eq!(event_handle(&event("a.b", "X", "info")).err(), Some(Code::EventspaceFormat));
    }
}
