//! The loop that moves bytes between the host's streams and the guest.
//!
//! One thread, one `poll`; nothing blocks and nothing spins. The states of a session:
//!
//! 1. *booting*: until `HELLO` nothing is sent to the guest (its UART is not set up yet). A signal ends the session.
//! 2. *running*: frames are carried out, input is sent within the guest's credit, signals are passed on.
//! 3. *concluded*: it is known how the session ends. The virtual machine is ended, and what has arrived is written out.
//!
//! The link begins on the guest's serial port, of which QEMU writes each byte by itself: to be woken once for many of them, the
//! loop leaves the stream alone for a moment while a frame is incomplete. When the guest says so, the link moves to the
//! port of a virtio console, which is not read before. The serial port is, to the end: reports of panics come there. When that console goes away, the guest says that it is
//! back on the serial port. The command's streams have ended by that, so input is not read any more, and a terminal in raw mode becomes what it was: its keys for signals
//! make signals again, which are passed on. Signals that the guest has not received on the console are sent once more.
//!
//! Backpressure: when [`Output`] is full the link is not read, so QEMU stops taking bytes from the guest and the
//! guest's writers sleep.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use hostlink_protocol::{Channel, ExitKind, GuestFrame, HostFrame, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGHUP, SIGKILL, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::low_level::emulate_default_handler;

use super::boot_trace::BootTrace;
use super::dialogue::Dialogue;
use super::input::{Input, Read as InputRead};
use super::log::{self, Drained, Log};
use super::output::{Output, Stream};
use super::signals::Signals;
use super::terminal::{self, RawTerminal};
use super::wire::Wire;
use crate::failure::{Context, Outcome};
use crate::machine::VirtualMachine;

/// With more than this waiting for the guest, input is not read.
const TO_GUEST_FULL: usize = 1 << 16;
/// So many signals that ask for an end, and the virtual machine is ended without asking the command.
const PATIENCE: u32 = 3;
/// How often to look whether a session in the background of its terminal has come to the foreground.
const BACKGROUND_INTERVAL: Duration = Duration::from_millis(250);
/// After a report that begins with this, the kernel does nothing more.
const PANIC: &[u8] = b"kernel panic";
/// How long the log may go on after a panic, QEMU after it has closed the link, and readers after the timeout.
const GRACE: Duration = Duration::from_secs(2);
/// Signals that are kept in case the guest has not received them: more than anybody sends while a console is being unplugged.
const UNHEARD_MAX: usize = 64;
/// What is said when the console that carried the link has gone.
const STREAMS_LOST: &[u8] = b"starling: the console of the command's streams has gone, they have ended; signals still reach the command\n";
/// Pieces of the log that are read at a time: more than the longest report has. A kernel may log without end.
const LOG_PIECES_MAX: u32 = 64;

/// How a session is run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// The command has a terminal in the guest.
    pub(crate) terminal: bool,
    /// Standard input is forwarded.
    pub(crate) input: bool,
    /// The kernel log is shown as it comes.
    pub(crate) verbose: bool,
    /// The time since the start of QEMU after which the session is ended.
    pub(crate) timeout: Option<Duration>,
    /// The boot trace is shown at the end.
    pub(crate) boot_trace: bool,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// The command exited or was killed.
    Exit(ExitKind),
    /// The command could not be started.
    StartFailed(u16, String),
    /// The timeout ran out.
    TimedOut,
    /// A signal, or the user, ended the session from this side.
    Interrupted(u8),
    /// The virtual machine ended without a word from the guest, or went wrong. The text says how.
    Broken(String),
    /// The kernel panicked.
    Panicked,
}

/// What is left of a session.
#[derive(Debug)]
pub(crate) struct End {
    /// How it ended.
    pub(crate) conclusion: Conclusion,
    /// The kernel log.
    pub(crate) log: Vec<u8>,
}

/// A session in progress.
pub(crate) struct Proxy {
    machine: VirtualMachine,
    /// What carries the link: first the serial port, then, if there is one, the console's.
    wires: Vec<Wire>,
    /// Which of them frames are sent on: the guest has moved there.
    current: usize,
    /// The last of them that the guest has used.
    reached: usize,
    /// Frames that were sent on the second.
    sent: u32,
    /// The last signals among them, by number of frame.
    unheard: VecDeque<(u32, u8)>,
    log_open: bool,
    complaints_open: bool,
    complaints: Vec<u8>,
    options: Options,
    standard_output: Output,
    standard_error: Output,
    input: Input,
    log: Log,
    signals: Signals,
    raw: Option<RawTerminal>,
    greeted: bool,
    interruptions: u32,
    /// How the session ends at that time, unless it ends before.
    verdict: Option<(Instant, Conclusion)>,
    trace: BootTrace,
    dialogue: Option<Dialogue>,
    conclusion: Option<Conclusion>,
}

