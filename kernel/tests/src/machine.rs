//! Tests of crate `machine`: interprocessor interrupts, timers, clocks, per-processor data, page rights.
//!
//! They run before the scheduler: the boot processor directs, the others halt in [`application_processor`] and do
//! what interrupts tell them.

use super::{HANG_NS, Outcome, Test, check, fail};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use machine::address::{DIRECT_MAP_BASE, KERNEL_IMAGE_BASE, VirtAddr};
use machine::cpu::{self, CpuId, CpuSet, MAX_CPUS};
use machine::ipi::{self, Ipi};
use machine::{boot, interrupt, mmu, preempt, time};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "machine::all_processors_come_online", run: all_processors_come_online },
    Test { name: "machine::each_processor_knows_its_number", run: each_processor_knows_its_number },
    Test { name: "machine::each_processor_has_its_own_thread_word", run: each_has_its_own_thread_word },
    Test { name: "machine::ipi_reaches_every_processor_every_time", run: ipi_reaches_every_processor },
    Test { name: "machine::deadline_is_never_early_on_any_processor", run: deadline_is_never_early },
    Test { name: "machine::cleared_deadline_does_not_fire", run: cleared_deadline_does_not_fire },
    Test { name: "machine::clock_does_not_go_back_between_processors", run: clock_does_not_go_back },
    Test { name: "machine::wall_clock_is_of_this_century", run: wall_clock_is_of_this_century },
    Test {
        name: "machine::no_kernel_page_is_writable_and_executable",
        run: no_page_is_writable_and_executable,
    },
    Test { name: "machine::image_sections_have_their_rights", run: image_sections_have_their_rights },
    Test { name: "machine::protection_is_on_where_the_processor_has_it", run: protection_is_on },
    Test { name: "machine::preemption_count_nests", run: preemption_count_nests },
    Test { name: "machine::interrupts_are_counted_by_vector", run: interrupts_are_counted },
    Test { name: "machine::seeds_differ", run: seeds_differ },
    Test { name: "machine::copies_are_exact", run: copies_are_exact },
    Test {
        name: "machine::comparisons_find_the_first_difference",
        run: comparisons_find_the_first_difference,
    },
];

/// IPIs sent to each processor by the test that counts them.
const IPI_ROUNDS: u64 = 200;
/// Deadlines tried on each processor, in nanoseconds from now.
const DEADLINES_NS: [u64; 6] = [0, 1_000, 50_000, 200_000, 1_000_000, 3_000_000];

/// What a processor does when the `Call` interrupt comes.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Order {
    Count,
    ReportNumber,
    SetWord,
    ReadWord,
    SetDeadline,
    SetAndClearDeadline,
    ReadClock,
}

static ORDER: AtomicU64 = AtomicU64::new(0);
static ARGUMENT: AtomicU64 = AtomicU64::new(0);
/// How often each processor has carried out an order.
static DONE: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// What each processor answered last.
static ANSWER: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// When the deadline of each processor fired; 0 if it has not.
static FIRED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// True when the tests of the machine are done and the scheduler may have the processors.
static FINISHED: AtomicBool = AtomicBool::new(false);

/// Application processors wait here for interrupts until the tests of the machine are done.
pub fn application_processor(_cpu: CpuId) -> ! {
    // It is no thread yet, so nobody may switch away from it.
    let preemption = preempt::disable();
    while !FINISHED.load(Ordering::Acquire) {
        interrupt::enable_and_halt();
        interrupt::disable_unguarded();
    }
    preempt::set_need_resched(false);
    // What tests have put there was no thread.
    cpu::set_thread_word(0);
    drop(preemption);
    sched::enter_application_processor()
}

/// Ends the tests of the machine.
pub(crate) fn finish() {
    FINISHED.store(true, Ordering::Release);
    for cpu in cpu::online().iter().filter(|cpu| *cpu != CpuId::BOOT) {
        ipi::send(cpu, Ipi::Call);
    }
}

