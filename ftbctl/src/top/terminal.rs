//! The terminal of `ftbctl top`: keys, and a screen that is always given back.

use super::model::Key;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

/// Keys that wait; while it is full, the terminal keeps further ones.
const KEYS_MAX: usize = 64;

/// What the terminal sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Key(Key),
    /// Its size is another one.
    Resized,
    /// It has gone.
    Closed,
}

/// The screen while it is ours. It is given back when this is dropped, and by a panic on any
/// thread.
pub(crate) struct Screen(DefaultTerminal);

impl Screen {
    /// Takes the screen.
    ///
    /// # Errors
    /// The system's. The terminal is as before.
    pub(crate) fn take() -> std::io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }

    pub(crate) fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.0
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Reads keys in a thread, which ends with the process.
pub(crate) fn keys() -> mpsc::Receiver<Typed> {
    let (sender, keys) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        loop {
            let typed = match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => key_of(key),
                Ok(Event::Resize(..)) => Some(Typed::Resized),
                Ok(_) => None,
                Err(_) => Some(Typed::Closed),
            };
            let is_over = typed == Some(Typed::Closed);
            if typed.is_some_and(|typed| sender.blocking_send(typed).is_err()) || is_over {
                return;
            }
        }
    });
    keys
}

fn key_of(key: KeyEvent) -> Option<Typed> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let key = match key.code {
        KeyCode::Char('c') if is_control => Key::Interrupt,
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        _ => return None,
    };
    Some(Typed::Key(key))
}

#[cfg(test)]
mod tests {
    use super::Screen;
    use std::process::Command;

    /// Not a test by itself: the one below starts it at a terminal.
    #[test]
    #[ignore = "no test: a_panic_gives_the_terminal_back starts it at a terminal"]
    fn a_program_that_panics() {
        let _screen = Screen::take();
        panic!("it panics while it has the screen");
    }

    #[test]
    fn a_panic_gives_the_terminal_back() -> std::io::Result<()> {
        if Command::new("script").arg("--version").output().is_err() {
            ftb_tests::skip::skip("script(1) is not installed (apt-get install bsdutils)");
            return Ok(());
        }
        let program = std::env::current_exe()?;
        let test = "top::terminal::tests::a_program_that_panics";
        let line = format!("{program:?} --exact {test} --ignored --nocapture; stty -a");
        let output = Command::new("script").args(["-qec", &line, "/dev/null"]).output()?;
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains("it panics while it has the screen"), "{shown}");
        let leave = shown.rfind("\u{1b}[?1049l");
        assert!(leave > shown.find("\u{1b}[?1049h") && leave.is_some(), "{shown}");
        assert!(shown.contains(" icanon") && shown.contains(" echo "), "{shown}");
        Ok(())
    }
}
