//! Interval timers (setitimer, alarm) and POSIX timers.
//!
//! Each armed timer has one kernel timer; nothing ticks. A real-time timer is armed for its expiry. A CPU-time timer is armed for the
//! earliest moment at which the process can have used that much (all its threads running), then looks at the CPU time and either expires
//! or arms itself again. The block of timers is allocated on first use: most processes never have one.
//!
//! Locking: `inner` is never held while a kernel timer is cancelled or a signal is sent. A timer's `setting` is held while its kernel
//! timer is armed or cancelled and while its signal is sent, by the callback too (softirq context): so who has set a timer to something else
//! knows that the old setting arms nothing and sends nothing any more, and may change what the signal does. Order: `setting`, then a process's
//! locks.

mod limits;

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use machine::time::now_ns;
use sched::timer::Timer;
use sync::SpinLock;

use crate::abi::{IntervalTimerSpec, IntervalTimerValue, SignalEvent, Timespec, Timeval};
use crate::errno::{Errno, SysResult};
use crate::process::process::Process;
use crate::process::table;
use crate::process::thread::Thread;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;
use crate::task::Task;
use crate::time::Clock;
use crate::user_pointer::UserPointer;

pub(crate) use limits::watch_limits;
use limits::{TimeLimit, enforce, longest_realtime_ns};

/// POSIX timers a process may have.
const TIMERS_MAX: usize = 4096;
/// Shortest interval of a repeating timer, so that a program cannot keep a CPU busy with expiries.
const INTERVAL_MIN_NS: u64 = 10_000;
/// Three interval timers: real, virtual, profiling.
const INTERVAL_TIMERS: usize = 3;
const ABSOLUTE: u32 = 1;

/// What a timer counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counted {
    Clock(Clock),
    UserTime,
    CpuTime,
    /// What the real-time thread that has not slept for longest has run since.
    RealTime,
}

/// What happens at an expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notice {
    None,
    Process {
        signal: Signal,
        value: u64,
    },
    Thread {
        signal: Signal,
        value: u64,
        tid: u32,
    },
    /// The interval timers' signal, which says nothing of the timer.
    Plain(Signal),
    /// The process has used the time that a limit grants.
    Limit(TimeLimit),
}

struct Setting {
    /// What it counts: the timer's clock, or the monotonic one for so long after it was set by the time of day.
    counted: Counted,
    /// When it expires on what it counts; `None`: disarmed.
    expiry_ns: Option<u64>,
    interval_ns: u64,
    /// Expiries beyond the first that the signal taken last stood for.
    overrun: u32,
    /// Stands in for timers of processes that are gone.
    deleted: bool,
}

impl Setting {
    /// What it counts now, when the timer's clock shows `look`.
    fn now(&self, clock: Counted, look: u64) -> u64 {
        if self.counted == clock { look } else { now_ns() }
    }

    /// Time to expiry, and interval.
    fn remaining(&self, now: u64) -> (u64, u64) {
        // An armed timer that is just expiring still has something left, for 0 means disarmed.
        (self.expiry_ns.map_or(0, |expiry| expiry.saturating_sub(now).max(1)), self.interval_ns)
    }
}

/// When a timer is to expire.
#[derive(Clone, Copy)]
enum Expiry {
    Never,
    /// When its clock shows this.
    At(u64),
    /// So many nanoseconds from now.
    In(u64),
}

/// One timer of a process.
struct ProcessTimer {
    id: u32,
    process: Weak<Process>,
    clock: Counted,
    /// What the program calls the clock.
    clock_number: i32,
    notice: Notice,
    setting: SpinLock<Setting>,
    kernel: sync::Once<Arc<Timer>>,
}

/// What a number of a POSIX timer stands for.
#[derive(Clone, Default)]
enum Place {
    #[default]
    Free,
    /// A thread is making a timer.
    Reserved,
    Timer(Arc<ProcessTimer>),
}

impl Place {
    fn timer(&self) -> Option<&Arc<ProcessTimer>> {
        match self {
            Place::Timer(timer) => Some(timer),
            Place::Free | Place::Reserved => None,
        }
    }
}

#[derive(Default)]
struct Inner {
    intervals: [Option<Arc<ProcessTimer>>; INTERVAL_TIMERS],
    timers: Vec<Place>,
    /// Those that watch limits, once these were set.
    limits: [Option<Arc<ProcessTimer>>; TimeLimit::ALL.len()],
}

