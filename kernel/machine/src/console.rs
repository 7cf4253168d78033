//! The early console: kernel log lines in memory ([`crate::log_ring`]) and on the first serial port.
//!
//! It works from the first instruction on and in a panic: it takes no lock that a stopped processor could hold
//! for ever. The log level comes from `log=LEVEL` on the command line (error, warn, info, debug, trace, off);
//! without it only errors are printed, because each byte costs start-up time. What informs goes to memory in any case.

use crate::{backend, boot, log_ring};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use log::{Level, LevelFilter, Log, Metadata, Record};

/// Longest wait for another processor's line to end, in spins; then the lines mix rather than get lost.
const LINE_SPINS_MAX: u32 = 1_000_000;

/// True while a processor writes a line. Only keeps lines apart: a writer that waited too long goes ahead.
static BUSY: AtomicBool = AtomicBool::new(false);

/// The lowest level that is printed; a word of its own.
static PRINTED: AtomicUsize = AtomicUsize::new(LevelFilter::Error as usize);

struct Console;

impl Log for Console {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now_us = crate::time::now_ns() / 1000;
        let text = format_args!("{}: {}", record.target(), record.args());
        log_ring::append(priority_of(record.level()), now_us, text);
        if record.level() as usize > PRINTED.load(Ordering::Relaxed) {
            return;
        }
        print(format_args!(
            "[{:5}.{:06}] {:<5} {}: {}\n",
            now_us / 1_000_000,
            now_us % 1_000_000,
            record.level(),
            record.target(),
            record.args()
        ));
    }

    fn flush(&self) {}
}

/// Makes the console the kernel's log and sets the level from the command line.
pub fn initialise() {
    static LOGGER: Console = Console;
    if log::set_logger(&LOGGER).is_ok() {
        let printed = requested_level();
        PRINTED.store(printed as usize, Ordering::Relaxed);
        log::set_max_level(printed.max(LevelFilter::Info));
    }
}

/// The level as syslog(3) numbers it; the facility is the kernel, 0.
const fn priority_of(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

fn requested_level() -> LevelFilter {
    boot::info().option("log").and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::Error)
}

/// Writes bytes as they are.
pub fn write_bytes(bytes: &[u8]) {
    backend::console::write_bytes(bytes);
}

/// A byte that has come in on the first serial port, if any. By polling; nobody else reads there.
pub fn read_byte() -> Option<u8> {
    backend::console::read_byte()
}

/// Whether somebody out there has sent a break on the first serial port since the last call, or wants attention in another way.
pub fn take_break() -> bool {
    backend::console::take_break()
}

/// Calls `handler` when something comes in on the first serial port, from then on.
///
/// # Errors
/// When no interrupt controller serves it.
pub fn listen(handler: fn(usize)) -> Result<(), crate::interrupt::ConnectError> {
    const FIRST_PORT_IRQ: u8 = 4;
    crate::interrupt::connect_isa_irq(FIRST_PORT_IRQ, handler, 0)?;
    backend::console::interrupt_on_input();
    Ok(())
}

/// Prints formatted text whole, not mixed with other processors' lines.
pub fn print(arguments: fmt::Arguments<'_>) {
    let guard = crate::interrupt::disable();
    let mut spins = 0;
    while BUSY.swap(true, Ordering::Acquire) && spins < LINE_SPINS_MAX {
        spins += 1;
        crate::cpu::relax();
    }
    // Writing to the console can't fail.
    let _ = RawConsole.write_fmt(arguments);
    // Release: the next line's Acquire orders it after this one's bytes.
    BUSY.store(false, Ordering::Release);
    drop(guard);
}

struct RawConsole;

impl Write for RawConsole {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_bytes(text.as_bytes());
        Ok(())
    }
}
