//! `timerfd`: timers that are read.
//!
//! # State
//! A timer is *disarmed*, *armed* (a kernel timer runs to its next expiry) or *expired* (the kernel timer is over, and
//! at least one expiry waits to be read). An interval is not re-armed while nobody reads: the expiries in between are
//! counted from the clock when somebody looks. So an unread timer costs nothing, however short its interval.
//!
//! The kernel timer is armed and cancelled with the state locked: it always runs to what the state says, also when one thread reads the timer
//! while another sets it. Its callback takes the state's lock, but with none of the timer's own held.
//!
//! Real-time clocks are converted when the timer is set; setting the clock calls [`clock_was_set`], which moves the
//! absolute ones and cancels those that asked for it.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;

use machine::time::now_ns;
use memory::buffer::Sink;
use sched::WaitQueue;
use sched::timer::Timer;
use sync::{IrqSpinLock, SpinLock};

use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::poll::{PollEvents, PollList, PollTable};
use crate::{Error, Result, allocation, anonymous, wait};

/// Which clock a timer follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerClock {
    /// Real time.
    RealTime,
    /// Time since boot (`CLOCK_MONOTONIC` and `CLOCK_BOOTTIME`; the machine is never suspended).
    Monotonic,
}

/// How a timer is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TimerSetting {
    /// Nanoseconds to (or, absolute, the time of) the first expiry; 0 disarms.
    pub value_ns: u64,
    /// Nanoseconds between expiries; 0 for one only.
    pub interval_ns: u64,
}

#[derive(Default)]
struct State {
    /// When it expires next, on the monotonic clock; 0 when disarmed.
    next_ns: u64,
    interval_ns: u64,
    /// Expiries that were counted and not read.
    ticks: u64,
    absolute: bool,
    cancel_on_set: bool,
    cancelled: bool,
}

impl State {
    /// Counts the expiries up to now.
    fn advance(&mut self, now: u64) {
        if self.next_ns == 0 || now < self.next_ns {
            return;
        }
        match (now - self.next_ns).checked_div(self.interval_ns) {
            None => {
                self.ticks += 1;
                self.next_ns = 0;
            }
            Some(missed) => {
                self.ticks += missed + 1;
                self.next_ns += (missed + 1) * self.interval_ns;
            }
        }
    }

    /// What is left.
    fn setting_at(&mut self, now: u64) -> TimerSetting {
        self.advance(now);
        let value_ns = if self.next_ns == 0 { 0 } else { self.next_ns - now };
        TimerSetting { value_ns, interval_ns: self.interval_ns }
    }
}

/// What the file and its kernel timer share.
struct Shared {
    state: IrqSpinLock<State>,
    waiters: WaitQueue,
    watchers: PollList,
}

impl Shared {
    fn is_ready(&self) -> bool {
        let mut state = self.state.lock();
        state.advance(now_ns());
        state.ticks > 0 || state.cancelled
    }

    fn expired(&self) {
        if self.is_ready() {
            self.waiters.wake_all();
            self.watchers.notify(PollEvents::INPUT);
        }
    }
}

/// A timer.
pub struct TimerFile {
    clock: TimerClock,
    shared: Arc<Shared>,
    timer: Arc<Timer>,
}

/// Timers that follow the real-time clock.
static REAL_TIME: SpinLock<Vec<Weak<TimerFile>>> = SpinLock::new(Vec::new());

/// `timerfd_create`.
pub fn create(clock: TimerClock, flags: OpenFlags) -> Result<Arc<OpenFile>> {
    let shared = allocation::arc(Shared {
        state: IrqSpinLock::new(State::default()),
        waiters: WaitQueue::new(),
        watchers: PollList::new(),
    })?;
    let told = shared.clone();
    let callback: Box<dyn Fn() + Send + Sync> = allocation::boxed(move || told.expired())?;
    let file = allocation::arc(TimerFile { clock, shared, timer: Timer::new(callback)? })?;
    if clock == TimerClock::RealTime {
        let mut timers = REAL_TIME.lock();
        timers.retain(|timer| timer.strong_count() > 0);
        allocation::push(&mut timers, Arc::downgrade(&file))?;
    }
    let flags = (flags & OpenFlags::NON_BLOCK) | OpenFlags::READ_WRITE;
    OpenFile::anonymous(anonymous::shared_inode()?, file, flags)
}

/// The real-time clock was moved by so many nanoseconds: absolute timers move with it.
pub fn clock_was_set(moved_ns: i64) {
    let mut index = 0;
    loop {
        let timer = match REAL_TIME.lock().get(index) {
            Some(timer) => timer.upgrade(),
            None => return,
        };
        if let Some(timer) = timer {
            timer.clock_was_set(moved_ns);
        }
        index += 1;
    }
}

