//! Requests in the order of their sectors, with a limit on waiting: the scheduler `mq-deadline`.
//!
//! Reads and writes wait in two lists sorted by sector. A batch takes up to [`BATCH`] requests of one direction in ascending order
//! from where the last one ended. A new batch reads if anything is to be read, except that writes which were passed over
//! [`WRITES_STARVED`] times, or the oldest of which is too old, come first; it starts at the direction's oldest request if that
//! one's time is over. Operations without data and their like are served in their order before all others.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use memory::fallible;

use super::interface::Scheduler;
use crate::bio::Operation;
use crate::driver::Limits;
use crate::request::Request;
use crate::{Error, Result};

/// Requests of one direction in a row.
const BATCH: u32 = 16;
/// How often writes are passed over by reads.
const WRITES_STARVED: u32 = 2;
/// How long a read, a write may wait.
const EXPIRES_NS: [u64; 2] = [500_000_000, 5_000_000_000];

const READ: usize = 0;
const WRITE: usize = 1;

/// See the theory of this file.
#[derive(Default)]
pub struct Deadline {
    /// By sector.
    sorted: [Vec<Request>; 2],
    urgent: VecDeque<Request>,
    direction: usize,
    /// How many more the batch may take.
    left: u32,
    starved: u32,
    /// Where the last request ended.
    head: u64,
}

impl Deadline {
    fn oldest(&self, direction: usize) -> Option<usize> {
        let list = &self.sorted[direction];
        (0..list.len()).min_by_key(|&index| list[index].submitted_ns())
    }

    fn expired(&self, direction: usize, now_ns: u64) -> Option<usize> {
        let index = self.oldest(direction)?;
        let waited_ns = now_ns.saturating_sub(self.sorted[direction][index].submitted_ns());
        (waited_ns >= EXPIRES_NS[direction]).then_some(index)
    }

    /// The next in ascending order from the head, or the lowest.
    fn ahead(&self, direction: usize) -> usize {
        let index = self.sorted[direction].partition_point(|request| request.sector() < self.head);
        if index == self.sorted[direction].len() { 0 } else { index }
    }

    fn begin_batch(&mut self, now_ns: u64) -> Option<usize> {
        let reads = !self.sorted[READ].is_empty();
        let writes = !self.sorted[WRITE].is_empty();
        self.left = BATCH;
        let writes_due = self.starved >= WRITES_STARVED || self.expired(WRITE, now_ns).is_some();
        self.direction = match (reads, writes) {
            (false, false) => return None,
            (true, true) if !writes_due => {
                self.starved += 1;
                READ
            }
            (true, false) => READ,
            _ => {
                self.starved = 0;
                WRITE
            }
        };
        Some(self.expired(self.direction, now_ns).unwrap_or_else(|| self.ahead(self.direction)))
    }
}

impl Scheduler for Deadline {
    fn name(&self) -> &'static str {
        "mq-deadline"
    }

    fn reserve(&mut self) -> Result<()> {
        for list in &mut self.sorted {
            fallible::try_reserve(list, 1)?;
        }
        self.urgent.try_reserve(2).map_err(|_| Error::OutOfMemory)
    }

    fn insert(&mut self, mut request: Request, limits: &Limits) -> bool {
        let direction = match request.operation() {
            Operation::Read => READ,
            Operation::Write => WRITE,
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => {
                self.urgent.push_back(request);
                return false;
            }
        };
        let list = &mut self.sorted[direction];
        let index = list.partition_point(|waiting| waiting.sector() < request.sector());
        for neighbour in [index.checked_sub(1), Some(index)].into_iter().flatten() {
            if let Some(waiting) = list.get_mut(neighbour) {
                match waiting.absorb(request, limits) {
                    Ok(()) => return true,
                    Err(back) => request = back,
                }
            }
        }
        list.insert(index, request);
        false
    }

    fn put_back(&mut self, request: Request) {
        self.urgent.push_front(request);
    }

    fn next(&mut self, now_ns: u64) -> Option<Request> {
        if let Some(request) = self.urgent.pop_front() {
            return Some(request);
        }
        let goes_on = self.left > 0 && !self.sorted[self.direction].is_empty();
        let index = if goes_on { self.ahead(self.direction) } else { self.begin_batch(now_ns)? };
        self.left -= 1;
        let request = self.sorted[self.direction].remove(index);
        self.head = request.end();
        Some(request)
    }

    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.sorted.iter().all(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::{Bio, BioFlags, Memory};

    fn request(operation: Operation, sector: u64, submitted_ns: u64) -> Request {
        let memory = Memory::Owned(vec![0; 512]);
        let mut bio = Bio::single(operation, sector, memory, BioFlags::empty()).expect("a sector");
        bio.submitted_ns = submitted_ns;
        Request::new(Vec::with_capacity(1), bio, 0)
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
            with([request(Operation::Read, 10, 900_000_000), request(Operation::Read, 90, 0)]);
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
        assert!(served <= BATCH * (WRITES_STARVED + 1), "the write waited for {served} requests");
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
}