/// What a polled descriptor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Link(usize),
    Log,
    Complaints,
    Input,
    Output(Stream),
}

impl Proxy {
    /// Runs a session to its end.
    ///
    /// # Errors
    /// When the host's terminal or signals cannot be set up.
    pub(crate) fn run(
        mut machine: VirtualMachine,
        options: Options,
        dialogue: Option<Dialogue>,
    ) -> Outcome<End> {
        let signals = Signals::take_over(options.terminal)?;
        let raw = if options.terminal && options.input { Some(RawTerminal::enter()?) } else { None };
        let channel = if options.terminal { Channel::TtyInput } else { Channel::Stdin };
        let wires = machine.links.drain(..).enumerate().map(|(index, link)| Wire::new(link, index == 0));
        let mut proxy = Self {
            wires: wires.collect(),
            current: 0,
            reached: 0,
            sent: 0,
            unheard: VecDeque::new(),
            log_open: true,
            complaints_open: true,
            complaints: Vec::new(),
            options,
            standard_output: Output::new(Stream::Out),
            standard_error: Output::new(Stream::Error),
            input: Input::new(channel, options.input),
            log: Log::new(options.verbose || dialogue.is_some(), raw.is_some()),
            signals,
            raw,
            greeted: false,
            interruptions: 0,
            verdict: None,
            trace: BootTrace::default(),
            dialogue,
            conclusion: None,
            machine,
        };
        while !proxy.is_finished() {
            proxy.step()?;
        }
        Ok(proxy.finish())
    }

    fn is_finished(&self) -> bool {
        let arriving = self.log_open || self.complaints_open;
        let leaving = self.standard_output.is_waiting() || self.standard_error.is_waiting();
        self.conclusion.is_some() && !arriving && !leaving
    }

    /// Waits until something can be done, and does it.
    fn step(&mut self) -> Outcome<()> {
        for (source, flags) in self.wait()? {
            match source {
                Source::Signals => self.signals.take().into_iter().for_each(|signal| self.signal(signal)),
                Source::Link(index) => self.exchange(index, flags),
                Source::Log => self.talk(flags),
                Source::Complaints => self.read_complaints(),
                Source::Input => self.read_input(),
                Source::Output(stream) => self.write_output(stream)?,
            }
        }
        if self.options.timeout.is_some_and(|timeout| self.machine.started.elapsed() >= timeout) {
            self.time_out();
        }
        self.wires.iter_mut().for_each(Wire::look_again);
        if let Some((_, conclusion)) = self.verdict.take_if(|(deadline, _)| Instant::now() >= *deadline) {
            self.conclude(conclusion);
        }
        Ok(())
    }

    /// The descriptors that are ready.
    fn wait(&self) -> Outcome<Vec<(Source, PollFlags)>> {
        let running = self.conclusion.is_none();
        let mut wanted = vec![want(Source::Signals, self.signals.arrivals().as_fd(), PollFlags::IN)];
        let full = self.standard_output.is_full() || self.standard_error.is_full();
        for (index, wire) in self.wires.iter().enumerate().filter(|_| running) {
            let interest = wire.interest(!full && index <= self.reached);
            if !interest.is_empty() {
                wanted.push(want(Source::Link(index), wire.descriptor(), interest));
            }
        }
        if self.log_open {
            let mut interest = PollFlags::empty();
            interest.set(PollFlags::IN, !self.standard_error.is_full());
            interest.set(PollFlags::OUT, self.dialogue.as_ref().is_some_and(Dialogue::has_more));
            if !interest.is_empty() {
                wanted.push(want(Source::Log, self.machine.log.as_fd(), interest));
            }
        }
        if self.complaints_open && !self.standard_error.is_full() {
            wanted.push(want(Source::Complaints, self.machine.complaints.as_fd(), PollFlags::IN));
        }
        let mut background = false;
        if running
            && self.greeted
            && self.input.is_wanted()
            && self.wires[self.current].waiting() < TO_GUEST_FULL
        {
            background = self.input.would_stop();
            if !background {
                wanted.push(want(Source::Input, rustix::stdio::stdin(), PollFlags::IN));
            }
        }
        for output in [&self.standard_output, &self.standard_error] {
            if output.is_waiting() {
                wanted.push(want(Source::Output(output.stream()), output.descriptor(), PollFlags::OUT));
            }
        }
        let (sources, mut descriptors): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
        let limit = self.time_limit(background).map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        match rustix::event::poll(&mut descriptors, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context(|| "poll".into()),
        }
        let ready = sources.into_iter().zip(descriptors.iter().map(PollFd::revents));
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }

