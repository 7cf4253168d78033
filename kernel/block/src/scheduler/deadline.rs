//! Requests in the order of their sectors, with a limit on waiting: the scheduler `mq-deadline`, after Linux's `deadline-iosched.rst`.
//!
//! Reads and writes wait in two [sets](Waiting), each in the order of sectors and of age. A batch takes up to `fifo_batch` requests of one
//! direction in ascending order from where the last one ended. Only between batches does it look at how long requests have waited: a
//! new batch is of reads if there are any, except that writes which were passed over `writes_starved` times come first; it begins with the
//! direction's oldest request if that one has waited for `read_expire` or `write_expire` milliseconds. Operations without data are
//! served in their order before all others.
//!
//! All this is so for each class of I/O priority by itself. A class is not served while one above it has requests that wait or that the driver
//! has: what is idle waits until the others are done. A request that has waited for `prio_aging_expire` milliseconds all the same goes first.
//!
//! A neighbour that comes later goes along with the request that it follows, and, unless `front_merges` is 0, with the one that it precedes.

use alloc::collections::VecDeque;

use sched::IoClass;

use super::interface::{Scheduler, Setting};
use super::waiting::{Place, Waiting};
use crate::bio::Operation;
use crate::driver::Limits;
use crate::request::Request;
use crate::{Error, Result};

const READ: usize = 0;
const WRITE: usize = 1;
/// Classes of I/O priority.
const CLASSES: usize = IoClass::Idle as usize + 1;

/// Places in [`Deadline::settings`]; those of the times are the directions.
const FIFO_BATCH: usize = 2;
const WRITES_STARVED: usize = 3;
const FRONT_MERGES: usize = 4;
const PRIORITY_AGING_EXPIRE: usize = 5;

const NS_PER_MS: u64 = 1_000_000;

/// The settings as they are at first: Linux's.
const SETTINGS: [Setting; 6] = [
    Setting { name: "read_expire", value: 500, max: i32::MAX as u32 },
    Setting { name: "write_expire", value: 5000, max: i32::MAX as u32 },
    Setting { name: "fifo_batch", value: 16, max: i32::MAX as u32 },
    Setting { name: "writes_starved", value: 2, max: i32::MAX as u32 },
    Setting { name: "front_merges", value: 1, max: 1 },
    Setting { name: "prio_aging_expire", value: 10_000, max: i32::MAX as u32 },
];

/// What there is of a class of I/O priority.
#[derive(Default)]
struct Class {
    waiting: [Waiting; 2],
    /// Requests that the driver has.
    given: u32,
}

impl Class {
    fn is_empty(&self) -> bool {
        self.waiting.iter().all(Waiting::is_empty)
    }

    fn holds_back_others(&self) -> bool {
        self.given > 0 || !self.is_empty()
    }
}

/// See the theory of this file.
pub struct Deadline {
    /// The most urgent first.
    classes: [Class; CLASSES],
    urgent: VecDeque<Request>,
    direction: usize,
    /// How many more the batch may take.
    left: u32,
    /// How many batches of reads have passed over writes.
    starved: u32,
    /// Where the last request ended.
    head: u64,
    settings: [Setting; SETTINGS.len()],
}

impl Default for Deadline {
    fn default() -> Self {
        Self {
            classes: Default::default(),
            urgent: VecDeque::new(),
            direction: READ,
            left: 0,
            starved: 0,
            head: 0,
            settings: SETTINGS,
        }
    }
}

/// The set that requests of this kind wait in, if they wait in one.
fn direction_of(operation: Operation) -> Option<usize> {
    match operation {
        Operation::Read => Some(READ),
        Operation::Write => Some(WRITE),
        Operation::Flush | Operation::Discard | Operation::WriteZeroes => None,
    }
}

