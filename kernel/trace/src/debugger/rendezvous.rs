//! How all processors come to the debugger and leave it (specs/fiasco-mp.md §12.4, figure 13).
//!
//! States of a processor, and transitions by their letters in the paper:
//!
//! ```text
//! normal ─a─► handle locally ─b─► normal                    (`entry`)
//!                    └─c: set own request, interrupt the others─► entry barrier
//! normal ─d─► check spurious ─e: nobody requests─► normal
//!                    └─f: somebody does─► entry barrier
//! entry barrier ─g: all have come─► active (the lowest one) ─k: clear the requests─► normal
//! entry barrier ─h: all have come─► not active ─l: the session is over─► normal
//! active ─i─► not active,  not active ─j─► active            (the user's choice)
//! ```
//!
//! A *session* has a number. A processor belongs to it when it has noted that number as the one it arrived in; so one that was slow to
//! leave the last session is not taken for one that has come to this. The session is over when the number has changed.
//!
//! Invariants: at most one processor is active; requests are cleared only of processors that have arrived, so a request made while
//! the others leave starts the next session; an interrupt left over from requests at the same time finds no request and
//! does nothing.
//!
//! Processors with interrupts off do not come: after [`BARRIER_NS`] they get a non-maskable interrupt. Who has not come
//! [`LEAVE_BEHIND_NS`] later is left behind: the dialogue begins without it and says so, and should it come, it joins.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use machine::cpu::{CpuId, CpuSet, MAX_CPUS};

/// How long a processor may take to come by itself.
pub const BARRIER_NS: u64 = 100_000_000;
/// How long it may take after the non-maskable interrupt. Long, because a virtual machine's processor may not be running at all.
pub const LEAVE_BEHIND_NS: u64 = 3_000_000_000;

/// How long is waited now: [`LEAVE_BEHIND_NS`], or what a test has set that tells a hang from a busy host by itself.
static PATIENCE_NS: AtomicU64 = AtomicU64::new(LEAVE_BEHIND_NS);

/// Has processors be left behind after that long.
pub fn set_patience_ns(patience_ns: u64) {
    PATIENCE_NS.store(patience_ns, SeqCst);
}

/// Nobody is active.
const NOBODY: u32 = u32::MAX;

/// What the rendezvous needs of the machine.
pub(crate) trait Platform {
    /// The processors that can come.
    fn online(&self) -> CpuSet;
    /// The processors that want a session.
    fn requests(&self) -> CpuSet;
    /// Notes that a processor wants one.
    fn add_request(&self, cpu: CpuId);
    /// Takes back what these have noted.
    fn clear_requests(&self, cpus: CpuSet);
    /// Asks a processor to come.
    fn summon(&self, cpu: CpuId);
    /// Has it come whatever it does.
    fn summon_unmasked(&self, cpu: CpuId);
    /// A clock.
    fn now_ns(&self) -> u64;
    /// Called in each round of waiting.
    fn relax(&self);
    /// Waits as long as `waits` says so; looks again when it is woken.
    fn rest_while(&self, waits: &dyn Fn() -> bool);
    /// Has a processor that rests look again, after a change.
    fn wake(&self, cpu: CpuId);
}

/// How the active instance ends its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// All processors go on.
    Continue,
    /// Another processor becomes active, if it is here.
    Switch(CpuId),
}

/// The meeting of all processors.
pub(crate) struct Rendezvous {
    /// The number of the running session, or of the next one.
    session: AtomicU64,
    /// For each processor 1 + the session in which it has arrived. Written by the processor.
    arrived: [AtomicU64; MAX_CPUS],
    /// 1 + the session whose barrier is open. Written by whoever opens it.
    open: AtomicU64,
    /// The active processor. Written by who opens the barrier, then by who is active.
    active: AtomicU32,
}

impl Rendezvous {
    /// Nobody has come.
    pub(crate) const fn new() -> Self {
        Self {
            session: AtomicU64::new(0),
            arrived: [const { AtomicU64::new(0) }; MAX_CPUS],
            open: AtomicU64::new(0),
            active: AtomicU32::new(NOBODY),
        }
    }

    /// The processors that take part in the running session.
    pub(crate) fn present(&self, platform: &impl Platform) -> CpuSet {
        self.arrived_in(platform, self.session.load(SeqCst))
    }

