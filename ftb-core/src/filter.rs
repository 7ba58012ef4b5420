//! Subscription filters.