/// What a POSIX timer is, for who looks at it.
pub(crate) struct Description {
    pub(crate) id: u32,
    /// What its maker called the clock.
    pub(crate) clock: i32,
    pub(crate) signal: u32,
    /// What the signal carries.
    pub(crate) value: u64,
    /// Which thread gets the signal; `None`: the process.
    pub(crate) thread: Option<u32>,
    /// It sends none.
    pub(crate) is_silent: bool,
}

/// The timers of a process.
pub struct ProcessTimers {
    inner: SpinLock<Option<Box<Inner>>>,
}

impl ProcessTimers {
    /// None.
    pub const fn new() -> ProcessTimers {
        ProcessTimers { inner: SpinLock::new(None) }
    }

    /// Disarms and forgets all of them (the process ends).
    pub fn cancel_all(&self) {
        let inner = self.inner.lock().take();
        if let Some(inner) = inner {
            let posix = inner.timers.iter().filter_map(Place::timer);
            for timer in inner.intervals.iter().flatten().chain(posix).chain(inner.limits.iter().flatten()) {
                timer.delete();
            }
        }
    }

    /// Forgets the POSIX timers (execve); interval timers stay.
    pub fn cancel_posix(&self) {
        let timers = self.inner.lock().as_mut().map(|inner| core::mem::take(&mut inner.timers));
        for timer in timers.iter().flatten().filter_map(Place::timer) {
            timer.delete();
        }
    }

    /// The time of day was set: timers that wait for a time of day wait for another moment. In a read section: it does not sleep.
    pub(crate) fn clock_was_set(&self) {
        let mut index = 0;
        while let Some(place) = self.place(index) {
            if let Some(timer) = place.timer() {
                timer.clock_was_set();
            }
            index += 1;
        }
    }

    /// Calls `show` with what each POSIX timer is, the one with the greatest number first. Nothing is locked meanwhile.
    pub(crate) fn describe(&self, mut show: impl FnMut(&Description)) {
        let mut index = self.inner.lock().as_ref().map_or(0, |inner| inner.timers.len());
        while index > 0 {
            index -= 1;
            let Some(Place::Timer(timer)) = self.place(index) else { continue };
            let (signal, value, thread) = match timer.notice {
                Notice::Process { signal, value } => (signal.number(), value, None),
                Notice::Thread { signal, value, tid } => (signal.number(), value, Some(tid)),
                Notice::Plain(signal) => (signal.number(), 0, None),
                Notice::None | Notice::Limit(_) => (0_u8, 0, None),
            };
            let is_silent = timer.notice == Notice::None;
            let (id, clock) = (timer.id, timer.clock_number);
            show(&Description { id, clock, signal: signal.into(), value, thread, is_silent });
        }
    }

    fn place(&self, index: usize) -> Option<Place> {
        self.inner.lock().as_ref()?.timers.get(index).cloned()
    }

    fn with<T>(&self, body: impl FnOnce(&mut Inner) -> Result<T, Errno>) -> Result<T, Errno> {
        if self.inner.lock().is_none() {
            let fresh = memory::fallible::try_box(Inner::default()).map_err(|_| Errno::ENOMEM)?;
            let mut inner = self.inner.lock();
            if inner.is_none() {
                *inner = Some(fresh);
            }
        }
        body(self.inner.lock().as_mut().ok_or(Errno::ENOMEM)?)
    }
}

impl Default for ProcessTimers {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessTimer {
    fn new(
        id: u32,
        process: &Arc<Process>,
        (clock, clock_number): (Counted, i32),
        notice: Notice,
    ) -> Result<Arc<ProcessTimer>, Errno> {
        let setting = Setting { counted: clock, expiry_ns: None, interval_ns: 0, overrun: 0, deleted: false };
        let timer = ProcessTimer {
            id,
            process: Arc::downgrade(process),
            clock,
            clock_number,
            notice,
            setting: SpinLock::new(setting),
            kernel: sync::Once::new(),
        };
        let timer = memory::fallible::try_arc(timer).map_err(|_| Errno::ENOMEM)?;
        let target = Arc::downgrade(&timer);
        let callback = memory::fallible::try_box(move || {
            if let Some(timer) = target.upgrade() {
                timer.fire();
            }
        })
        .map_err(|_| Errno::ENOMEM)?;
        let kernel = Timer::new(callback).map_err(|_| Errno::ENOMEM)?;
        timer.kernel.call_once(|| kernel);
        Ok(timer)
    }

