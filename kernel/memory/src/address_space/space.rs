//! The address space object: creation, end, activation.

use super::account;
use super::gather::Gather;
use super::registry::Registration;
use super::request::Limits;
use super::tables::{self, Tables};
use crate::OutOfMemory;
use crate::fallible;
use crate::frame::{Frame, Purpose, Zeroed};
use crate::parking::SleepLock;
use crate::region::{RegionFlags, RegionTree};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use machine::address::{PhysAddr, USER_END, UserAddr};
use machine::cpu::CpuSet;
use machine::fault::{self, FaultError};
use sync::LocalReadLock;

/// One past the highest user address.
pub const USER_TOP: u64 = USER_END as u64;

/// The lowest address that programs may map (`/proc/sys/vm/mmap_min_addr`): null pointers with offsets stay faults.
pub const MINIMUM_ADDRESS: u64 = 0x1_0000;

/// Regions of one address space (`/proc/sys/vm/max_map_count`).
pub const MAX_REGIONS: usize = 65_530;

/// Where things go that don't say where. Changed under `change`.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Mappings are placed below this address, the highest place first.
    pub mapping_top: u64,
    /// They are placed above it instead, the lowest place first.
    pub upwards: bool,
    /// Where the heap begins.
    pub break_start: u64,
    /// Where it ends now.
    pub break_end: u64,
    /// New mappings are locked (mlockall with MCL_FUTURE).
    pub(super) lock_future: RegionFlags,
}

/// Pages in memory, by kind. Changed by faults and changers; sums are true when nobody changes.
#[derive(Default)]
pub(super) struct Resident {
    pub(super) private: AtomicI64,
    pub(super) file: AtomicI64,
    pub(super) shared_memory: AtomicI64,
    /// The largest sum that was seen (by those who make it smaller, or ask).
    pub(super) peak: AtomicU64,
}

impl Resident {
    pub(super) fn sum(&self) -> u64 {
        let sum = self.private.load(Ordering::Relaxed)
            + self.file.load(Ordering::Relaxed)
            + self.shared_memory.load(Ordering::Relaxed);
        sum.max(0).cast_unsigned()
    }

    pub(super) fn note_peak(&self) {
        let sum = self.sum();
        if self.peak.load(Ordering::Relaxed) < sum {
            self.peak.fetch_max(sum, Ordering::Relaxed);
        }
    }
}

/// The limits, each on its own.
pub(super) struct LimitCells {
    pub(super) address_space: AtomicU64,
    pub(super) data: AtomicU64,
    pub(super) stack: AtomicU64,
    pub(super) locked: AtomicU64,
}

impl LimitCells {
    fn new(limits: Limits) -> LimitCells {
        LimitCells {
            address_space: AtomicU64::new(limits.address_space),
            data: AtomicU64::new(limits.data),
            stack: AtomicU64::new(limits.stack),
            locked: AtomicU64::new(limits.locked),
        }
    }

    fn get(&self) -> Limits {
        Limits {
            address_space: self.address_space.load(Ordering::Relaxed),
            data: self.data.load(Ordering::Relaxed),
            stack: self.stack.load(Ordering::Relaxed),
            locked: self.locked.load(Ordering::Relaxed),
        }
    }
}

/// The memory of a program. See the theory of [the module](super).
pub struct AddressSpace {
    /// Read by each fault, without a line that other processors write.
    pub(super) regions: LocalReadLock<RegionTree>,
    pub(super) tables: Arc<Tables>,
    pub(super) resident: Resident,
    /// A fork is sharing pages. Set with `regions` held for writing, under `change`.
    pub(super) copying: AtomicBool,
    /// Some of the leaf tables may be closed: other spaces link to them, or huge pages lie in their place. Set under `change`, and for good.
    pub(super) closes_tables: AtomicBool,
    /// The program wants no huge pages. Written by its threads.
    pub(super) no_huge_pages: AtomicBool,
    pub(super) change: SleepLock<Layout>,
    /// Pages in locked regions. Written under `change`.
    pub(super) locked_pages: AtomicU64,
    /// The largest number of mapped pages. Written under `change`.
    pub(super) peak_pages: AtomicU64,
    pub(super) limits: LimitCells,
    /// Processes that have it; see [`super::Hold`].
    pub(super) holds: AtomicU32,
    registration: Registration,
}

/// The frame of zeros that read faults of anonymous memory show.
static ZERO_PAGE: AtomicU64 = AtomicU64::new(0);

/// Prepares what all address spaces use and takes over page faults at user addresses. Only the first call does anything;
/// creating an address space makes it.
///
/// # Errors
/// When there is no memory for the page of zeros.
pub fn initialize() -> Result<(), OutOfMemory> {
    if ZERO_PAGE.load(Ordering::Acquire) == 0 {
        let frame = Frame::allocate(Purpose::Kernel, Zeroed::Yes)?;
        let address = frame.physical().as_u64();
        if ZERO_PAGE.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let _ = frame.into_physical();
            fault::set_user_fault_handler(resolve_fault);
        }
    }
    Ok(())
}

