//! Failures of a command: one line on standard error, one exit code.

use core::fmt;
use ftb_client::admin::AdminError;
use ftb_client::{PublishError, SubscribeError, Unconfirmed, WaitError};
use std::io;
use std::process::ExitCode;

/// The reason and the exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader closed the output: success.
    BrokenPipe,
    /// One line on standard error.
    Reported { code: u8, message: String },
    /// Ctrl-C: no message.
    Interrupted,
    /// The output says it all.
    Code(u8),
}

impl Failure {
    fn new(code: u8, message: impl fmt::Display) -> Self {
        Self::Reported { code, message: message.to_string() }
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::new(ftb_cli::FAILED, message)
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(ftb_cli::USAGE, message)
    }

    pub(crate) fn no_answer(message: impl fmt::Display) -> Self {
        Self::new(ftb_cli::NO_ANSWER, message)
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
            Self::Interrupted => ExitCode::from(ftb_cli::INTERRUPTED),
            Self::Code(code) => ExitCode::from(code),
            Self::Reported { code, message } => {
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
