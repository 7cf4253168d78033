//! Processors of a hosted machine: the host threads; see the back end's front page.

use std::sync::atomic::{AtomicI64, Ordering};

use super::{interrupt, processor};
use crate::cpu::{self, CpuId, CpuSet, MAX_CPUS};

pub(crate) fn current_index() -> u32 {
    processor::index()
}

/// Any number may be in use: tests in parallel have different ones.
pub(crate) fn count() -> usize {
    MAX_CPUS
}

pub(crate) fn online() -> CpuSet {
    processor::group().members()
}

pub(crate) fn online_beside(cpu: CpuId) -> CpuSet {
    let group = processor::lock(&processor::PROCESSORS[cpu.index()].group).clone();
    group.map_or_else(online, |group| group.members())
}

pub(crate) fn thread_word() -> usize {
    processor::this().thread_word.load(Ordering::Relaxed)
}

pub(crate) fn set_thread_word(word: usize) {
    processor::this().thread_word.store(word, Ordering::Relaxed);
}

/// Threads of the host may be moved in between, so this locks.
pub(crate) fn add_to_own(cell: &AtomicI64, amount: i64) {
    cell.fetch_add(amount, Ordering::Relaxed);
}

/// By processor and cell.
static STATIC_CELLS: [[AtomicI64; cpu::STATIC_CELLS]; MAX_CPUS] =
    [const { [const { AtomicI64::new(0) }; cpu::STATIC_CELLS] }; MAX_CPUS];

pub(crate) fn add_to_static(cell: usize, amount: i64) {
    STATIC_CELLS[current_index() as usize][cell].fetch_add(amount, Ordering::Relaxed);
}

pub(crate) fn static_cell(cpu: CpuId, cell: usize) -> i64 {
    STATIC_CELLS[cpu.index()][cell].load(Ordering::Relaxed)
}

/// Hosted processors get their entry from [`super::Machine::boot`].
pub(crate) fn set_ap_entry(_entry: fn(CpuId) -> !) {}

pub(crate) fn start_application_processors() {}

pub(crate) fn relax() {
    interrupt::poll();
    std::thread::yield_now();
}

pub(crate) fn halt_forever() -> ! {
    std::process::abort()
}