impl Deadline {
    /// The oldest, if it has waited for as long as that setting says.
    fn waited(&self, class: usize, direction: usize, setting: usize, now_ns: u64) -> Option<Place> {
        let waiting = &self.classes[class].waiting[direction];
        let oldest = waiting.oldest()?;
        let waited_ns = now_ns.saturating_sub(waiting.get(oldest).submitted_ns());
        (waited_ns >= u64::from(self.settings[setting].value) * NS_PER_MS).then_some(oldest)
    }

    /// The next in ascending order from the head, or the lowest.
    fn ahead(&self, class: usize, direction: usize) -> Option<Place> {
        let waiting = &self.classes[class].waiting[direction];
        waiting.at_or_above(self.head).or_else(|| waiting.at_or_above(0))
    }

    fn begin_batch(&mut self, class: usize, now_ns: u64) -> Option<Place> {
        let [reads, writes] = self.classes[class].waiting.each_ref().map(|waiting| !waiting.is_empty());
        self.left = self.settings[FIFO_BATCH].value;
        self.direction = match (reads, writes) {
            (false, false) => return None,
            (true, true) if self.starved < self.settings[WRITES_STARVED].value => {
                self.starved += 1;
                READ
            }
            (true, false) => READ,
            _ => {
                self.starved = 0;
                WRITE
            }
        };
        // The times are the first settings, in the order of the directions.
        self.waited(class, self.direction, self.direction, now_ns)
            .or_else(|| self.ahead(class, self.direction))
    }

    fn take(&mut self, class: usize, direction: usize, place: Place) -> Request {
        let class = &mut self.classes[class];
        class.given += 1;
        let request = class.waiting[direction].take(place);
        self.head = request.end();
        request
    }

    /// One that others have passed over for too long.
    fn next_aged(&mut self, now_ns: u64) -> Option<Request> {
        let above = self.classes.iter().position(Class::holds_back_others)?;
        for class in above + 1..CLASSES {
            for direction in [READ, WRITE] {
                if let Some(place) = self.waited(class, direction, PRIORITY_AGING_EXPIRE, now_ns) {
                    return Some(self.take(class, direction, place));
                }
            }
        }
        None
    }
}

