//! Where the debugger's lines come from and where its output goes: the first serial port, by polling, or a test's script and its
//! transcript.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use machine::{console, cpu};
use sync::SpinLock;

/// Longest line; more is dropped.
pub(super) const LINE_BYTES: usize = 120;
/// Longest transcript; more is dropped.
const TRANSCRIPT_BYTES: usize = 16 * 1024;

const BACKSPACE: u8 = 8;
const DELETE: u8 = 0x7f;

/// A test's lines, and what the debugger said to them.
struct Script {
    lines: &'static [&'static str],
    next: usize,
    transcript: [u8; TRANSCRIPT_BYTES],
    length: usize,
}

/// Taken by the test, and by the active instance, which does not wait for it.
static SCRIPT: SpinLock<Script> =
    SpinLock::new(Script { lines: &[], next: 0, transcript: [0; TRANSCRIPT_BYTES], length: 0 });

/// 1 while a script speaks in place of the serial port.
static SCRIPTED: AtomicU32 = AtomicU32::new(0);

/// The next sessions take their lines from here, and `continue` when there are none left. None: from the serial port again.
pub fn run_script(lines: Option<&'static [&'static str]>) {
    let mut script = SCRIPT.lock();
    script.lines = lines.unwrap_or(&[]);
    script.next = 0;
    script.length = 0;
    SCRIPTED.store(u32::from(lines.is_some()), Ordering::SeqCst);
}

/// Calls `read` with what the debugger has said since the script began.
pub fn transcript<R>(read: impl FnOnce(&str) -> R) -> R {
    let script = SCRIPT.lock();
    read(core::str::from_utf8(&script.transcript[..script.length]).unwrap_or("(not text)"))
}

fn is_scripted() -> bool {
    SCRIPTED.load(Ordering::SeqCst) != 0
}

/// A line that was read.
pub(super) struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl Line {
    fn empty() -> Line {
        Line { bytes: [0; LINE_BYTES], length: 0 }
    }

    fn of(text: &str) -> Line {
        let mut line = Line::empty();
        text.bytes().for_each(|byte| line.push(byte));
        line
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    /// The line as text; what is not ASCII was not taken.
    pub(super) fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

/// The next line. Waits for it.
pub(super) fn read_line() -> Line {
    if is_scripted() {
        let text = SCRIPT.try_lock().and_then(|mut script| {
            let line = script.lines.get(script.next).copied();
            script.next += 1;
            line
        });
        let line = Line::of(text.unwrap_or("continue"));
        let _ = writeln_to(line.text());
        return line;
    }
    read_serial_line()
}

fn writeln_to(text: &str) -> fmt::Result {
    fmt::Write::write_fmt(&mut Terminal, format_args!("{text}\n"))
}

fn read_serial_line() -> Line {
    let mut line = Line::empty();
    loop {
        let Some(byte) = console::read_byte() else {
            cpu::relax();
            continue;
        };
        match byte {
            b'\r' | b'\n' => {
                console::write_bytes(b"\n");
                return line;
            }
            BACKSPACE | DELETE if line.length > 0 => {
                line.length -= 1;
                console::write_bytes(b"\x08 \x08");
            }
            b' '..=b'~' if line.length < LINE_BYTES => {
                line.push(byte);
                console::write_bytes(&[byte]);
            }
            _ => {}
        }
    }
}

/// What the debugger writes to.
pub(super) struct Terminal;

impl fmt::Write for Terminal {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !is_scripted() {
            console::write_bytes(text.as_bytes());
            return Ok(());
        }
        let Some(mut script) = SCRIPT.try_lock() else { return Ok(()) };
        let start = script.length;
        let room = (TRANSCRIPT_BYTES - start).min(text.len());
        script.transcript[start..start + room].copy_from_slice(&text.as_bytes()[..room]);
        script.length += room;
        Ok(())
    }
}
