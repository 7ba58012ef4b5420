//! Standard output: text with colours for people, one JSON object a line for programs.

use crate::common::{Color, Common};
use crate::failure::Failure;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use ftb_client::Severity;
use serde::Serialize;
use std::io::{BufWriter, StdoutLock, Write as _};

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const STRONG: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();

/// The style of a severity.
pub(crate) fn style_of(severity: Severity) -> Style {
    match severity {
        Severity::Info => PLAIN,
        Severity::Warning => WARN,
        Severity::Error | Severity::Fatal => BAD,
    }
}

/// The text in its style. [`Output`] removes styles where there is no colour.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Standard output.
pub(crate) struct Output {
    writer: BufWriter<AutoStream<StdoutLock<'static>>>,
    json: bool,
    pub(crate) utc: bool,
}

impl Output {
    pub(crate) fn new(common: &Common) -> Self {
        let choice = match common.color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        let stdout = AutoStream::new(std::io::stdout().lock(), choice);
        Self { writer: BufWriter::new(stdout), json: common.json, utc: common.utc }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
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

    /// Writes what is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.writer.flush()?)
    }
}
