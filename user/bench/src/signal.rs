//! A signal handler that counts.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Signals that the handler has seen.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Installs a handler for `SIGUSR1` that counts.
///
/// # Errors
/// Those of sigaction(2).
pub fn install() -> io::Result<()> {
    // SAFETY: all-zero is a valid `sigaction`, with the default action, an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the structure is complete, and the handler only adds to an atomic number, as a signal handler may.
    match unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signals that the handler has seen.
pub fn handled() -> u64 {
    HANDLED.load(Ordering::Relaxed)
}
