//! Tests of address spaces with the real hardware walking the tables: threads that have an address space access it
//! through `machine::user_memory`, on every processor.

use super::kit::{self, join};
use super::{Failure, HANG_NS, Outcome, Test, check, fail};
use ::machine::address::{PAGE_SIZE, UserAddr};
use ::machine::cpu::{self, CpuId, CpuSet};
use ::machine::fault::Fault;
use ::machine::{time, user_memory};
use ::memory::address_space::{AddressSpace, MapFlags, MapRequest, Protection};
use ::memory::buffer::{Sink, Source};
use ::memory::file_cache::{CacheKind, FileCache};
use ::memory::region::FileMapping;
use ::memory::statistics;
use ::sched::{Builder, Completion};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "address_space::pages_appear_when_touched", run: pages_appear_when_touched },
    Test { name: "address_space::forbidden_accesses_fault", run: forbidden_accesses_fault },
    Test { name: "address_space::stores_after_a_fork_are_private", run: stores_after_a_fork_are_private },
    Test {
        name: "address_space::file_pages_go_through_user_buffers",
        run: file_pages_go_through_user_buffers,
    },
    Test {
        name: "address_space::no_processor_keeps_an_unmapped_page",
        run: no_processor_keeps_an_unmapped_page,
    },
    Test { name: "address_space::no_store_escapes_a_fork", run: no_store_escapes_a_fork },
    Test { name: "address_space::idle_processors_catch_up", run: idle_processors_catch_up },
    Test { name: "address_space::everything_comes_back", run: everything_comes_back },
];

const READ_WRITE: Protection = Protection::READ.union(Protection::WRITE);
const PAGE: u64 = PAGE_SIZE as u64;
const PLACE: u64 = 0x4000_0000;
/// Rounds of the races: enough for a timer interrupt to fall into some of them.
const ROUNDS: u32 = 200;

fn space() -> Result<Arc<AddressSpace>, Failure> {
    match AddressSpace::new() {
        Ok(space) => Ok(space),
        Err(error) => fail!("{error:?}"),
    }
}

fn map(space: &AddressSpace, pages: u64, address: u64) -> Outcome {
    let request = MapRequest::anonymous(pages * PAGE, READ_WRITE).at(UserAddr::new(address));
    match space.map(request) {
        Ok(_) => Ok(()),
        Err(error) => fail!("mapping: {error:?}"),
    }
}

/// Starts a thread in an address space on certain processors; the completion tells of its end.
fn spawn(
    space: &Arc<AddressSpace>,
    affinity: CpuSet,
    body: impl FnOnce() + Send + 'static,
) -> Result<Arc<Completion>, Failure> {
    let builder = Builder { address_space: Some(space.clone()), ..kit::on(affinity) };
    Ok(kit::spawn(builder, body)?.1)
}

/// Runs a body in an address space and waits for its end.
fn run_in(space: &Arc<AddressSpace>, body: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let outcome = Arc::new(::sync::SpinLock::new(Ok(())));
    let result = outcome.clone();
    let done = spawn(space, cpu::online(), move || {
        let ended = body();
        *result.lock() = ended;
    })?;
    join(&done)?;
    core::mem::replace(&mut *outcome.lock(), Ok(()))
}

fn load(address: u64) -> Result<u32, Fault> {
    user_memory::load_u32(UserAddr::new(address))
}

fn store(address: u64, value: u32) -> Result<(), Fault> {
    user_memory::write(UserAddr::new(address), &value.to_ne_bytes())
}

fn pages_appear_when_touched() -> Outcome {
    let space = space()?;
    map(&space, 1000, PLACE)?;
    run_in(&space, || {
        for page in (0..1000).step_by(3) {
            let address = PLACE + page * PAGE;
            check!(load(address) == Ok(0), "fresh memory is zero");
            check!(store(address, page as u32) == Ok(()), "page {page} can be stored to");
        }
        for page in (0..1000).step_by(3) {
            check!(load(PLACE + page * PAGE) == Ok(page as u32), "page {page} kept its word");
        }
        Ok(())
    })?;
    let usage = space.usage();
    check!(usage.private_pages == 334, "{} pages are private", usage.private_pages);
    Ok(())
}