impl Scheduler for Deadline {
    fn name(&self) -> &'static str {
        "mq-deadline"
    }

    fn reserve(&mut self) -> Result<()> {
        let mut sets = self.classes.iter_mut().flat_map(|class| &mut class.waiting);
        sets.try_for_each(Waiting::reserve)?;
        self.urgent.try_reserve(1).map_err(|_| Error::OutOfMemory)
    }

    fn insert(&mut self, mut request: Request, limits: &Limits) -> bool {
        let Some(direction) = direction_of(request.operation()) else {
            self.urgent.push_back(request);
            return false;
        };
        let waiting = &mut self.classes[request.priority().class() as usize].waiting[direction];
        let precedes = waiting.below(request.sector());
        let follows = waiting.at_or_above(request.end()).filter(|_| self.settings[FRONT_MERGES].value > 0);
        for neighbour in [precedes, follows].into_iter().flatten() {
            match waiting.change(neighbour, |waiting| waiting.absorb(request, limits)) {
                Ok(()) => return true,
                Err(back) => request = back,
            }
        }
        waiting.push(request);
        false
    }

    fn next(&mut self, now_ns: u64) -> Option<Request> {
        if let Some(request) = self.urgent.pop_front() {
            return Some(request);
        }
        if let Some(request) = self.next_aged(now_ns) {
            return Some(request);
        }
        let class = self.classes.iter().position(Class::holds_back_others)?;
        let goes_on = if self.left > 0 { self.ahead(class, self.direction) } else { None };
        let place = goes_on.or_else(|| self.begin_batch(class, now_ns))?;
        // A batch of 0 is one request, too.
        self.left = self.left.saturating_sub(1);
        Some(self.take(class, self.direction, place))
    }

    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.classes.iter().all(Class::is_empty)
    }

    fn settings(&mut self) -> &mut [Setting] {
        &mut self.settings
    }

    fn wants_completions(&self) -> bool {
        true
    }

    fn completed(&mut self, request: &Request, _now_ns: u64) {
        if direction_of(request.operation()).is_some() {
            let class = &mut self.classes[request.priority().class() as usize];
            debug_assert!(class.given > 0, "each request that was given ends once");
            class.given = class.given.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::{Bio, BioFlags, Memory};
    use alloc::vec::Vec;
    use sched::IoPriority;

    fn request(operation: Operation, sector: u64, submitted_ns: u64) -> Request {
        let memory = Memory::Owned(vec![0; 512]);
        let mut bio = Bio::single(operation, sector, memory, BioFlags::empty()).expect("a sector");
        bio.submitted_ns = submitted_ns;
        Request::new(Vec::with_capacity(1), bio)
    }

    fn with_class(class: IoClass, operation: Operation, sector: u64, submitted_ns: u64) -> Request {
        let memory = Memory::Owned(vec![0; 512]);
        let bio = Bio::single(operation, sector, memory, BioFlags::empty()).expect("a sector");
        let mut bio = bio.with_priority(IoPriority::new(class, 0));
        bio.submitted_ns = submitted_ns;
        Request::new(Vec::with_capacity(1), bio)
    }

    fn order(scheduler: &mut Deadline, now_ns: u64) -> Vec<(Operation, u64)> {
        core::iter::from_fn(|| scheduler.next(now_ns).map(|next| (next.operation(), next.sector()))).collect()
    }

    fn with(requests: impl IntoIterator<Item = Request>) -> Deadline {
        let mut scheduler = Deadline::default();
        for request in requests {
            scheduler.reserve().expect("there is memory");
            scheduler.insert(request, &Limits::of_size(1 << 20));
        }
        scheduler
    }

    #[test]
    fn reads_go_up_the_disk_before_writes() {
        let mut scheduler = with([
            request(Operation::Write, 5, 0),
            request(Operation::Read, 90, 0),
            request(Operation::Read, 10, 0),
        ]);
        let expected = [(Operation::Read, 10), (Operation::Read, 90), (Operation::Write, 5)];
        assert_eq!(order(&mut scheduler, 0), expected);
    }

    #[test]
    fn an_expired_read_begins_the_batch() {
        let mut scheduler =
            with([request(Operation::Read, 90, 0), request(Operation::Read, 10, 900_000_000)]);
        assert_eq!(order(&mut scheduler, 1_000_000_000)[0], (Operation::Read, 90));
    }

    #[test]
    fn writes_are_not_starved_by_a_stream_of_reads() {
        let mut scheduler = with([request(Operation::Write, 5, 0)]);
        let mut served = 0;
        for sector in 0..200 {
            scheduler.reserve().expect("there is memory");
            scheduler.insert(request(Operation::Read, 1000 + 2 * sector, 0), &Limits::of_size(1 << 20));
            served += 1;
            if scheduler.next(0).expect("there are requests").operation() == Operation::Write {
                break;
            }
        }
        let most = SETTINGS[FIFO_BATCH].value * (SETTINGS[WRITES_STARVED].value + 1);
        assert!(served <= most, "the write waited for {served} requests");
    }

    #[test]
    fn neighbours_become_one_request() {
        let mut scheduler = with([
            request(Operation::Write, 5, 0),
            request(Operation::Write, 7, 0),
            request(Operation::Write, 6, 0),
        ]);
        assert_eq!(order(&mut scheduler, 0)[0], (Operation::Write, 5));
    }

    fn set(scheduler: &mut Deadline, name: &str, value: u32) {
        let setting = scheduler.settings().iter_mut().find(|setting| setting.name == name);
        setting.expect("a setting of that name").value = value;
    }

    #[test]
    fn front_merges_can_be_forbidden() {
        for allowed in [0, 1] {
            let mut scheduler = with([request(Operation::Write, 7, 0)]);
            set(&mut scheduler, "front_merges", allowed);
            scheduler.reserve().expect("there is memory");
            let merged = scheduler.insert(request(Operation::Write, 6, 0), &Limits::of_size(1 << 20));
            assert_eq!(merged, allowed == 1);
            assert_eq!(order(&mut scheduler, 0).len(), if merged { 1 } else { 2 });
        }
    }

    #[test]
    fn how_long_a_request_waits_at_most_can_be_set() {
        let mut scheduler = with([request(Operation::Read, 90, 0), request(Operation::Read, 10, 3_000_000)]);
        set(&mut scheduler, "read_expire", 3);
        assert_eq!(order(&mut scheduler, 4_000_000)[0], (Operation::Read, 90));
    }

    #[test]
    fn a_batch_has_as_many_as_is_set_and_one_at_least() {
        for (batch, expected) in [(0, 1), (1, 1), (3, 3)] {
            let reads = (0..10).map(|index| request(Operation::Read, 2 * index, 0));
            let mut scheduler = with(reads.chain([request(Operation::Write, 1000, 0)]));
            set(&mut scheduler, "fifo_batch", batch);
            set(&mut scheduler, "writes_starved", 1);
            let served = order(&mut scheduler, 0);
            let reads = served.iter().position(|(operation, _)| *operation == Operation::Write);
            assert_eq!(reads, Some(expected));
        }
    }

    #[test]
    fn old_writes_do_not_starve_reads() {
        let writes = (0..100).map(|index| request(Operation::Write, 2 * index, 0));
        let mut scheduler = with(writes.chain([request(Operation::Read, 1000, 0)]));
        assert_eq!(order(&mut scheduler, u64::MAX)[0], (Operation::Read, 1000));
    }

    #[test]
    fn a_class_waits_until_the_driver_has_ended_what_is_above_it() {
        let mut scheduler = with([
            with_class(IoClass::Idle, Operation::Read, 1, 0),
            with_class(IoClass::BestEffort, Operation::Read, 5, 0),
            with_class(IoClass::RealTime, Operation::Write, 9, 0),
        ]);
        for sector in [9, 5, 1] {
            let given = scheduler.next(0).expect("the most urgent is served");
            assert_eq!(given.sector(), sector);
            assert!(scheduler.next(0).is_none(), "nothing less urgent goes along");
            assert_eq!(scheduler.is_empty(), sector == 1);
            scheduler.completed(&given, 0);
        }
        assert!(scheduler.next(0).is_none());
    }

    #[test]
    fn what_was_passed_over_for_too_long_goes_first() {
        let mut scheduler = with([
            with_class(IoClass::Idle, Operation::Write, 1, 0),
            with_class(IoClass::BestEffort, Operation::Read, 5, 0),
            with_class(IoClass::BestEffort, Operation::Read, 50, 0),
        ]);
        set(&mut scheduler, "prio_aging_expire", 20);
        assert_eq!(scheduler.next(19_999_999).expect("there are reads").sector(), 5);
        assert_eq!(scheduler.next(20_000_000).expect("there are requests").sector(), 1);
        assert_eq!(scheduler.next(20_000_000).expect("there is a read").sector(), 50);
    }

    #[test]
    fn of_a_device_that_is_gone_all_comes_at_once() {
        let classes = [IoClass::Idle, IoClass::BestEffort, IoClass::RealTime];
        let mut scheduler = with(classes.map(|class| with_class(class, Operation::Write, 1, 0)));
        assert_eq!(order(&mut scheduler, u64::MAX).len(), classes.len());
        assert!(scheduler.is_empty());
    }

    #[test]
    fn neighbours_of_different_urgency_stay_apart() {
        let level = |level, sector| {
            let memory = Memory::Owned(vec![0; 512]);
            let bio = Bio::single(Operation::Write, sector, memory, BioFlags::empty()).expect("a sector");
            let bio = bio.with_priority(IoPriority::new(IoClass::BestEffort, level));
            Request::new(Vec::with_capacity(1), bio)
        };
        let mut scheduler = with([level(4, 5), level(4, 6), level(5, 7), level(5, 8)]);
        assert_eq!(order(&mut scheduler, 0), [(Operation::Write, 5), (Operation::Write, 7)]);
    }
}
