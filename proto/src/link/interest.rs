//! What an agent asks another for, to and from the wire: filters, interest, questions for older
//! events.

use super::{LinkWireError, Result, bound, core_epoch, need, wire_epoch};
use crate::v1;
use ftb_core::filter::set::FILTERS_MAX;
use ftb_core::filter::{ALTERNATIVES_MAX, Filter};
use ftb_core::frame::{HistoryRequest, Interest};
use ftb_core::limits::FILTER_BYTES_MAX;

pub(super) fn wire_history_request(request: &HistoryRequest) -> v1::HistoryRequest {
    v1::HistoryRequest {
        id: request.id,
        epoch: Some(wire_epoch(request.epoch)),
        after: request.after.get(),
        since_ns: request.since_ns,
        filters: wire_filters(&request.filters),
        users: wire_users(&request.filters),
        conditions: request.conditions,
    }
}

pub(super) fn wire_interest(interest: &Interest) -> v1::Interest {
    v1::Interest {
        version: interest.version,
        filters: wire_filters(&interest.filters),
        users: wire_users(&interest.filters),
    }
}

/// The texts without the key `uid`, which an older agent cannot read.
fn wire_filters(filters: &[Filter]) -> Vec<String> {
    filters.iter().map(|filter| filter.of_users(None).to_string()).collect()
}

/// The users of the filters that name some.
fn wire_users(filters: &[Filter]) -> Vec<v1::FilterUsers> {
    let users = (0..).zip(filters).filter_map(|(filter, found)| {
        Some(v1::FilterUsers { filter, uids: found.uids()?.to_vec() })
    });
    users.collect()
}

pub(super) fn core_history_request(request: v1::HistoryRequest) -> Result<HistoryRequest> {
    Ok(HistoryRequest {
        id: request.id,
        epoch: core_epoch(need("history request", "epoch", request.epoch)?)?,
        after: request.after.into(),
        since_ns: request.since_ns,
        filters: core_filters(request.filters, &request.users)?,
        conditions: request.conditions,
    })
}

fn core_filters(texts: Vec<String>, users: &[v1::FilterUsers]) -> Result<Vec<Filter>> {
    bound("filters", texts.len(), FILTERS_MAX)?;
    bound("filters for users", users.len(), texts.len())?;
    let filters = texts.into_iter().map(|text| {
        bound("bytes of a filter", text.len(), FILTER_BYTES_MAX)?;
        Ok(Filter::parse(&text)?)
    });
    let mut filters = filters.collect::<Result<Vec<Filter>>>()?;
    for v1::FilterUsers { filter, uids } in users {
        bound("users of a filter", uids.len(), ALTERNATIVES_MAX)?;
        let filter = filters.get_mut(*filter as usize);
        let filter = filter.ok_or(LinkWireError::Range { what: "the number of a filter" })?;
        *filter = filter.of_users(Some(uids));
    }
    Ok(filters)
}

pub(super) fn core_interest(interest: v1::Interest) -> Result<Interest> {
    Ok(Interest {
        version: interest.version,
        filters: core_filters(interest.filters, &interest.users)?,
    })
}
