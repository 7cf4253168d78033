//! `/sys`: the processors, the one memory node, and the directories that programs expect to be there.

use alloc::format;
use core::fmt::{self, Write};

use machine::cpu::{self, CpuSet};
use machine::page_table::LEAF_TABLE_BYTES;
use memory::address_space::{HugeMode, huge_mode, set_huge_mode};
use memory::huge_pool::{self, HugePoolCounts};
use net::link;
use vfs::generated::{Node, knob};
use vfs::text::Text;
use vfs::{Error, Result};

use super::memory_numbers;
use crate::name_space::NameSpaces;

/// Directories without contents so far.
const DIRECTORIES: [&str; 8] =
    ["bus", "class", "dev", "firmware", "fs/cgroup", "fs/fuse/connections", "kernel/debug", "module"];

/// The words for which memory gets huge pages.
const HUGE_MODES: [(&str, HugeMode); 3] =
    [("always", HugeMode::Always), ("madvise", HugeMode::Advised), ("never", HugeMode::Never)];

/// Fills /sys.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn register() -> Result<()> {
    for path in DIRECTORIES {
        sysfs::directory(path)?;
    }
    huge_pages()?;
    huge_pool()?;
    fixed("kernel/address_bits", "64")?;
    fixed("kernel/cpu_byteorder", "little")?;
    loopback()?;
    processors()?;
    node()
}

/// The only link of each network: `/sys/class/net/lo`.
fn loopback() -> Result<()> {
    const BASE: &str = "devices/virtual/net/lo";
    let target = || vfs::allocation::arc_bytes(b"../../devices/virtual/net/lo");
    sysfs::add("class/net/lo", Node::link(vfs::allocation::arc(target)?))?;
    for (name, value) in [
        ("ifindex", u64::from(link::INDEX)),
        ("iflink", link::INDEX.into()),
        ("mtu", link::MTU.into()),
        ("tx_queue_len", link::QUEUE_LENGTH.into()),
        ("type", link::KIND.into()),
        ("addr_len", 6),
    ] {
        line(&format!("{BASE}/{name}"), move |out| write!(out, "{value}"))?;
    }
    fixed(&format!("{BASE}/address"), "00:00:00:00:00:00")?;
    line(&format!("{BASE}/flags"), |out| {
        write!(out, "{:#x}", NameSpaces::of_reader().networks.loopback.flags() & 0xffff)
    })?;
    line(&format!("{BASE}/operstate"), |out| {
        let is_up = NameSpaces::of_reader().networks.loopback.is_up();
        out.write_str(if is_up { "unknown" } else { "down" })
    })
}

/// A line that never changes.
fn fixed(path: &str, value: &'static str) -> Result<()> {
    line(path, move |out| out.write_str(value))
}

fn line(path: &str, show: impl Fn(&mut Text) -> fmt::Result + Send + Sync + 'static) -> Result<()> {
    sysfs::add_text(path, move |out| {
        // A text remembers when memory ran out.
        let _ = show(out).and_then(|()| out.write_str("\n"));
        Ok(())
    })
}

/// Settings of transparent huge pages. None is searched for when none is free, and none is shown for reading in advance.
fn huge_pages() -> Result<()> {
    const BASE: &str = "kernel/mm/transparent_hugepage";
    let enabled = knob(
        |out| {
            for (number, (name, mode)) in HUGE_MODES.iter().enumerate() {
                let blank = if number > 0 { " " } else { "" };
                // A text remembers when memory ran out.
                let _ = match *mode == huge_mode() {
                    true => write!(out, "{blank}[{name}]"),
                    false => write!(out, "{blank}{name}"),
                };
            }
            let _ = out.write_str("\n");
            Ok(())
        },
        |bytes| {
            let wanted = bytes.trim_ascii();
            let (_, mode) =
                HUGE_MODES.iter().find(|(name, _)| name.as_bytes() == wanted).ok_or(Error::Invalid)?;
            set_huge_mode(*mode);
            Ok(())
        },
    )?;
    sysfs::add(&format!("{BASE}/enabled"), Node::file(0o644, enabled))?;
    fixed(&format!("{BASE}/defrag"), "always defer defer+madvise madvise [never]")?;
    fixed(&format!("{BASE}/shmem_enabled"), "always within_size advise [never] deny force")?;
    fixed(&format!("{BASE}/use_zero_page"), "0")?;
    line(&format!("{BASE}/hpage_pmd_size"), |out| write!(out, "{LEAF_TABLE_BYTES}"))
}

