//! What accounts may transfer to and from a device in a second, and what they have transferred (`io.max`, `io.stat` of control groups).
//!
//! # Whose a transfer is
//! Who pays for the memory that it moves ([`memory::charge`]), which for pages of files that are written back later is who touched them first; for a transfer without such memory it is
//! who submits it. All accounts above that one have a part in it.
//!
//! # Pace
//! For each limit of an account there is a moment from which on the next transfer may begin. Each transfer moves that moment on by what it costs: its bytes, or itself, divided by what
//! may go in a second. So the first one begins at once, and in the long run no more passes than is allowed. A transfer begins when all accounts above its payer permit; until then
//! it is *held*, here, before anything else of the queue has seen it, in the order of those moments. A timer lets it go.
//!
//! A file system's own structures are not held, because others wait for them; what they cost holds up what comes after. Flushes and discards are not limited.
//!
//! When a limit changes, its moment is now, and what is held because of it gets another one.
//!
//! # What it costs
//! A transfer that nobody pays for looks at one word. Others take a lock of the device for each account above.

use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::{Ordering as Order, Reverse};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memory::charge::AccountNumber;
use memory::fallible;
use sched::timer::Timer;
use sched::work::Work;
use sync::{Once, SpinLock};

use crate::bio::{Bio, BioFlags, Operation, SECTOR_BYTES};
use crate::queue::Queue;
use crate::{Error, Result};

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;

const SECOND_NS: u64 = 1_000_000_000;

/// What can be limited, in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Bytes read.
    ReadBytes,
    /// Bytes written.
    WriteBytes,
    /// Reads.
    Reads,
    /// Writes.
    Writes,
}

/// Limits of an account on a device, by [`Rate`].
pub type Rates = [u64; 4];

/// What an account has transferred: bytes and transfers, of reads, writes and discards.
pub type Transferred = [(u64, u64); 3];

/// An account on a device.
struct Node {
    account: AccountNumber,
    /// Written by who sets them.
    rates: [AtomicU64; 4],
    /// From when on the next transfer may begin, by rate, ns since boot.
    moments_ns: SpinLock<[u64; 4]>,
    transferred: [(AtomicU64, AtomicU64); 3],
}

/// A transfer that must wait.
struct Held {
    due_ns: u64,
    /// The order of those that are due at the same time.
    turn: u64,
    /// Whose limit says so.
    by: AccountNumber,
    bio: Bio,
}

impl Held {
    fn key(&self) -> (u64, u64) {
        (self.due_ns, self.turn)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Order {
        self.key().cmp(&other.key())
    }
}

/// Those that wait for a device, the first one on top.
#[derive(Default)]
struct Waiting {
    held: BinaryHeap<Reverse<Held>>,
    turns: u64,
}

/// What a device knows of accounts. See the theory of this file.
pub(crate) struct Control {
    nodes: SpinLock<Vec<Arc<Node>>>,
    waiting: SpinLock<Waiting>,
    /// Made when the first limit is set.
    timer: Once<Arc<Timer>>,
}

/// What a transfer counts as: its place among [`Transferred`].
fn kind(operation: Operation) -> Option<usize> {
    match operation {
        Operation::Read => Some(0),
        Operation::Write | Operation::WriteZeroes => Some(1),
        Operation::Discard => Some(2),
        Operation::Flush => None,
    }
}

impl Node {
    fn rates(&self) -> Rates {
        core::array::from_fn(|rate| self.rates[rate].load(Relaxed))
    }

    fn count(&self, bio: &Bio) {
        if let Some(kind) = kind(bio.operation) {
            let (bytes, number) = &self.transferred[kind];
            bytes.fetch_add(bio.sectors * SECTOR_BYTES as u64, Relaxed);
            number.fetch_add(1, Relaxed);
        }
    }

    /// When the transfer may begin as far as this account is asked; that is taken off what comes after.
    fn begin_ns(&self, bio: &Bio, now_ns: u64) -> u64 {
        let (of_bytes, of_number) = match bio.operation {
            Operation::Read => (Rate::ReadBytes, Rate::Reads),
            Operation::Write | Operation::WriteZeroes => (Rate::WriteBytes, Rate::Writes),
            Operation::Discard | Operation::Flush => return now_ns,
        };
        let bytes = bio.sectors * SECTOR_BYTES as u64;
        let mut begin_ns = now_ns;
        for (rate, amount) in [(of_bytes, bytes), (of_number, 1)] {
            let limit = self.rates[rate as usize].load(Relaxed);
            if limit == UNLIMITED {
                continue;
            }
            let mut moments = self.moments_ns.lock();
            let moment = &mut moments[rate as usize];
            let from = (*moment).max(now_ns);
            *moment = from.saturating_add(amount.saturating_mul(SECOND_NS) / limit.max(1));
            begin_ns = begin_ns.max(from);
        }
        begin_ns
    }
}

impl Control {
    pub(crate) const fn new() -> Self {
        Self {
            nodes: SpinLock::named("accounts of a disk", Vec::new()),
            waiting: SpinLock::named(
                "transfers that accounts hold back",
                Waiting { held: BinaryHeap::new(), turns: 0 },
            ),
            timer: Once::new(),
        }
    }