fn carry_out_order() {
    let cpu = cpu::current().index();
    let argument = ARGUMENT.load(Ordering::Relaxed);
    let order = ORDER.load(Ordering::Relaxed);
    let answer = match order {
        _ if order == Order::ReportNumber as u64 => cpu as u64 + u64::from(interrupt::in_interrupt()) * 1000,
        _ if order == Order::SetWord as u64 => {
            cpu::set_thread_word(argument as usize + cpu);
            0
        }
        _ if order == Order::ReadWord as u64 => cpu::thread_word() as u64,
        _ if order == Order::SetDeadline as u64 => {
            let deadline = time::now_ns() + argument;
            time::set_deadline_ns(deadline);
            deadline
        }
        _ if order == Order::SetAndClearDeadline as u64 => {
            let deadline = time::now_ns() + argument;
            time::set_deadline_ns(deadline);
            time::clear_deadline();
            deadline.saturating_sub(time::now_ns())
        }
        _ if order == Order::ReadClock as u64 => time::now_ns(),
        _ => 0,
    };
    ANSWER[cpu].store(answer, Ordering::Relaxed);
    DONE[cpu].fetch_add(1, Ordering::Release);
}

fn deadline_fired() {
    FIRED[cpu::current().index()].store(time::now_ns(), Ordering::Release);
}

/// Waits, with interrupts enabled, until the condition holds.
fn wait_until(condition: impl Fn() -> bool) -> bool {
    let limit = time::now_ns() + HANG_NS;
    interrupt::enable();
    let mut holds = condition();
    while !holds && time::now_ns() < limit {
        cpu::relax();
        holds = condition();
    }
    interrupt::disable_unguarded();
    holds
}

/// Sends an order to a processor (possibly this one) and returns its answer.
fn order(target: CpuId, order: Order, argument: u64) -> Result<u64, super::Failure> {
    ipi::set_handler(Ipi::Call, carry_out_order);
    ORDER.store(order as u64, Ordering::Relaxed);
    ARGUMENT.store(argument, Ordering::Relaxed);
    let before = DONE[target.index()].load(Ordering::Acquire);
    ipi::send(target, Ipi::Call);
    if !wait_until(|| DONE[target.index()].load(Ordering::Acquire) > before) {
        fail!("processor {target} did not answer");
    }
    Ok(ANSWER[target.index()].load(Ordering::Relaxed))
}

fn all_processors_come_online() -> Outcome {
    let (online, all) = (cpu::online(), CpuSet::first(cpu::count()));
    check!(online == all, "online {online:?} of {}", cpu::count());
    Ok(())
}

fn each_processor_knows_its_number() -> Outcome {
    for cpu in cpu::online().iter() {
        let answer = order(cpu, Order::ReportNumber, 0)?;
        check!(answer == cpu.index() as u64 + 1000, "processor {cpu} says {answer}");
    }
    check!(cpu::current() == CpuId::BOOT && !interrupt::in_interrupt(), "the boot processor is lost");
    Ok(())
}

fn each_has_its_own_thread_word() -> Outcome {
    for cpu in cpu::online().iter() {
        order(cpu, Order::SetWord, 7000)?;
    }
    for cpu in cpu::online().iter() {
        let word = order(cpu, Order::ReadWord, 0)?;
        check!(word == 7000 + cpu.index() as u64, "processor {cpu} has {word}");
    }
    cpu::set_thread_word(0);
    Ok(())
}

fn ipi_reaches_every_processor() -> Outcome {
    for _ in 0..IPI_ROUNDS {
        for cpu in cpu::online().iter() {
            order(cpu, Order::Count, 0)?;
        }
    }
    Ok(())
}

fn deadline_is_never_early() -> Outcome {
    time::set_handler(deadline_fired);
    for cpu in cpu::online().iter() {
        for wait_ns in DEADLINES_NS {
            FIRED[cpu.index()].store(0, Ordering::Relaxed);
            let deadline = order(cpu, Order::SetDeadline, wait_ns)?;
            let fired = wait_until(|| FIRED[cpu.index()].load(Ordering::Acquire) != 0);
            check!(fired, "no interrupt {wait_ns} ns ahead on processor {cpu}");
            let at = FIRED[cpu.index()].load(Ordering::Acquire);
            check!(at >= deadline, "{} ns early on processor {cpu}", deadline - at);
            log::info!("processor {cpu}: {wait_ns} ns ahead, {} ns late", at - deadline);
        }
    }
    Ok(())
}

