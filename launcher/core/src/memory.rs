//! Checkpoints in the memory of the nodes: who protects whose images, and how a lost node's images
//! come back. The algorithm is that of FMI (section V) and SCR.
//!
//! Each launch agent holds the images of its node's ranks; together they are its **share** of a
//! set. Nodes form **groups**. A group survives the loss of one member (`xor:N`: parity) or of K
//! members (`buddy:K`: copies). Two generations exist: a set counts when every group has protected
//! it, and only then the set before is freed.
//!
//! - [`scheme`]: `buddy:K` and `xor:N`, and how nodes are divided into groups
//! - [`stripes`]: chunks, parity, and the way along which members combine their cells
//! - [`set`]: where the images of a set are; what is lost with a node; where to get it from
//! - [`shares`]: what one node holds, within its budget
//!
//! Pure. Not responsible for the images' bytes (`launcher/src/memory`), nor for when a set is made
//! or used ([`crate::jl`]).

pub mod scheme;
pub mod set;
pub mod shares;
pub mod stripes;

pub use scheme::Scheme;
pub use set::{Group, GroupTask, Member, MemorySet};
pub use shares::Shares;