    /// What its clock shows now. Asked without the lock: what it holds meanwhile may end a process.
    fn look(&self) -> u64 {
        match self.clock {
            Counted::Clock(Clock::Realtime) => crate::time::clock::realtime_ns(),
            Counted::Clock(Clock::Monotonic | Clock::BootTime) => now_ns(),
            Counted::Clock(Clock::Thread(tid)) => table::thread(tid)
                .and_then(|thread| thread.kernel_thread().map(|kernel| kernel.runtime().total_ns))
                .unwrap_or(0),
            Counted::Clock(Clock::Process(pid)) if pid != 0 => {
                table::process(pid).map_or(0, |process| sum(process.cpu_time_ns()))
            }
            Counted::Clock(Clock::Process(_)) | Counted::CpuTime => {
                self.process.upgrade().map_or(0, |process| sum(process.cpu_time_ns()))
            }
            Counted::RealTime => {
                self.process.upgrade().map_or(0, |process| longest_realtime_ns(&process).unwrap_or(0))
            }
            Counted::UserTime => self.process.upgrade().map_or(0, |process| process.cpu_time_ns().0),
        }
    }

    /// The earliest monotonic time at which what it counts, which is `now`, can have reached `expiry`.
    fn earliest(&self, counted: Counted, now: u64, expiry: u64) -> u64 {
        match counted {
            Counted::Clock(clock @ (Clock::Realtime | Clock::Monotonic | Clock::BootTime)) => {
                clock.to_monotonic(expiry)
            }
            _ => {
                const SOONEST_NS: u64 = 1_000_000;
                let threads =
                    self.process.upgrade().map_or(1, |process| process.thread_count().max(1)) as u64;
                let cpus = match counted {
                    Counted::RealTime => 1,
                    _ => threads.min(machine::cpu::count() as u64),
                };
                now_ns() + (expiry.saturating_sub(now) / cpus).max(SOONEST_NS)
            }
        }
    }

    /// Has the kernel timer look at this setting when it can have come to its expiry; its caller has it locked.
    fn arm(&self, setting: &Setting, now: u64) {
        if let (Some(kernel), Some(expiry)) = (self.kernel.get(), setting.expiry_ns) {
            kernel.arm(self.earliest(setting.counted, now, expiry));
        }
    }

    fn delete(&self) {
        let mut setting = self.setting.lock();
        setting.expiry_ns = None;
        setting.deleted = true;
        if let Some(kernel) = self.kernel.get() {
            kernel.cancel();
        }
    }

    /// The kernel timer's callback.
    fn fire(&self) {
        // Held to the end, for the last reference must not go under the lock.
        let Some(process) = self.process.upgrade() else { return };
        let look = self.look();
        let mut setting = self.setting.lock();
        let Some(expiry) = setting.expiry_ns.filter(|_| !setting.deleted) else { return };
        let now = setting.now(self.clock, look);
        if self.notice == Notice::Limit(TimeLimit::RealTime) && longest_realtime_ns(&process).is_none() {
            // Whoever becomes a real-time thread has it watched again.
            setting.expiry_ns = None;
            return;
        }
        if now < expiry {
            return self.arm(&setting, now);
        }
        if let Notice::Limit(limit) = self.notice {
            setting.expiry_ns = enforce(limit, &process, now);
            return self.arm(&setting, now);
        }
        let missed = advance(&mut setting, expiry, now);
        self.arm(&setting, now);
        self.notify(&process, missed.min(i32::MAX as u64) as u32);
    }

    /// Sends the timer's signal; one that is still pending stands for this expiry too.
    fn notify(&self, process: &Arc<Process>, overrun: u32) {
        match self.notice {
            Notice::None | Notice::Limit(_) => {}
            Notice::Plain(signal) => {
                let _ = send::to_process(process, SignalInformation::from_kernel(signal));
            }
            Notice::Process { signal, value } => {
                let information = SignalInformation::timer(signal, self.id, overrun, value);
                let _ = send::timer_to(process, None, information);
            }
            Notice::Thread { signal, value, tid } => {
                let thread = table::thread(tid).filter(|thread| Arc::ptr_eq(thread.process(), process));
                if let Some(thread) = thread {
                    let information = SignalInformation::timer(signal, self.id, overrun, value);
                    let _ = send::timer_to(process, Some(&thread), information);
                }
            }
        }
    }

