//! The console: a terminal over the host link.
//!
//! Output is taken from the terminal's queue whenever there is some and the link has room; when the
//! link has none, a registered waker starts a drain as soon as it has. One drain runs at a time, so
//! bytes keep their order; a request that comes meanwhile makes the running one go round again.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, Ordering};

use hostlink::{Link, Output};
use memory::OutOfMemory;
use sync::Once;
use tty::{Device, Name, Terminal, WindowSize};

/// Bytes per frame of terminal output.
const CHUNK_BYTES: usize = 256;

const IDLE: u8 = 0;
const DRAINING: u8 = 1;
const AGAIN: u8 = 2;

/// The device behind the console.
struct LinkDevice {
    link: &'static Link,
    /// IDLE, DRAINING, or DRAINING with another round wanted.
    drain: AtomicU8,
}

/// The console as the link sees it.
struct Console {
    terminal: Arc<Terminal>,
}

static CONSOLE: Once<Console> = Once::new();

/// Major and minor number of `/dev/console`.
pub const CONSOLE_NAME: Name = Name { major: 5, minor: 1 };

/// Makes the console over a link and connects the two. Once.
///
/// # Errors
/// [`OutOfMemory`].
pub fn start(link: &'static Link, rows: u16, columns: u16) -> Result<Arc<Terminal>, OutOfMemory> {
    let device = memory::fallible::try_arc(LinkDevice { link, drain: AtomicU8::new(IDLE) })?;
    let terminal = Terminal::new(device, CONSOLE_NAME)?;
    terminal.set_window(WindowSize { rows, columns, width: 0, height: 0 });
    let console = CONSOLE.call_once(|| Console { terminal });
    link.set_terminal(console);
    Ok(console.terminal.clone())
}

/// The console, once it is started.
pub fn console() -> Option<&'static Arc<Terminal>> {
    CONSOLE.get().map(|console| &console.terminal)
}

impl hostlink::Terminal for Console {
    fn input(&self, bytes: &[u8]) -> usize {
        self.terminal.input(bytes)
    }

    fn resize(&self, rows: u16, columns: u16) {
        self.terminal.set_window(WindowSize { rows, columns, ..self.terminal.window() });
    }
}

impl Device for LinkDevice {
    fn output_ready(&self, terminal: &Terminal) {
        // AcqRel: whoever finds DRAINING leaves the work to the drainer, which looks again after AGAIN.
        if self.drain.swap(AGAIN, Ordering::AcqRel) != IDLE {
            return;
        }
        loop {
            self.drain.store(DRAINING, Ordering::Release);
            self.drain_once(terminal);
            let done = self.drain.compare_exchange(DRAINING, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if done.is_ok() {
                return;
            }
        }
    }

    fn input_room(&self, _terminal: &Terminal) {
        self.link.terminal_has_room();
    }
}

impl LinkDevice {
    fn drain_once(&self, terminal: &Terminal) {
        loop {
            let mut chunk = [0; CHUNK_BYTES];
            let count = terminal.take_output(&mut chunk);
            if count == 0 {
                return;
            }
            let mut sent = 0;
            while sent < count {
                match self.link.try_write(Output::Terminal, &chunk[sent..count]) {
                    Ok(more) => sent += more,
                    Err(hostlink::SendError::WouldBlock) => {
                        let link = self.link;
                        link.output_queue().wait_until(|| link.can_write(Output::Terminal));
                    }
                    Err(_) => return,
                }
            }
        }
    }
}
