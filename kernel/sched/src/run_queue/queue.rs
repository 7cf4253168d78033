//! The run queue of one CPU.
//!
//! Two trees hold the threads that are runnable and not running; the running thread is in none. Real-time
//! threads are ordered by priority, then by when they came; fair threads by virtual runtime: real runtime divided by
//! weight. Those with a reservation come before all other real-time ones (`reservation`). The next thread is the first real-time one, else the fair one that has had least, else the idle thread.
//! Insertion and removal cost O(log n) and allocate nothing: the links are in the threads.
//!
//! Fairness: `min_virtual_ns` is the virtual time of the queue; it follows the least runtime of all fair threads and
//! never goes back. A thread that leaves takes its distance from it along ([`Entity::lag`]), so that queues whose
//! virtual times differ can exchange threads. A thread that slept comes back at most `WAKEUP_BONUS_NS` behind the
//! queue's time: soon, but not for all the time it slept. What it had had more than the others stays with it until their time has caught up:
//! threads that wake each other in turn do not starve a third one.
//!
//! Real-time threads that use up 95 % of a second wait for the next one while fair threads are runnable. The turn of a round-robin thread is
//! what it runs, not what passes: one that is preempted goes on with the rest of it.
//!
//! A thread's slice ends the later the more the others of its queue weigh; there is a slice only while somebody else
//! waits for the CPU, so a thread that is alone runs without ticks.
//!
//! Invariants (under the queue's lock): `count` = threads in the trees + 1 if the running thread is not the idle one;
//! `load` = sum of their weights (fair ones only); a thread in a tree is not running on any CPU.

use intrusive_collections::{KeyAdapter, RBTree, UnsafeRef, intrusive_adapter};

use machine::cpu::CpuId;
use machine::time;

use super::Entity;
use crate::control;
use crate::policy::{self, Policy};
use crate::thread::Thread;

/// Within this time every fair thread of a queue gets its turn, as long as slices stay above the minimum.
const LATENCY_NS: u64 = 6_000_000;
/// No slice is shorter: a switch costs some microseconds with all its cache misses.
const MINIMUM_SLICE_NS: u64 = 750_000;
/// How far behind the queue's virtual time a thread may wake up.
const WAKEUP_BONUS_NS: i64 = 3_000_000;
/// By how much less a waking thread must have had to preempt the running one.
const WAKEUP_GRANULARITY_NS: u64 = 1_000_000;
/// Where a new thread starts behind the queue's time: forking is not a way to get more.
const NEWCOMER_DEBIT_NS: i64 = 3_000_000;
/// Turn of a round-robin real-time thread, as Linux's default.
const ROUND_ROBIN_SLICE_NS: u64 = 100_000_000;
/// Of each such period …
const REALTIME_PERIOD_NS: u64 = 1_000_000_000;
/// … real-time threads get at most this while fair ones wait: a real-time thread that loops leaves enough to end it.
const REALTIME_LIMIT_NS: u64 = 950_000_000;
/// How often a CPU whose threads queue looks for another one with room.
const BALANCE_INTERVAL_NS: u64 = 3_000_000;
/// Bits of a real-time key that order threads of one priority.
const PLACE_BITS: u32 = 56;
/// Where the places within a priority begin: they are given upwards and downwards from here.
const MIDDLE_PLACE: u64 = 1 << (PLACE_BITS - 1);
/// The slice end of a thread that nobody waits for.
pub(crate) const NO_SLICE_END: u64 = u64::MAX;

intrusive_adapter!(Ordered = UnsafeRef<Thread>: Thread { entity.link => intrusive_collections::RBTreeAtomicLink });

impl<'a> KeyAdapter<'a> for Ordered {
    type Key = u64;
    fn get_key(&self, thread: &'a Thread) -> u64 {
        thread.entity.key()
    }
}