    /// Sets when it expires; returns the former time to expiry and interval.
    fn set(&self, expiry: Expiry, interval_ns: u64) -> (u64, u64) {
        let look = self.look();
        let mut setting = self.setting.lock();
        let old = setting.remaining(setting.now(self.clock, look));
        if setting.deleted {
            return old;
        }
        setting.counted = match (self.clock, expiry) {
            // The time of day may be set before it is over.
            (Counted::Clock(Clock::Realtime), Expiry::In(_)) => Counted::Clock(Clock::Monotonic),
            (clock, _) => clock,
        };
        let now = setting.now(self.clock, look);
        setting.expiry_ns = match expiry {
            Expiry::Never => None,
            Expiry::At(ns) => Some(ns),
            Expiry::In(ns) => Some(now.saturating_add(ns)),
        };
        setting.interval_ns = if interval_ns > 0 { interval_ns.max(INTERVAL_MIN_NS) } else { 0 };
        setting.overrun = 0;
        if let Some(kernel) = self.kernel.get() {
            kernel.cancel();
        }
        self.arm(&setting, now);
        old
    }

    fn get(&self) -> (u64, u64) {
        let look = self.look();
        let setting = self.setting.lock();
        setting.remaining(setting.now(self.clock, look))
    }

    /// The time of day was set.
    fn clock_was_set(&self) {
        let setting = self.setting.lock();
        if setting.counted == Counted::Clock(Clock::Realtime) {
            self.arm(&setting, crate::time::clock::realtime_ns());
        }
    }
}

/// A signal was taken: if a timer sent it, its overrun is now what timer_getoverrun tells.
#[inline]
pub(crate) fn signal_taken(process: &Process, information: &SignalInformation) {
    if information.code == crate::signal::information::SI_TIMER {
        note_overrun(process, information);
    }
}

#[inline(never)]
fn note_overrun(process: &Process, information: &SignalInformation) {
    let (id, overrun) = (information.fields[0] as u32, (information.fields[0] >> 32) as u32);
    let timer = {
        let inner = process.timers.inner.lock();
        inner.as_ref().and_then(|inner| inner.timers.get(id as usize)?.timer().cloned())
    };
    if let Some(timer) = timer {
        timer.setting.lock().overrun = overrun;
    }
}

fn sum((user, system): (u64, u64)) -> u64 {
    user + system
}

/// Sets the next expiry after one at `expiry`; returns how many more were missed up to `now`.
fn advance(setting: &mut Setting, expiry: u64, now: u64) -> u64 {
    if setting.interval_ns == 0 {
        setting.expiry_ns = None;
        return 0;
    }
    let missed = (now - expiry) / setting.interval_ns;
    setting.expiry_ns = Some(expiry.saturating_add((missed + 1).saturating_mul(setting.interval_ns)));
    missed
}

fn interval_timer(task: &Task, which: u32) -> Result<Arc<ProcessTimer>, Errno> {
    let (counted, signal) = match which {
        0 => (Counted::Clock(Clock::Monotonic), Signal::SIGALRM),
        1 => (Counted::UserTime, Signal::SIGVTALRM),
        2 => (Counted::CpuTime, Signal::SIGPROF),
        _ => return Err(Errno::EINVAL),
    };
    let process = task.process();
    let existing = process.timers.with(|inner| Ok(inner.intervals[which as usize].clone()))?;
    if let Some(timer) = existing {
        return Ok(timer);
    }
    let timer = ProcessTimer::new(0, process, (counted, 0), Notice::Plain(signal))?;
    process.timers.with(|inner| Ok(inner.intervals[which as usize].get_or_insert(timer).clone()))
}

fn has_interval_timer(task: &Task, which: u32) -> bool {
    task.process().timers.inner.lock().as_ref().is_some_and(|inner| inner.intervals[which as usize].is_some())
}

fn to_value((value, interval): (u64, u64)) -> IntervalTimerValue {
    // Rounded up: a timer that is armed never reads as zero.
    let round = |ns: u64| Timeval::from_ns(ns.saturating_add(999));
    IntervalTimerValue { interval: Timeval::from_ns(interval), value: round(value) }
}

/// Reads an interval timer.
pub fn getitimer(task: &mut Task, which: u32, out: u64) -> SysResult {
    if which as usize >= INTERVAL_TIMERS {
        return Err(Errno::EINVAL);
    }
    let value = match has_interval_timer(task, which) {
        true => to_value(interval_timer(task, which)?.get()),
        false => IntervalTimerValue::default(),
    };
    UserPointer::<IntervalTimerValue>::new(out).write(&value)?;
    Ok(0)
}

/// Sets an interval timer.
#[inline(never)]
pub fn setitimer(task: &mut Task, which: u32, new: u64, old: u64) -> SysResult {
    if which as usize >= INTERVAL_TIMERS {
        return Err(Errno::EINVAL);
    }
    let wanted = match UserPointer::<IntervalTimerValue>::new(new).given() {
        Some(pointer) => pointer.read()?,
        None => IntervalTimerValue::default(),
    };
    let value = wanted.value.to_ns().ok_or(Errno::EINVAL)?;
    let interval = wanted.interval.to_ns().ok_or(Errno::EINVAL)?;
    let before = set_interval(task, which, value, interval)?;
    UserPointer::<IntervalTimerValue>::new(old).write_if_given(&to_value(before))?;
    Ok(0)
}

fn set_interval(task: &Task, which: u32, value: u64, interval: u64) -> Result<(u64, u64), Errno> {
    if value == 0 && !has_interval_timer(task, which) {
        return Ok((0, 0));
    }
    let timer = interval_timer(task, which)?;
    Ok(timer.set(if value > 0 { Expiry::In(value) } else { Expiry::Never }, interval))
}

/// Sends SIGALRM after some seconds.
pub fn alarm(task: &mut Task, seconds: u32) -> SysResult {
    let (left, _) = set_interval(task, 0, u64::from(seconds) * crate::abi::NANOSECONDS, 0)?;
    // Rounded to the nearest second, but never to 0 while armed.
    let rounded = (left + crate::abi::NANOSECONDS / 2) / crate::abi::NANOSECONDS;
    Ok(if left > 0 { rounded.max(1) as usize } else { 0 })
}

fn notice_of(task: &Task, event: u64, id: u32) -> Result<Notice, Errno> {
    const SIGNAL: i32 = 0;
    const NONE: i32 = 1;
    const THREAD_ID: i32 = 4;
    let Some(pointer) = UserPointer::<SignalEvent>::new(event).given() else {
        return Ok(Notice::Process { signal: Signal::SIGALRM, value: id.into() });
    };
    let event = pointer.read()?;
    let signal = || u64::try_from(event.signal).ok().and_then(Signal::new).ok_or(Errno::EINVAL);
    match event.notify {
        NONE => Ok(Notice::None),
        SIGNAL => Ok(Notice::Process { signal: signal()?, value: event.value }),
        THREAD_ID => {
            let tid = task.kernel_number(event.thread as u32).unwrap_or(0);
            let thread: Option<Arc<Thread>> = table::thread(tid);
            let mine = thread.is_some_and(|thread| Arc::ptr_eq(thread.process(), task.process()));
            if !mine {
                return Err(Errno::EINVAL);
            }
            Ok(Notice::Thread { signal: signal()?, value: event.value, tid })
        }
        _ => Err(Errno::EINVAL),
    }
}

/// What a clock is called by who looks at a timer: those of the caller's processor time by the names that those of any process and thread have.
const fn number_shown(clock: i32) -> i32 {
    const PROCESS: i32 = 2;
    const THREAD: i32 = 3;
    match clock {
        PROCESS => -6,
        THREAD => -2,
        other => other,
    }
}

/// Makes a POSIX timer.
#[inline(never)]
pub fn timer_create(task: &mut Task, clock: i32, event: u64, out: u64) -> SysResult {
    let clock_number = number_shown(clock);
    let clock = Clock::to_wait_by(clock)?;
    clock.now(task)?;
    let clock = clock.known_to_kernel(task)?;
    let place = ReservedTimer::reserve(task.process())?;
    let id = place.id as u32;
    let notice = notice_of(task, event, id)?;
    let timer = ProcessTimer::new(id, task.process(), (Counted::Clock(clock), clock_number), notice)?;
    UserPointer::<u32>::new(out).write(&id)?;
    place.fill(timer);
    Ok(0)
}

/// The number of a timer that is being made; free again when dropped.
struct ReservedTimer {
    process: Arc<Process>,
    id: usize,
    is_filled: bool,
}

impl ReservedTimer {
    fn reserve(process: &Arc<Process>) -> Result<ReservedTimer, Errno> {
        let id = process.timers.with(|inner| {
            if let Some(free) = inner.timers.iter().position(|place| matches!(place, Place::Free)) {
                inner.timers[free] = Place::Reserved;
                return Ok(free);
            }
            if inner.timers.len() >= TIMERS_MAX {
                return Err(Errno::EAGAIN);
            }
            memory::fallible::try_push(&mut inner.timers, Place::Reserved).map_err(|_| Errno::EAGAIN)?;
            Ok(inner.timers.len() - 1)
        })?;
        Ok(ReservedTimer { process: process.clone(), id, is_filled: false })
    }

