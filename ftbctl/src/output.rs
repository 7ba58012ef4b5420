//! Where the answers go: tables for people, one JSON object a line for programs.

use crate::cli::{Color, Common};
use crate::failure::Failure;
use ftb_client::Severity;
use serde::Serialize;
use std::io::{BufWriter, IsTerminal as _, StdoutLock, Write as _};

/// Standard output and how to write to it.
pub(crate) struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    json: bool,
    color: bool,
}

/// What a piece of text means; the terminal's own palette decides how it looks.
#[derive(Clone, Copy)]
pub(crate) enum Style {
    Plain,
    Strong,
    Faint,
    Good,
    Warn,
    Bad,
}

impl Style {
    pub(crate) fn of(severity: Severity) -> Self {
        match severity {
            Severity::Info => Self::Plain,
            Severity::Warning => Self::Warn,
            Severity::Error | Severity::Fatal => Self::Bad,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warn => "33",
            Self::Bad => "31",
        }
    }
}

impl Output {
    pub(crate) fn new(common: &Common) -> Self {
        let stdout = std::io::stdout();
        let color = match common.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        };
        let writer = BufWriter::new(stdout.lock());
        Self { writer, json: common.json, color: color && !common.json }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// The text in its style, where there is colour.
    pub(crate) fn styled(&self, style: Style, text: &str) -> String {
        if !self.color || style.code().is_empty() || text.is_empty() {
            return text.to_owned();
        }
        format!("\u{1b}[{}m{text}\u{1b}[0m", style.code())
    }

    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.writer, "{line}")?)
    }

    pub(crate) fn json(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.writer, object)?;
        self.line("")
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes)?;
        self.flush()
    }

    /// Shows what was written so far.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.writer.flush()?)
    }
}
