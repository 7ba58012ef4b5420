//! What all programs of ftb have in common: one meaning per exit code, the end of a program whose
//! command line is wrong, [`files`] that are replaced as a whole.
//!
//! Not responsible for: what a program prints, and the exit code of a job's own program.

pub mod files;

/// Success, also when the reader of the output has gone.
pub const OK: u8 = 0;
/// It failed, or the answer is no: something was found, a node is unhealthy.
pub const FAILED: u8 = 1;
/// The health of a node is unknown. Only commands with the name `health` end with it.
pub const UNKNOWN: u8 = 2;
/// No agent, or no answer in time.
pub const NO_ANSWER: u8 = 3;
/// The command line, a file or a value is wrong: nothing was started. `EX_USAGE` of sysexits.h.
pub const USAGE: u8 = 64;
/// The image of a rank is damaged. `EX_DATAERR`.
pub const DAMAGED_IMAGE: u8 = 65;
/// The program ended well, but output of it was lost. `EX_IOERR`.
pub const OUTPUT_LOST: u8 = 74;
/// No node became usable in time: try again later. `EX_TEMPFAIL`.
pub const NO_NODES: u8 = 75;
/// The time limit of a job is over, as of timeout(1).
pub const TIME_LIMIT: u8 = 124;
/// The program of a job cannot be started, as of a shell.
pub const NOT_STARTED: u8 = 127;
/// Ctrl-C: 128 + SIGINT, as of a shell.
pub const INTERRUPTED: u8 = 130;

/// Every exit code in order. The table of `docs/ftbctl.md` has these and no others.
pub const CODES: [u8; 11] = [
    OK,
    FAILED,
    UNKNOWN,
    NO_ANSWER,
    USAGE,
    DAMAGED_IMAGE,
    OUTPUT_LOST,
    NO_NODES,
    TIME_LIMIT,
    NOT_STARTED,
    INTERRUPTED,
];

/// Reads the command line of this process. `--help` and `--version` print and end it with
/// [`OK`]; a wrong command line is explained on standard error and ends it with [`USAGE`].
#[cfg(feature = "parse")]
pub fn parse<T: clap::Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| {
        // The exit code says the rest if the output is closed or full.
        let _ = error.print();
        std::process::exit(i32::from(if error.use_stderr() { USAGE } else { OK }))
    })
}
