//! Tests of page frames and the heap, in a thread.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ::machine::boot;
use ::memory::frame::{self, Block, Frame, Purpose, Zeroed};
use ::memory::{fallible, heap, statistics};

use super::{Outcome, Test, check, fail};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "memory::numbers_add_up", run: numbers_add_up },
    Test { name: "memory::start_up_touches_little_memory", run: start_up_touches_little },
    Test { name: "memory::all_memory_can_be_had_and_comes_back", run: all_memory_comes_back },
    Test { name: "memory::blocks_of_every_order_come_back", run: blocks_come_back },
    Test { name: "memory::frames_hold_what_was_written", run: frames_hold_what_was_written },
    Test { name: "memory::heap_objects_of_all_sizes_come_back", run: heap_objects_come_back },
    Test { name: "memory::large_objects_span_areas", run: large_objects_span_areas },
    Test { name: "memory::impossible_requests_fail", run: impossible_requests_fail },
    Test { name: "memory::an_arc_is_made_without_failing", run: arcs_are_made },
    Test { name: "memory::initramfs_frames_are_adopted_once", run: initramfs_is_adopted },
];

/// Looks at memory until it holds still.
const SETTLING_MAX: u32 = 10_000;

/// Attempts at having all back. Meanwhile other threads may begin, their stacks may grow, and what they have put off is freed; but who loses
/// memory loses it every time.
const ATTEMPTS: u32 = 20;

/// Frames by what they are used for, and what the heap has given out. What CPUs have at hand is free: idle ones fetch frames from the pool
/// to zero them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Balance {
    free: u64,
    used: [u64; Purpose::COUNT],
    heap_objects: u64,
    large_objects: (u64, u64),
    area_bytes: u64,
}

impl Balance {
    fn now() -> Self {
        let memory = statistics::memory();
        Self {
            free: memory.free_frames + memory.cached_frames,
            used: Purpose::ALL.map(|purpose| memory.used(purpose)),
            heap_objects: heap::class_statistics().map(|class| class.active_objects).sum(),
            large_objects: heap::large_objects(),
            area_bytes: heap::area_bytes(),
        }
    }

    /// Frees all that is kept without need, so that numbers can be compared.
    fn settled() -> Self {
        ::memory::reclaim::reclaim_now(usize::MAX);
        let mut last = Self::now();
        for _ in 0..SETTLING_MAX {
            ::sched::yield_now();
            let next = Self::now();
            if next == last {
                break;
            }
            last = next;
        }
        last
    }

    /// Which purposes take more or fewer frames than before.
    fn changes(self, before: Self) -> alloc::string::String {
        let mut text = alloc::format!("{} frames free before, {} after", before.free, self.free);
        let heap = |balance: Self| (balance.heap_objects, balance.large_objects, balance.area_bytes);
        if heap(self) != heap(before) {
            text += &alloc::format!(", heap {:?} before, {:?} after", heap(before), heap(self));
        }
        for purpose in Purpose::ALL {
            let (now, then) = (self.used[purpose as usize], before.used[purpose as usize]);
            if now != then {
                text += &alloc::format!(", {purpose:?} {then} before, {now} after");
            }
        }
        text
    }
}

/// Checks that memory is as it was, but for page tables of areas, which stay.
fn check_back(before: Balance) -> Outcome {
    let after = Balance::settled();
    let tables = Purpose::PageTable as usize;
    let comparable = |balance: Balance| {
        let mut without_tables = balance;
        without_tables.free += core::mem::take(&mut without_tables.used[tables]);
        without_tables.used = [0; Purpose::COUNT];
        without_tables
    };
    check!(comparable(after) == comparable(before), "{}", after.changes(before));
    Ok(())
}