/// Why a thread comes to a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// It is new.
    New,
    /// It slept.
    Wakeup,
    /// It was runnable on another CPU, or its policy changed.
    Moved,
}

/// The runnable threads of one CPU. Guarded by `Cpu::queue`.
pub(crate) struct RunQueue {
    realtime: RBTree<Ordered>,
    fair: RBTree<Ordered>,
    current: *const Thread,
    idle: *const Thread,
    /// Whose queue it is, once that one runs.
    cpu: CpuId,
    count: u32,
    realtime_count: u32,
    /// Sum of what the threads add to the crowd, see [`policy::crowd`].
    crowd: u32,
    load: u64,
    min_virtual_ns: u64,
    /// Source of real-time keys: first come, first served within a priority. This is the last place given …
    last_place: u64,
    /// … and this the first.
    first_place: u64,
    slice_end_ns: u64,
    /// When to try again a thread that was passed over; part of the next slice.
    retry_ns: u64,
    /// When to look for a CPU with room, while threads queue here. Unlike a slice it does not begin anew with each switch: a thread that
    /// wakes often must not keep the others from spreading.
    balance_ns: u64,
    /// Begin of the running period of real-time accounting.
    period_start_ns: u64,
    /// What real-time threads have used of it.
    realtime_used_ns: u64,
}

// SAFETY: the raw pointers are to threads, which are Sync; a thread outlives its stay in a queue because it holds a
// reference to itself until it is dead and switched away from.
unsafe impl Send for RunQueue {}

impl RunQueue {
    pub(crate) const fn new() -> Self {
        Self {
            realtime: RBTree::new(Ordered::NEW),
            fair: RBTree::new(Ordered::NEW),
            current: core::ptr::null(),
            idle: core::ptr::null(),
            cpu: CpuId::BOOT,
            count: 0,
            realtime_count: 0,
            crowd: 0,
            load: 0,
            min_virtual_ns: 0,
            last_place: MIDDLE_PLACE,
            first_place: MIDDLE_PLACE,
            slice_end_ns: NO_SLICE_END,
            retry_ns: NO_SLICE_END,
            balance_ns: NO_SLICE_END,
            period_start_ns: 0,
            realtime_used_ns: 0,
        }
    }

    /// The CPU starts with this running thread and idle thread. Threads may wait here already; of a turn that began before, nothing is left.
    pub(crate) fn start(&mut self, current: &Thread, idle: *const Thread, now_ns: u64) {
        if !self.current.is_null() && !self.is_idle() {
            // A hosted CPU that was another host thread's: that thread's end.
            self.deactivate_current();
        }
        self.idle = idle;
        self.cpu = machine::cpu::current();
        self.current = current;
        current.entity.set_started_ns(now_ns);
        if !core::ptr::eq(current, idle) {
            self.count_in(&current.entity);
            current.entity.set_key(self.min_virtual_ns);
        }
        self.retry_ns = NO_SLICE_END;
        self.balance_ns = NO_SLICE_END;
        self.start_slice(now_ns);
    }

    pub(crate) fn current(&self) -> *const Thread {
        self.current
    }

    pub(crate) fn idle(&self) -> *const Thread {
        self.idle
    }

    pub(crate) fn is_idle(&self) -> bool {
        core::ptr::eq(self.current, self.idle)
    }

