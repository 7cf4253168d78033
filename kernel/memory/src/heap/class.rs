//! The size classes of the heap.
//!
//! Up to 128 bytes: 8, 16, 24, 32 and then steps of 16. Above: eight classes a doubling, so that at most one byte in
//! eight is wasted inside an object (832 and 1024 are classes of their own). The largest is 8 KiB; what is larger is
//! made of whole frames.
//!
//! What is larger than a cache line is made of whole lines, at most 63 bytes more than it needs: two objects that different CPUs
//! write never meet in a line. Smaller ones do; what CPUs write often is larger, or padded.
//!
//! A slab of a class is a block of 2^order frames, aligned to its size: the slab of an object is found by masking. The
//! order is the smallest that wastes at most an eighth of the slab, and 3 for the few sizes that always waste a little more.

use core::alloc::Layout;

const PAGE_BYTES: u32 = 4096;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
const SMALL_CLASSES: usize = 10;
const SMALL_SIZES: [u32; SMALL_CLASSES] = [8, 16, 24, 32, 48, 64, 80, 96, 112, 128];
/// log2 of the largest of the small classes.
const SMALL_SHIFT: u32 = 7;
/// log2 of the classes a doubling.
const STEPS_SHIFT: u32 = 3;
/// Doublings above the small classes: 128 bytes to 8 KiB.
const DOUBLINGS: usize = 6;
/// Larger slabs are hard to find once memory is fragmented.
const MAX_SLAB_ORDER: u8 = 3;

/// How many size classes there are.
pub(crate) const CLASSES: usize = SMALL_CLASSES + (DOUBLINGS << STEPS_SHIFT);

/// The largest size that slabs serve.
pub(crate) const MAX_SLAB_OBJECT: usize = 8192;

/// One size class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    /// Bytes of an object.
    pub(crate) size: u32,
    /// A slab has 2^order frames.
    pub(crate) order: u8,
    /// Objects in a slab.
    pub(crate) objects: u16,
    /// Objects that go between a CPU's magazine and the slabs at once.
    pub(crate) batch: u16,
}

impl Class {
    /// Objects in a CPU's magazine beyond which a batch goes back.
    pub(crate) const fn magazine_limit(&self) -> u32 {
        self.batch as u32 * 2
    }

    #[cfg(test)]
    const fn slab_bytes(&self) -> usize {
        (PAGE_BYTES as usize) << self.order
    }

    const fn of_size(size: u32) -> Self {
        let mut order = 0;
        while order < MAX_SLAB_ORDER {
            let bytes = PAGE_BYTES << order;
            if bytes / size > 0 && bytes % size <= bytes / 8 {
                break;
            }
            order += 1;
        }
        let objects = (PAGE_BYTES << order) / size;
        // About 8 KiB at a time: small enough that 64 CPUs do not hoard, large enough that the lock is rare.
        let wanted = 8192 / size;
        let batch = if wanted > 32 {
            32
        } else if wanted < 2 {
            2
        } else {
            wanted
        };
        Self { size, order, objects: objects as u16, batch: batch as u16 }
    }
}

/// All the classes by index.
pub(crate) static TABLE: [Class; CLASSES] = build_table();

const fn build_table() -> [Class; CLASSES] {
    let mut table = [Class::of_size(8); CLASSES];
    let mut index = 0;
    while index < CLASSES {
        table[index] = Class::of_size(size_of_index(index));
        index += 1;
    }
    table
}

const fn size_of_index(index: usize) -> u32 {
    if index < SMALL_CLASSES {
        return SMALL_SIZES[index];
    }
    let above = (index - SMALL_CLASSES) as u32;
    let shift = SMALL_SHIFT + (above >> STEPS_SHIFT);
    let step = (above & ((1 << STEPS_SHIFT) - 1)) + 1;
    (1 << shift) + (step << (shift - STEPS_SHIFT))
}

/// Class of each small size, by the size in units of 8 bytes, rounded up.
static SMALL_INDEX: [u8; 17] = [0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9];

