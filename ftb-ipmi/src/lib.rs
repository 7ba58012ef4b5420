//! The IPMI publisher.
