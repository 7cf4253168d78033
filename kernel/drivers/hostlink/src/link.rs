//! The sending side, and the link as a whole.
//!
//! A sender waits, interruptibly, until the port has room for its whole frame. There is one exception to whole frames:
//! the report of a bug in a panic is pushed out after whatever the first port had queued, and the host takes what comes.
//!
//! Senders look anew for the port each time that they try, so those that waited while the link moved go on with the other one.
//! One that has looked just before may still write to the first: until that is retired its bytes come before the word that the
//! link has moved, after that they are refused, and it looks again.
//!
//! # Loss
//! Whoever finds the second transport gone, waiting for room or receiving, takes the link back to the first ([`Link::lose_second`]): one does so,
//! the others wait for room there. The word that the command has ended must not be lost with what was under way: it is kept, and who takes the link back sends
//! it again. Either that one finds it, or its sender finds the link lost and uses the first: each writes before it looks, with a fence between. The host
//! takes the first such word only.

use crate::input::Input;
use crate::{Control, FirstTransport, Queues, SecondTransport, Terminal, Transport, receiver};
use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering, fence};
use hostlink_protocol::{
    BootRecord, Channel, ExitKind, FrameError, GuestFrame, HEADER_BYTES, MAX_PAYLOAD, VERSION, header,
};
use memory::OutOfMemory;
use sched::{Builder, WaitQueue};
use sync::Once;

/// Longest small frame: those that are encoded on the stack.
const SMALL_FRAME_BYTES: usize = 64;
/// Output that is best sent at a time: a frame of it takes one page.
pub const OUTPUT_BYTES_MAX: usize = MAX_PAYLOAD - HEADER_BYTES;
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
    first: &'static dyn FirstTransport,
    queues: Queues,
    /// Where it has moved to.
    second: Once<Box<dyn SecondTransport>>,
    /// Somebody has found that one gone, and takes the link back.
    losing: AtomicBool,
    /// That has been done as far as senders are concerned: outputs are closed. Set once.
    lost: AtomicBool,
    /// The frame with which the command ends.
    last: Once<LastFrame>,
    /// Credit, or the word that the link is back, waits for room; the receiver is to send it.
    pub(crate) owes_credit: AtomicBool,
    pub(crate) input: Input,
    terminal: Once<&'static dyn Terminal>,
    control: Once<&'static dyn Control>,
    /// Whether nobody reads standard output, standard error. Set once.
    closed: [AtomicBool; 2],
}

/// A frame that may be sent twice.
struct LastFrame {
    bytes: [u8; HEADER_BYTES + TEXT_BYTES_MAX],
    length: usize,
}

static LINK: Once<Link> = Once::new();