/// The smallest class whose objects have at least `size` bytes, for sizes up to [`MAX_SLAB_OBJECT`].
#[inline]
const fn index_of_size(size: usize) -> usize {
    debug_assert!(size <= MAX_SLAB_OBJECT);
    if size <= 1 << SMALL_SHIFT {
        return SMALL_INDEX[size.div_ceil(8)] as usize;
    }
    let last = (size - 1) as u32;
    let shift = last.ilog2();
    let step = (last >> (shift - STEPS_SHIFT)) & ((1 << STEPS_SHIFT) - 1);
    SMALL_CLASSES + (((shift - SMALL_SHIFT) << STEPS_SHIFT) + step) as usize
}

/// The class that serves a layout; `None` when slabs do not.
///
/// Objects lie at multiples of the class's size in a slab that is aligned to a page, so an alignment is served by a
/// class whose size it divides. A class of a power-of-two size follows within one doubling.
#[inline]
pub(crate) fn index_of_layout(layout: Layout) -> Option<usize> {
    let (size, align) = (layout.size(), layout.align());
    if size > MAX_SLAB_OBJECT || align > PAGE_BYTES as usize {
        return None;
    }
    let size = size.max(align);
    let size = if size > LINE_BYTES { size.next_multiple_of(LINE_BYTES) } else { size };
    let mut index = index_of_size(size);
    if align > 8 {
        while TABLE[index].size as usize & (align - 1) != 0 {
            index += 1;
        }
    }
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for size in 1..=MAX_SLAB_OBJECT {
            let index = index_of_size(size);
            assert!(TABLE[index].size as usize >= size);
            assert!(
                index == 0 || (TABLE[index - 1].size as usize) < size,
                "size {size} would fit a smaller class"
            );
        }
    }

    #[test]
    fn at_most_an_eighth_is_wasted_above_the_small_classes() {
        for size in 129..=MAX_SLAB_OBJECT {
            let class = &TABLE[index_of_size(size)];
            assert!((class.size as usize - size) * 8 <= size, "{size} in {}", class.size);
        }
    }

    #[test]
    fn sizes_that_thread_objects_have_are_exact() {
        for size in [832, 896, 960, 1024, 1152, 1280] {
            assert_eq!(TABLE[index_of_size(size)].size as usize, size);
        }
    }

    #[test]
    fn slabs_waste_at_most_a_fifth_and_stay_small() {
        for class in &TABLE {
            let bytes = class.slab_bytes() as u32;
            assert!(class.order <= MAX_SLAB_ORDER);
            assert!(class.objects >= 1);
            let used = u32::from(class.objects) * class.size;
            assert!((bytes - used) * 5 <= bytes, "class {} wastes {} of {bytes}", class.size, bytes - used);
        }
    }

    #[test]
    fn alignments_are_served() {
        for size in [1, 8, 24, 40, 100, 200, 832, 1500, 5000, 8192] {
            for shift in 0..=12 {
                let align = 1 << shift;
                let layout = Layout::from_size_align(size, align).expect("a valid layout");
                let index = index_of_layout(layout).expect("slabs serve it");
                assert_eq!(TABLE[index].size as usize % align, 0);
                assert!(TABLE[index].size as usize >= size);
            }
        }
    }

    #[test]
    fn what_is_larger_than_a_line_shares_none() {
        for size in 65..=MAX_SLAB_OBJECT {
            let layout = Layout::from_size_align(size, 8).expect("a valid layout");
            let index = index_of_layout(layout).expect("slabs serve it");
            assert_eq!(TABLE[index].size as usize % LINE_BYTES, 0, "{size} bytes");
        }
    }

    #[test]
    fn what_slabs_cannot_serve_is_refused() {
        for (size, align) in [(8193, 8), (64, 8192), (1 << 20, 1)] {
            assert!(index_of_layout(Layout::from_size_align(size, align).expect("valid")).is_none());
        }
    }
}