/// Does that, after which memory is as before; the numbers before are for it to judge by.
fn all_comes_back(doing: impl Fn(Balance) -> Outcome) -> Outcome {
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        let before = Balance::settled();
        doing(before)?;
        outcome = check_back(before);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn numbers_add_up() -> Outcome {
    let memory = statistics::memory();
    let used: u64 = Purpose::ALL.iter().map(|&purpose| memory.used(purpose)).sum();
    let known = memory.free_frames + memory.cached_frames + used;
    check!(memory.total_frames >= known, "{} frames in all, {known} known", memory.total_frames);
    // A chunk brought up in part has metadata that the estimate did not count.
    let lost = memory.total_frames - known;
    check!(
        lost <= memory.total_frames / 64 + 64,
        "{lost} of {} frames are unaccounted for",
        memory.total_frames
    );
    check!(memory.watermarks.minimum < memory.watermarks.high, "{:?}", memory.watermarks);
    Ok(())
}

fn start_up_touches_little() -> Outcome {
    let memory = statistics::memory();
    let touched = memory.total_frames - memory.untouched_frames;
    check!(
        memory.total_frames < 16384 || touched <= memory.total_frames / 2,
        "{touched} of {}",
        memory.total_frames
    );
    Ok(())
}

fn all_memory_comes_back() -> Outcome {
    let balance = Balance::settled();
    let before = balance.free;
    let Ok(mut frames) = fallible::try_vec::<Frame>(before as usize) else {
        fail!("no room for {before} handles")
    };
    while frames.len() < frames.capacity()
        && let Ok(frame) = Frame::allocate_atomic(Purpose::Anonymous, Zeroed::No)
    {
        frame.write(4088, &frames.len().to_ne_bytes());
        frames.push(frame);
    }
    let taken = frames.len() as u64;
    let minimum = statistics::memory().watermarks.minimum;
    let handles = before / 1024 + 16;
    check!(taken + minimum + handles >= before, "{taken} of {before} free frames could be had");
    for (number, frame) in frames.iter().enumerate() {
        let mut word = [0; 8];
        frame.read(4088, &mut word);
        check!(usize::from_ne_bytes(word) == number, "frame {number} was given out twice");
    }
    drop(frames);
    let after = Balance::settled();
    // All chunks have been brought up meanwhile; the estimate of their metadata was a little off.
    check!(after.free + 64 >= before, "{}", after.changes(balance));
    Ok(())
}

fn blocks_come_back() -> Outcome {
    all_comes_back(take_blocks_of_every_order)
}

fn take_blocks_of_every_order(before: Balance) -> Outcome {
    for order in 0..=frame::MAX_ORDER {
        let mut blocks = Vec::new();
        for _ in 0..4 {
            let Ok(block) = Block::allocate(1 << order, Purpose::Device, Zeroed::Yes) else {
                if before.free > 16384 {
                    fail!("no block of order {order}");
                }
                break;
            };
            let mut word = [1; 8];
            block.read(block.bytes() - 8, &mut word);
            check!(word == [0; 8], "a block of order {order} is not zero");
            check!(block.physical().as_u64() % block.bytes() as u64 == 0, "{block:?} is not aligned");
            blocks.push(block);
        }
    }
    Ok(())
}

fn frames_hold_what_was_written() -> Outcome {
    let mut frames = Vec::new();
    for number in 0..2000_u64 {
        let Ok(frame) = Frame::allocate(Purpose::FileCache, Zeroed::Yes) else { break };
        frame.write((number % 500) as usize * 8, &number.to_ne_bytes());
        frames.push(frame);
    }
    for (number, frame) in frames.iter().enumerate() {
        let mut word = [0; 8];
        frame.read(number % 500 * 8, &mut word);
        check!(u64::from_ne_bytes(word) == number as u64, "frame {number} changed");
    }
    Ok(())
}

fn heap_objects_come_back() -> Outcome {
    all_comes_back(|_| take_objects_of_all_sizes())
}

fn take_objects_of_all_sizes() -> Outcome {
    for round in 0..3_usize {
        let mut objects: Vec<Vec<u8>> = Vec::new();
        for size in (1..9000).step_by(37 + round) {
            let mut object =
                fallible::try_vec::<u8>(size).map_err(|_| super::Failure::new(format_args!("{size}")))?;
            object.resize(size, size as u8);
            objects.push(object);
        }
        // Every other one first, so that slabs are freed in no order.
        for skip in [2, 1] {
            let mut index = 0;
            objects.retain(|object| {
                assert!(object.iter().all(|&byte| byte == object.len() as u8));
                index += 1;
                skip == 2 && index % 2 == 0
            });
        }
    }
    Ok(())
}

fn large_objects_span_areas() -> Outcome {
    all_comes_back(|_| take_large_objects())
}

fn take_large_objects() -> Outcome {
    for round in 0..20_usize {
        let mut objects = Vec::new();
        for pages in [3, 17, 64, 200, 513] {
            let Ok(mut object) = fallible::try_vec::<u64>(pages * 512 + round) else { break };
            object.resize(object.capacity(), pages as u64);
            objects.push(object);
        }
        check!(!objects.is_empty(), "no large object in round {round}");
        for object in &objects {
            check!(
                object.iter().all(|&word| word == object[0]),
                "an object of {} words changed",
                object.len()
            );
        }
    }
    Ok(())
}

fn impossible_requests_fail() -> Outcome {
    let total = statistics::memory().total_frames as usize;
    check!(fallible::try_vec::<u8>(total * 4096 * 2).is_err(), "twice the machine's memory was given");
    check!(fallible::try_vec::<u8>(isize::MAX as usize).is_err(), "all addresses were given");
    check!(Block::allocate(1025, Purpose::Device, Zeroed::No).is_err(), "a block of more than 4 MiB");
    ::memory::reclaim::reclaim_now(usize::MAX);
    Ok(())
}

fn arcs_are_made() -> Outcome {
    let mut arcs = Vec::new();
    for number in 0..500_u32 {
        match fallible::try_arc([number; 40]) {
            Ok(arc) => arcs.push(arc),
            Err(::memory::OutOfMemory) => fail!("arc {number} failed"),
        }
    }
    check!(arcs.iter().enumerate().all(|(number, arc)| arc[39] == number as u32), "an arc changed");
    let shared: Arc<str> =
        fallible::try_arc_str("murmuration").map_err(|_| super::Failure::new(format_args!("str")))?;
    check!(&*shared == "murmuration", "{shared}");
    let boxed: Box<dyn Fn() -> u32> = match fallible::try_box(|| 7) {
        Ok(boxed) => boxed,
        Err(::memory::OutOfMemory) => fail!("no memory for a box"),
    };
    check!(boxed() == 7, "a closure returned {}", boxed());
    Ok(())
}

fn initramfs_is_adopted() -> Outcome {
    let Some(range) = boot::info().initramfs.filter(|range| range.bytes() >= 8192) else { return Ok(()) };
    let address = machine::address::PhysAddr::new(range.start.as_u64().next_multiple_of(4096));
    let Some(frame) = frame::from_boot(address, Purpose::FileCache) else {
        fail!("{address:?} could not be adopted");
    };
    check!(frame.references() == 1, "{} references", frame.references());
    drop(frame);
    check!(frame::from_boot(address, Purpose::FileCache).is_none(), "{address:?} was adopted twice");
    Ok(())
}