/// Resolves a fault of the program that runs on this processor.
fn resolve_fault(address: UserAddr, access: fault::Access) -> Result<(), FaultError> {
    match AddressSpace::current() {
        Some(space) => space.fault(address, access),
        None => Err(FaultError::NotMapped),
    }
}

#[inline(always)]
pub(super) fn zero_page() -> PhysAddr {
    PhysAddr::new(ZERO_PAGE.load(Ordering::Relaxed))
}

impl AddressSpace {
    /// An empty address space without limits.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new() -> Result<Arc<AddressSpace>, OutOfMemory> {
        let layout = Layout {
            mapping_top: USER_TOP,
            upwards: false,
            break_start: 0,
            break_end: 0,
            lock_future: RegionFlags::empty(),
        };
        AddressSpace::with_regions(RegionTree::new(), layout, Limits::NONE)
    }

    pub(super) fn with_regions(
        regions: RegionTree,
        layout: Layout,
        limits: Limits,
    ) -> Result<Arc<AddressSpace>, OutOfMemory> {
        initialize()?;
        let peak_pages = AtomicU64::new(regions.pages());
        let registration = Registration::reserve()?;
        let tables = fallible::try_arc(Tables::new()?)?;
        let space = fallible::try_arc(AddressSpace {
            regions: LocalReadLock::new(regions),
            tables,
            resident: Resident::default(),
            copying: AtomicBool::new(false),
            closes_tables: AtomicBool::new(false),
            no_huge_pages: AtomicBool::new(false),
            change: SleepLock::new(layout),
            locked_pages: AtomicU64::new(0),
            peak_pages,
            limits: LimitCells::new(limits),
            holds: AtomicU32::new(0),
            registration,
        })?;
        space.tables.set_owner(&space);
        space.registration.publish(&space);
        Ok(space)
    }

    /// The limits of the process apply from now on.
    pub fn set_limits(&self, limits: Limits) {
        self.limits.address_space.store(limits.address_space, Ordering::Relaxed);
        self.limits.data.store(limits.data, Ordering::Relaxed);
        self.limits.stack.store(limits.stack, Ordering::Relaxed);
        self.limits.locked.store(limits.locked, Ordering::Relaxed);
    }

    /// The limits that apply.
    pub fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// Mappings go below this address from now on (set by exec, randomised).
    pub fn set_mapping_top(&self, top: UserAddr) {
        self.change.lock().mapping_top = top.as_u64().min(USER_TOP);
    }

    /// Mappings go above this address from now on, the lowest place first (the layout that Linux calls legacy).
    pub fn set_mapping_bottom(&self, bottom: UserAddr) {
        let mut layout = self.change.lock();
        (layout.mapping_top, layout.upwards) = (bottom.as_u64().min(USER_TOP), true);
    }

    /// Where things are.
    pub fn layout(&self) -> Layout {
        *self.change.lock()
    }

    /// Loads the page tables into this processor: the running thread belongs to the program from now on. Called by the
    /// scheduler with preemption disabled.
    #[inline]
    pub fn activate(&self) {
        self.tables.activate();
    }

    /// The processors that run the program now, for barriers: one that is not among them and runs it later has ordered all accesses to
    /// memory in between. The caller has made a full barrier before.
    pub fn running_on(&self) -> CpuSet {
        self.tables.running_on()
    }

    /// Says that this processor runs no program now; the loaded tables stay. Called by the scheduler with preemption
    /// disabled, when it switches to a kernel thread.
    pub fn enter_lazy() {
        tables::enter_lazy();
    }

    /// The address space that is loaded into this processor.
    pub fn current() -> Option<Arc<AddressSpace>> {
        tables::current()
    }

    /// A number that no other living address space has.
    pub fn id(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }

    /// Removes all regions. Nobody uses the space any more.
    fn clear(&mut self) {
        self.tables.unload();
        self.resident.note_peak();
        let mut gather = Gather::for_unloaded(&self.tables);
        let mut released = 0;
        let mut floor = 0;
        let regions = self.regions.get_mut();
        let mut position = regions.first();
        while let Some(current) = position {
            position = regions.next(current);
            let region = regions.at(current);
            let ceiling = position.map_or(super::unmap::TABLE_TOP, |next| regions.at(next).start());
            super::unmap::zap(&self.tables, region.start()..region.end(), &mut gather);
            if region.flags().contains(RegionFlags::POOLED) {
                super::pooled::end(&self.tables, region);
            }
            super::unmap::free_tables(
                &self.tables,
                region.start()..region.end(),
                floor,
                ceiling,
                &mut gather,
            );
            // Tables that reach into the next region are freed with it: everything below is gone.
            floor = 0;
            if region.flags().contains(RegionFlags::ACCOUNTED) {
                released += region.pages();
            }
        }
        drop(gather);
        account::release(released);
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        self.clear();
    }
}
