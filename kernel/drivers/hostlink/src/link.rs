//! The sending side, and the link as a whole.
//!
//! A sender waits, interruptibly, until the port has room for its whole frame. There is one exception to whole frames:
//! the report of a bug in a panic is pushed out after whatever the port had queued, and the host takes what comes.

use crate::input::Input;
use crate::{Control, Terminal, Transport, receiver};
use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use hostlink_protocol::{
    BootRecord, Channel, ExitKind, FrameError, GuestFrame, HEADER_BYTES, MAX_PAYLOAD, VERSION, header,
};
use memory::OutOfMemory;
use sched::{Builder, WaitQueue};
use sync::Once;

/// Longest small frame: those that are encoded on the stack.
const SMALL_FRAME_BYTES: usize = 64;
/// Longest text of the frames that carry one; the log has all of it.
const TEXT_BYTES_MAX: usize = 512;

/// Where the command's output goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The terminal.
    Terminal,
}

impl Output {
    fn kind(self) -> u8 {
        match self {
            Output::Stdout => GuestFrame::STDOUT,
            Output::Stderr => GuestFrame::STDERR,
            Output::Terminal => GuestFrame::TTY,
        }
    }
}

/// Why bytes were not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// There is no room now; the caller did not want to wait.
    WouldBlock,
    /// A signal came while waiting for room.
    Interrupted,
    /// Nobody on the host reads this output any more.
    Closed,
}

/// The link to the host.
pub struct Link {
    port: &'static dyn Transport,
    pub(crate) input: Input,
    terminal: Once<&'static dyn Terminal>,
    control: Once<&'static dyn Control>,
    /// Whether nobody reads standard output, standard error. Set once by the receiver.
    closed: [AtomicBool; 2],
}

static LINK: Once<Link> = Once::new();

