//! Which pages a stack can do without: pure decisions (specs/kernel-stacks.md §M9).

use super::geometry::{PAGE_BYTES, Window};

/// Bytes beneath the saved stack pointer that stay, for what a switch pushes.
pub(crate) const TRIM_MARGIN_BYTES: u64 = 256;

/// Pages, counted from the top, that a stack must keep when its thread continues at `saved_pointer`: those that lie at
/// least in part above the margin beneath it. At least one, the top page, where system calls start.
pub(crate) fn pages_to_keep(window: &Window, saved_pointer: u64) -> u32 {
    let lowest_live = saved_pointer.saturating_sub(TRIM_MARGIN_BYTES);
    if lowest_live >= window.top() || lowest_live < window.bottom() {
        // Not a pointer into this window: nothing is known, so nothing is taken.
        return window.mapped;
    }
    let page = (window.top() - 1 - lowest_live) / PAGE_BYTES;
    (page as u32 + 1).min(window.mapped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::geometry::{Layout, SLOTS, slot_order};
    use super::*;

    proptest! {
        #[test]
        fn nothing_above_the_saved_pointer_is_taken(slot in 0..SLOTS / 8, pages in 1u32..16, mapped in 1u32..16, offset in 0u64..16 * 4096) {
            let window = Window { slot, order: slot_order(pages), pages, mapped: mapped.min(pages), layout: Layout::B };
            let pointer = window.top() - 1 - offset % (u64::from(pages) * PAGE_BYTES);
            let keep = pages_to_keep(&window, pointer);
            prop_assert!(keep >= 1 && keep <= window.mapped);
            // The first byte of what is taken is at least the margin below the pointer.
            if keep < window.mapped {
                prop_assert!(window.page_address(keep) + PAGE_BYTES <= pointer - TRIM_MARGIN_BYTES);
            }
        }
    }

    #[test]
    fn a_pointer_elsewhere_takes_nothing() {
        let window = Window { slot: 3, order: 0, pages: 4, mapped: 3, layout: Layout::B };
        assert_eq!(pages_to_keep(&window, 0), 3);
        assert_eq!(pages_to_keep(&window, window.top() + 4096), 3);
    }

    #[test]
    fn a_shallow_sleeper_keeps_one_page() {
        let window = Window { slot: 3, order: 0, pages: 4, mapped: 4, layout: Layout::B };
        assert_eq!(pages_to_keep(&window, window.top() - 1500), 1);
        assert_eq!(pages_to_keep(&window, window.top() - 3900), 2);
    }
}