impl TimerFile {
    /// The timer behind an open file. Fails with `EINVAL`.
    pub fn of(file: &OpenFile) -> Result<&Self> {
        file.object::<Self>().ok_or(Error::Invalid)
    }

    /// `timerfd_settime`; returns the old setting.
    pub fn set(&self, new: TimerSetting, absolute: bool, cancel_on_set: bool) -> TimerSetting {
        let now = now_ns();
        let next = if new.value_ns == 0 {
            0
        } else if !absolute {
            now.saturating_add(new.value_ns)
        } else {
            match self.clock {
                TimerClock::Monotonic => new.value_ns,
                TimerClock::RealTime => new.value_ns.saturating_sub(real_time_base_ns()).max(1),
            }
        };
        let mut state = self.shared.state.lock();
        let old = state.setting_at(now);
        *state = State {
            next_ns: next,
            interval_ns: new.interval_ns,
            ticks: 0,
            absolute,
            cancel_on_set: cancel_on_set && absolute && self.clock == TimerClock::RealTime,
            cancelled: false,
        };
        self.timer.cancel();
        if next != 0 {
            self.timer.arm(next);
        }
        old
    }

    /// `timerfd_gettime`: what is left.
    pub fn get(&self) -> TimerSetting {
        self.shared.state.lock().setting_at(now_ns())
    }

    fn clock_was_set(&self, moved_ns: i64) {
        {
            let mut state = self.shared.state.lock();
            if state.cancel_on_set {
                state.cancelled = true;
            }
            if state.absolute && state.next_ns != 0 {
                state.next_ns = state.next_ns.saturating_add_signed(-moved_ns).max(1);
                self.timer.arm(state.next_ns);
            }
        }
        self.shared.expired();
    }

    /// Takes the expiries; arms the kernel timer for the next one.
    fn take(&self) -> Result<Option<u64>> {
        let mut state = self.shared.state.lock();
        if core::mem::take(&mut state.cancelled) {
            return Err(Error::Cancelled);
        }
        state.advance(now_ns());
        let ticks = core::mem::take(&mut state.ticks);
        if ticks == 0 {
            return Ok(None);
        }
        if state.next_ns != 0 {
            self.timer.arm(state.next_ns);
        }
        Ok(Some(ticks))
    }
}

/// Real time at the start of the monotonic clock.
fn real_time_base_ns() -> u64 {
    let now = crate::attributes::Timestamp::now();
    let real_ns =
        (now.seconds as u64).saturating_mul(1_000_000_000).saturating_add(u64::from(now.nanoseconds));
    real_ns.saturating_sub(now_ns())
}

impl FileOperations for TimerFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE | FileFeatures::SEEK_IGNORED
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        if sink.remaining() < size_of::<u64>() {
            return Err(Error::Invalid);
        }
        loop {
            if let Some(ticks) = self.take()? {
                return Ok(sink.write(&ticks.to_ne_bytes())?);
            }
            if file.non_block() {
                return Err(Error::WouldBlock);
            }
            wait::interruptible(&self.shared.waiters, || self.shared.is_ready())?;
        }
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.shared.watchers);
        }
        if self.shared.is_ready() { PollEvents::INPUT } else { PollEvents::empty() }
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[timerfd]")
    }

    fn information(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        let clock = if self.clock == TimerClock::RealTime { 0 } else { 1 };
        let setting = self.get();
        let ticks = self.shared.state.lock().ticks;
        writeln!(out, "clockid: {clock}\nticks: {ticks}\nsettime flags: 0")?;
        for (name, value) in [("it_value", setting.value_ns), ("it_interval", setting.interval_ns)] {
            writeln!(out, "{name}: ({}, {})", value / 1_000_000_000, value % 1_000_000_000)?;
        }
        Ok(())
    }
}

impl Drop for TimerFile {
    fn drop(&mut self) {
        self.timer.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_expiries_are_counted() {
        let mut state = State { next_ns: 100, interval_ns: 10, ..State::default() };
        state.advance(99);
        assert_eq!(state.ticks, 0);
        state.advance(135);
        assert_eq!((state.ticks, state.next_ns), (4, 140));
    }

    #[test]
    fn a_single_expiry_disarms() {
        let mut state = State { next_ns: 100, ..State::default() };
        state.advance(1_000_000);
        assert_eq!((state.ticks, state.next_ns), (1, 0));
    }
}
