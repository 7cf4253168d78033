//! One terminal: its queues, who waits on them, and how it ends.
//!
//! Output a program writes goes through output processing into the output queue, from which the
//! device takes it ([`Terminal::take_output`]); input from the device goes through the line
//! discipline ([`Terminal::input`]). States: open → hung up, which is final: reads then return end
//! of file, writes fail with EIO, and everybody who waits is woken.

use alloc::sync::Arc;

use memory::OutOfMemory;
use memory::buffer::{Sink, Source};
use sched::WaitQueue;
use sync::SpinLock;
use vfs::Error;
use vfs::poll::{PollEvents, PollList, PollTable};

use crate::job_control::{Background, GroupId, SessionId, TtySignal, check_background, job_control};
use crate::line_discipline::{LineDiscipline, Received, Taken, TerminalSignal};
use crate::ring::Ring;
use crate::termios::{Control, LocalFlags, Termios};

/// Bytes of processed output that wait for the device.
const OUTPUT_BYTES: usize = 4096;
/// Bytes moved between user memory and the queues at a time: they lie on the kernel stack.
const CHUNK_BYTES: usize = 256;
/// Nanoseconds of one unit of VTIME.
const TIME_UNIT_NS: u64 = 100_000_000;

/// `struct winsize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSize {
    /// Rows of characters.
    pub rows: u16,
    /// Columns of characters.
    pub columns: u16,
    /// Width in pixels.
    pub width: u16,
    /// Height in pixels.
    pub height: u16,
}

/// The other side of a terminal.
pub trait Device: Send + Sync {
    /// There is output to take with [`Terminal::take_output`]; called without a lock held.
    fn output_ready(&self, terminal: &Terminal);
    /// A program has read input: the device may send more.
    fn input_room(&self, terminal: &Terminal);
    /// Whether a signal character throws away output that the device has not taken. Not where the other side could read it already.
    fn signals_flush_output(&self) -> bool {
        true
    }
    /// Queues were flushed or flow was stopped or started: for packet mode.
    fn notice(&self, _terminal: &Terminal, _notice: Notice) {}
}

/// What a device may want to know beyond data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The input queue was flushed.
    FlushedInput,
    /// The output queue was flushed.
    FlushedOutput,
    /// Output was stopped.
    Stopped,
    /// Output was started.
    Started,
}

/// State under the lock.
pub(crate) struct State {
    pub(crate) line: LineDiscipline,
    pub(crate) output: Ring,
    pub(crate) window: WindowSize,
    pub(crate) session: Option<SessionId>,
    pub(crate) foreground: Option<GroupId>,
    pub(crate) hung_up: bool,
    /// How often who had it open was cut off.
    cuts: u64,
    pub(crate) exclusive: bool,
    /// The attributes that do not change: see [`Termios::changed`].
    pub(crate) locks: Termios,
}

impl State {
    /// Whether there is nothing more for who opened it after so many cuts.
    fn is_over(&self, since: u64) -> bool {
        self.hung_up || self.cuts != since
    }
}

/// A terminal between a program and a device.
pub struct Terminal {
    pub(crate) state: SpinLock<State>,
    readers: WaitQueue,
    writers: WaitQueue,
    watchers: PollList,
    device: Arc<dyn Device>,
    name: Name,
}

/// Which terminal this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Major device number.
    pub major: u32,
    /// Minor device number.
    pub minor: u32,
}