fn cleared_deadline_does_not_fire() -> Outcome {
    const AHEAD_NS: u64 = 2_000_000;
    const ATTEMPTS: usize = 100;
    time::set_handler(deadline_fired);
    for cpu in cpu::online().iter() {
        // If the host stopped the processor before it could clear the deadline, that was too late, and says nothing.
        let mut in_time = false;
        for _ in 0..ATTEMPTS {
            FIRED[cpu.index()].store(0, Ordering::Relaxed);
            in_time = order(cpu, Order::SetAndClearDeadline, AHEAD_NS)? > AHEAD_NS / 2;
            let wait = time::now_ns() + 2 * AHEAD_NS;
            wait_until(|| time::now_ns() > wait);
            if in_time {
                break;
            }
        }
        check!(in_time, "processor {cpu} never cleared it in time");
        // The processor has been interruptible all the while, and is asked once more.
        order(cpu, Order::Count, 0)?;
        check!(FIRED[cpu.index()].load(Ordering::Acquire) == 0, "it fired on processor {cpu}");
    }
    Ok(())
}

fn clock_does_not_go_back() -> Outcome {
    let mut last = time::now_ns();
    for _ in 0..IPI_ROUNDS {
        for cpu in cpu::online().iter() {
            let there = order(cpu, Order::ReadClock, 0)?;
            check!(there >= last, "processor {cpu} is {} ns behind", last - there);
            last = time::now_ns();
            check!(last >= there, "this processor is {} ns behind {cpu}", there - last);
        }
    }
    Ok(())
}

fn wall_clock_is_of_this_century() -> Outcome {
    const YEAR_2020_NS: u64 = 1_577_836_800_000_000_000;
    const YEAR_2100_NS: u64 = 4_102_444_800_000_000_000;
    let boot = time::wall_clock_boot_ns();
    check!((YEAR_2020_NS..YEAR_2100_NS).contains(&boot), "booted at {boot} ns");
    Ok(())
}

fn no_page_is_writable_and_executable() -> Outcome {
    let mut wrong = None;
    let mut pages = 0_u64;
    mmu::for_each_kernel_mapping(|address, mapping| {
        pages += 1;
        if (mapping.writable && mapping.executable) || mapping.user {
            wrong = Some((address, mapping));
        }
    });
    check!(wrong.is_none(), "{wrong:?}");
    check!(pages > 100, "only {pages} mappings found");
    Ok(())
}

fn image_sections_have_their_rights() -> Outcome {
    static VARIABLE: AtomicU64 = AtomicU64::new(1);
    static CONSTANT: u64 = 1;
    let code = image_sections_have_their_rights as fn() -> Outcome as usize;
    let cases = [
        ("code", code, false, true),
        ("constant", (&raw const CONSTANT).addr(), false, false),
        ("variable", (&raw const VARIABLE).addr(), true, false),
    ];
    for (name, address, writable, executable) in cases {
        let direct = address - KERNEL_IMAGE_BASE + DIRECT_MAP_BASE;
        let mapping = mmu::kernel_mapping(VirtAddr::new(address as u64));
        check!(
            mapping.is_some_and(|found| found.writable == writable && found.executable == executable),
            "{name}: {mapping:?}"
        );
        let alias = mmu::kernel_mapping(VirtAddr::new(direct as u64));
        check!(
            alias.is_some_and(|found| found.writable == writable && !found.executable),
            "{name} in the direct map: {alias:?}"
        );
    }
    let null = mmu::kernel_mapping(VirtAddr::new(0));
    check!(null.is_none(), "page 0 is mapped: {null:?}");
    Ok(())
}

fn protection_is_on() -> Outcome {
    let protection = mmu::protection();
    check!(protection.write_protect && protection.no_execute, "{protection:?}");
    check!(protection.missing_features == 0, "{protection:?}");
    Ok(())
}

