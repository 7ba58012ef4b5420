//! How the command ends when it does not end well: one line, one exit code.

use core::fmt;
use ftb_client::admin::AdminError;
use ftb_client::{PublishError, SubscribeError, Unconfirmed, WaitError};
use std::io;
use std::process::ExitCode;

/// The exit codes of `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Failed = 1,
    Usage = 2,
    NoAnswer = 3,
    Interrupted = 130,
}

/// Why, and with which exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader of the output has what it wanted: success.
    BrokenPipe,
    /// Something for people to read.
    Told { code: u8, message: String },
    /// Ctrl-C: whoever pressed it knows.
    Interrupted,
}

impl Failure {
    fn told(code: Code, message: impl fmt::Display) -> Self {
        Self::Told { code: code as u8, message: message.to_string() }
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::told(Code::Failed, message)
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::told(Code::Usage, message)
    }

    pub(crate) fn no_answer(message: impl fmt::Display) -> Self {
        Self::told(Code::NoAnswer, message)
    }

    pub(crate) fn interrupted(listened: io::Result<()>) -> Self {
        match listened {
            Ok(()) => Self::Interrupted,
            Err(error) => Self::failed(format_args!("signals cannot be received: {error}")),
        }
    }

    pub(crate) fn exit(self) -> ExitCode {
        match self {
            Self::BrokenPipe => ExitCode::SUCCESS,
            Self::Interrupted => ExitCode::from(Code::Interrupted as u8),
            Self::Told { code, message } => {
                eprintln!("ftbctl: {message}");
                ExitCode::from(code)
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::failed(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

impl From<WaitError> for Failure {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::NoAgent { .. }
            | WaitError::Detached { .. }
            | WaitError::Timeout
            | WaitError::Unconfirmed { .. } => Self::no_answer(error),
            WaitError::Refused { .. } | WaitError::Closed => Self::failed(error),
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Event(_) => Self::usage(error),
            PublishError::Full { .. } | PublishError::BatchFull { .. } | PublishError::Closed => {
                Self::failed(error)
            }
        }
    }
}

impl From<Unconfirmed> for Failure {
    fn from(error: Unconfirmed) -> Self {
        Self::failed(error)
    }
}

impl From<SubscribeError> for Failure {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Filter(_) => Self::usage(error),
            SubscribeError::Timeout => Self::no_answer(error),
            SubscribeError::Refused { .. }
            | SubscribeError::TooMany(_)
            | SubscribeError::Closed => Self::failed(error),
        }
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::NoAgent { .. } | AdminError::Timeout(_) => Self::no_answer(error),
            AdminError::Refused(_) => Self::failed(error),
        }
    }
}