fn forbidden_accesses_fault() -> Outcome {
    let space = space()?;
    map(&space, 3, PLACE)?;
    let inner = space.clone();
    run_in(&space, move || {
        check!(store(PLACE, 1) == Ok(()), "a store is allowed at first");
        check!(load(PLACE - PAGE) == Err(Fault) && load(PLACE + 3 * PAGE) == Err(Fault), "nothing around it");
        for (protection, readable) in
            [(Protection::READ, true), (Protection::empty(), false), (READ_WRITE, true)]
        {
            check!(inner.protect(UserAddr::new(PLACE), PAGE, protection).is_ok(), "mprotect");
            let writable = protection == READ_WRITE;
            check!(store(PLACE, 1).is_ok() == writable, "stores under {protection:?}");
            check!((load(PLACE) == Ok(1)) == readable, "loads under {protection:?}");
        }
        check!(load(0) == Err(Fault) && load(0x7fff_ffff_f000) == Err(Fault), "null and the end");
        Ok(())
    })
}

fn stores_after_a_fork_are_private() -> Outcome {
    let parent = space()?;
    map(&parent, 8, PLACE)?;
    run_in(&parent, || {
        (0..8).for_each(|page| assert_eq!(store(PLACE + page * PAGE, 1), Ok(())));
        Ok(())
    })?;
    let Ok(child) = parent.fork() else { fail!("fork") };
    run_in(&child, || {
        check!(load(PLACE) == Ok(1), "the child sees the parent's stores");
        check!(store(PLACE, 2) == Ok(()) && load(PLACE) == Ok(2), "and its own");
        Ok(())
    })?;
    run_in(&parent, || {
        check!(load(PLACE) == Ok(1), "the parent does not see the child's store");
        check!(store(PLACE + PAGE, 3) == Ok(()), "a store in the parent");
        Ok(())
    })?;
    run_in(&child, || {
        check!(load(PLACE + PAGE) == Ok(1), "the child does not see the parent's store");
        Ok(())
    })
}

fn file_pages_go_through_user_buffers() -> Outcome {
    let space = space()?;
    let cache = Arc::new(FileCache::new(CacheKind::SharedMemory));
    let file = Arc::new(FileMapping::new(cache.clone(), None));
    check!(cache.truncate(4 * PAGE).is_ok(), "truncate");
    map(&space, 4, PLACE)?;
    let shared = MapRequest::private_file(file, 0, 4 * PAGE, READ_WRITE)
        .with(MapFlags::SHARED)
        .at(UserAddr::new(PLACE + 16 * PAGE));
    check!(space.map(shared).is_ok(), "map the file");
    run_in(&space, move || {
        check!(store(PLACE + 100, 0x1234_5678) == Ok(()), "fill the buffer");
        let mut source = Source::user(UserAddr::new(PLACE), 2 * PAGE_SIZE);
        check!(cache.write_at(PAGE / 2, &mut source) == Ok(2 * PAGE_SIZE), "write from user memory");
        let mapped = PLACE + 16 * PAGE;
        check!(load(mapped + PAGE / 2 + 100) == Ok(0x1234_5678), "the mapping shows what was written");
        check!(store(mapped + 3 * PAGE, 7) == Ok(()), "a store into the mapping");
        let mut sink = Sink::user(UserAddr::new(PLACE), PAGE_SIZE);
        check!(cache.read_at(3 * PAGE, &mut sink) == Ok(PAGE_SIZE), "read into user memory");
        check!(load(PLACE) == Ok(7), "the read shows what was stored");
        check!(cache.truncate(PAGE).is_ok(), "truncate while mapped");
        check!(load(mapped + 3 * PAGE) == Err(Fault), "nothing beyond the end");
        Ok(())
    })
}

/// Workers on all processors but the one of the test, which needs at least one: with a single processor they share it.
fn worker_places() -> impl Iterator<Item = CpuId> {
    cpu::online().iter()
}