    fn find(&self, account: AccountNumber) -> Option<Arc<Node>> {
        let nodes = self.nodes.lock();
        nodes.iter().find(|node| node.account == account).cloned()
    }

    /// The account's node, which is made if there is none and its group was not removed.
    fn node(&self, account: AccountNumber) -> Result<Option<Arc<Node>>> {
        if let Some(found) = self.find(account) {
            return Ok(Some(found));
        }
        let fresh = fallible::try_arc(Node {
            account,
            rates: [const { AtomicU64::new(UNLIMITED) }; 4],
            moments_ns: SpinLock::named("pace of an account", [0; 4]),
            transferred: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; 3],
        })?;
        let mut nodes = self.nodes.lock();
        if let Some(found) = nodes.iter().find(|node| node.account == account) {
            return Ok(Some(found.clone()));
        }
        // Under the lock: who forgets the account has closed it before.
        if !account.is_open() {
            return Ok(None);
        }
        fallible::try_push(&mut nodes, fresh.clone())?;
        Ok(Some(fresh))
    }

    /// The transfer, if it may begin now; else it is held. One for which there is no memory to hold it begins.
    pub(crate) fn admit(&self, bio: Bio, now_ns: u64) -> Option<Bio> {
        let Some(payer) = bio.payer() else { return Some(bio) };
        let (mut due_ns, mut by) = (now_ns, payer);
        for account in payer.upwards() {
            let Ok(Some(node)) = self.node(account) else { continue };
            node.count(&bio);
            let begin_ns = node.begin_ns(&bio, now_ns);
            if begin_ns > due_ns {
                (due_ns, by) = (begin_ns, account);
            }
        }
        let (Some(timer), false) = (self.timer.get(), due_ns <= now_ns) else { return Some(bio) };
        if bio.flags.contains(BioFlags::METADATA) {
            return Some(bio);
        }
        let mut waiting = self.waiting.lock();
        if waiting.held.try_reserve(1).is_err() {
            return Some(bio);
        }
        waiting.turns += 1;
        let turn = waiting.turns;
        waiting.held.push(Reverse(Held { due_ns, turn, by, bio }));
        let first_ns = waiting.held.peek().map_or(due_ns, |first| first.0.due_ns);
        drop(waiting);
        timer.arm(first_ns);
        None
    }

    /// The next one that is due.
    fn take_due(&self, now_ns: u64) -> Option<Bio> {
        let mut waiting = self.waiting.lock();
        let due = waiting.held.peek().is_some_and(|first| first.0.due_ns <= now_ns);
        if due { waiting.held.pop().map(|first| first.0.bio) } else { None }
    }

    fn arm_for_next(&self) {
        let next_ns = self.waiting.lock().held.peek().map(|first| first.0.due_ns);
        if let (Some(timer), Some(next_ns)) = (self.timer.get(), next_ns) {
            timer.arm(next_ns);
        }
    }

    /// Nothing is held any more because of an account.
    fn unlimit(&self, node: &Node, now_ns: u64) {
        node.rates.iter().for_each(|rate| rate.store(UNLIMITED, Relaxed));
        self.change_pace(node, now_ns);
    }

    /// A limit of the account has changed: what it holds is held as the new one says.
    fn change_pace(&self, node: &Node, now_ns: u64) {
        *node.moments_ns.lock() = [now_ns; 4];
        let mut waiting = self.waiting.lock();
        // The last one first; those of one account are due in the order in which they came, and shall be so again.
        let mut held = core::mem::take(&mut waiting.held).into_sorted_vec();
        for Reverse(held) in held.iter_mut().rev().filter(|held| held.0.by == node.account) {
            held.due_ns = node.begin_ns(&held.bio, now_ns);
        }
        waiting.held = BinaryHeap::from(held);
    }
}

/// After so long it is tried again to have a worker let go what is due.
const RETRY_NS: u64 = 10_000_000;