impl Link {
    /// The link, once it is started.
    pub fn get() -> Option<&'static Link> {
        LINK.get()
    }

    /// Starts the link over a port: says hello and begins to receive.
    ///
    /// # Errors
    /// When there is no memory for its buffers and its thread.
    pub fn start(port: &'static dyn Transport) -> Result<&'static Link, OutOfMemory> {
        let input = Input::new()?;
        let link = LINK.call_once(|| Link {
            port,
            input,
            terminal: Once::new(),
            control: Once::new(),
            closed: [const { AtomicBool::new(false) }; 2],
        });
        // The ring is empty, so there is room for the first frame.
        let _ =
            link.send_small(&GuestFrame::Hello { version: VERSION, nanoseconds: machine::time::now_ns() });
        machine::panic::set_hook(report_bug);
        sched::spawn(Builder::new("hostlink"), Box::new(move || receiver::run(link)))?;
        Ok(link)
    }

    /// Registers the terminal. Only the first one counts.
    pub fn set_terminal(&self, terminal: &'static dyn Terminal) {
        self.terminal.call_once(|| terminal);
        self.wake_receiver();
    }

    /// Registers who is in charge of the command. Only the first one counts.
    pub fn set_control(&self, control: &'static dyn Control) {
        self.control.call_once(|| control);
        self.wake_receiver();
    }

    pub(crate) fn terminal(&self) -> Option<&'static dyn Terminal> {
        self.terminal.get().copied()
    }

    pub(crate) fn control(&self) -> Option<&'static dyn Control> {
        self.control.get().copied()
    }

    pub(crate) fn port(&self) -> &'static dyn Transport {
        self.port
    }

    fn wake_receiver(&self) {
        self.input.set_attention();
        self.port.data_queue().wake_all();
    }

    /// The terminal can take input again that it refused before.
    pub fn terminal_has_room(&self) {
        self.wake_receiver();
    }

    /// Sends output without waiting; returns how many bytes were taken.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] or [`SendError::Closed`].
    pub fn try_write(&self, output: Output, bytes: &[u8]) -> Result<usize, SendError> {
        if self.is_closed(output) {
            return Err(SendError::Closed);
        }
        let room = self.port.transmit_room().saturating_sub(HEADER_BYTES);
        let length = bytes.len().min(room).min(MAX_PAYLOAD);
        if length == 0 && !bytes.is_empty() {
            return Err(SendError::WouldBlock);
        }
        match self.try_send(output.kind(), &bytes[..length]) {
            true => Ok(length),
            false => Err(SendError::WouldBlock),
        }
    }

    /// Sends output, waiting until at least some of it is taken; returns how many bytes were.
    ///
    /// # Errors
    /// [`SendError::Interrupted`] or [`SendError::Closed`].
    pub fn write(&self, output: Output, bytes: &[u8]) -> Result<usize, SendError> {
        loop {
            match self.try_write(output, bytes) {
                Err(SendError::WouldBlock) => {}
                result => return result,
            }
            let ready = || self.can_write(output);
            self.port.room_queue().wait_interruptible(ready).map_err(|_| SendError::Interrupted)?;
        }
    }

    /// Whether [`Link::try_write`] would take bytes, or say that the output is closed.
    pub fn can_write(&self, output: Output) -> bool {
        self.is_closed(output) || self.port.transmit_room() > HEADER_BYTES
    }

    /// Whether nobody on the host reads this output any more.
    pub fn is_closed(&self, output: Output) -> bool {
        match output {
            Output::Stdout => self.closed[0].load(Ordering::Relaxed),
            Output::Stderr => self.closed[1].load(Ordering::Relaxed),
            Output::Terminal => false,
        }
    }

    pub(crate) fn close_output(&self, kind: u8) {
        match kind {
            GuestFrame::STDOUT => self.closed[0].store(true, Ordering::Relaxed),
            GuestFrame::STDERR => self.closed[1].store(true, Ordering::Relaxed),
            _ => {}
        }
        self.port.room_queue().wake_all();
    }

    /// Woken when output can be written again.
    pub fn output_queue(&self) -> &WaitQueue {
        self.port.room_queue()
    }

    /// Takes bytes of the standard input; 0 at its end, None if there are none now.
    pub fn try_read(&self, target: &mut [u8]) -> Option<usize> {
        let count = self.input.read(target)?;
        self.grant(Channel::Stdin, count);
        Some(count)
    }

    /// Whether [`Link::try_read`] would give something, the end included.
    pub fn can_read(&self) -> bool {
        self.input.is_ready()
    }

    /// Woken when standard input arrives or ends.
    pub fn input_queue(&self) -> &WaitQueue {
        self.input.queue()
    }

    /// Input was consumed: lets the host send more. Waits for room; the frames are few and small.
    pub(crate) fn grant(&self, channel: Channel, count: usize) {
        let bytes = self.input.consumed(channel, count);
        if bytes > 0 {
            self.send_small_waiting(&GuestFrame::Credit { channel, bytes });
        }
    }

    /// The first instruction of the command is about to be executed. With `boot-trace` on the kernel command line the
    /// moments of the boot go along; they take longer to send than many steps took, so nobody else gets them.
    pub fn first_user(&self) {
        let nanoseconds = machine::time::now_ns();
        if machine::boot::info().flag("boot-trace") {
            self.send_boot_trace();
        }
        self.send_small_waiting(&GuestFrame::FirstUser { nanoseconds });
    }

    fn send_boot_trace(&self) {
        let mut records = [0; TEXT_BYTES_MAX];
        let mut length = 0;
        for mark in machine::boot::trace_marks() {
            let record = BootRecord { nanoseconds: mark.at_ns, name: mark.name.as_bytes() };
            match record.encode(&mut records[length..]) {
                Ok(bytes) => length += bytes,
                Err(_) => {
                    self.send_waiting(GuestFrame::BOOT_TRACE, &records[..length]);
                    length = record.encode(&mut records).unwrap_or(0);
                }
            }
        }
        self.send_waiting(GuestFrame::BOOT_TRACE, &records[..length]);
    }

    /// The command could not be executed. Waits until the host has been told.
    pub fn start_failed(&self, errno: u16, text: &str) {
        let mut frame = [0; TEXT_BYTES_MAX];
        let text = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX - 2)];
        frame[..2].copy_from_slice(&errno.to_le_bytes());
        frame[2..2 + text.len()].copy_from_slice(text);
        self.send_waiting(GuestFrame::START_FAILED, &frame[..2 + text.len()]);
        self.flush();
    }

    /// The command has ended. Waits until the host has been told; it then ends the machine.
    pub fn exit(&self, kind: ExitKind) {
        self.send_small_waiting(&GuestFrame::Exit(kind));
        self.flush();
    }

    /// Waits until everything sent has left.
    pub fn flush(&self) {
        self.port.room_queue().wait_until(|| self.port.is_drained());
    }

    fn try_send(&self, kind: u8, payload: &[u8]) -> bool {
        header(kind, payload.len()).is_ok_and(|header| self.port.try_write_all(&[&header, payload]))
    }

    fn send_waiting(&self, kind: u8, payload: &[u8]) {
        while !self.try_send(kind, payload) {
            let needed = HEADER_BYTES + payload.len();
            self.port.room_queue().wait_until(|| self.port.transmit_room() >= needed);
        }
    }

    fn send_small(&self, frame: &GuestFrame<'_>) -> Result<bool, FrameError> {
        let mut bytes = [0; SMALL_FRAME_BYTES];
        let length = frame.encode(&mut bytes)?;
        Ok(self.port.try_write_all(&[&bytes[..length]]))
    }

    fn send_small_waiting(&self, frame: &GuestFrame<'_>) {
        // A frame that can't be encoded is a mistake that waiting does not mend.
        while let Ok(false) = self.send_small(frame) {
            self.port.room_queue().wait_until(|| self.port.transmit_room() >= SMALL_FRAME_BYTES);
        }
    }
}

/// Tells the host that the kernel is going down.
fn report_bug(what: &str) {
    let Some(link) = Link::get() else { return };
    let text = &what.as_bytes()[..what.len().min(TEXT_BYTES_MAX)];
    if let Ok(header) = header(GuestFrame::BUG, text.len()) {
        link.port.write_in_panic(&header);
        link.port.write_in_panic(text);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Link")
    }
}
