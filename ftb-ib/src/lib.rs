//! The IB publisher.
