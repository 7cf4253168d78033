//! What the commands show. Everything is bounded, and nothing is believed: memory is read only where page tables map it.

use core::fmt::{Result, Write};

use machine::address::{PhysAddr, VirtAddr};
use machine::backtrace::Backtrace;
use machine::cpu::{self, CpuId};
use machine::debugger;
use machine::symbols;
use memory::kstack;
use sched::inspection::{self, ThreadView};
use sync::message_box;

use super::session::{self, NAMES, Visit};
use super::terminal::Terminal;
use super::words::Words;
use super::{entry, watches};

/// Words of memory shown by one command, usually and at most.
const MEMORY_WORDS: u64 = 8;
const MEMORY_WORDS_MAX: u64 = 512;
const PAGE_BYTES: u64 = 4096;
/// Most pages of a slot that are shown.
const SLOT_PAGES_MAX: u64 = 128;

/// Said when an instance becomes active.
pub(super) fn heading(out: &mut Terminal) -> Result {
    let (this, online, present) = (cpu::current(), cpu::online(), entry::present());
    write!(out, "\ndebugger on cpu {this}, wanted by")?;
    for cpu in debugger::requests().iter() {
        match session::of(cpu) {
            Some(visit) => write!(out, " cpu {cpu} ({:?})", visit.cause)?,
            None => write!(out, " cpu {cpu} (not here)")?,
        }
    }
    let missing = online.difference(present);
    if !missing.is_empty() {
        write!(out, "; left behind:")?;
        missing.iter().try_for_each(|cpu| write!(out, " {cpu}"))?;
    }
    writeln!(out)?;
    match session::of(this) {
        Some(visit) => place(&visit, out),
        None => Ok(()),
    }
}

fn place(visit: &Visit, out: &mut Terminal) -> Result {
    write!(out, "  at {:#x}", visit.instruction())?;
    if visit.was_in_user() {
        return writeln!(out, " in user mode");
    }
    match symbols::resolve(visit.instruction() as usize) {
        Some(symbol) => writeln!(out, " {symbol}"),
        None => writeln!(out),
    }
}

fn this_visit() -> Option<Visit> {
    session::of(cpu::current())
}

/// The thread that the scheduler keeps at a place.
fn thread_at(control: u64) -> Option<u64> {
    let mut found = None;
    kstack::for_each_stack(&mut |stack| {
        if stack.control == control && control != 0 {
            found = Some(stack.owner);
        }
    });
    found
}

pub(super) fn processors(_: &Words<'_>, out: &mut Terminal) -> Result {
    for cpu in cpu::online().iter() {
        write!(out, "cpu {cpu}: ")?;
        let Some(visit) = session::of(cpu) else {
            writeln!(out, "left behind")?;
            continue;
        };
        let role = if cpu == cpu::current() { "active" } else { "here" };
        write!(out, "{role}, {:?}", visit.cause)?;
        if visit.hits != 0 {
            write!(out, " {:#x}", visit.hits)?;
        }
        match thread_at(visit.thread) {
            Some(thread) => write!(out, ", thread {thread}")?,
            None => write!(out, ", start-up thread")?,
        }
        if message_box::is_waiting(cpu) {
            write!(out, ", waits for an answer")?;
        }
        if message_box::in_handler(cpu) {
            write!(out, ", handles a request")?;
        }
        place(&visit, out)?;
    }
    watches::chosen().try_for_each(|(index, address, access)| {
        writeln!(out, "breakpoint {index}: {access:?} at {address:#x}")
    })
}

pub(super) fn registers(_: &Words<'_>, out: &mut Terminal) -> Result {
    let Some(visit) = this_visit() else { return Ok(()) };
    for (index, (name, value)) in NAMES.iter().zip(visit.registers).enumerate() {
        let end = if index % 4 == 3 { "\n" } else { "  " };
        write!(out, "{name:>6} {value:016x}{end}")?;
    }
    writeln!(out, "\n  root {:#x}, thread at {:#x}", visit.root, visit.thread)
}

pub(super) fn backtrace(words: &Words<'_>, out: &mut Terminal) -> Result {
    let Some(id) = words.get(1) else { return own_backtrace(cpu::current(), out) };
    let Some(id) = id.parse().ok().and_then(find_thread) else { return writeln!(out, "no such thread") };
    match running_on(&id) {
        Some(cpu) => own_backtrace(cpu, out),
        None if id.saved_pointer == 0 => writeln!(out, "it has not run yet"),
        None => write!(out, "{}", Backtrace::of_stack_pointer(id.saved_pointer)),
    }
}

fn running_on(thread: &ThreadView) -> Option<CpuId> {
    thread.runs.then_some(thread.cpu)
}

fn own_backtrace(cpu: CpuId, out: &mut Terminal) -> Result {
    match session::of(cpu) {
        Some(visit) if visit.was_in_user() => writeln!(out, "in user mode"),
        Some(visit) => {
            write!(out, "{}", Backtrace::from_registers(visit.instruction(), visit.frame_pointer()))
        }
        None => writeln!(out, "cpu {cpu} is not here"),
    }
}

