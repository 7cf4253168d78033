//! Where kernel stacks lie, and what a fault address means: pure arithmetic (specs/kernel-stacks.md §M3, §M5).
//!
//! The region from [`REGION_BASE`] on holds 2^23 slots of 64 KiB. A stack's *window* is the top `pages` pages of a run
//! of 2^k slots; below it lies at least one page that is never backed, the guard:
//!
//! ```text
//!   base                                                top = base + 2^k slots
//!   | guard … | page N-1 … | page mapped … | page 1 | page 0 |
//!   | never   | backed on first touch      | backed          |
//! ```
//!
//! Pages are counted from the top here, since that is the order in which they become backed. Layout A backs page N−1
//! (the lowest) from the start, for a header, as the thesis' first variant does; layout B does not.
//!
//! Invariant: the backed pages are the pages `0..mapped`, and in layout A page N−1 as well.

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Where the slots begin: entry 416 of the top-level page table.
pub const REGION_BASE: u64 = 0xffff_d000_0000_0000;
/// Bytes of address space that one entry of the top-level table covers, all of it used for stacks.
pub const REGION_BYTES: u64 = 512 << 30;
/// Bytes of a slot.
pub const SLOT_BYTES: u64 = 64 << 10;
/// Pages of a slot.
pub const SLOT_PAGES: u32 = (SLOT_BYTES / PAGE_BYTES) as u32;
/// The last GiB of the region holds the stack descriptors.
pub const TABLE_BYTES: u64 = 1 << 30;
/// Where the descriptors begin.
pub const TABLE_BASE: u64 = REGION_BASE + REGION_BYTES - TABLE_BYTES;
/// Slots that stacks may use.
pub const SLOTS: u32 = ((REGION_BYTES - TABLE_BYTES) / SLOT_BYTES) as u32;
/// A stack has at most 2^3 slots: 127 pages.
pub const MAX_SLOT_ORDER: u8 = 3;
/// The largest window.
pub const MAX_PAGES: u32 = (SLOT_PAGES << MAX_SLOT_ORDER) - 1;

/// Which pages a new stack has, besides the top one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// The lowest page too, with a header at its start.
    A,
    /// No other.
    #[default]
    B,
}

impl Layout {
    /// Pages at the bottom of the window that are backed from the start.
    pub const fn bottom_pages(self) -> u32 {
        match self {
            Self::A => 1,
            Self::B => 0,
        }
    }
}

/// log2 of the slots that a window of `pages` needs, its guard included.
pub const fn slot_order(pages: u32) -> u8 {
    let mut order = 0;
    while (SLOT_PAGES << order) - 1 < pages {
        order += 1;
    }
    order
}

/// The window of a stack and how much of it is backed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First slot; divisible by 2^`order`.
    pub slot: u32,
    /// log2 of the slots.
    pub order: u8,
    /// Pages of the window.
    pub pages: u32,
    /// Pages backed from the top on.
    pub mapped: u32,
    /// What is backed besides.
    pub layout: Layout,
}

impl Window {
    /// The first address of the slots: the guard's.
    pub const fn base(&self) -> u64 {
        REGION_BASE + self.slot as u64 * SLOT_BYTES
    }

    /// The address above the window.
    pub const fn top(&self) -> u64 {
        self.base() + (SLOT_BYTES << self.order)
    }

    /// The first address of the window.
    pub const fn bottom(&self) -> u64 {
        self.top() - self.pages as u64 * PAGE_BYTES
    }

    /// The first address of page `page`, counted from the top.
    pub const fn page_address(&self, page: u32) -> u64 {
        self.top() - (page as u64 + 1) * PAGE_BYTES
    }

    /// Pages that growth may still have to back.
    pub const fn growable(&self) -> u32 {
        self.pages.saturating_sub(self.mapped + self.layout.bottom_pages())
    }

    /// Whether the page, counted from the top, is backed.
    pub const fn is_backed(&self, page: u32) -> bool {
        page < self.mapped || (page < self.pages && page + self.layout.bottom_pages() >= self.pages)
    }

    /// What an address within the slots of this stack is.
    pub fn place(&self, address: u64) -> Place {
        debug_assert!(self.contains(address));
        if address < self.bottom() {
            return Place::Guard;
        }
        let page = ((self.top() - 1 - address) / PAGE_BYTES) as u32;
        if self.is_backed(page) { Place::Backed(page) } else { Place::Unbacked(page) }
    }

    /// Whether the address lies in the slots of this stack.
    pub const fn contains(&self, address: u64) -> bool {
        address >= self.base() && address < self.top()
    }
}

/// What an address in a stack's slots is; pages count from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Below the window.
    Guard,
    /// In a page that is there.
    Backed(u32),
    /// In a page that is not there yet.
    Unbacked(u32),
}

/// The slot that an address lies in; `None` outside of the slots.
pub const fn slot_of(address: u64) -> Option<u32> {
    if address < REGION_BASE || address >= TABLE_BASE {
        return None;
    }
    Some(((address - REGION_BASE) / SLOT_BYTES) as u32)
}

/// What a page fault is, as far as kernel stacks are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultClass {
    /// The fault has nothing to do with kernel stacks, or came from user mode.
    NotAStack,
    /// Pages from `first` to `last`, counted from the top, are to be backed.
    Grow {
        /// The first page that is not backed.
        first: u32,
        /// The page of the fault address.
        last: u32,
    },
    /// The stack has no room left.
    Overflow,
    /// A stack of a thread that does not run here, a slot without a stack, or an access that a backed page forbids.
    ForeignStack,
}

