//! How the ranks of a node are saved, moved and brought back: checkpoint backends, and pods.
//!
//! A pod has all ranks of a node, in namespaces of their own with a network address that moves with them
//! ([`pod`]). [`backend`] describes each way to save ranks as commands, [`steps`] runs these, [`images`] is what
//! they write. Not responsible for: when any of it happens (`ftb-launcher-core`), and for connections to other
//! nodes (`ftb-launcher`).

pub mod backend;
pub mod images;
pub mod input;
pub mod installed;
pub mod output;
pub mod pod;
pub mod saver;
pub mod spec;
pub mod steps;
pub mod timeline;