    fn arrived_in(&self, platform: &impl Platform, session: u64) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        for cpu in platform.online().iter() {
            if self.arrived[cpu.index()].load(SeqCst) == session + 1 {
                set.insert(cpu);
            }
        }
        set
    }

    /// A processor comes: because it wants a session itself (transition c), or because it was asked to come (d). Returns when it may go
    /// on; false if nobody wanted it (e). `drive` is the dialogue of the active instance.
    pub(crate) fn enter(
        &self,
        platform: &impl Platform,
        this: CpuId,
        wants: bool,
        drive: &mut dyn FnMut() -> Next,
    ) -> bool {
        if wants {
            platform.add_request(this);
            self.summon_others(platform, this);
        }
        let mut took_part = false;
        loop {
            let session = self.session.load(SeqCst);
            // After the number was read: requests are cleared before it changes.
            if platform.requests().is_empty() {
                return took_part;
            }
            self.arrived[this.index()].store(session + 1, SeqCst);
            took_part = true;
            self.wait_at_barrier(platform, this, session);
            self.stay(platform, this, session, drive);
            if !platform.requests().contains(this) {
                return true;
            }
            // Its own request was made when the session was ending.
            self.summon_others(platform, this);
        }
    }

    fn summon_others(&self, platform: &impl Platform, this: CpuId) {
        for cpu in platform.online().difference(CpuSet::only(this)).iter() {
            platform.summon(cpu);
        }
    }

    /// Waits until all have come (g, h), or the session is over. The lowest one that has come looks after the others, which rest.
    fn wait_at_barrier(&self, platform: &impl Platform, this: CpuId, session: u64) {
        let start_ns = platform.now_ns();
        let mut insisted = false;
        while self.session.load(SeqCst) == session && self.open.load(SeqCst) != session + 1 {
            let present = self.arrived_in(platform, session);
            let missing = platform.online().difference(present);
            let waited_ns = platform.now_ns().saturating_sub(start_ns);
            if present.lowest() != Some(this) {
                // Whoever is the lowest opens the barrier and drives, so that is no reason to wake.
                return;
            } else if missing.is_empty() || waited_ns > BARRIER_NS + PATIENCE_NS.load(SeqCst) {
                self.open_barrier(this, session);
            } else if waited_ns > BARRIER_NS && !insisted {
                insisted = true;
                missing.iter().for_each(|cpu| platform.summon_unmasked(cpu));
            } else {
                platform.relax();
            }
        }
    }

    /// All have come, or nobody waits any longer. Two may find so at a time, if a lower one comes late: one opens.
    fn open_barrier(&self, this: CpuId, session: u64) {
        let before = self.open.load(SeqCst);
        if before != session + 1 && self.open.compare_exchange(before, session + 1, SeqCst, SeqCst).is_ok() {
            self.active.store(this.index() as u32, SeqCst);
        }
    }

    /// Active or not, until the session is over.
    fn stay(&self, platform: &impl Platform, this: CpuId, session: u64, drive: &mut dyn FnMut() -> Next) {
        while self.session.load(SeqCst) == session {
            let is_active = || self.active.load(SeqCst) == this.index() as u32;
            if !is_active() {
                platform.rest_while(&|| self.session.load(SeqCst) == session && !is_active());
                continue;
            }
            match drive() {
                Next::Continue => {
                    self.active.store(NOBODY, SeqCst);
                    platform.clear_requests(self.arrived_in(platform, session));
                    self.session.store(session + 1, SeqCst);
                    platform.online().iter().for_each(|cpu| platform.wake(cpu));
                }
                Next::Switch(cpu) => {
                    if self.arrived_in(platform, session).contains(cpu) {
                        self.active.store(cpu.index() as u32, SeqCst);
                        platform.wake(cpu);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::time::Instant;

    /// Processors as threads: whoever is summoned sees it at its next look.
    struct Threads {
        count: usize,
        requests: AtomicU64,
        summoned: Vec<AtomicBool>,
        unmasked: Vec<AtomicBool>,
        start: Instant,
    }

    impl Threads {
        fn new(count: usize) -> Self {
            let flags = || (0..count).map(|_| AtomicBool::new(false)).collect();
            let (requests, start) = (AtomicU64::new(0), Instant::now());
            Self { count, requests, summoned: flags(), unmasked: flags(), start }
        }
    }

    impl Platform for Threads {
        fn online(&self) -> CpuSet {
            CpuSet::first(self.count)
        }
        fn requests(&self) -> CpuSet {
            CpuSet::from_bits(self.requests.load(SeqCst))
        }
        fn add_request(&self, cpu: CpuId) {
            self.requests.fetch_or(CpuSet::only(cpu).bits(), SeqCst);
        }
        fn clear_requests(&self, cpus: CpuSet) {
            self.requests.fetch_and(!cpus.bits(), SeqCst);
        }
        fn summon(&self, cpu: CpuId) {
            self.summoned[cpu.index()].store(true, SeqCst);
        }
        fn summon_unmasked(&self, cpu: CpuId) {
            self.unmasked[cpu.index()].store(true, SeqCst);
        }
        /// Slower than the host's, which may not run a thread for seconds.
        fn now_ns(&self) -> u64 {
            self.start.elapsed().as_nanos() as u64 / 10
        }
        fn relax(&self) {
            std::thread::yield_now();
        }
        fn rest_while(&self, waits: &dyn Fn() -> bool) {
            while waits() {
                std::thread::yield_now();
            }
        }
        fn wake(&self, _cpu: CpuId) {}
    }

    /// What the sessions of a test came to.
    #[derive(Default)]
    struct Seen {
        active: AtomicUsize,
        sessions: AtomicUsize,
        drivers: Mutex<Vec<usize>>,
    }

    impl Seen {
        fn drive(&self, cpu: usize, next: impl FnOnce() -> Next) -> Next {
            assert_eq!(self.active.fetch_add(1, SeqCst), 0, "one instance is active");
            self.drivers.lock().expect("no test panics with it").push(cpu);
            let next = next();
            if next == Next::Continue {
                self.sessions.fetch_add(1, SeqCst);
            }
            self.active.fetch_sub(1, SeqCst);
            next
        }
    }

    /// Runs `count` processors. Each asks for a session `wishes(cpu)` times, and otherwise comes when summoned.
    fn run(count: usize, wishes: impl Fn(usize) -> usize + Sync, masked: Option<usize>) -> Seen {
        let (platform, rendezvous) = (Threads::new(count), Rendezvous::new());
        let seen = Seen::default();
        let (busy, ended) = (AtomicUsize::new(count), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for index in 0..count {
                let (platform, rendezvous, seen, busy, wishes) =
                    (&platform, &rendezvous, &seen, &busy, &wishes);
                let ended = &ended;
                scope.spawn(move || {
                    let this = CpuId::from_index(index);
                    let mut drive = || seen.drive(index, || Next::Continue);
                    let come = |drive: &mut dyn FnMut() -> Next| {
                        let flags =
                            if masked == Some(index) { &platform.unmasked } else { &platform.summoned };
                        if flags[index].swap(false, SeqCst) {
                            rendezvous.enter(platform, this, false, drive);
                        }
                    };
                    for _ in 0..wishes(index) {
                        rendezvous.enter(platform, this, true, &mut drive);
                        come(&mut drive);
                    }
                    busy.fetch_sub(1, SeqCst);
                    while busy.load(SeqCst) > 0 {
                        come(&mut drive);
                        std::thread::yield_now();
                    }
                    ended.fetch_add(1, SeqCst);
                });
            }
        });
        assert!(platform.requests().is_empty());
        assert_eq!(ended.load(SeqCst), count);
        seen
    }

    #[test]
    fn one_processor_stops_all_and_the_lowest_is_active_first() {
        let seen = run(4, |cpu| usize::from(cpu == 2) * 20, None);
        assert_eq!(seen.sessions.load(SeqCst), 20);
        assert!(seen.drivers.lock().expect("unused").iter().all(|&cpu| cpu == 0));
    }

    #[test]
    fn requests_at_the_same_time_make_one_session_or_several_and_none_is_lost() {
        let seen = run(4, |_| 50, None);
        let sessions = seen.sessions.load(SeqCst);
        assert!((50..=200).contains(&sessions), "{sessions} sessions for 200 requests");
    }

    #[test]
    fn a_processor_that_does_not_listen_comes_by_force() {
        let seen = run(3, |cpu| usize::from(cpu == 0), Some(2));
        assert_eq!(seen.sessions.load(SeqCst), 1);
    }

    #[test]
    fn a_left_over_summons_does_nothing() {
        let (platform, rendezvous) = (Threads::new(2), Rendezvous::new());
        let mut drive = || -> Next { unreachable!("nobody wants a session") };
        assert!(!rendezvous.enter(&platform, CpuId::from_index(1), false, &mut drive));
    }

    #[test]
    fn alone_a_processor_switches_to_nobody_and_goes_on() {
        let (platform, rendezvous) = (Threads::new(1), Rendezvous::new());
        let mut turns = [Next::Switch(CpuId::from_index(5)), Next::Continue].into_iter();
        let mut drive = || turns.next().expect("two turns");
        assert!(rendezvous.enter(&platform, CpuId::BOOT, true, &mut drive));
        assert!(rendezvous.present(&platform).is_empty(), "the session is over");
    }
}
