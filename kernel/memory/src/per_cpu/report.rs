//! What can be seen of the per-CPU allocator: `/proc/starling/percpu_blocks`, and what tests look at.

use alloc::vec::Vec;
use core::fmt;

use super::allocator::{BLOCKS, Usage, base_of, usage};
use super::descriptor::{FRAMES, SECTION_PAGES};
use super::geometry::{CHUNK_BYTES, UNITS, existing_cpus};
use crate::{OutOfMemory, fallible};

/// One block.
#[derive(Clone, Debug)]
pub struct BlockReport {
    /// Its first address, which is that of CPU 0's chunk.
    pub start: usize,
    /// Bytes of objects in a chunk.
    pub used_bytes: usize,
    /// How many objects.
    pub objects: usize,
    /// One bit a unit of 8 bytes, 1 = taken.
    pub bitmap: [u64; UNITS / 64],
    /// The numbers of the frames: two for each CPU's chunk, 0 for CPUs that do not exist; then the management section's.
    pub frames: [u32; FRAMES],
}

/// The blocks, in the order in which allocations look at them.
///
/// # Errors
/// When there is no memory for the report.
pub fn blocks() -> Result<Vec<BlockReport>, OutOfMemory> {
    let wanted = usage().blocks as usize + 4;
    let mut reports = fallible::try_vec(wanted)?;
    let blocks = BLOCKS.lock();
    for (address, block) in blocks.list.iter().take(wanted) {
        let mut bitmap = [0; UNITS / 64];
        bitmap.copy_from_slice(block.bitmap());
        reports.push(BlockReport {
            start: base_of(address).addr().get(),
            used_bytes: block.used_bytes(),
            objects: block.objects().count(),
            bitmap,
            frames: block.frames,
        });
    }
    Ok(reports)
}

/// Checks the order of the blocks and what each knows of itself; for tests.
///
/// # Errors
/// What is wrong.
pub fn check() -> Result<(), &'static str> {
    BLOCKS.lock().list.check()
}

/// The text of `/proc/starling/percpu_blocks`.
///
/// # Errors
/// Those of the writer.
pub fn write_blocks(out: &mut dyn fmt::Write) -> fmt::Result {
    let Usage { blocks: count, objects, used_bytes, allocations, frees, made, destroyed } = usage();
    writeln!(
        out,
        "blocks {count} objects {objects} used {used_bytes} of {} allocations {allocations} frees {frees} made {made} \
         destroyed {destroyed}",
        count as usize * CHUNK_BYTES
    )?;
    let Ok(reports) = blocks() else { return Ok(()) };
    for block in reports {
        writeln!(out, "block {:#x} used {} objects {}", block.start, block.used_bytes, block.objects)?;
        write!(out, "  bitmap")?;
        block.bitmap.iter().try_for_each(|word| write!(out, " {word:016x}"))?;
        writeln!(out)?;
        for cpu in existing_cpus().iter() {
            let first = cpu.index() * SECTION_PAGES;
            write!(out, "  cpu {cpu} node 0 frames")?;
            block.frames[first..first + SECTION_PAGES]
                .iter()
                .try_for_each(|frame| write!(out, " {frame:#x}"))?;
            writeln!(out)?;
        }
        write!(out, "  management frames")?;
        block.frames[FRAMES - SECTION_PAGES..].iter().try_for_each(|frame| write!(out, " {frame:#x}"))?;
        writeln!(out)?;
    }
    Ok(())
}
