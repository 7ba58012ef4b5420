//! The job-side library.
