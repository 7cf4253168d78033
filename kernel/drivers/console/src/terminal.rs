//! The console: a terminal over the host link.
//!
//! Output is taken from the terminal's queue whenever there is some and the link has room (`drain.rs` says by whom); who waits for room is
//! a thread of the console's own.

use alloc::boxed::Box;
use alloc::sync::Arc;

use hostlink::{Link, Output};
use memory::OutOfMemory;
use sync::Once;
use tty::{Device, Name, Terminal, WindowSize};

use crate::drain::{CHUNK_BYTES, Drain};

/// The device behind the console.
struct LinkDevice {
    link: &'static Link,
    drain: Drain,
}

/// The console as the link sees it.
struct Console {
    terminal: Arc<Terminal>,
    device: Arc<LinkDevice>,
}

static CONSOLE: Once<Console> = Once::new();

/// Major and minor number of `/dev/console`.
pub const CONSOLE_NAME: Name = Name { major: 5, minor: 1 };

/// Makes the console over a link and connects the two. Once.
///
/// # Errors
/// [`OutOfMemory`].
pub fn start(link: &'static Link, rows: u16, columns: u16) -> Result<Arc<Terminal>, OutOfMemory> {
    let device = memory::fallible::try_arc(LinkDevice { link, drain: Drain::new() })?;
    let terminal = Terminal::new(device.clone(), CONSOLE_NAME)?;
    terminal.set_window(WindowSize { rows, columns, width: 0, height: 0 });
    let console = CONSOLE.call_once(|| Console { terminal, device });
    sched::spawn(sched::Builder::new("console"), Box::new(|| console.drain()))?;
    link.set_terminal(console);
    Ok(console.terminal.clone())
}

/// The console, once it is started.
pub fn console() -> Option<&'static Arc<Terminal>> {
    CONSOLE.get().map(|console| &console.terminal)
}

/// Waits until what the console's programs have printed is on the link, as far as it is not held back. What they print meanwhile is not waited for.
pub fn settle() {
    if let Some(Console { terminal, device }) = CONSOLE.get() {
        device.output_ready(terminal);
        // What is in the queue, and what was taken out and is in somebody's hand.
        device.drain.settle(terminal.output_pending() + CHUNK_BYTES, || terminal.is_hung_up());
    }
}

impl Console {
    /// The body of the console's thread.
    fn drain(&self) {
        let Self { terminal, device } = self;
        loop {
            device.drain.wait_for_work();
            let send = |bytes: &[u8]| device.link.write(Output::Terminal, bytes).ok();
            device.drain.serve(|into| terminal.take_output(into), send);
        }
    }
}

impl hostlink::Terminal for Console {
    fn input(&self, bytes: &[u8]) -> usize {
        self.terminal.input(bytes)
    }

    fn resize(&self, rows: u16, columns: u16) {
        self.terminal.set_window(WindowSize { rows, columns, ..self.terminal.window() });
    }

    fn hang_up(&self) {
        self.terminal.hang_up();
        self.device.drain.tell();
    }
}

impl Device for LinkDevice {
    fn output_ready(&self, terminal: &Terminal) {
        let try_send = |bytes: &[u8]| self.link.try_write(Output::Terminal, bytes).ok();
        self.drain.request(|into| terminal.take_output(into), try_send);
    }

    fn input_room(&self, _terminal: &Terminal) {
        self.link.terminal_has_room();
    }
}
