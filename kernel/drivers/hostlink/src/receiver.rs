//! The receiving thread: bytes from the port, frames from bytes, and each frame to whom it concerns.
//!
//! Terminal input that the terminal does not take, and orders that come before anybody is in charge, are kept: the
//! thread looks at them again when it is woken for it.

use crate::link::Link;
use alloc::boxed::Box;
use hostlink_protocol::{Channel, Deframer, HostFrame};

/// Bytes taken from the port at a time.
const PIECE_BYTES: usize = 128;
/// Terminal input offered at a time.
const OFFER_BYTES: usize = 128;

/// Orders that nobody could be given yet.
#[derive(Default)]
struct Pending {
    window: Option<(u16, u16)>,
    /// Bit n - 1: signal n.
    signals: u64,
    terminate: bool,
}

/// The thread's body; never returns while the stream makes sense.
pub(crate) fn run(link: &'static Link) {
    let Ok(mut deframer) = memory::fallible::try_box(Deframer::new()) else {
        log::error!("no memory to receive from the host");
        return;
    };
    let mut pending = Pending::default();
    loop {
        // Nobody signals this thread, so the wait is never interrupted; it is of the interruptible kind because a
        // thread that waits for its host is idle, not busy.
        let _ = link
            .port()
            .data_queue()
            .wait_interruptible(|| link.port().has_data() || link.input.take_attention());
        if !receive(link, &mut deframer, &mut pending) {
            log::error!("the host link lost its frame boundaries; no more input");
            return;
        }
        hand_over(link, &mut pending);
    }
}

/// Takes all bytes that are there. False when the stream makes no sense any more.
fn receive(link: &Link, deframer: &mut Box<Deframer>, pending: &mut Pending) -> bool {
    let mut piece = [0; PIECE_BYTES];
    loop {
        let count = link.port().read(&mut piece);
        if count == 0 {
            return true;
        }
        let mut rest = &piece[..count];
        while !rest.is_empty() {
            let Ok((used, frame)) = deframer.feed(rest) else { return false };
            rest = &rest[used..];
            match frame.map(|(kind, payload)| HostFrame::decode(kind, payload)) {
                Some(Ok(frame)) => dispatch(link, &frame, pending),
                Some(Err(error)) => log::warn!("from the host: {error}"),
                None => {}
            }
        }
    }
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
    if let Some(terminal) = link.terminal() {
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
