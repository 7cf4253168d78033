//! The receiving thread: bytes from the port, frames from bytes, and each frame to whom it concerns.
//!
//! Terminal input that the terminal does not take, and orders that come before anybody is in charge, are kept: the
//! thread looks at them again when it is woken for it. When the host says that it has moved, the thread goes on with the second
//! transport. When that is lost the thread goes back to the first, for good, and tells the host, who sends there from then on: what the second had
//! of a frame is forgotten, and the first has whole ones.
//!
//! The thread never waits for room to send: signals and orders have to get through while output is held up. Credit that has no room it sends when
//! [`RoomWaker`] wakes it.

use crate::Transport;
use crate::link::Link;
use alloc::boxed::Box;
use alloc::sync::Arc;
use hostlink_protocol::{Channel, Deframer, HostFrame};
use sched::Waker;

/// Bytes taken from the first port at a time, and from the second.
const PIECE_BYTES: usize = 128;
const LARGE_PIECE_BYTES: usize = 4096;
/// Terminal input offered at a time.
const OFFER_BYTES: usize = 128;

/// Orders that nobody could be given yet.
#[derive(Default)]
struct Pending {
    window: Option<(u16, u16)>,
    /// Bit n - 1: signal n.
    signals: u64,
    terminate: bool,
    /// The host has moved; for this thread itself.
    moved: bool,
    /// The terminal has been hung up.
    hung_up: bool,
    /// Frames of the host's on the second transport.
    heard: u32,
    /// The host is to be told that the link is back.
    is_back: bool,
}

/// Why the thread reads a transport no more.
#[derive(PartialEq, Eq)]
enum End {
    /// The host has moved.
    Moved,
    /// The transport is gone.
    Lost,
    /// The stream makes no sense any more.
    Nonsense,
}

/// Wakes the thread when there is room for credit that had none.
struct RoomWaker(&'static Link);

impl Waker for RoomWaker {
    fn wake(&self) {
        self.0.room_appeared();
    }
}

/// The thread's body; never returns while the stream makes sense.
pub(crate) fn run(link: &'static Link) {
    let (deframer, waker): (_, Result<Arc<dyn Waker>, _>) = (
        memory::fallible::try_box(Deframer::new()),
        memory::fallible::try_arc(RoomWaker(link)).map(|waker| waker as Arc<dyn Waker>),
    );
    let (Ok(mut deframer), Ok(waker)) = (deframer, waker) else {
        log::error!("no memory to receive from the host");
        return;
    };
    let _registration = link.queues().room.register(waker);
    let mut pending = Pending::default();
    let mut small = [0; PIECE_BYTES];
    if receive_from(link, link.first(), false, &mut deframer, &mut small, &mut pending) != End::Moved {
        return;
    }
    let Some(second) = link.second() else { return log::error!("the host has moved without being told to") };
    pending.heard = 0;
    let end = match memory::fallible::try_vec_of(0, LARGE_PIECE_BYTES) {
        Ok(mut large) => receive_from(link, second, true, &mut deframer, &mut large, &mut pending),
        Err(_) => receive_from(link, second, true, &mut deframer, &mut small, &mut pending),
    };
    if end == End::Lost {
        *deframer = Deframer::new();
        pending.is_back = true;
        receive_from(link, link.first(), false, &mut deframer, &mut small, &mut pending);
    }
}

/// Receives until there is a reason to end. Only the second transport can be lost.
fn receive_from(
    link: &Link,
    port: &dyn Transport,
    is_second: bool,
    deframer: &mut Box<Deframer>,
    piece: &mut [u8],
    pending: &mut Pending,
) -> End {
    loop {
        pending.is_back = pending.is_back && !link.send_back(pending.heard);
        if is_second && link.is_lost() {
            return End::Lost;
        }
        // Nobody signals this thread, so the wait is never interrupted; it is of the interruptible kind because a
        // thread that waits for its host is idle, not busy.
        let _ = link
            .queues()
            .data
            .wait_interruptible(|| port.has_data() || link.has_lost_second() || link.input.take_attention());
        if !receive(link, port, deframer, piece, pending) {
            log::error!("the host link lost its frame boundaries; no more input");
            return End::Nonsense;
        }
        if link.has_lost_second() {
            link.lose_second();
        }
        hand_over(link, pending);
        if core::mem::take(&mut pending.moved) {
            return End::Moved;
        }
    }
}

/// Takes all bytes that are there. False when the stream makes no sense any more.
fn receive(
    link: &Link,
    port: &dyn Transport,
    deframer: &mut Box<Deframer>,
    piece: &mut [u8],
    pending: &mut Pending,
) -> bool {
    while !pending.moved {
        let count = port.read(piece);
        if count == 0 {
            return true;
        }
        let mut rest = &piece[..count];
        while !rest.is_empty() {
            let Ok((used, frame)) = deframer.feed(rest) else { return false };
            rest = &rest[used..];
            pending.heard = pending.heard.wrapping_add(u32::from(frame.is_some()));
            match frame.map(|(kind, payload)| HostFrame::decode(kind, payload)) {
                Some(Ok(frame)) => dispatch(link, &frame, pending),
                Some(Err(error)) => log::warn!("from the host: {error}"),
                None => {}
            }
        }
    }
    true
}

fn dispatch(link: &Link, frame: &HostFrame<'_>, pending: &mut Pending) {
    let complete = match *frame {
        HostFrame::Stdin(bytes) => link.input.arrived(bytes),
        HostFrame::TtyInput(bytes) => link.input.terminal_arrived(bytes),
        HostFrame::StdinEof => {
            link.input.end();
            true
        }
        HostFrame::Window { rows, columns } => {
            pending.window = Some((rows, columns));
            true
        }
        HostFrame::Signal(number) => {
            pending.signals |= 1_u64.checked_shl(u32::from(number.saturating_sub(1))).unwrap_or(0);
            true
        }
        HostFrame::Terminate => {
            pending.terminate = true;
            true
        }
        HostFrame::Moved => {
            pending.moved = true;
            true
        }
        HostFrame::OutputClosed(kind) => {
            link.close_output(kind);
            true
        }
    };
    if !complete {
        log::warn!("the host sent more input than it was allowed to");
    }
}

/// Gives what has arrived to those who are there to take it.
fn hand_over(link: &Link, pending: &mut Pending) {
    link.grant_owed();
    if let Some(terminal) = link.terminal() {
        if link.is_lost() && !core::mem::replace(&mut pending.hung_up, true) {
            terminal.hang_up();
        }
        if let Some((rows, columns)) = pending.window.take() {
            terminal.resize(rows, columns);
        }
        let mut offer = [0; OFFER_BYTES];
        loop {
            let count = link.input.peek_terminal(&mut offer);
            let taken = if count == 0 { 0 } else { terminal.input(&offer[..count]).min(count) };
            link.input.take_terminal(taken);
            link.grant(Channel::TtyInput, taken);
            if taken == 0 {
                break;
            }
        }
    }
    if let Some(control) = link.control() {
        while pending.signals != 0 {
            let number = pending.signals.trailing_zeros() as u8 + 1;
            pending.signals &= pending.signals - 1;
            control.signal(number);
        }
        if core::mem::take(&mut pending.terminate) {
            control.terminate();
        }
    }
}
