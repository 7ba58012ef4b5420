//! The words of requests for images between processes of a job, and of their answers.
//!
//! A client requests `GET SET RANK`. The answer is `OK LENGTH SHA256` and the bytes, or `TREE
//! SHA256` and the files; else `ERR reason`. Only the store of a job knows the SHA-256, from the
//! manifest of the set; the client verifies it. `AWAIT SET RANK` requests an image that may still
//! grow ([`ftb_launcher_pods::images::growing`]). Lines `WAIT` may precede an answer.

/// Requests a whole image.
pub(crate) const GET: &str = "GET";
/// Requests an image that may still grow.
pub(crate) const AWAIT: &str = "AWAIT";
/// Sent while the transfer or its image has not begun.
pub(crate) const WAIT: &str = "WAIT";
