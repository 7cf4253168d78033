//! A workout for the per-CPU allocator, for the tests in the kernel and on the host.

use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr::NonNull;

use machine::cpu::CpuId;

use super::allocator::{self, PerCpuError, copy_of, usage};
use super::geometry::{ALIGN_MAX, CHUNK_BYTES, UNIT_BYTES, existing_cpus};
use super::report::check;
use crate::fallible;

/// What the workout does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Allocations and frees.
    pub operations: u32,
    /// Objects alive in the steady state.
    pub objects: usize,
    /// Sizes are multiples of this; with 1, alignments vary, too.
    pub bytes_step: usize,
    /// Largest object.
    pub bytes_max: usize,
    /// Where the random numbers begin.
    pub seed: u64,
    /// The invariants are checked after each of so many operations.
    pub check_every: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Of the steady state: bytes that were asked for (and what others use), in thousandths of the bytes of the blocks; the
    /// mean of all looks.
    pub utilisation_permille: u64,
    /// Blocks at most.
    pub blocks_max: u64,
}

struct Object {
    cookie: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

/// Numbers that look random: xorshift.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

impl Object {
    fn new(numbers: &mut Numbers, plan: &Plan, mark: u8) -> Result<Self, &'static str> {
        let bytes = plan.bytes_step * (1 + numbers.below(plan.bytes_max / plan.bytes_step));
        // Mostly words; now and then another alignment up to a cache line.
        let varies = plan.bytes_step == 1 && numbers.below(8) == 0;
        let align = if varies { 1 << numbers.below(ALIGN_MAX.ilog2() as usize + 1) } else { UNIT_BYTES };
        let layout = Layout::from_size_align(bytes, align).map_err(|_| "a layout is not valid")?;
        let cookie = allocator::allocate(layout).map_err(|_| "no memory")?;
        let object = Self { cookie, layout, mark };
        if cookie.addr().get() % align != 0 {
            return Err("an object is not aligned");
        }
        object.each_byte(|byte| {
            let was_zero = *byte == 0;
            *byte = mark;
            if was_zero { Ok(()) } else { Err("an object is not zeroed") }
        })?;
        Ok(object)
    }

    /// Visits all bytes of the first and the last CPU's copy.
    fn each_byte(
        &self,
        mut visit: impl FnMut(&mut u8) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let last = CpuId::from_index(existing_cpus().count() - 1);
        let cpus = [CpuId::BOOT, last];
        for cpu in &cpus[..if last == CpuId::BOOT { 1 } else { 2 }] {
            for offset in 0..self.layout.size() {
                // SAFETY: the object is ours alone, of this size on each CPU that exists.
                visit(unsafe { copy_of(self.cookie, *cpu).byte_add(offset).as_mut() })?;
            }
        }
        Ok(())
    }

    fn free(self) -> Result<(), &'static str> {
        let mark = self.mark;
        self.each_byte(|byte| if *byte == mark { Ok(()) } else { Err("an object was overwritten") })?;
        // SAFETY: allocated in `new`, and used no more.
        unsafe { allocator::free(self.cookie) };
        Ok(())
    }
}

/// Allocates and frees at random, checks that objects are zeroed, aligned, apart from each other and the blocks in order;
/// frees everything in the end.
///
/// # Errors
/// What was wrong.
pub fn random_operations(plan: &Plan) -> Result<Outcome, &'static str> {
    let mut numbers = Numbers(plan.seed | 1);
    let mut live: Vec<Object> = fallible::try_vec(2 * plan.objects).map_err(|_| "no memory for the test")?;
    let mut outcome = Outcome::default();
    let others = usage().used_bytes;
    let (mut looks, mut sum, mut requested) = (0_u64, 0_u64, 0_usize);
    for operation in 0..plan.operations {
        // First any number up to twice that of the steady state (the more there are, the likelier is a free), then one object
        // for another.
        let steady = operation > plan.operations / 2;
        let limit =
            if steady { live.len() < plan.objects } else { numbers.below(2 * plan.objects) >= live.len() };
        if limit {
            let object = Object::new(&mut numbers, plan, operation as u8 | 1)?;
            requested += object.layout.size();
            live.push(object);
        } else if !live.is_empty() {
            let object = live.swap_remove(numbers.below(live.len()));
            requested -= object.layout.size();
            object.free()?;
        }
        if operation.is_multiple_of(plan.check_every) {
            check()?;
        }
        if operation > plan.operations / 4 * 3 && operation.is_multiple_of(64) {
            let blocks = usage().blocks;
            outcome.blocks_max = outcome.blocks_max.max(blocks);
            sum += (requested as u64 + others) * 1000 / (blocks.max(1) * CHUNK_BYTES as u64);
            looks += 1;
        }
    }
    live.into_iter().try_for_each(Object::free)?;
    check()?;
    outcome.utilisation_permille = sum / looks.max(1);
    Ok(outcome)
}

/// Bytes between the copies of neighbouring CPUs of an object of a size, and where in its chunk it lies; it is freed again.
///
/// # Errors
/// Those of the allocator.
pub fn distances(layout: Layout) -> Result<Vec<usize>, PerCpuError> {
    let mut addresses = fallible::try_vec(existing_cpus().count())?;
    let cookie = allocator::allocate(layout)?;
    for cpu in existing_cpus().iter() {
        // SAFETY: allocated just now, for all CPUs that exist.
        addresses.push(unsafe { copy_of(cookie, cpu) }.addr().get() - cookie.addr().get());
    }
    // SAFETY: nobody else knows it.
    unsafe { allocator::free(cookie) };
    Ok(addresses)
}

/// Makes holes of 4, 2 and 3 units between objects of one unit in a fresh block, and returns where objects of 2, 3, 3 and 5
/// units go: their first units, relative to the first object's. Best fit is [5, 8, 0, 12].
///
/// # Errors
/// Those of the allocator.
pub fn best_fit() -> Result<[usize; 4], PerCpuError> {
    // Fill all blocks but for less than a unit, so that the next object begins a new block.
    let mut filler: Vec<NonNull<u8>> = fallible::try_vec(usage().blocks as usize * CHUNK_BYTES / UNIT_BYTES)?;
    let unit = |units: usize| {
        Layout::from_size_align(units * UNIT_BYTES, UNIT_BYTES).map_err(|_| PerCpuError::TooLarge)
    };
    let made = usage().made;
    let first = loop {
        let cookie = allocator::allocate(unit(1)?)?;
        if usage().made != made {
            break cookie;
        }
        filler.push(cookie);
    };
    // SAFETY: (all frees here) allocated here and used no more.
    unsafe { allocator::free(first) };
    let place = |cookie: NonNull<u8>| (cookie.addr().get() % CHUNK_BYTES) / UNIT_BYTES;
    let mut objects = [first; 6];
    for (object, units) in objects.iter_mut().zip([4, 1, 2, 1, 3, 1]) {
        *object = allocator::allocate(unit(units)?)?;
    }
    let base = place(objects[0]);
    for index in [0, 2, 4] {
        // SAFETY: see above.
        unsafe { allocator::free(objects[index]) };
    }
    let mut found = [first; 4];
    for (object, units) in found.iter_mut().zip([2, 3, 3, 5]) {
        *object = allocator::allocate(unit(units)?)?;
    }
    for cookie in found.into_iter().chain([1, 3, 5].map(|index| objects[index])).chain(filler) {
        // SAFETY: see above.
        unsafe { allocator::free(cookie) };
    }
    Ok(found.map(|cookie| place(cookie) - base))
}