/// Has a worker let go what is due.
fn release_soon(queue: Arc<Queue>) {
    match Work::prepare(|queue: Arc<Queue>| queue.release_held(machine::time::now_ns())) {
        Ok(work) => work.queue(queue),
        Err(_) => {
            if let Some(timer) = queue.control.timer.get() {
                timer.arm(machine::time::now_ns() + RETRY_NS);
            }
        }
    }
}

impl Queue {
    /// Lets go what is due.
    pub(crate) fn release_held(self: &Arc<Self>, now_ns: u64) {
        while let Some(bio) = self.control.take_due(now_ns) {
            if self.is_gone() {
                bio.finish(Err(Error::NoDevice));
            } else {
                self.pass(bio);
            }
        }
        self.control.arm_for_next();
    }

    /// What an account may transfer.
    pub fn rates(&self, account: AccountNumber) -> Rates {
        self.control.find(account).map_or([UNLIMITED; 4], |node| node.rates())
    }

    /// Sets that. Somebody refers to the account.
    ///
    /// # Errors
    /// No memory; [`Error::NoDevice`] if the account's group was removed.
    pub fn set_rates(self: &Arc<Self>, account: AccountNumber, rates: Rates) -> Result<()> {
        if self.control.timer.get().is_none() {
            let queue = Arc::downgrade(self);
            let look = move || {
                if let Some(queue) = queue.upgrade() {
                    release_soon(queue);
                }
            };
            let timer = Timer::new(fallible::try_box(look)?)?;
            self.control.timer.call_once(|| timer);
        }
        let node = self.control.node(account)?.ok_or(Error::NoDevice)?;
        for (place, rate) in node.rates.iter().zip(rates) {
            place.store(rate, Relaxed);
        }
        let now_ns = machine::time::now_ns();
        self.control.change_pace(&node, now_ns);
        // Who removes the group closes the account first: either it is seen here, or he has yet to look for the node.
        let is_open = account.is_open();
        if !is_open {
            self.control.unlimit(&node, now_ns);
        }
        self.release_held(now_ns);
        if is_open { Ok(()) } else { Err(Error::NoDevice) }
    }

    /// What an account and those below have transferred; none if nothing.
    pub fn transferred(&self, account: AccountNumber) -> Option<Transferred> {
        let node = self.control.find(account)?;
        let load = |(bytes, number): &(AtomicU64, AtomicU64)| (bytes.load(Relaxed), number.load(Relaxed));
        Some(core::array::from_fn(|kind| load(&node.transferred[kind])))
    }

    /// The account's group was removed, and the account closed: its limits hold no more.
    pub fn forget_account(self: &Arc<Self>, account: AccountNumber) {
        let node = {
            let mut nodes = self.control.nodes.lock();
            let place = nodes.iter().position(|node| node.account == account);
            place.map(|place| nodes.swap_remove(place))
        };
        if let Some(node) = node {
            let now_ns = machine::time::now_ns();
            self.control.unlimit(&node, now_ns);
            self.release_held(now_ns);
        }
    }

    /// How many transfers are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.control.waiting.lock().held.len()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicUsize;

    use memory::charge::{Account, pay_with};

    use super::*;
    use crate::{Memory, RamDisk};

    /// Beyond anything that the timers of a test look at.
    const START_NS: u64 = 1 << 50;

    struct Scene {
        queue: Arc<Queue>,
        done: Arc<AtomicUsize>,
    }

    impl Scene {
        fn new() -> Self {
            let disk = Arc::new(RamDisk::new(1000).expect("memory"));
            Self { queue: Queue::new(disk).expect("memory"), done: Arc::default() }
        }

        /// A transfer of a page that comes at a moment.
        fn submit(&self, payer: &Account, operation: Operation, flags: BioFlags, at_ns: u64) -> bool {
            let former = pay_with(Some(payer.clone()));
            let done = self.done.clone();
            let bio = Bio::single(operation, 0, Memory::Owned(vec![0; 4096]), flags).expect("whole sectors");
            let mut bio = bio.on_done(move |_, _| _ = done.fetch_add(1, Relaxed)).expect("memory");
            bio.attribute();
            drop(pay_with(former));
            let admitted = self.queue.control.admit(bio, at_ns);
            let begins = admitted.is_some();
            admitted.into_iter().for_each(|bio| self.queue.pass(bio));
            begins
        }

        fn read(&self, payer: &Account, at_ns: u64) -> bool {
            self.submit(payer, Operation::Read, BioFlags::empty(), at_ns)
        }

        fn release(&self, at_ns: u64) -> usize {
            self.queue.release_held(at_ns);
            self.done.load(Relaxed)
        }
    }

    fn account(parent: Option<&Account>) -> Account {
        Account::new(parent).expect("memory")
    }