impl Link {
    /// The link, once it is started.
    pub fn get() -> Option<&'static Link> {
        LINK.get()
    }

    /// Starts the link over a port, which wakes these queues: says hello and begins to receive.
    ///
    /// # Errors
    /// When there is no memory for its buffers and its thread.
    pub fn start(first: &'static dyn FirstTransport, queues: Queues) -> Result<&'static Link, OutOfMemory> {
        let made = Self::new(first, queues)?;
        let link = LINK.call_once(|| made);
        // The ring is empty, so there is room for the first frame.
        let _ =
            link.send_small(&GuestFrame::Hello { version: VERSION, nanoseconds: machine::time::now_ns() });
        machine::panic::set_hook(report_bug);
        sched::spawn(Builder::new("hostlink"), Box::new(move || receiver::run(link)))?;
        Ok(link)
    }

    fn new(first: &'static dyn FirstTransport, queues: Queues) -> Result<Link, OutOfMemory> {
        Ok(Link {
            first,
            queues,
            second: Once::new(),
            losing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            last: Once::new(),
            owes_credit: AtomicBool::new(false),
            input: Input::new()?,
            terminal: Once::new(),
            control: Once::new(),
            closed: [const { AtomicBool::new(false) }; 2],
        })
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

    /// Who is told of room and of input.
    pub fn queues(&self) -> Queues {
        self.queues
    }

    /// Moves the link. Only the first time counts.
    pub fn move_to(&self, second: Box<dyn SecondTransport>) {
        if self.second.get().is_some() {
            return;
        }
        self.second.call_once(|| second);
        if let Ok(last) = header(GuestFrame::MOVED, 0) {
            self.first.retire(&last);
        }
        // It may have gone before the first one was retired, and nobody would take that back.
        if self.lost.load(Ordering::Acquire) {
            self.first.resume();
        }
        self.queues.room.wake_all();
    }

    pub(crate) fn first(&self) -> &dyn Transport {
        self.first
    }

    pub(crate) fn second(&self) -> Option<&dyn Transport> {
        self.second.get().map(|second| &**second as &dyn Transport)
    }

    /// The second transport has gone, nobody has seen to it, and [`Link::lose_second`] is to be called.
    pub(crate) fn has_lost_second(&self) -> bool {
        !self.losing.load(Ordering::Relaxed) && self.second.get().is_some_and(|second| second.is_gone())
    }

    /// The link has lost its second transport and is back on the first.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Goes back to the first transport, once. What was under way is lost, so the command's streams end. Thread context; waits only if
    /// the command has ended, for room on the first transport.
    pub(crate) fn lose_second(&self) {
        if self.losing.swap(true, Ordering::AcqRel) {
            return;
        }
        log::error!("the console that carries the host link is gone");
        self.closed.iter().for_each(|closed| closed.store(true, Ordering::Relaxed));
        // Release: pairs with the Acquire in `is_lost`.
        self.lost.store(true, Ordering::Release);
        // Who writes to the first one again finds outputs closed: that follows the lock of its rings.
        self.first.resume();
        self.input.end();
        self.queues.room.wake_all();
        self.wake_receiver();
        fence(Ordering::SeqCst);
        if let Some(last) = self.last.get() {
            self.send_last(last);
        }
    }

    /// Where frames are to be sent now. The first one has no room between the loss and [`Link::lose_second`].
    fn port(&self) -> &dyn Transport {
        match self.second.get() {
            Some(second) if !self.is_lost() && !second.is_gone() => &**second,
            _ => self.first,
        }
    }

    /// Waits until the condition holds. Sees to a loss meanwhile.
    fn wait_for(&self, condition: impl Fn() -> bool) {
        loop {
            self.queues.room.wait_until(|| self.has_lost_second() || condition());
            if !self.has_lost_second() {
                return;
            }
            self.lose_second();
        }
    }

    fn wake_receiver(&self) {
        self.input.set_attention();
        self.queues.data.wake_all();
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
        let port = self.port();
        let room = port.transmit_room().saturating_sub(HEADER_BYTES);
        // After the look for room: who finds some on the first transport because the second is lost finds outputs closed.
        if self.is_closed(output) {
            return Err(SendError::Closed);
        }
        let length = bytes.len().min(room).min(OUTPUT_BYTES_MAX);
        if length == 0 && !bytes.is_empty() {
            return Err(SendError::WouldBlock);
        }
        match header(output.kind(), length) {
            Ok(header) if port.try_write_all(&[&header, &bytes[..length]]) => Ok(length),
            _ => Err(SendError::WouldBlock),
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
            let ready = || self.has_lost_second() || self.can_write(output);
            self.queues.room.wait_interruptible(ready).map_err(|_| SendError::Interrupted)?;
            if self.has_lost_second() {
                self.lose_second();
            }
        }
    }

    /// Whether [`Link::try_write`] would take bytes, or say that the output is closed.
    pub fn can_write(&self, output: Output) -> bool {
        self.is_closed(output) || self.port().transmit_room() > HEADER_BYTES
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
        self.queues.room.wake_all();
    }

    /// Woken when output can be written again.
    pub fn output_queue(&self) -> &WaitQueue {
        self.queues.room
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

    /// Input was consumed: lets the host send more. Without room the credit is owed on, and the receiver tries again when there is some.
    pub(crate) fn grant(&self, channel: Channel, count: usize) {
        let mut bytes = self.input.consumed(channel, count);
        while bytes > 0 && !matches!(self.send_small(&GuestFrame::Credit { channel, bytes }), Ok(true)) {
            self.input.owe(channel, bytes);
            self.owes_credit.store(true, Ordering::SeqCst);
            // Who frees room after this look wakes the receiver.
            if self.port().transmit_room() < SMALL_FRAME_BYTES {
                return;
            }
            bytes = self.input.consumed(channel, 0);
        }
    }

    /// Tells the host that the link is back on the first transport, and how many frames have come by the second. Without room nothing is sent, and the receiver
    /// tries again when there is some. Whether it was.
    pub(crate) fn send_back(&self, heard: u32) -> bool {
        loop {
            if let Ok(true) = self.send_small(&GuestFrame::Back { heard }) {
                return true;
            }
            self.owes_credit.store(true, Ordering::SeqCst);
            // Who frees room after this look wakes the receiver.
            if self.port().transmit_room() < SMALL_FRAME_BYTES {
                return false;
            }
        }
    }

    /// There is room again. Any context.
    pub(crate) fn room_appeared(&self) {
        if self.owes_credit.load(Ordering::SeqCst) {
            self.wake_receiver();
        }
    }

    /// Sends credit that had no room.
    pub(crate) fn grant_owed(&self) {
        if self.owes_credit.swap(false, Ordering::SeqCst) {
            self.grant(Channel::Stdin, 0);
            self.grant(Channel::TtyInput, 0);
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
        self.end(GuestFrame::START_FAILED, &frame[..2 + text.len()]);
    }

    /// The command has ended. Waits until the host has been told; it then ends the machine.
    pub fn exit(&self, kind: ExitKind) {
        let (how, value) = match kind {
            ExitKind::Exited(status) => (0, status),
            ExitKind::Killed(signal) => (1, signal),
        };
        self.end(GuestFrame::EXIT, &[how, value]);
    }

    /// Sends the frame with which the command ends, and waits until it has left.
    fn end(&self, kind: u8, payload: &[u8]) {
        let Ok(header) = header(kind, payload.len()) else { return };
        let last = self.last.call_once(|| {
            let mut bytes = [0; HEADER_BYTES + TEXT_BYTES_MAX];
            let length = HEADER_BYTES + payload.len();
            bytes[..HEADER_BYTES].copy_from_slice(&header);
            bytes[HEADER_BYTES..length].copy_from_slice(payload);
            LastFrame { bytes, length }
        });
        fence(Ordering::SeqCst);
        self.send_last(last);
        self.flush();
    }

    fn send_last(&self, last: &LastFrame) {
        let bytes = &last.bytes[..last.length];
        while !self.port().try_write_all(&[bytes]) {
            self.wait_for(|| self.port().transmit_room() >= bytes.len());
        }
    }

    /// Waits until everything sent has left.
    pub fn flush(&self) {
        self.wait_for(|| {
            self.first.is_drained()
                && self.second.get().is_none_or(|second| second.is_gone() || second.is_drained())
        });
    }

    fn try_send(&self, kind: u8, payload: &[u8]) -> bool {
        header(kind, payload.len()).is_ok_and(|header| self.port().try_write_all(&[&header, payload]))
    }

    fn send_waiting(&self, kind: u8, payload: &[u8]) {
        while !self.try_send(kind, payload) {
            let needed = HEADER_BYTES + payload.len();
            self.wait_for(|| self.port().transmit_room() >= needed);
        }
    }

    fn send_small(&self, frame: &GuestFrame<'_>) -> Result<bool, FrameError> {
        let mut bytes = [0; SMALL_FRAME_BYTES];
        let length = frame.encode(&mut bytes)?;
        Ok(self.port().try_write_all(&[&bytes[..length]]))
    }

    fn send_small_waiting(&self, frame: &GuestFrame<'_>) {
        // A frame that can't be encoded is a mistake that waiting does not mend.
        while let Ok(false) = self.send_small(frame) {
            self.wait_for(|| self.port().transmit_room() >= SMALL_FRAME_BYTES);
        }
    }
}

/// Tells the host that the kernel is going down.
fn report_bug(what: &str) {
    let Some(link) = Link::get() else { return };
    let text = &what.as_bytes()[..what.len().min(TEXT_BYTES_MAX)];
    if let Ok(header) = header(GuestFrame::BUG, text.len()) {
        link.first.write_in_panic(&header);
        link.first.write_in_panic(text);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Link")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::sync::Mutex;

    /// Takes everything, until it is retired.
    #[derive(Default)]
    struct Fake {
        sent: Mutex<Vec<u8>>,
        retired: AtomicBool,
        full: AtomicBool,
        gone: AtomicBool,
    }

    impl Fake {
        fn leak() -> &'static Fake {
            Box::leak(Box::default())
        }

        fn take(&self) -> Vec<u8> {
            core::mem::take(&mut *self.sent.lock().unwrap())
        }
    }

    impl Transport for &'static Fake {
        fn try_write_all(&self, pieces: &[&[u8]]) -> bool {
            let takes = self.transmit_room() > 0;
            if takes {
                self.sent.lock().unwrap().extend(pieces.concat());
            }
            takes
        }

        fn transmit_room(&self) -> usize {
            let refuses = [&self.retired, &self.full, &self.gone];
            if refuses.iter().any(|refuses| refuses.load(Ordering::Relaxed)) { 0 } else { 10_000 }
        }

        fn is_drained(&self) -> bool {
            !self.gone.load(Ordering::Relaxed)
        }

        fn read(&self, _target: &mut [u8]) -> usize {
            0
        }

        fn has_data(&self) -> bool {
            false
        }
    }

    impl FirstTransport for &'static Fake {
        fn retire(&self, last: &[u8]) {
            self.sent.lock().unwrap().extend(last);
            self.retired.store(true, Ordering::Relaxed);
        }

        fn resume(&self) {
            self.retired.store(false, Ordering::Relaxed);
        }

        fn write_in_panic(&self, bytes: &[u8]) {
            self.sent.lock().unwrap().extend(bytes);
        }
    }

    impl SecondTransport for &'static Fake {
        fn is_gone(&self) -> bool {
            self.gone.load(Ordering::Relaxed)
        }
    }

    fn link() -> (Link, &'static Fake, &'static Fake) {
        static QUEUE: WaitQueue = WaitQueue::new();
        let (first, second) = (Fake::leak(), Fake::leak());
        let boxed: &'static &'static Fake = Box::leak(Box::new(first));
        let link = Link::new(boxed, Queues { room: &QUEUE, data: &QUEUE }).unwrap();
        (link, first, second)
    }

    #[test]
    fn frames_follow_the_link_to_its_second_transport() {
        let (link, first, second) = link();
        assert_eq!(link.write(Output::Stdout, b"a"), Ok(1));
        link.move_to(Box::new(second));
        assert_eq!(link.write(Output::Stderr, b"b"), Ok(1));
        assert_eq!(first.take(), [GuestFrame::STDOUT, 1, 0, b'a', GuestFrame::MOVED, 0, 0]);
        assert_eq!(second.take(), [GuestFrame::STDERR, 1, 0, b'b']);
        link.move_to(Box::new(Fake::leak()));
        assert_eq!((first.take().len(), link.has_lost_second()), (0, false), "it moves once");
    }

    #[test]
    fn streams_end_with_the_second_transport_and_the_status_takes_the_first() {
        let (link, first, second) = link();
        link.move_to(Box::new(second));
        second.gone.store(true, Ordering::Relaxed);
        assert!(link.has_lost_second());
        link.lose_second();
        assert!(!link.has_lost_second());
        first.take();
        assert_eq!(link.write(Output::Stdout, b"a"), Err(SendError::Closed));
        assert_eq!(link.try_read(&mut [0]), Some(0), "the end of the input");
        link.exit(ExitKind::Exited(3));
        assert_eq!(first.take(), [GuestFrame::EXIT, 2, 0, 0, 3]);
    }

    #[test]
    fn word_that_the_link_is_back_waits_for_room() {
        let (link, first, second) = link();
        link.move_to(Box::new(second));
        second.gone.store(true, Ordering::Relaxed);
        link.lose_second();
        first.take();
        first.full.store(true, Ordering::Relaxed);
        assert!(!link.send_back(3));
        link.input.take_attention();
        link.room_appeared();
        assert!(link.input.take_attention(), "the receiver is woken");
        first.full.store(false, Ordering::Relaxed);
        assert!(link.send_back(3));
        assert_eq!(first.take(), [GuestFrame::BACK, 4, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn status_that_the_second_transport_took_with_it_is_sent_again_and_once() {
        let (link, first, second) = link();
        link.move_to(Box::new(second));
        link.exit(ExitKind::Killed(9));
        assert_eq!(second.take(), [GuestFrame::EXIT, 2, 0, 1, 9]);
        first.take();
        second.gone.store(true, Ordering::Relaxed);
        link.lose_second();
        link.lose_second();
        assert_eq!(first.take(), [GuestFrame::EXIT, 2, 0, 1, 9]);
    }

    #[test]
    fn whoever_waits_for_room_sees_to_the_loss() {
        let (link, first, second) = link();
        link.move_to(Box::new(second));
        first.take();
        second.gone.store(true, Ordering::Relaxed);
        // Nobody receives here.
        link.exit(ExitKind::Exited(0));
        assert!(link.is_lost());
        assert!(first.take().starts_with(&[GuestFrame::EXIT, 2, 0, 0, 0]));
    }

    #[test]
    fn reader_does_not_wait_for_room_and_its_credit_is_sent_later() {
        let (link, first, _) = link();
        assert!(link.input.arrived(&[0; 8192]));
        first.full.store(true, Ordering::Relaxed);
        assert_eq!(link.try_read(&mut [0; 5000]), Some(5000));
        link.room_appeared();
        assert!(link.input.take_attention(), "the receiver is woken");
        first.full.store(false, Ordering::Relaxed);
        link.grant_owed();
        link.grant_owed();
        assert_eq!(first.take(), [GuestFrame::CREDIT, 5, 0, 0x81, 0x88, 0x13, 0, 0]);
        link.room_appeared();
        assert!(!link.input.take_attention(), "nothing is owed any more");
    }

    #[test]
    fn output_takes_a_page_with_its_header() {
        let (link, first, _) = link();
        assert_eq!(link.write(Output::Stdout, &[0; 5000]), Ok(OUTPUT_BYTES_MAX));
        assert_eq!(first.take().len(), 4096);
    }
}
