//! Hardware breakpoints, the same on all processors: each arms its own when it leaves the debugger.
//!
//! Tests have them counted instead: then a hit stops nobody.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use machine::address::VirtAddr;
use machine::cpu::{self, CpuId};
use machine::debugger::{self, Access, WATCHES};
use sync::{PerCpu, per_cpu};

/// A breakpoint: the address, and 1 + the access; 0 is none.
struct Watch {
    address: AtomicU64,
    access: AtomicU64,
}

static CHOSEN: [Watch; WATCHES] =
    [const { Watch { address: AtomicU64::new(0), access: AtomicU64::new(0) } }; WATCHES];
/// Counts the changes of [`CHOSEN`]; and which one each processor has armed.
static CHANGES: AtomicU64 = AtomicU64::new(0);
static ARMED: PerCpu<AtomicU64> = per_cpu!(AtomicU64::new(0));

static COUNTING: AtomicBool = AtomicBool::new(false);
static HITS: PerCpu<[AtomicU64; WATCHES]> = per_cpu!([const { AtomicU64::new(0) }; WATCHES]);

const ACCESSES: [Access; 3] = [Access::Execute, Access::Write, Access::ReadWrite];

/// Has hits counted instead of stopping the processors, from now on or no longer. Begins at 0.
pub fn count_hits(on: bool) {
    HITS.iter().flatten().for_each(|hits| hits.store(0, Relaxed));
    COUNTING.store(on, Relaxed);
}

/// How often a processor has hit a breakpoint since counting began.
pub fn hits(of: CpuId, index: usize) -> u64 {
    HITS.of(of)[index].load(Relaxed)
}

/// Counts what this processor has hit; false if hits are not counted.
pub(super) fn count(hit: u64) -> bool {
    if !COUNTING.load(Relaxed) {
        return false;
    }
    for (index, hits) in HITS.of(cpu::current()).iter().enumerate() {
        hits.fetch_add(hit >> index & 1, Relaxed);
    }
    true
}

/// Chooses a breakpoint for all processors; None takes it away. The first free place if `index` is none.
pub(super) fn choose(index: Option<usize>, watch: Option<(u64, Access)>) -> Option<usize> {
    let free = || CHOSEN.iter().position(|watch| watch.access.load(Relaxed) == 0);
    let index = index.or_else(free).filter(|index| *index < WATCHES)?;
    let number = watch.and_then(|(_, access)| ACCESSES.iter().position(|known| *known == access));
    CHOSEN[index].address.store(watch.map_or(0, |(address, _)| address), Relaxed);
    CHOSEN[index].access.store(number.map_or(0, |number| number as u64 + 1), Relaxed);
    CHANGES.fetch_add(1, Relaxed);
    Some(index)
}

/// What was chosen.
pub(super) fn chosen() -> impl Iterator<Item = (usize, u64, Access)> {
    CHOSEN.iter().enumerate().filter_map(|(index, watch)| {
        let number = watch.access.load(Relaxed).checked_sub(1)?;
        Some((index, watch.address.load(Relaxed), *ACCESSES.get(number as usize)?))
    })
}

/// Arms on this processor what was chosen, if that has changed; says whether.
pub(super) fn apply() -> bool {
    let changes = CHANGES.load(Relaxed);
    let armed = ARMED.of(cpu::current());
    if armed.swap(changes, Relaxed) == changes {
        return false;
    }
    (0..WATCHES).for_each(|index| debugger::set_watch(index, None));
    for (index, address, access) in chosen() {
        debugger::set_watch(index, Some((VirtAddr::new(address), access)));
    }
    true
}