    /// Runnable threads, the running one included, the idle thread not.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn slice_end_ns(&self) -> u64 {
        self.slice_end_ns
    }

    /// The running thread.
    fn running(&self) -> Option<&Thread> {
        // SAFETY: the running thread is alive: it can die only by switching away, under this queue's lock.
        unsafe { self.current.as_ref() }
    }

    /// How unwelcome another fair thread is here: what the runnable threads make of it, see [`policy::crowd`].
    pub(crate) fn crowd(&self) -> u32 {
        self.crowd
    }

    /// The weights of its fair threads.
    #[cfg(test)]
    pub(crate) fn load(&self) -> u64 {
        self.load
    }

    /// How urgent the running thread is, see [`policy::rank`].
    pub(crate) fn rank(&self) -> u32 {
        match self.running() {
            Some(thread) if !self.is_idle() => policy::rank(thread.entity.policy()),
            _ => policy::RANK_NOBODY,
        }
    }

    fn count_in(&mut self, entity: &Entity) {
        self.count += 1;
        self.crowd += policy::crowd(entity.policy());
        if entity.is_realtime() {
            self.realtime_count += 1;
        } else {
            self.load += entity.weight();
            if !entity.group.is_empty() {
                control::count(&entity.group, entity.weight(), self.cpu, true);
            }
        }
    }

    fn count_out(&mut self, entity: &Entity) {
        debug_assert!(self.count > 0, "a thread leaves a queue that it was counted in");
        self.count -= 1;
        self.crowd -= policy::crowd(entity.policy());
        if entity.is_realtime() {
            self.realtime_count -= 1;
        } else {
            self.load -= entity.weight();
            if !entity.group.is_empty() {
                control::count(&entity.group, entity.weight(), self.cpu, false);
            }
        }
    }

    /// Real time to virtual time, as fast as the thread's part of its group's weight says.
    #[inline(always)]
    fn virtual_ns(&self, entity: &Entity, real_ns: u64) -> u64 {
        if entity.group.is_empty() {
            entity.virtual_ns(real_ns)
        } else {
            control::virtual_ns(&entity.group, entity.weight(), self.cpu, real_ns)
        }
    }

    /// Brings the running thread's account up to date.
    pub(crate) fn update_current(&mut self, now_ns: u64) {
        // SAFETY: as in `running`; the borrow is independent of the queue's books.
        let Some(thread) = (unsafe { self.current.as_ref() }) else { return };
        let entity = &thread.entity;
        let is_realtime = entity.is_realtime();
        let ran_ns = now_ns.saturating_sub(entity.started_ns());
        entity.add_runtime(ran_ns);
        entity.set_started_ns(now_ns);
        if now_ns.saturating_sub(self.period_start_ns) >= REALTIME_PERIOD_NS {
            self.period_start_ns = now_ns;
            self.realtime_used_ns = 0;
        } else if is_realtime && entity.policy() != Policy::Deadline {
            self.realtime_used_ns += ran_ns;
        }
        if is_realtime {
            self.use_turn(thread, ran_ns, now_ns);
        }
        if !entity.group.is_empty() {
            control::charge(thread, ran_ns, now_ns);
        }
        if self.is_idle() || is_realtime {
            return;
        }
        entity.set_key(entity.key() + self.virtual_ns(entity, ran_ns));
        let key = entity.key();
        let least = self.fair.front().get().map_or(key, |first| first.entity.key().min(key));
        self.min_virtual_ns = self.min_virtual_ns.max(least);
    }

    /// What the running real-time thread ran is taken off its budget, or its turn.
    fn use_turn(&self, thread: &Thread, ran_ns: u64, now_ns: u64) {
        let entity = &thread.entity;
        if entity.policy() == Policy::Deadline {
            if entity.spend(ran_ns, now_ns) {
                thread.note_held_back();
            }
        } else if let Policy::RoundRobin(_) = entity.policy() {
            let used_ns = entity.turn_used_ns().saturating_add(ran_ns);
            // Who has no equals begins one turn after the other.
            let alone = self.realtime_count <= 1;
            entity.set_turn_used_ns(if alone { used_ns % ROUND_ROBIN_SLICE_NS } else { used_ns });
        }
    }

    /// Adds a thread that belongs to no queue. Returns whether it should run instead of the running one.
    pub(crate) fn activate(&mut self, thread: &Thread, reason: Activation) -> bool {
        self.place_activated(thread, reason);
        self.count_in(&thread.entity);
        self.insert(thread);
        self.preempts(thread)
    }

    /// Adds a thread that has slept and runs next: it never waits in a tree.
    pub(crate) fn activate_next(&mut self, thread: &Thread) {
        self.place_activated(thread, Activation::Wakeup);
        self.count_in(&thread.entity);
    }

    /// Whether a thread may run before all that wait here, because somebody who had the CPU gives it his turn.
    pub(crate) fn may_run_next(&self, thread: &Thread) -> bool {
        let Some(first) = self.realtime.front().get() else {
            return !(thread.entity.is_realtime() && self.realtime_is_throttled());
        };
        thread.entity.policy().priority() > first.entity.policy().priority() && !self.realtime_is_throttled()
    }

    /// The running thread was given what is left of another one's turn, which ends then.
    pub(crate) fn inherit_slice(&mut self, end_ns: u64) {
        self.slice_end_ns = self.slice_end_ns.min(end_ns);
    }

    #[inline(always)]
    fn place_activated(&mut self, thread: &Thread, reason: Activation) {
        let entity = &thread.entity;
        debug_assert!(!entity.is_queued(), "a thread is in one queue at a time");
        if entity.is_realtime() {
            if reason != Activation::Moved {
                entity.begin_realtime();
            }
            if entity.policy() == Policy::Deadline {
                if reason != Activation::Moved {
                    entity.begin_activation(time::now_ns());
                }
                return;
            }
            self.place_last(thread);
        } else {
            let lag = match reason {
                Activation::New => entity.virtual_ns(NEWCOMER_DEBIT_NS as u64) as i64,
                Activation::Wakeup => {
                    entity.lag().saturating_sub(self.progress_since(entity)).max(-WAKEUP_BONUS_NS)
                }
                Activation::Moved => entity.lag().max(-WAKEUP_BONUS_NS),
            };
            entity.set_key(self.min_virtual_ns.saturating_add_signed(lag));
        }
    }

    /// How far the queue's virtual time has come since a waking thread left it: by so much less it is ahead of the others now. Time that passes
    /// is no measure: threads that wake each other in turn sleep half of it, and forgiven that they would always be first.
    /// Of another queue's time nothing is known here.
    fn progress_since(&self, entity: &Entity) -> i64 {
        let (queue, virtual_ns) = entity.left();
        if queue == self.address() { self.min_virtual_ns.saturating_sub(virtual_ns) as i64 } else { 0 }
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Puts a real-time thread behind all of its priority; its turn begins anew.
    fn place_last(&mut self, thread: &Thread) {
        self.last_place += 1;
        Self::place(thread, self.last_place);
        thread.entity.set_turn_used_ns(0);
    }

    /// Puts a real-time thread before all of its priority.
    fn place_first(&mut self, thread: &Thread) {
        self.first_place -= 1;
        Self::place(thread, self.first_place);
    }

    fn place(thread: &Thread, place: u64) {
        const HIGHEST: u64 = Policy::PRIORITY_DEADLINE as u64;
        debug_assert!(place < 1 << PLACE_BITS, "the places of a priority are not used up in centuries");
        let priority = u64::from(thread.entity.policy().priority());
        thread.entity.set_key(HIGHEST.saturating_sub(priority) << PLACE_BITS | place);
    }

    /// The running thread stops being runnable here.
    pub(crate) fn deactivate_current(&mut self) {
        if let Some(thread) = self.running() {
            let entity = &thread.entity;
            self.take_lag(entity);
            // SAFETY: as in `running`; the borrow ends before `count_out` changes the queue.
            let entity = unsafe { &(*self.current).entity };
            self.count_out(entity);
        }
    }

    /// The running thread, which was deactivated, is runnable here again, after its policy changed from the given one.
    pub(crate) fn readmit_current(&mut self, before: Policy) {
        // SAFETY: as in `running`; the borrow is independent of the queue's books.
        let Some(thread) = (unsafe { self.current.as_ref() }) else { return };
        self.place_changed(thread, before);
        self.count_in(&thread.entity);
    }

    /// The same for a thread that waited here and was taken out.
    pub(crate) fn readmit_waiting(&mut self, thread: &Thread, before: Policy) {
        self.place_changed(thread, before);
        self.count_in(&thread.entity);
        self.insert(thread);
    }

    /// Gives a thread the place of its new policy. A real-time thread whose priority falls goes before its new equals, one whose
    /// priority rises behind them (sched(7)).
    fn place_changed(&mut self, thread: &Thread, before: Policy) {
        let policy = thread.entity.policy();
        if policy.is_realtime() && !before.is_realtime() {
            thread.entity.begin_realtime();
        }
        if policy == Policy::Deadline {
            if thread.entity.is_fresh() {
                thread.entity.begin_activation(time::now_ns());
            }
        } else if !policy.is_realtime() {
            let lag = if before.is_realtime() { 0 } else { thread.entity.lag() };
            thread.entity.set_key(self.min_virtual_ns.saturating_add_signed(lag));
        } else if policy.priority() < before.priority() {
            self.place_first(thread);
        } else if policy.priority() > before.priority() {
            self.place_last(thread);
        }
    }

    /// Time that the CPU has spent without a runnable thread, up to the last account.
    pub(crate) fn idle_ns(&self) -> u64 {
        // SAFETY: idle threads are never freed.
        unsafe { self.idle.as_ref() }.map_or(0, |idle| idle.entity.runtime_ns())
    }

    /// Takes a thread that waits in this queue out of it.
    pub(crate) fn deactivate_waiting(&mut self, thread: &Thread) {
        self.remove(thread);
        self.take_lag(&thread.entity);
        self.count_out(&thread.entity);
    }

    fn take_lag(&self, entity: &Entity) {
        if !entity.is_realtime() {
            entity.set_lag(entity.key().wrapping_sub(self.min_virtual_ns) as i64);
            entity.set_left(self.address(), self.min_virtual_ns);
        }
    }

    fn insert(&mut self, thread: &Thread) {
        // SAFETY: the thread stays alive while it is queued (it is not dead, and holds a reference to itself until
        // then), and it is removed before anything else links it.
        let link = unsafe { UnsafeRef::from_raw(thread) };
        thread.entity.set_queued(true);
        if thread.entity.is_realtime() {
            self.realtime.insert(link);
        } else {
            self.fair.insert(link);
        }
    }

    fn remove(&mut self, thread: &Thread) {
        debug_assert!(thread.entity.is_queued(), "only a waiting thread is in a tree");
        let tree = if thread.entity.is_realtime() { &mut self.realtime } else { &mut self.fair };
        // SAFETY: the thread is queued, under this queue's lock and in the tree of its class.
        let removed = unsafe { tree.cursor_mut_from_ptr(thread) }.remove();
        debug_assert!(removed.is_some(), "a queued thread is in its tree");
        thread.entity.set_queued(false);
    }

    /// Chooses the next thread. The running one competes if `current_runs_on`; afterwards it is in a tree unless it
    /// was chosen. None when nobody is runnable.
    pub(crate) fn pick(&mut self, current_runs_on: bool) -> Option<*const Thread> {
        let current = self.current;
        let competitor = if current_runs_on && !self.is_idle() { self.running() } else { None };
        let throttled = self.realtime_is_throttled() && !self.has_reservation_waiting(competitor);
        let first = match throttled {
            true => self.fair.front().clone_pointer().or_else(|| self.realtime.front().clone_pointer()),
            false => self.realtime.front().clone_pointer().or_else(|| self.fair.front().clone_pointer()),
        };
        let Some(first) = first else { return competitor.map(core::ptr::from_ref) };
        if let Some(running) = competitor {
            let realtime = (running.entity.is_realtime(), first.entity.is_realtime());
            let stays = match realtime {
                (true, false) => !throttled,
                (false, true) => throttled,
                _ => running.entity.key() <= first.entity.key(),
            };
            if stays {
                return Some(current);
            }
            // SAFETY: the running thread is alive, see `running`.
            self.insert(unsafe { &*current });
        }
        let first: *const Thread = &*first;
        // SAFETY: a queued thread is alive.
        self.remove(unsafe { &*first });
        Some(first)
    }

    /// Whether a thread that competes has reserved its time: that is not limited once more.
    #[cold]
    fn has_reservation_waiting(&self, competitor: Option<&Thread>) -> bool {
        let has_one = |thread: &Thread| thread.entity.policy() == Policy::Deadline;
        competitor.is_some_and(has_one) || self.realtime.front().get().is_some_and(has_one)
    }

    /// Whether the running thread lost the last pick and waits in a tree.
    pub(crate) fn current_is_queued(&self) -> bool {
        self.running().is_some_and(|thread| thread.entity.is_queued())
    }

    /// Puts back a thread that was picked and cannot run now, as if it had run for `turn_ns`, so that others come first
    /// when it is chosen next.
    pub(crate) fn put_back(&mut self, thread: &Thread, turn_ns: u64) {
        let entity = &thread.entity;
        match entity.is_realtime() {
            true if entity.policy() == Policy::Deadline => {}
            true => self.place_last(thread),
            false => entity.set_key(entity.key() + self.virtual_ns(entity, turn_ns)),
        }
        self.insert(thread);
    }

    /// Looks again at that time, whoever runs.
    pub(crate) fn retry_at(&mut self, time_ns: u64) {
        self.retry_ns = time_ns;
    }

    /// Whether real-time threads have had their part of this period.
    fn realtime_is_throttled(&self) -> bool {
        self.realtime_used_ns >= REALTIME_LIMIT_NS
    }

    /// Makes the chosen thread the running one.
    pub(crate) fn set_current(&mut self, thread: &Thread, now_ns: u64) {
        self.current = thread;
        thread.entity.set_started_ns(now_ns);
        self.start_slice(now_ns);
    }

    /// Starts the running thread's slice, if somebody waits for the CPU. Returns whether there is one.
    pub(crate) fn start_slice(&mut self, now_ns: u64) -> bool {
        let retry_ns = core::mem::replace(&mut self.retry_ns, NO_SLICE_END);
        self.balance_ns = match (self.count > 1, self.balance_ns) {
            (false, _) => NO_SLICE_END,
            (true, NO_SLICE_END) => now_ns + BALANCE_INTERVAL_NS,
            (true, already_set) => already_set,
        };
        self.slice_end_ns = match self.running() {
            // Of a thread that is alone only what it has reserved is looked at.
            Some(thread) if !self.is_idle() && (self.count > 1 || self.realtime_count > 0) => {
                self.slice_ns(thread).map_or(NO_SLICE_END, |slice| now_ns + slice).min(self.balance_ns)
            }
            _ => NO_SLICE_END,
        }
        .min(retry_ns);
        if let Some(thread) = self.running()
            && !thread.entity.group.is_empty()
            && let Some(slice_ns) = control::slice_ns(&thread.entity.group)
        {
            self.slice_end_ns = self.slice_end_ns.min(now_ns + slice_ns);
        }
        self.slice_end_ns != NO_SLICE_END
    }

    fn slice_ns(&self, thread: &Thread) -> Option<u64> {
        // What is left of the period's real-time part ends the slice while fair threads wait.
        let fair_wait = self.count > self.realtime_count;
        let budget = fair_wait
            .then(|| (REALTIME_LIMIT_NS.saturating_sub(self.realtime_used_ns)).max(MINIMUM_SLICE_NS));
        match thread.entity.policy() {
            Policy::Deadline => Some(thread.entity.budget_ns()),
            Policy::Fifo(_) => budget,
            Policy::RoundRobin(_) => {
                let left_ns = ROUND_ROBIN_SLICE_NS.saturating_sub(thread.entity.turn_used_ns());
                let turn = (self.realtime_count > 1).then_some(left_ns);
                turn.into_iter().chain(budget).min()
            }
            _ => Some((LATENCY_NS * thread.entity.weight() / self.load.max(1)).max(MINIMUM_SLICE_NS)),
        }
    }

    /// Whether it is time to look for a CPU with room; begins the next interval if so.
    pub(crate) fn balance_is_due(&mut self, now_ns: u64) -> bool {
        let due = self.balance_ns <= now_ns;
        if due {
            self.balance_ns = now_ns + BALANCE_INTERVAL_NS;
        }
        due
    }

    /// The running thread's slice is over: a round-robin thread that has used up its turn goes behind its equals. Returns whether
    /// another one should run.
    pub(crate) fn end_slice(&mut self) -> bool {
        // SAFETY: as in `running`; the borrow is independent of the queue, whose places change below.
        let Some(thread) = (unsafe { self.current.as_ref() }) else { return false };
        if self.is_idle() {
            return self.count > 0;
        }
        if let Policy::RoundRobin(_) = thread.entity.policy()
            && thread.entity.turn_used_ns() >= ROUND_ROBIN_SLICE_NS
        {
            self.place_last(thread);
        }
        self.count > 1
    }

    /// The running thread yields: the one that is next now goes first.
    pub(crate) fn yield_current(&mut self) {
        // SAFETY: the running thread is alive, see `running`.
        let Some(thread) = (unsafe { self.current.as_ref() }) else { return };
        if thread.entity.is_realtime() {
            if thread.entity.policy() != Policy::Deadline {
                self.place_last(thread);
            } else if thread.entity.give_up_budget(time::now_ns()) {
                thread.note_held_back();
            }
        } else if let Some(first) = self.fair.front().get() {
            let key = thread.entity.key().max(first.entity.key() + 1);
            thread.entity.set_key(key);
        }
    }

    /// Whether a thread that has just become runnable should run at once.
    fn preempts(&self, thread: &Thread) -> bool {
        let Some(running) = self.running() else { return true };
        if self.is_idle() {
            return true;
        }
        let (new, old) = (thread.entity.policy(), running.entity.policy());
        if new.is_realtime() {
            if new == Policy::Deadline {
                return old != new || thread.entity.key() < running.entity.key();
            }
            return new.priority() > old.priority() && (old.is_realtime() || !self.realtime_is_throttled());
        }
        match (old, new) {
            (Policy::Fifo(_) | Policy::RoundRobin(_) | Policy::Deadline, _) | (_, Policy::Idle) => false,
            (Policy::Idle, _) => true,
            (_, Policy::Batch) => false,
            _ => thread.entity.key() + thread.entity.virtual_ns(WAKEUP_GRANULARITY_NS) < running.entity.key(),
        }
    }

    /// The last waiting thread that may run on another CPU: the one that would wait longest. Real-time threads first.
    pub(crate) fn find_movable(&self, may_move: impl Fn(&Thread) -> bool) -> Option<*const Thread> {
        /// Threads looked at under the lock; the others have the same chance next time.
        const SEARCH_LIMIT: usize = 32;
        for tree in [&self.realtime, &self.fair] {
            let mut cursor = tree.back();
            for _ in 0..SEARCH_LIMIT {
                let Some(thread) = cursor.get() else { break };
                if may_move(thread) {
                    return Some(thread);
                }
                cursor.move_prev();
            }
        }
        None
    }

    /// Calls `visit` for each thread that waits here, in the order in which they would run.
    pub(crate) fn for_each_waiting(&self, mut visit: impl FnMut(&Thread)) {
        for thread in self.realtime.iter().chain(self.fair.iter()) {
            visit(thread);
        }
    }
}