    fn fill(mut self, timer: Arc<ProcessTimer>) {
        self.put(Place::Timer(timer));
        self.is_filled = true;
    }

    fn put(&self, new: Place) {
        let mut inner = self.process.timers.inner.lock();
        let place = inner.as_mut().and_then(|inner| inner.timers.get_mut(self.id));
        if let Some(place @ Place::Reserved) = place {
            *place = new;
        }
    }
}

impl Drop for ReservedTimer {
    fn drop(&mut self) {
        // Of one that was filled the timer may be deleted by now, and the number be somebody else's.
        if !self.is_filled {
            self.put(Place::Free);
        }
    }
}

fn posix_timer(task: &Task, id: i32) -> Result<Arc<ProcessTimer>, Errno> {
    let inner = task.process().timers.inner.lock();
    let timers = inner.as_ref().map(|inner| &inner.timers).ok_or(Errno::EINVAL)?;
    usize::try_from(id).ok().and_then(|id| timers.get(id)?.timer().cloned()).ok_or(Errno::EINVAL)
}

fn to_spec((value, interval): (u64, u64)) -> IntervalTimerSpec {
    IntervalTimerSpec { interval: Timespec::from_ns(interval), value: Timespec::from_ns(value) }
}

/// Sets a POSIX timer.
#[inline(never)]
pub fn timer_settime(task: &mut Task, id: i32, flags: u32, new: u64, old: u64) -> SysResult {
    let wanted = UserPointer::<IntervalTimerSpec>::new(new).read()?;
    let value = wanted.value.to_ns().ok_or(Errno::EINVAL)?;
    let interval = wanted.interval.to_ns().ok_or(Errno::EINVAL)?;
    let timer = posix_timer(task, id)?;
    let expiry = match value {
        0 => Expiry::Never,
        value if flags & ABSOLUTE != 0 => Expiry::At(match timer.clock {
            Counted::Clock(clock) => task.to_kernel_time(clock, value),
            Counted::UserTime | Counted::CpuTime | Counted::RealTime => value,
        }),
        value => Expiry::In(value),
    };
    let before = timer.set(expiry, interval);
    UserPointer::<IntervalTimerSpec>::new(old).write_if_given(&to_spec(before))?;
    Ok(0)
}

/// Reads a POSIX timer.
pub fn timer_gettime(task: &mut Task, id: i32, out: u64) -> SysResult {
    let value = posix_timer(task, id)?.get();
    UserPointer::<IntervalTimerSpec>::new(out).write(&to_spec(value))?;
    Ok(0)
}

/// Expiries missed by the last signal.
pub fn timer_getoverrun(task: &mut Task, id: i32) -> SysResult {
    Ok(posix_timer(task, id)?.setting.lock().overrun as usize)
}

/// Removes a POSIX timer.
pub fn timer_delete(task: &mut Task, id: i32) -> SysResult {
    let removed = {
        let mut inner = task.process().timers.inner.lock();
        let place = inner.as_mut().and_then(|inner| inner.timers.get_mut(usize::try_from(id).ok()?));
        place.filter(|place| place.timer().is_some()).map(core::mem::take)
    };
    // Of two threads that delete it one finds it.
    let removed = removed.ok_or(Errno::EINVAL)?;
    removed.timer().into_iter().for_each(|timer| timer.delete());
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_expiries_are_counted_and_the_phase_is_kept() {
        let counted = Counted::Clock(Clock::Monotonic);
        let mut setting =
            Setting { counted, expiry_ns: Some(100), interval_ns: 10, overrun: 0, deleted: false };
        assert_eq!(advance(&mut setting, 100, 135), 3);
        assert_eq!(setting.expiry_ns, Some(140));
        setting.interval_ns = 0;
        assert_eq!(advance(&mut setting, 140, 150), 0);
        assert_eq!(setting.expiry_ns, None);
    }
}
