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
//! Times of day are converted when the timer is set, with the state locked, which notes by what. Setting the clock calls [`clock_was_set`],
//! which moves the absolute timers that were converted before, and cancels those that asked for it.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use machine::time::now_ns;
use memory::buffer::Sink;
use sched::WaitQueue;
use sched::timer::Timer;
use sync::{IrqSpinLock, SpinLock};

use crate::attributes::time_of_day_base_ns;
use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::poll::{PollEvents, PollList, PollTable};
use crate::{Error, Result, allocation, anonymous, wait};

/// Which clock a timer follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerClock {
    /// Real time.
    RealTime,
    /// Time since boot.
    Monotonic,
    /// The same: the machine is never suspended.
    BootTime,
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
    /// If it was set to a time of day: what the conversion took for the time of day when the monotonic clock began.
    base_ns: Option<u64>,
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

    /// The time of day is the monotonic clock's plus `base_ns` now; returns whether that means something to the timer.
    fn move_to_base(&mut self, base_ns: u64) -> bool {
        let Some(former_ns) = self.base_ns.filter(|&former_ns| former_ns != base_ns) else { return false };
        self.base_ns = Some(base_ns);
        self.cancelled |= self.cancel_on_set;
        if self.next_ns != 0 {
            let next_ns = i128::from(self.next_ns) + i128::from(former_ns) - i128::from(base_ns);
            self.next_ns = u64::try_from(next_ns.max(1)).unwrap_or(u64::MAX);
        }
        true
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
static REAL_TIME: SpinLock<RealTimeTimers> =
    SpinLock::named("timers of the time of day", RealTimeTimers { list: Vec::new(), removals: 0 });

/// About how many of them have ended since they were last looked at.
static ENDED: AtomicUsize = AtomicUsize::new(0);

struct RealTimeTimers {
    list: Vec<Weak<TimerFile>>,
    /// How often timers were taken out, which moves those behind them forward.
    removals: u64,
}

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
        // A look at all of them when half of them have ended.
        if ENDED.load(Ordering::Relaxed) > timers.list.len() / 2 {
            ENDED.store(0, Ordering::Relaxed);
            let before = timers.list.len();
            timers.list.retain(|timer| timer.strong_count() > 0);
            timers.removals += u64::from(timers.list.len() < before);
        }
        allocation::push(&mut timers.list, Arc::downgrade(&file))?;
    }
    let flags = (flags & OpenFlags::NON_BLOCK) | OpenFlags::READ_WRITE;
    OpenFile::anonymous(anonymous::shared_inode()?, file, flags)
}

/// The time of day was set: absolute timers move with it.
pub fn clock_was_set() {
    loop {
        let removals = REAL_TIME.lock().removals;
        let mut index = 0;
        while let Some(timer) = real_time_timer(index) {
            if let Some(timer) = timer.upgrade() {
                timer.clock_was_set();
            }
            index += 1;
        }
        // One that was moved forward may have been passed over. Those that were told have nothing more to do.
        if REAL_TIME.lock().removals == removals {
            return;
        }
    }
}

fn real_time_timer(index: usize) -> Option<Weak<TimerFile>> {
    REAL_TIME.lock().list.get(index).cloned()
}

impl TimerFile {
    /// The timer behind an open file. Fails with `EINVAL`.
    pub fn of(file: &OpenFile) -> Result<&Self> {
        file.object::<Self>().ok_or(Error::Invalid)
    }

    /// Which clock it follows.
    pub fn clock(&self) -> TimerClock {
        self.clock
    }

    /// `timerfd_settime`; returns the old setting.
    pub fn set(&self, new: TimerSetting, absolute: bool, cancel_on_set: bool) -> TimerSetting {
        let now = now_ns();
        let mut state = self.shared.state.lock();
        let old = state.setting_at(now);
        // With the state locked: if the time of day is set from here on, `clock_was_set` finds what this noted.
        let base_ns = (absolute && self.clock == TimerClock::RealTime).then(time_of_day_base_ns);
        let next = match (new.value_ns, base_ns) {
            (0, _) => 0,
            (value_ns, Some(base_ns)) => value_ns.saturating_sub(base_ns).max(1),
            (value_ns, None) if absolute => value_ns,
            (value_ns, None) => now.saturating_add(value_ns),
        };
        *state = State {
            next_ns: next,
            interval_ns: new.interval_ns,
            base_ns,
            cancel_on_set: cancel_on_set && base_ns.is_some(),
            ..State::default()
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

    fn clock_was_set(&self) {
        {
            let mut state = self.shared.state.lock();
            state.advance(now_ns());
            if !state.move_to_base(time_of_day_base_ns()) {
                return;
            }
            if state.next_ns != 0 {
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
        let clock = match self.clock {
            TimerClock::RealTime => 0,
            TimerClock::Monotonic => 1,
            TimerClock::BootTime => 7,
        };
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
        if self.clock == TimerClock::RealTime {
            // Relaxed: a count that may be a little off.
            ENDED.fetch_add(1, Ordering::Relaxed);
        }
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
    fn a_time_of_day_moves_with_the_clock_once() {
        let to = |base_ns| State { next_ns: 100, base_ns, cancel_on_set: true, ..State::default() };
        let mut state = to(Some(1000));
        assert!(!state.move_to_base(1000) && !state.cancelled);
        assert!(state.move_to_base(970) && state.cancelled);
        assert_eq!(state.next_ns, 130);
        assert!(!state.move_to_base(970));
        assert!(state.move_to_base(5000));
        assert_eq!(state.next_ns, 1, "due at once, and not disarmed");
        assert!(!to(None).move_to_base(970));
        let mut disarmed = State { base_ns: Some(1), ..State::default() };
        assert!(disarmed.move_to_base(2));
        assert_eq!(disarmed.next_ns, 0);
    }

    #[test]
    fn a_single_expiry_disarms() {
        let mut state = State { next_ns: 100, ..State::default() };
        state.advance(1_000_000);
        assert_eq!((state.ticks, state.next_ns), (1, 0));
    }
}