/// Classifies a page fault, given the privilege level of the interrupted code, the fault address, its stack pointer,
/// and the stack that runs on this CPU.
///
/// An access to the guard counts as overflow when the stack pointer is in this stack's slots too or the address is
/// just below the window; both hold for what runs on this stack, and code on an interrupt stack has no business there. The
/// page above the window is the guard of the slots above: who runs into it from this stack has left it by the other end.
pub fn classify(privilege: u8, address: u64, stack_pointer: u64, running: Option<&Window>) -> FaultClass {
    if privilege != 0 || slot_of(address).is_none() {
        return FaultClass::NotAStack;
    }
    let Some(window) = running.filter(|window| window.contains(address)) else {
        return match running {
            // A frame that began in the window and reached beyond the guard of this stack.
            Some(window) if window.contains(stack_pointer) && address < window.base() => {
                overreach(window, address)
            }
            Some(window) if window.contains(stack_pointer) && (address - window.top()) < PAGE_BYTES => {
                FaultClass::Overflow
            }
            _ => FaultClass::ForeignStack,
        };
    };
    match window.place(address) {
        Place::Guard => FaultClass::Overflow,
        Place::Backed(_) => FaultClass::ForeignStack,
        Place::Unbacked(page) => FaultClass::Grow { first: window.mapped, last: page },
    }
}

/// The compiler touches every page of a large frame in order, so an overflow is met in the guard; only hand-written
/// code can reach over it. One slot further down still counts as this stack's doing.
fn overreach(window: &Window, address: u64) -> FaultClass {
    if window.base() - address <= SLOT_BYTES { FaultClass::Overflow } else { FaultClass::ForeignStack }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window() -> impl Strategy<Value = Window> {
        (0..SLOTS / 16, 1..=MAX_PAGES, any::<bool>(), any::<u32>()).prop_map(
            |(slot, pages, layout_a, mapped)| {
                let order = slot_order(pages);
                let layout = if layout_a && pages > 1 { Layout::A } else { Layout::B };
                let mapped = 1 + mapped % (pages - layout.bottom_pages());
                Window { slot: slot << order, order, pages, mapped, layout }
            },
        )
    }

    #[test]
    fn the_default_window_fits_one_slot_and_leaves_a_guard() {
        assert_eq!(slot_order(4), 0);
        assert_eq!(slot_order(15), 0);
        assert_eq!(slot_order(16), 1);
        assert_eq!(slot_order(64), 3);
        assert_eq!(slot_order(MAX_PAGES), MAX_SLOT_ORDER);
    }

    #[test]
    fn figure_7_backs_exactly_the_page_of_the_fault() {
        let window = Window { slot: 7, order: 0, pages: 4, mapped: 1, layout: Layout::A };
        let address = window.bottom() + 2 * PAGE_BYTES + 0xe88;
        assert_eq!(classify(0, address, address, Some(&window)), FaultClass::Grow { first: 1, last: 1 });
        let backed: Vec<bool> = (0..4).map(|page| window.is_backed(page)).collect();
        assert_eq!(backed, [true, false, false, true]);
    }

    #[test]
    fn the_guards_at_both_ends_are_this_stacks() {
        let window = Window { slot: 7, order: 0, pages: 4, mapped: 2, layout: Layout::B };
        let class = |address| classify(0, address, window.top() - 64, Some(&window));
        assert_eq!(class(window.bottom() - 1), FaultClass::Overflow);
        assert_eq!(class(window.top()), FaultClass::Overflow);
        assert_eq!(class(window.top() + PAGE_BYTES), FaultClass::ForeignStack);
    }

    #[test]
    fn faults_from_user_mode_never_touch_stacks() {
        let window = Window { slot: 7, order: 0, pages: 4, mapped: 1, layout: Layout::B };
        assert_eq!(classify(3, window.top() - 8, window.top() - 8, Some(&window)), FaultClass::NotAStack);
    }

    proptest! {
        #[test]
        fn an_address_of_the_running_stack_is_placed(window in window(), offset in any::<u64>()) {
            let offset = offset % (window.top() - window.base());
            let address = window.base() + offset;
            let class = classify(0, address, window.top() - 64, Some(&window));
            match class {
                FaultClass::Grow { first, last } => {
                    prop_assert!(address >= window.bottom());
                    prop_assert!(first <= last && last < window.pages);
                    prop_assert!(last - first < window.growable());
                    prop_assert!((first..=last).all(|page| !window.is_backed(page)));
                    prop_assert_eq!(window.page_address(last), address & !(PAGE_BYTES - 1));
                }
                FaultClass::Overflow => prop_assert!(address < window.bottom()),
                FaultClass::ForeignStack => prop_assert!(matches!(window.place(address), Place::Backed(_))),
                FaultClass::NotAStack => prop_assert!(false, "the address is in a slot"),
            }
        }

        #[test]
        fn another_stack_is_never_grown(window in window(), address in REGION_BASE..TABLE_BASE, pointer in any::<u64>()) {
            prop_assume!(!window.contains(address));
            let class = classify(0, address, pointer, Some(&window));
            prop_assert!(matches!(class, FaultClass::ForeignStack | FaultClass::Overflow));
            if class == FaultClass::Overflow {
                let guard_above = window.top()..window.top() + PAGE_BYTES;
                prop_assert!(window.contains(pointer) && (address < window.base() || guard_above.contains(&address)));
            }
        }

        #[test]
        fn nothing_outside_of_the_region_concerns_stacks(address in any::<u64>(), window in window()) {
            prop_assume!(!(REGION_BASE..TABLE_BASE).contains(&address));
            prop_assert_eq!(classify(0, address, window.top() - 8, Some(&window)), FaultClass::NotAStack);
        }
    }
}