fn for_each_thread(visit: &mut dyn FnMut(&ThreadView)) {
    // SAFETY: all processors that answer are stopped; one that was left behind does not even take non-maskable interrupts, so it
    // is not executing.
    unsafe { inspection::for_each_thread(visit) };
}

fn find_thread(id: u64) -> Option<ThreadView> {
    let mut found = None;
    for_each_thread(&mut |thread| {
        if thread.id == id {
            found = Some(*thread);
        }
    });
    found
}

pub(super) fn threads(_: &Words<'_>, out: &mut Terminal) -> Result {
    writeln!(out, "{:>7} {:<16} {:<15} cpu stack", "thread", "name", "state")?;
    let mut result = Ok(());
    for_each_thread(&mut |thread| {
        if result.is_ok() {
            result = thread_line(thread, out);
        }
    });
    result
}

fn thread_line(thread: &ThreadView, out: &mut Terminal) -> Result {
    write!(out, "{:>7} ", thread.id)?;
    inspection::write_name(thread.name, out)?;
    let name = thread.name.map_or(1, |name| name.as_bytes().len());
    let padding = 17_usize.saturating_sub(name);
    let state = if thread.runs { "runs" } else { "" };
    let (mapped, most) = thread.stack_pages;
    writeln!(out, "{:padding$}{:?} {state} {:>3} {mapped}/{most}", "", thread.state, thread.cpu.index())
}

pub(super) fn run_queues(_: &Words<'_>, out: &mut Terminal) -> Result {
    cpu::online().iter().try_for_each(|cpu| inspection::write_run_queue(cpu, out))
}

pub(super) fn memory(words: &Words<'_>, out: &mut Terminal) -> Result {
    let (Some(address), Some(visit)) = (words.address(1), this_visit()) else {
        return writeln!(out, "an address is wanted");
    };
    let count = words.number(2).unwrap_or(MEMORY_WORDS).min(MEMORY_WORDS_MAX);
    let root = PhysAddr::new(visit.root);
    for index in 0..count {
        let place = (address & !7).wrapping_add(index * 8);
        if index % 4 == 0 {
            write!(out, "{place:016x}:")?;
        }
        match canonical(place).and_then(|place| debugger::read_word(root, place)) {
            Some(word) => write!(out, " {word:016x}")?,
            None => write!(out, " {:>16}", "-")?,
        }
        if index % 4 == 3 || index + 1 == count {
            writeln!(out)?;
        }
    }
    Ok(())
}

fn canonical(address: u64) -> Option<VirtAddr> {
    let sign = (address as i64) >> 47;
    (sign == 0 || sign == -1).then(|| VirtAddr::new(address))
}

/// Entries of page tables have these names, from the lowest level up.
const LEVELS: [&str; 4] = ["pte", "pde", "pdpte", "pml4e"];

pub(super) fn pages(words: &Words<'_>, out: &mut Terminal) -> Result {
    let (Some(address), Some(visit)) = (words.address(1).and_then(canonical), this_visit()) else {
        return writeln!(out, "an address is wanted");
    };
    let mut result = Ok(());
    debugger::for_each_entry(PhysAddr::new(visit.root), address, &mut |level, place, entry| {
        if result.is_ok() {
            let name = LEVELS[level as usize - 1];
            result = writeln!(out, "{name:>6} at {:#x}: {entry:#018x} {}", place.as_u64(), rights(entry));
        }
    });
    result
}

fn rights(entry: u64) -> &'static str {
    match (entry & 1, entry & 2, entry & 4) {
        (0, _, _) => "not present",
        (_, 0, 0) => "kernel, read-only",
        (_, 0, _) => "user, read-only",
        (_, _, 0) => "kernel, writable",
        _ => "user, writable",
    }
}

pub(super) fn slot(words: &Words<'_>, out: &mut Terminal) -> Result {
    let (Some(id), Some(visit)) = (words.number(1), this_visit()) else {
        return writeln!(out, "a thread is wanted");
    };
    let mut range = None;
    kstack::for_each_stack(&mut |stack| {
        if stack.owner == id {
            range = Some((stack.slot, stack.range));
        }
    });
    let Some((slot, (start, end))) = range else { return writeln!(out, "no such thread") };
    writeln!(out, "slot {slot}, {start:#x} to {end:#x}")?;
    for page in 0..((end - start) / PAGE_BYTES).min(SLOT_PAGES_MAX) {
        let address = start + page * PAGE_BYTES;
        let mut last = None;
        debugger::for_each_entry(
            PhysAddr::new(visit.root),
            VirtAddr::new(address),
            &mut |level, _, entry| {
                last = Some((level, entry));
            },
        );
        if let Some((level, entry)) = last {
            let name = LEVELS[level as usize - 1];
            let pointer =
                if visit.stack_pointer() / PAGE_BYTES == address / PAGE_BYTES { " <- rsp" } else { "" };
            writeln!(out, "{address:#x} {name} {entry:#018x} {}{pointer}", rights(entry))?;
        }
    }
    Ok(())
}

pub(super) fn boxes(_: &Words<'_>, out: &mut Terminal) -> Result {
    message_box::write_matrix(out)
}

pub(super) fn rcu(_: &Words<'_>, out: &mut Terminal) -> Result {
    sync::rcu::write_report(out)
}