    /// How long to wait at most.
    fn time_limit(&self, background: bool) -> Option<Duration> {
        let timeout =
            self.options.timeout.map(|timeout| timeout.saturating_sub(self.machine.started.elapsed()));
        let gathering = self.wires.iter().map(Wire::gathering);
        let deadlines = gathering.chain([self.verdict.as_ref().map(|(deadline, _)| *deadline)]);
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let limits = deadlines.map(|deadline| deadline.map(left));
        limits.chain([timeout, background.then_some(BACKGROUND_INTERVAL)]).flatten().min()
    }

    /// Ends the session. The first conclusion counts.
    fn conclude(&mut self, conclusion: Conclusion) {
        if self.conclusion.is_none() {
            self.conclusion = Some(conclusion);
            self.verdict = None;
            // What it has written to the log and the link before is still there to be read.
            let _ = self.machine.end();
        }
    }

    /// The timeout has run out. What has arrived is written out, but nobody waits long for its reader.
    fn time_out(&mut self) {
        if self.conclusion.is_some() {
            return self.abandon(Conclusion::TimedOut);
        }
        self.conclude(Conclusion::TimedOut);
        self.options.timeout = Some(self.machine.started.elapsed() + GRACE);
    }

    /// Ends the session at once, whatever it was about to do.
    fn abandon(&mut self, conclusion: Conclusion) {
        self.conclude(conclusion.clone());
        self.conclusion = Some(conclusion);
        (self.log_open, self.complaints_open) = (false, false);
        self.options.timeout = None;
        self.standard_output.give_up();
        self.standard_error.give_up();
    }