impl Terminal {
    /// A terminal over `device`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(device: Arc<dyn Device>, name: Name) -> Result<Arc<Self>, OutOfMemory> {
        memory::fallible::try_arc(Self {
            state: SpinLock::new(State {
                line: LineDiscipline::new()?,
                output: Ring::new(OUTPUT_BYTES)?,
                window: WindowSize::default(),
                session: None,
                foreground: None,
                hung_up: false,
                cuts: 0,
                exclusive: false,
                locks: Termios::unlocked(),
            }),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            watchers: PollList::new(),
            device,
            name,
        })
    }

    fn wake_readers(&self) {
        self.readers.wake_all();
        self.watchers.notify(PollEvents::INPUT);
    }

    fn wake_writers(&self) {
        self.writers.wake_all();
        self.watchers.notify(PollEvents::OUTPUT);
    }

    /// What is ready for a program that opened it after so many cuts.
    pub(crate) fn poll(&self, table: Option<&mut PollTable<'_>>, since: u64) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.watchers);
        }
        let state = self.state.lock();
        let mut ready = PollEvents::empty();
        if state.cuts != since {
            return PollEvents::INPUT | PollEvents::OUTPUT | PollEvents::HANG_UP | PollEvents::ERROR;
        }
        ready.set(PollEvents::INPUT, state.line.is_readable(true) || state.hung_up);
        ready.set(PollEvents::OUTPUT, output_has_room(&state) && !state.hung_up);
        ready.set(PollEvents::HANG_UP | PollEvents::ERROR, state.hung_up);
        ready
    }

    /// Its device number.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Takes bytes from the device; returns how many had room. Thread context.
    pub fn input(&self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        let mut readable = false;
        let mut echoed = false;
        while taken < bytes.len() {
            let received = {
                let mut state = self.state.lock();
                let State { line, output, .. } = &mut *state;
                if line.room() == 0 {
                    break;
                }
                let before = output.len();
                // A full queue drops echo, as it does on Linux.
                let received = line.receive(bytes[taken], &mut |byte| _ = output.push(byte));
                if received.flush_output && self.device.signals_flush_output() {
                    output.discard_oldest(before);
                }
                echoed |= output.len() != 0;
                received
            };
            taken += 1;
            readable |= received.readable;
            self.act_on(received);
        }
        if readable {
            self.wake_readers();
        }
        if echoed {
            self.device.output_ready(self);
        }
        taken
    }

    fn act_on(&self, received: Received) {
        if let Some(signal) = received.signal {
            let signal = match signal {
                TerminalSignal::Interrupt => TtySignal::Interrupt,
                TerminalSignal::Quit => TtySignal::Quit,
                TerminalSignal::Suspend => TtySignal::Stop,
            };
            self.signal_foreground(signal);
        }
        if received.flush_output {
            self.device.notice(self, Notice::FlushedOutput);
            self.wake_writers();
        }
        if received.flow_changed {
            self.flow_changed();
        }
    }

    fn flow_changed(&self) {
        let stopped = self.state.lock().line.is_stopped();
        self.device.notice(self, if stopped { Notice::Stopped } else { Notice::Started });
        if !stopped {
            self.device.output_ready(self);
            self.wake_writers();
        }
    }

    /// Takes processed output; nothing while output is stopped. Returns the number of bytes.
    pub fn take_output(&self, into: &mut [u8]) -> usize {
        let taken = {
            let mut state = self.state.lock();
            if state.line.is_stopped() { 0 } else { state.output.take(into) }
        };
        if taken != 0 {
            self.wake_writers();
        }
        taken
    }

    /// Bytes of processed output that the device has not taken.
    pub fn output_pending(&self) -> usize {
        self.state.lock().output.len()
    }

    /// Bytes of input the device may send now without loss.
    pub fn input_room(&self) -> usize {
        self.state.lock().line.room()
    }

    /// The window size.
    pub fn window(&self) -> WindowSize {
        self.state.lock().window
    }

    /// Sets the window size; the foreground group is told when it changes.
    pub fn set_window(&self, window: WindowSize) {
        let changed = core::mem::replace(&mut self.state.lock().window, window) != window;
        if changed {
            self.signal_foreground(TtySignal::WindowChanged);
        }
    }

    /// The attributes.
    pub fn termios(&self) -> Termios {
        *self.state.lock().line.termios()
    }

    /// Changes the attributes at once, but for those that are locked.
    pub fn set_termios(&self, termios: Termios) {
        {
            let mut state = self.state.lock();
            let changed = state.line.termios().changed(&termios, &state.locks);
            state.line.set_termios(changed);
        }
        self.wake_readers();
    }

    /// Holds output back or lets it go (TCXONC).
    pub fn set_stopped(&self, stopped: bool) {
        self.state.lock().line.set_stopped(stopped);
        self.flow_changed();
    }

    /// Throws queued data away (TCFLSH).
    pub fn flush(&self, input: bool, output: bool) {
        {
            let mut state = self.state.lock();
            if input {
                state.line.flush_input();
            }
            if output {
                state.output.clear();
            }
        }
        if input {
            self.device.notice(self, Notice::FlushedInput);
            self.device.input_room(self);
        }
        if output {
            self.device.notice(self, Notice::FlushedOutput);
            self.wake_writers();
        }
    }

    /// Waits until the device has taken all output (tcdrain).
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn drain(&self) -> Result<(), Error> {
        self.device.output_ready(self);
        self.writers
            .wait_interruptible(|| {
                let state = self.state.lock();
                state.output.len() == 0 || state.hung_up
            })
            .map_err(|_| Error::Interrupted)
    }

    /// Sends a signal to the foreground process group, if there is one.
    pub fn signal_foreground(&self, signal: TtySignal) {
        let foreground = self.state.lock().foreground;
        if let (Some(group), Some(control)) = (foreground, job_control()) {
            control.signal_group(group, signal);
        }
    }

    /// The device is gone: signals the session, ends all waiting. Final.
    pub fn hang_up(&self) {
        self.end_for_all(|state| state.hung_up = true);
    }

    /// Cuts off all who have it open, as if the device were gone (vhangup(2)); it can be opened again.
    pub fn cut_off(&self) {
        self.end_for_all(|state| state.cuts += 1);
    }

    fn end_for_all(&self, end: impl FnOnce(&mut State)) {
        let (session, foreground) = {
            let mut state = self.state.lock();
            end(&mut state);
            state.line.flush_input();
            state.output.clear();
            (state.session.take(), state.foreground.take())
        };
        if let (Some(control), Some(session)) = (job_control(), session) {
            control.forget_terminal(session);
            control.hang_up_session(session, foreground);
        }
        self.wake_readers();
        self.wake_writers();
        self.watchers.notify(PollEvents::ALWAYS);
    }

    /// The session that it controls gives it up: its leader exited or asked for it (TIOCNOTTY). The foreground group
    /// is told to hang up when the leader left.
    pub fn disassociate(&self, leader_left: bool) {
        let (session, foreground) = {
            let mut state = self.state.lock();
            (state.session.take(), state.foreground.take())
        };
        let Some(control) = job_control() else { return };
        if leader_left && let Some(group) = foreground {
            control.signal_group(group, TtySignal::HangUp);
            control.signal_group(group, TtySignal::Continue);
        }
        if let Some(session) = session {
            control.forget_terminal(session);
        }
    }

    /// Whether the terminal has been hung up.
    pub fn is_hung_up(&self) -> bool {
        self.state.lock().hung_up
    }

    /// How often who had it open was cut off: who opens it now says so with what he does.
    pub fn cuts(&self) -> u64 {
        self.state.lock().cuts
    }

    /// Whether there is nothing more for who opened it after so many cuts.
    pub(crate) fn is_over(&self, since: u64) -> bool {
        self.state.lock().is_over(since)
    }

    /// The session it controls.
    pub fn session(&self) -> Option<SessionId> {
        self.state.lock().session
    }

    /// The foreground process group.
    pub fn foreground(&self) -> Option<GroupId> {
        self.state.lock().foreground
    }

    /// Makes this the controlling terminal of a session, with a foreground group.
    pub fn associate(&self, session: SessionId, foreground: GroupId) {
        let mut state = self.state.lock();
        state.session = Some(session);
        state.foreground = Some(foreground);
    }

    /// Applies the background rule for an operation.
    ///
    /// # Errors
    /// [`Error::Io`] when the process can't be stopped, [`Error::Interrupted`] when it was signalled.
    pub(crate) fn check_job(&self, signal: TtySignal) -> Result<(), Error> {
        let (session, foreground) = {
            let state = self.state.lock();
            (state.session, state.foreground)
        };
        match check_background(session, foreground, signal) {
            Background::Proceed => Ok(()),
            Background::Fail => Err(Error::Io),
            Background::Signalled => Err(Error::Interrupted),
        }
    }

    /// Reads as termios(3) says: a line, or VMIN bytes within VTIME. Zero is the end of the file. `since`: the [cuts](Self::cuts) when it was opened.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`], [`Error::Io`] (background), [`Error::BadAddress`].
    pub fn read(&self, sink: &mut Sink<'_>, non_blocking: bool, since: u64) -> Result<usize, Error> {
        let mut total = 0;
        while !sink.is_full() {
            self.check_job(TtySignal::BackgroundRead)?;
            if !self.await_input(total, sink.remaining(), non_blocking, since)? {
                break;
            }
            let mut chunk = [0; CHUNK_BYTES];
            let room = sink.remaining().min(CHUNK_BYTES);
            let Some(taken) = self.take(&mut chunk[..room], since) else { continue };
            self.device.input_room(self);
            total += sink.write(&chunk[..taken.count]).map_err(|_| Error::BadAddress)?;
            if taken.line_ended || taken.count == 0 {
                break;
            }
        }
        Ok(total)
    }

    /// Takes input that is there, or the end of the file. None when there is neither: another reader has taken what this one was woken for, be it a line, or an end
    /// of file that was that one's alone.
    fn take(&self, into: &mut [u8], since: u64) -> Option<Taken> {
        let mut state = self.state.lock();
        if state.cuts != since {
            return Some(Taken { count: 0, line_ended: true });
        }
        (state.line.is_readable(false) || state.hung_up).then(|| state.line.read(into))
    }

    /// Waits for input according to the mode; false when the read is over with what it has.
    fn await_input(&self, have: usize, wanted: usize, non_blocking: bool, since: u64) -> Result<bool, Error> {
        let (readable, hung_up, termios) = {
            let state = self.state.lock();
            (state.line.is_readable(false), state.is_over(since), *state.line.termios())
        };
        if readable {
            return Ok(true);
        }
        if hung_up {
            return Ok(false);
        }
        let canonical = termios.local.contains(LocalFlags::ICANON);
        let minimum = usize::from(termios.character(Control::Minimum));
        let time_ns = u64::from(termios.character(Control::Time)) * TIME_UNIT_NS;
        if !canonical {
            let enough = have >= minimum.min(have + wanted);
            let timed_out_at_once = minimum == 0 && time_ns == 0;
            if (have > 0 && enough) || timed_out_at_once {
                return Ok(false);
            }
        } else if have > 0 {
            return Ok(false);
        }
        if non_blocking {
            return if have > 0 { Ok(false) } else { Err(Error::WouldBlock) };
        }
        let timed = !canonical && time_ns > 0 && (minimum == 0 || have > 0);
        let ready = || {
            let state = self.state.lock();
            state.line.is_readable(false) || state.is_over(since)
        };
        let result = if timed {
            let deadline_ns = machine::time::now_ns().saturating_add(time_ns);
            self.readers.wait_interruptible_deadline(ready, Some(deadline_ns))
        } else {
            self.readers.wait_interruptible_deadline(ready, None)
        };
        match result {
            Ok(()) => Ok(true),
            Err(sched::WaitError::TimedOut) => Ok(false),
            Err(sched::WaitError::Interrupted) if have > 0 => Ok(false),
            Err(sched::WaitError::Interrupted) => Err(Error::Interrupted),
        }
    }

    /// Writes through output processing, waiting for room. `since`: the [cuts](Self::cuts) when it was opened.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`], [`Error::Io`] (hung up, or background with TOSTOP),
    /// [`Error::BadAddress`]; a partial write returns its count instead.
    pub fn write(&self, source: &mut Source<'_>, non_blocking: bool, since: u64) -> Result<usize, Error> {
        if self.termios().local.contains(LocalFlags::TOSTOP) {
            self.check_job(TtySignal::BackgroundWrite)?;
        }
        let mut total = 0;
        while !source.is_empty() {
            let mut chunk = [0; CHUNK_BYTES];
            let size = match source.read(&mut chunk) {
                Ok(size) => size,
                Err(_) if total > 0 => break,
                Err(_) => return Err(Error::BadAddress),
            };
            let written = self.write_chunk(&chunk[..size], non_blocking, since);
            match written {
                Ok(()) => total += size,
                Err((count, error)) => {
                    total += count;
                    return if total > 0 { Ok(total) } else { Err(error) };
                }
            }
        }
        Ok(total)
    }

    /// Writes kernel bytes (the console's messages, a chunk of a program's write).
    pub(crate) fn write_chunk(
        &self,
        bytes: &[u8],
        non_blocking: bool,
        since: u64,
    ) -> Result<(), (usize, Error)> {
        let mut done = 0;
        loop {
            done += self.queue_output(&bytes[done..], since);
            self.device.output_ready(self);
            if done == bytes.len() {
                return Ok(());
            }
            if self.is_over(since) {
                return Err((done, Error::Io));
            }
            if non_blocking {
                return Err((done, Error::WouldBlock));
            }
            self.writers
                .wait_interruptible(|| self.has_output_room() || self.is_over(since))
                .map_err(|_| (done, Error::Interrupted))?;
        }
    }

    /// Processes as many bytes as surely fit; returns how many.
    fn queue_output(&self, bytes: &[u8], since: u64) -> usize {
        let mut state = self.state.lock();
        if state.is_over(since) {
            return 0;
        }
        let State { line, output, .. } = &mut *state;
        let mut done = 0;
        for &byte in bytes {
            if output.room() < LineDiscipline::MAX_EXPANSION {
                break;
            }
            line.output(byte, &mut |byte| _ = output.push(byte));
            done += 1;
        }
        done
    }

    /// Whether [`Self::take_output`] would give something.
    pub(crate) fn has_output(&self) -> bool {
        let state = self.state.lock();
        !state.line.is_stopped() && state.output.len() != 0
    }

    /// Whether a write would make progress.
    pub(crate) fn has_output_room(&self) -> bool {
        output_has_room(&self.state.lock())
    }
}