fn no_processor_keeps_an_unmapped_page() -> Outcome {
    let space = space()?;
    // Even: mapped or under change. Odd: surely not mapped. Counts up.
    let phase = Arc::new(AtomicU32::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let stale = Arc::new(AtomicU32::new(0));
    map(&space, 1, PLACE)?;
    let mut workers = Vec::new();
    for place in worker_places() {
        let (phase, stop, stale) = (phase.clone(), stop.clone(), stale.clone());
        workers.push(spawn(&space, CpuSet::only(place), move || {
            while !stop.load(Ordering::Relaxed) {
                let before = phase.load(Ordering::SeqCst);
                let loaded = load(PLACE);
                if loaded.is_ok() && before % 2 == 1 && phase.load(Ordering::SeqCst) == before {
                    stale.fetch_add(1, Ordering::Relaxed);
                }
            }
        })?);
    }
    let mut result = Ok(());
    for _ in 0..ROUNDS {
        if space.unmap(UserAddr::new(PLACE), PAGE).is_err() {
            stop.store(true, Ordering::Relaxed);
            fail!("unmap");
        }
        phase.fetch_add(1, Ordering::SeqCst);
        ::sched::yield_now();
        phase.fetch_add(1, Ordering::SeqCst);
        result = result.and(map(&space, 1, PLACE));
        ::sched::yield_now();
    }
    stop.store(true, Ordering::Relaxed);
    for worker in &workers {
        join(worker)?;
    }
    let stale = stale.load(Ordering::Relaxed);
    check!(stale == 0, "{stale} loads from an unmapped page");
    result
}

fn no_store_escapes_a_fork() -> Outcome {
    let space = space()?;
    let stop = Arc::new(AtomicBool::new(false));
    let lost = Arc::new(AtomicU32::new(0));
    let processors = cpu::count() as u64;
    map(&space, processors, PLACE)?;
    let mut workers = Vec::new();
    for (number, place) in worker_places().enumerate() {
        let (stop, lost) = (stop.clone(), lost.clone());
        let address = PLACE + number as u64 * PAGE;
        workers.push(spawn(&space, CpuSet::only(place), move || {
            let mut value = 0;
            while !stop.load(Ordering::Relaxed) {
                value += 1;
                let stored = store(address, value);
                if stored.is_err() || load(address) != Ok(value) {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        })?);
    }
    let mut changed = 0;
    for _ in 0..ROUNDS / 4 {
        let Ok(child) = space.fork() else { break };
        let see = |page: u64| {
            let mut bytes = [0; 4];
            let _ = child.read_remote(UserAddr::new(PLACE + page * PAGE), &mut bytes);
            u32::from_ne_bytes(bytes)
        };
        for page in 0..processors {
            let first = see(page);
            ::sched::yield_now();
            changed += u32::from(see(page) != first);
        }
    }
    stop.store(true, Ordering::Relaxed);
    for worker in &workers {
        join(worker)?;
    }
    let lost = lost.load(Ordering::Relaxed);
    check!(changed == 0, "{changed} stores of the parent seen by a child");
    check!(lost == 0, "{lost} stores lost");
    Ok(())
}

fn idle_processors_catch_up() -> Outcome {
    let space = space()?;
    map(&space, 1, PLACE)?;
    for place in worker_places() {
        for round in 0..20_u32 {
            let go = Arc::new(Completion::new());
            let ready = Arc::new(Completion::new());
            let seen = Arc::new(AtomicU32::new(0));
            let (wait, tell, report) = (go.clone(), ready.clone(), seen.clone());
            let done = spawn(&space, CpuSet::only(place), move || {
                let _ = store(PLACE, 1000 + round);
                tell.complete();
                wait.wait();
                report.store(load(PLACE).unwrap_or(u32::MAX), Ordering::Relaxed);
            })?;
            check!(ready.wait_deadline(time::now_ns() + HANG_NS), "the thread did not begin");
            // Its processor runs something else, or nothing, and still has the tables loaded.
            map(&space, 1, PLACE)?;
            check!(
                space.write_remote(UserAddr::new(PLACE), &round.to_ne_bytes()) == Ok(4),
                "store from outside"
            );
            go.complete();
            join(&done)?;
            let seen = seen.load(Ordering::Relaxed);
            check!(seen == round, "processor {place} saw {seen} instead of {round}");
        }
    }
    Ok(())
}

fn everything_comes_back() -> Outcome {
    let free = || {
        ::memory::reclaim::reclaim_now(usize::MAX);
        // Idle processors fetch frames to zero them: those are free as well.
        let memory = statistics::memory();
        memory.free_frames + memory.cached_frames
    };
    // A thread tells of its end before it gives up its address space and its stack.
    let settled = |is_settled: &dyn Fn(u64, u64) -> bool| {
        let limit = time::now_ns() + HANG_NS;
        let mut last = free();
        loop {
            ::sched::timer::sleep_until_uninterruptible(time::now_ns() + 1_000_000);
            let now = free();
            if is_settled(last, now) || time::now_ns() > limit {
                return now;
            }
            last = now;
        }
    };
    let once = || {
        let space = space()?;
        map(&space, 2000, PLACE)?;
        let Ok(child) = space.fork() else { fail!("fork") };
        for space in [&space, &child] {
            run_in(space, || {
                (0..2000).step_by(7).for_each(|page| assert_eq!(store(PLACE + page * PAGE, 1), Ok(())));
                Ok(())
            })?;
        }
        Ok(())
    };
    once()?;
    let before = settled(&|last, now| last == now);
    for _ in 0..5 {
        once()?;
    }
    // Stacks are kept for the next threads.
    let after = settled(&|_, now| now + 64 >= before);
    check!(after + 64 >= before, "{before} frames free before, {after} after");
    Ok(())
}
