//! `/proc/irq`: which processors the interrupts of devices may come to, and do (`Documentation/core-api/irq/irq-affinity.rst`).
//!
//! Interrupts that drivers placed, one for each processor's queue, say EIO when they are to be moved, as Linux's managed ones do; so do those whose source
//! can't be told. An interrupt whose processors are written while it is among them stays where it is.

use alloc::format;
use alloc::vec::Vec;
use core::fmt::Write;

use device::interrupt::{self, NotMoved};
use machine::cpu::{self, CpuSet, NoSet};
use vfs::generated::{Body, Node};
use vfs::{Error, Result};

use crate::contents::{Contents, Entries};

/// Adds the directory.
pub(crate) fn fill() -> Result<()> {
    let contents = Contents::new("/proc/irq".into(), |entries| {
        entries.setting(
            "default_smp_affinity",
            |out| interrupt::default_affinity().write_mask(cpu::count(), out),
            |text| interrupt::set_default_affinity(mask_of(text)?).map_err(errno_of),
        )?;
        let mut numbers = Vec::new();
        interrupt::for_each(|number, _, _, _| numbers.push(number));
        for number in numbers {
            entries.directory(&format!("{number}"), move |entries| one(entries, number))?;
        }
        Ok(())
    })?;
    procfs::add_at("irq", Node::new(0o555, Body::Directory(contents)))
}

fn one(entries: &mut Entries, number: u32) -> Result<()> {
    let allowed = move || interrupt::affinity(number).map_or(CpuSet::EMPTY, |affinity| affinity.allowed);
    let effective =
        move || interrupt::affinity(number).map_or(CpuSet::EMPTY, |one| CpuSet::only(one.effective));
    let set = move |cpus: CpuSet| interrupt::set_affinity(number, cpus).map_err(errno_of);
    entries.setting(
        "smp_affinity",
        move |out| allowed().write_mask(cpu::count(), out),
        move |text| set(mask_of(text)?),
    )?;
    entries.setting(
        "smp_affinity_list",
        move |out| allowed().write_list(out),
        move |text| set(CpuSet::parse_list(text).map_err(|why| malformed(why, Error::Range))?),
    )?;
    entries.line("effective_affinity", move |out| effective().write_mask(cpu::count(), out))?;
    entries.line("effective_affinity_list", move |out| effective().write_list(out))?;
    // Drivers have no wishes that they do not see to themselves.
    entries.line("affinity_hint", |out| CpuSet::EMPTY.write_mask(cpu::count(), out))?;
    entries.line("node", |out| out.write_str("-1"))
}

fn mask_of(text: &str) -> Result<CpuSet> {
    CpuSet::parse_mask(text).map_err(|why| malformed(why, Error::Overflow))
}

fn malformed(why: NoSet, out_of_range: Error) -> Error {
    match why {
        NoSet::Malformed => Error::Invalid,
        NoSet::OutOfRange => out_of_range,
    }
}

fn errno_of(why: NotMoved) -> Error {
    match why {
        NotMoved::NoProcessor => Error::Invalid,
        NotMoved::Fixed | NotMoved::Gone => Error::Io,
    }
}
