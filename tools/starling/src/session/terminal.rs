//! The host's terminal in raw mode, and back.
//!
//! In an interactive session the guest's terminal does everything: editing, echo, `^C`. The host's only passes bytes on.
//! Its settings are put back when [`RawTerminal`] is dropped, and by the panic hook, which runs even where panics abort.
//! Signals that would end the process are taken as events (see [`super::signals`]) and so end in a drop as well.

use std::io::IsTerminal;
use std::panic;
use std::sync::{Mutex, Once};

use rustix::stdio::stdin;
use rustix::termios::{self, OptionalActions, Termios};

use crate::failure::{Context, Outcome};

/// The settings to go back to, while the terminal is raw.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

static RESTORE_ON_PANIC: Once = Once::new();

/// Whether standard input is a terminal.
pub(crate) fn is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Rows and columns of the terminal.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(stdin()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// Whether this process may read from the terminal now, or would be stopped for being in the background. A terminal that
/// does not control this process does not stop it either.
pub(super) fn in_foreground() -> bool {
    termios::tcgetpgrp(stdin()).map_or(true, |group| group == rustix::process::getpgrp())
}

/// The terminal in raw mode.
#[derive(Debug)]
pub(super) struct RawTerminal(());

impl RawTerminal {
    /// Makes the terminal raw.
    ///
    /// # Errors
    /// When standard input is no terminal.
    pub(super) fn enter() -> Outcome<Self> {
        let doing = || "the terminal".to_string();
        let settings = termios::tcgetattr(stdin()).context(doing)?;
        let mut raw = settings.clone();
        raw.make_raw();
        if let Ok(mut saved) = SAVED.lock() {
            *saved = Some(settings);
        }
        RESTORE_ON_PANIC.call_once(|| {
            let earlier = panic::take_hook();
            panic::set_hook(Box::new(move |report| {
                restore();
                earlier(report);
            }));
        });
        termios::tcsetattr(stdin(), OptionalActions::Drain, &raw).context(doing)?;
        Ok(Self(()))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(settings) = SAVED.lock().ok().and_then(|mut saved| saved.take()) {
        // A terminal that has gone away has no settings to restore.
        let _ = termios::tcsetattr(stdin(), OptionalActions::Drain, &settings);
    }
}