    /// Reads from and writes to the link.
    fn exchange(&mut self, index: usize, flags: PollFlags) {
        if flags.intersects(PollFlags::OUT) {
            self.wires[index].send_waiting();
        }
        if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            let bytes = self.wires[index].read();
            self.receive(index, &bytes);
            if self.has_ended() {
                self.link_ended();
            }
        }
    }

    fn send(&mut self, frame: HostFrame<'_>) {
        if self.current > 0 {
            if let HostFrame::Signal(number) = frame {
                self.unheard.push_back((self.sent, number));
                self.unheard.drain(..self.unheard.len().saturating_sub(UNHEARD_MAX));
            }
            self.sent = self.sent.wrapping_add(1);
        }
        if let Err(error) = self.wires[self.current].send(frame) {
            self.conclude(Conclusion::Broken(format!("host link: {error}")));
        }
    }

    /// Takes bytes from the guest apart and carries out the frames in them.
    fn receive(&mut self, index: usize, mut bytes: &[u8]) {
        let mut deframer = self.wires[index].take_deframer();
        while !bytes.is_empty() && self.conclusion.is_none() {
            match deframer.feed(bytes) {
                Ok((taken, frame)) => {
                    bytes = &bytes[taken..];
                    let frame = frame.map(|(kind, payload)| GuestFrame::decode(kind, payload));
                    match frame {
                        Some(Ok(frame)) => self.carry_out(frame),
                        Some(Err(error)) => self.broken_protocol(error),
                        None => {}
                    }
                }
                Err(error) => self.broken_protocol(error),
            }
        }
        self.wires[index].put_deframer(deframer);
    }

    /// QEMU has closed all that the guest has used.
    fn has_ended(&self) -> bool {
        !self.wires[..=self.reached].iter().any(Wire::is_open)
    }

    /// The guest sends on the other stream from now on, and looks for frames there when it has read that the host does so too.
    fn follow(&mut self) {
        if self.reached + 1 < self.wires.len() {
            self.send(HostFrame::Moved);
            self.reached += 1;
            self.current = self.reached;
        } else {
            self.conclude(Conclusion::Broken("the guest has moved the host link to nowhere".into()));
        }
    }

    /// The second stream is gone, of which the guest has received so many frames.
    fn return_to_first(&mut self, heard: u32) {
        if self.current == 0 {
            return self.conclude(Conclusion::Broken("the guest is back where it has not left".into()));
        }
        self.wires[self.current].forget();
        self.current = 0;
        log::show(STREAMS_LOST, self.raw.is_some(), &mut self.standard_error);
        // The kernel debugger's keyboard is the same.
        if self.dialogue.is_none() {
            self.input.close();
            self.raw = None;
        }
        for (number, signal) in std::mem::take(&mut self.unheard) {
            if number >= heard {
                self.send(HostFrame::Signal(signal));
            }
        }
    }

    fn broken_protocol(&mut self, error: hostlink_protocol::FrameError) {
        self.conclude(Conclusion::Broken(format!("the guest broke the host link protocol: {error}")));
    }

    fn carry_out(&mut self, frame: GuestFrame<'_>) {
        match frame {
            GuestFrame::Hello { version: VERSION, nanoseconds } => {
                self.greeted = true;
                self.trace.hello(self.machine.started.elapsed(), nanoseconds);
                self.send_window();
                self.dialogue.iter_mut().for_each(Dialogue::greeted);
            }
            GuestFrame::Hello { version, .. } => {
                let text =
                    format!("the kernel speaks version {version} of the host link protocol, not {VERSION}");
                self.conclude(Conclusion::Broken(text));
            }
            GuestFrame::Stdout(bytes) | GuestFrame::Tty(bytes) => {
                self.trace.output(self.machine.started.elapsed());
                self.standard_output.append(bytes);
            }
            GuestFrame::Stderr(bytes) => self.standard_error.append(bytes),
            GuestFrame::Credit { channel, bytes } => {
                self.input.grant(channel, bytes);
                self.send_kept();
            }
            GuestFrame::Exit(kind) => self.conclude(Conclusion::Exit(kind)),
            GuestFrame::StartFailed { errno, text } => {
                self.conclude(Conclusion::StartFailed(errno, String::from_utf8_lossy(text).into_owned()));
            }
            GuestFrame::Bug(text) => self.bug(text),
            GuestFrame::BootTrace(records) => self.trace.records(records),
            GuestFrame::FirstUser { nanoseconds } => self.trace.first_user(nanoseconds),
            GuestFrame::Moved => self.follow(),
            GuestFrame::Back { heard } => self.return_to_first(heard),
        }
    }

    fn bug(&mut self, text: &[u8]) {
        // What was logged before comes before the line, and the line into the midst of none.
        for _ in 0..LOG_PIECES_MAX {
            if !self.read_log() {
                break;
            }
        }
        self.log.show(&mut self.standard_error);
        let line = format!("starling: the kernel reports a bug: {}\n", String::from_utf8_lossy(text));
        log::show(line.as_bytes(), self.raw.is_some(), &mut self.standard_error);
        if text.starts_with(PANIC) {
            self.verdict.get_or_insert((Instant::now() + GRACE, Conclusion::Panicked));
        }
    }

    /// QEMU has closed the link: it is about to end. The end of its messages is the end of the process.
    fn link_ended(&mut self) {
        let lost = Conclusion::Broken("the virtual machine has closed the host link".into());
        self.verdict.get_or_insert((Instant::now() + GRACE, lost));
        if !self.complaints_open {
            self.ended();
        }
    }

    /// QEMU has ended by itself.
    fn ended(&mut self) {
        if let Some((_, Conclusion::Panicked)) = self.verdict {
            return self.conclude(Conclusion::Panicked);
        }
        let status = self.machine.end().map_or_else(|error| error.to_string(), |status| status.to_string());
        let complaints = String::from_utf8_lossy(&self.complaints);
        let first = complaints.lines().find(|line| line.contains(": ")).map(str::to_owned);
        let how = format!("the virtual machine ended without an exit status of the command (QEMU: {status})");
        self.conclude(Conclusion::Broken(first.unwrap_or(how)));
    }

    /// Reads the log, and sends what is for the kernel debugger.
    fn talk(&mut self, flags: PollFlags) {
        if let (true, Some(dialogue)) = (flags.intersects(PollFlags::OUT), &mut self.dialogue) {
            dialogue.send(&mut &self.machine.log);
        }
        if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.read_log();
        }
    }

    /// Reads a piece of the log; false if there is none now.
    fn read_log(&mut self) -> bool {
        let drained = log::drain(&mut &self.machine.log);
        match &drained {
            Drained::Bytes(bytes) => {
                self.log.append(bytes, &mut self.standard_error);
                if let Some(dialogue) = &mut self.dialogue {
                    dialogue.listen(bytes);
                }
            }
            Drained::Nothing => {}
            Drained::End => self.log_open = false,
        }
        matches!(drained, Drained::Bytes(_))
    }

    fn read_complaints(&mut self) {
        match log::drain(&mut self.machine.complaints) {
            Drained::Bytes(bytes) => {
                self.complaints.extend(&bytes);
                self.complaints.truncate(TO_GUEST_FULL);
                if self.options.verbose {
                    log::show(&bytes, self.raw.is_some(), &mut self.standard_error);
                }
            }
            Drained::Nothing => {}
            Drained::End => {
                self.complaints_open = false;
                if self.has_ended() && self.conclusion.is_none() {
                    self.ended();
                }
            }
        }
    }

    fn read_input(&mut self) {
        match self.input.read() {
            InputRead::Bytes(bytes) => match &mut self.dialogue {
                Some(dialogue) if dialogue.takes_input() => dialogue.type_in(&bytes),
                _ => {
                    self.input.keep(&bytes);
                    self.send_kept();
                }
            },
            InputRead::EnterDebugger => self.dialogue.iter_mut().for_each(Dialogue::enter),
            // The terminal has been closed.
            InputRead::End if self.options.terminal => self.interrupted(SIGHUP),
            InputRead::End => self.send(HostFrame::StdinEof),
            InputRead::Escape => self.interrupted(SIGKILL),
            InputRead::Nothing => {}
        }
    }

    /// Sends input for which there is credit.
    fn send_kept(&mut self) {
        while let Some(bytes) = self.input.take() {
            self.send(self.input.frame(&bytes));
        }
    }

    fn write_output(&mut self, stream: Stream) -> Outcome<()> {
        let (output, kind, name) = match stream {
            Stream::Out => (&mut self.standard_output, GuestFrame::STDOUT, "standard output"),
            Stream::Error => (&mut self.standard_error, GuestFrame::STDERR, "standard error"),
        };
        let reader_gone = output.write_piece().context(|| format!("writing {name}"))?;
        if reader_gone && self.conclusion.is_none() && !self.options.terminal {
            self.send(HostFrame::OutputClosed(kind));
        }
        Ok(())
    }

    fn send_window(&mut self) {
        if let (true, Some((rows, columns))) = (self.options.terminal && self.greeted, terminal::size()) {
            self.send(HostFrame::Window { rows, columns });
        }
    }

    fn signal(&mut self, signal: i32) {
        match signal {
            SIGWINCH => self.send_window(),
            SIGTSTP => self.suspend(),
            SIGHUP if self.options.terminal => self.interrupted(SIGHUP),
            SIGUSR1 | SIGUSR2 => self.pass_on(signal),
            _ if !self.greeted || self.conclusion.is_some() => self.interrupted(signal),
            _ => {
                self.interruptions += 1;
                self.pass_on(signal);
                if self.interruptions >= PATIENCE {
                    self.interrupted(signal);
                }
            }
        }
    }

    fn interrupted(&mut self, signal: i32) {
        self.abandon(Conclusion::Interrupted(u8::try_from(signal).unwrap_or(0)));
    }

    fn pass_on(&mut self, signal: i32) {
        if let (true, Ok(number)) = (self.greeted, u8::try_from(signal)) {
            self.send(HostFrame::Signal(number));
        }
    }

    /// Stops this process as its default action would, with the terminal as it was; goes on when it is continued.
    fn suspend(&mut self) {
        let was_raw = self.raw.take().is_some();
        let _ = emulate_default_handler(SIGTSTP);
        if was_raw {
            self.raw = RawTerminal::enter().ok();
            self.send_window();
        }
    }

    /// Puts the terminal back and tells what is left to tell.
    fn finish(mut self) -> End {
        drop(self.raw.take());
        let conclusion = self.conclusion.take().unwrap_or_else(|| Conclusion::Broken("not concluded".into()));
        if self.options.boot_trace {
            eprint!("{}", self.trace);
        }
        End { conclusion, log: self.log.into_bytes() }
    }
}

fn want(source: Source, descriptor: BorrowedFd<'_>, flags: PollFlags) -> (Source, PollFd<'_>) {
    (source, PollFd::from_borrowed_fd(descriptor, flags))
}