/// The pool of huge pages, and what is set of it.
fn huge_pool() -> Result<()> {
    const BASE: &str = "kernel/mm/hugepages/hugepages-2048kB";
    type Part = fn(&HugePoolCounts) -> u64;
    let parts: [(&str, Part); 3] = [
        ("free_hugepages", |pool| pool.free),
        ("resv_hugepages", |pool| pool.promised),
        ("surplus_hugepages", |pool| pool.surplus),
    ];
    for (name, part) in parts {
        line(&format!("{BASE}/{name}"), move |out| write!(out, "{}", part(&huge_pool::counts())))?;
    }
    for (name, part, set) in super::settings::HUGE_POOL {
        let show = move |out: &mut Text| {
            // A text remembers when memory ran out.
            let _ = writeln!(out, "{}", part(&huge_pool::counts()));
            Ok(())
        };
        let store = move |bytes: &[u8]| super::settings::parse(bytes, &(0..=u64::MAX)).map(set);
        sysfs::add(&format!("{BASE}/{name}"), Node::file(0o644, knob(show, store)?))?;
    }
    Ok(())
}

fn cpu_list(path: &str, cpus: impl Fn() -> CpuSet + Send + Sync + 'static) -> Result<()> {
    line(path, move |out| cpus().write_list(out))
}

fn cpu_mask(path: &str, cpus: impl Fn() -> CpuSet + Send + Sync + 'static) -> Result<()> {
    line(path, move |out| cpus().write_mask(cpu::count(), out))
}

fn present() -> CpuSet {
    CpuSet::first(cpu::count())
}

fn processors() -> Result<()> {
    const BASE: &str = "devices/system/cpu";
    cpu_list(&format!("{BASE}/online"), cpu::online)?;
    cpu_list(&format!("{BASE}/possible"), present)?;
    cpu_list(&format!("{BASE}/present"), present)?;
    cpu_list(&format!("{BASE}/offline"), || present().difference(cpu::online()))?;
    line(&format!("{BASE}/kernel_max"), |out| write!(out, "{}", cpu::MAX_CPUS - 1))?;
    for cpu in present().iter() {
        let base = format!("{BASE}/cpu{}", cpu.index());
        // The first processor can't be switched off, so it has no switch.
        if cpu.index() > 0 {
            line(&format!("{base}/online"), move |out| {
                write!(out, "{}", u8::from(cpu::online().contains(cpu)))
            })?;
        }
        let topology = format!("{base}/topology");
        line(&format!("{topology}/core_id"), move |out| write!(out, "{}", cpu.index()))?;
        fixed(&format!("{topology}/physical_package_id"), "0")?;
        fixed(&format!("{topology}/die_id"), "0")?;
        for name in ["thread_siblings", "core_cpus"] {
            cpu_mask(&format!("{topology}/{name}"), move || CpuSet::only(cpu))?;
            cpu_list(&format!("{topology}/{name}_list"), move || CpuSet::only(cpu))?;
        }
        for name in ["core_siblings", "package_cpus", "die_cpus"] {
            cpu_mask(&format!("{topology}/{name}"), cpu::online)?;
            cpu_list(&format!("{topology}/{name}_list"), cpu::online)?;
        }
    }
    Ok(())
}

fn node() -> Result<()> {
    const BASE: &str = "devices/system/node";
    for name in ["online", "possible", "has_cpu", "has_memory", "has_normal_memory"] {
        fixed(&format!("{BASE}/{name}"), "0")?;
    }
    cpu_list(&format!("{BASE}/node0/cpulist"), cpu::online)?;
    cpu_mask(&format!("{BASE}/node0/cpumap"), cpu::online)?;
    fixed(&format!("{BASE}/node0/distance"), "10")?;
    sysfs::add_text(&format!("{BASE}/node0/meminfo"), memory_numbers::node_memory)
}
