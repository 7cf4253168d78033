//! Signals as events of the poll loop.
//!
//! A socket becomes readable when a signal has arrived. Nothing else happens in signal context.

use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::failure::{Context, Outcome};

/// Signals that are passed on to the command, as docker's `--sig-proxy` does.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// Signals that are about the terminal.
const TERMINAL: [i32; 2] = [SIGWINCH, SIGTSTP];

/// Where signals arrive.
#[derive(Debug)]
pub(super) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Takes over the signals that a session handles; those about the terminal only when it has one.
    ///
    /// # Errors
    /// When the operating system does not let us.
    pub(super) fn take_over(terminal: bool) -> Outcome<Self> {
        let doing = || "signals".to_string();
        let (arrivals, departures) = UnixStream::pair().context(doing)?;
        let about_terminal = if terminal { &TERMINAL[..] } else { &[] };
        let signals = PASSED_ON.iter().chain(about_terminal);
        let delivery = SignalDelivery::with_pipe(arrivals, departures, SignalOnly, signals).context(doing)?;
        Ok(Self { delivery })
    }

    /// Readable when a signal has arrived.
    pub(super) fn arrivals(&self) -> &UnixStream {
        self.delivery.get_read()
    }

    /// The signals that have arrived.
    pub(super) fn take(&mut self) -> Vec<i32> {
        self.delivery.pending().collect()
    }
}