fn output_has_room(state: &State) -> bool {
    !state.line.is_stopped() && state.output.room() >= LineDiscipline::MAX_EXPANSION
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Device for Nowhere {
        fn output_ready(&self, _terminal: &Terminal) {}

        fn input_room(&self, _terminal: &Terminal) {}
    }

    #[test]
    fn end_of_file_is_one_readers_only() {
        let terminal = Terminal::new(Arc::new(Nowhere), Name { major: 5, minor: 1 }).expect("memory");
        let mut into = [0; 8];
        let mut count = || terminal.take(&mut into, 0).map(|taken| taken.count);
        assert_eq!(terminal.input(b"\x04"), 1);
        assert_eq!(count(), Some(0), "the first is at the end");
        assert_eq!(count(), None, "the second, who was woken as well, goes on waiting");
        terminal.hang_up();
        assert_eq!(count(), Some(0), "now all are");
    }

    #[test]
    fn who_is_cut_off_hears_nothing_of_what_comes_later() {
        let terminal = Terminal::new(Arc::new(Nowhere), Name { major: 5, minor: 1 }).expect("memory");
        let mut into = [0; 8];
        let mut count = |since| terminal.take(&mut into, since).map(|taken| taken.count);
        terminal.cut_off();
        assert_eq!((terminal.cuts(), count(1)), (1, None), "who opens it again waits");
        assert_eq!(terminal.input(b"line\n"), 5);
        assert_eq!(count(0), Some(0));
        assert_eq!(terminal.queue_output(b"x", 0), 0);
        assert_eq!(terminal.write_chunk(b"x", false, 0), Err((0, Error::Io)));
        assert!(terminal.poll(None, 0).contains(PollEvents::HANG_UP));
        assert_eq!(count(1), Some(5));
        assert_eq!(terminal.write_chunk(b"x", false, 1), Ok(()));
        assert!(!terminal.poll(None, 1).contains(PollEvents::HANG_UP));
    }
}