    #[test]
    fn no_more_passes_in_a_second_than_is_allowed() {
        let (scene, payer) = (Scene::new(), account(None));
        scene.queue.set_rates(payer.number(), [8192, UNLIMITED, UNLIMITED, UNLIMITED]).expect("memory");
        let came: Vec<bool> = (0..5).map(|_| scene.read(&payer, START_NS)).collect();
        assert_eq!(came, [true, false, false, false, false]);
        assert!(
            scene.submit(&payer, Operation::Write, BioFlags::empty(), START_NS),
            "writes are not limited"
        );
        let after = |half_seconds: u64| scene.release(START_NS + half_seconds * SECOND_NS / 2);
        assert_eq!([after(0), after(1), after(2), after(3), after(4)], [2, 3, 4, 5, 6]);
        assert_eq!(scene.queue.transferred(payer.number()), Some([(5 * 4096, 5), (4096, 1), (0, 0)]));
    }

    #[test]
    fn limits_above_hold_for_all_below() {
        let (scene, top) = (Scene::new(), account(None));
        let (one, other) = (account(Some(&top)), account(Some(&top)));
        scene.queue.set_rates(top.number(), [UNLIMITED, UNLIMITED, 2, UNLIMITED]).expect("memory");
        assert!(scene.read(&one, START_NS));
        assert!(!scene.read(&other, START_NS));
        assert_eq!(scene.release(START_NS + SECOND_NS / 2), 2);
        let stranger = account(None);
        assert!(scene.read(&stranger, START_NS), "it is not below");
    }

    #[test]
    fn a_new_limit_holds_for_what_is_held() {
        let (scene, payer) = (Scene::new(), account(None));
        scene.queue.set_rates(payer.number(), [1, UNLIMITED, UNLIMITED, UNLIMITED]).expect("memory");
        assert!(scene.read(&payer, START_NS));
        assert!(!scene.read(&payer, START_NS) && !scene.read(&payer, START_NS));
        scene.queue.set_rates(payer.number(), [UNLIMITED; 4]).expect("memory");
        assert_eq!((scene.queue.held(), scene.release(START_NS)), (0, 3));
    }

    #[test]
    fn what_a_removed_group_had_to_wait_for_begins() {
        let (scene, payer) = (Scene::new(), account(None));
        scene.queue.set_rates(payer.number(), [1, UNLIMITED, UNLIMITED, UNLIMITED]).expect("memory");
        assert!(scene.read(&payer, START_NS) && !scene.read(&payer, START_NS));
        payer.close();
        scene.queue.forget_account(payer.number());
        assert_eq!(scene.queue.held(), 0);
        assert!(scene.read(&payer, START_NS), "who comes later finds no limit");
        assert_eq!(scene.queue.transferred(payer.number()), None);
        assert_eq!(
            scene.queue.set_rates(payer.number(), [1; 4]),
            Err(Error::NoDevice),
            "its number may soon be another group's"
        );
    }

    #[test]
    fn a_limit_that_is_set_while_its_group_is_removed_holds_nothing_for_good() {
        let (scene, payer) = (Scene::new(), account(None));
        scene.queue.set_rates(payer.number(), [UNLIMITED; 4]).expect("memory");
        // Who sets the limit has found the account before it was closed, and goes on afterwards.
        payer.close();
        assert_eq!(scene.queue.set_rates(payer.number(), [1; 4]), Err(Error::NoDevice));
        assert!(scene.read(&payer, START_NS) && scene.read(&payer, START_NS), "nobody could take it back");
        scene.queue.forget_account(payer.number());
        assert_eq!(scene.queue.held(), 0);
    }

    #[test]
    fn a_file_systems_own_structures_go_and_others_wait_the_longer() {
        let (scene, payer) = (Scene::new(), account(None));
        scene.queue.set_rates(payer.number(), [UNLIMITED, UNLIMITED, UNLIMITED, 1]).expect("memory");
        let write = |flags| scene.submit(&payer, Operation::Write, flags, START_NS);
        assert!(write(BioFlags::METADATA) && write(BioFlags::METADATA));
        assert!(!write(BioFlags::empty()));
        assert_eq!(scene.release(START_NS + SECOND_NS), 2);
        assert_eq!(scene.release(START_NS + 2 * SECOND_NS), 3);
    }

    #[test]
    fn what_is_held_fails_when_the_device_is_gone() {
        let (scene, payer) = (Scene::new(), account(None));
        scene.queue.set_rates(payer.number(), [1; 4]).expect("memory");
        assert!(scene.read(&payer, START_NS) && !scene.read(&payer, START_NS));
        scene.queue.remove();
        assert_eq!((scene.queue.held(), scene.done.load(Relaxed)), (0, 2));
    }
}