fn preemption_count_nests() -> Outcome {
    check!(preempt::count() == 0, "{} at the start", preempt::count());
    let outer = preempt::disable();
    let inner = preempt::disable();
    check!(preempt::count() == 2, "{} inside", preempt::count());
    preempt::set_need_resched(true);
    check!(preempt::count() == 2 && preempt::need_resched(), "the flag disturbs the count");
    preempt::set_need_resched(false);
    drop(inner);
    drop(outer);
    check!(preempt::count() == 0 && !preempt::need_resched(), "{} at the end", preempt::count());
    Ok(())
}

fn interrupts_are_counted() -> Outcome {
    let total = |cpu| -> u64 { (0..=255).map(|vector| interrupt::vector_count(cpu, vector)).sum() };
    for cpu in cpu::online().iter() {
        let before = total(cpu);
        order(cpu, Order::Count, 0)?;
        check!(total(cpu) > before, "no interrupt counted on processor {cpu}");
    }
    Ok(())
}

/// What the tests may add to the kernel.
const TESTS_BYTES: u64 = 512 << 10;

fn seeds_differ() -> Outcome {
    let (first, second) = (machine::random::seed(), machine::random::seed());
    check!(first != second && first != [0; 32], "two equal seeds");
    // The file of the kernel that is used has less than 4 MiB, which the tests of the command check; with what is zero at the start it is larger. The one
    // that runs has these tests besides, and the variants that check themselves are larger still.
    let limit = if cfg!(debug_assertions) { 8 << 20 } else { (5 << 20) + TESTS_BYTES };
    check!(boot::info().kernel_image.bytes() < limit, "the image takes more than it should");
    Ok(())
}

/// Every length up to a few rounds of the copying loops, at every alignment, apart and overlapping either way.
fn copies_are_exact() -> Outcome {
    const ROOM: usize = 512;
    const LENGTHS: usize = 200;
    let mut bytes = [0_u8; ROOM];
    let original = |index: usize| (index + index / 256 * 13) as u8 ^ 0x5a;
    let fill = |bytes: &mut [u8; ROOM]| {
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = original(index);
        }
    };
    for length in 0..LENGTHS {
        for (from, to) in [(0, 256), (3, 259), (5, 256), (0, 1), (1, 0), (0, 33), (33, 0), (7, 7), (9, 16)] {
            fill(&mut bytes);
            // Hidden from the compiler, which would copy by itself.
            let (length, from) = (core::hint::black_box(length), core::hint::black_box(from));
            bytes.copy_within(from..from + length, to);
            let expected = |index: usize| match index.checked_sub(to) {
                Some(offset) if offset < length => original(from + offset),
                _ => original(index),
            };
            check!(
                (0..ROOM).all(|index| bytes[index] == expected(index)),
                "{length} bytes from {from} to {to}"
            );
            bytes[to..to + length].fill(core::hint::black_box(0xc3));
            check!(bytes[to..to + length].iter().all(|byte| *byte == 0xc3), "{length} bytes set at {to}");
            check!(bytes[to + length] == expected(to + length), "a byte beyond {length} was set");
        }
    }
    Ok(())
}

/// Every length up to a few rounds of the comparing loop, with the first difference at every place, and others after it that say the opposite.
fn comparisons_find_the_first_difference() -> Outcome {
    const LENGTHS: usize = 40;
    for length in 0..LENGTHS {
        for first in 0..=length {
            let mut left = [0_u8; LENGTHS];
            for (index, byte) in left.iter_mut().enumerate() {
                *byte = 0x7f ^ index as u8;
            }
            let mut right = left;
            // With the highest bit in one of them: bytes have no sign.
            right[first.min(LENGTHS - 1)] = left[first.min(LENGTHS - 1)] | 0x80;
            for (left, right) in left.iter_mut().zip(&mut right).skip(first + 1) {
                (*left, *right) = (0xff, 0);
            }
            // Hidden from the compiler, which would compare by itself.
            let length = core::hint::black_box(length);
            let (left, right) = (&left[..length], &right[..length]);
            let expected =
                if first < length { core::cmp::Ordering::Less } else { core::cmp::Ordering::Equal };
            check!(left.cmp(right) == expected, "{length} bytes that differ at {first}");
            check!(right.cmp(left) == expected.reverse(), "{length} bytes that differ at {first}, reversed");
            check!((left == right) == (first == length), "whether {length} bytes are equal to {first}");
        }
    }
    Ok(())
}
