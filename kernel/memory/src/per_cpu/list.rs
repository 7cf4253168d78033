//! The blocks, the fullest first.
//!
//! Sorted descending by used bytes; `first_not_full` is the first block with a free unit. An allocation walks from there,
//! so the fullest blocks that are not full fill up first and the others have a chance to become empty. A block changes its
//! place after every allocation and every free.

use core::ptr::NonNull;

use super::descriptor::Descriptor;

/// See the theory of this file. Blocks on it belong to it: nobody else reaches their descriptors.
pub(super) struct List {
    first: Option<NonNull<Descriptor>>,
    first_not_full: Option<NonNull<Descriptor>>,
}

// SAFETY: the list owns its blocks' descriptors, which are not bound to a CPU.
unsafe impl Send for List {}

impl List {
    pub(super) const fn new() -> Self {
        Self { first: None, first_not_full: None }
    }

    /// The descriptor of a block on this list.
    fn at(&self, block: NonNull<Descriptor>) -> &Descriptor {
        // SAFETY: blocks on the list are alive and reached only through it, here shared.
        unsafe { block.as_ref() }
    }

    fn at_mut(&mut self, mut block: NonNull<Descriptor>) -> &mut Descriptor {
        // SAFETY: as in `at`, here exclusively.
        unsafe { block.as_mut() }
    }

    /// Puts a block in, which from now on belongs to the list.
    ///
    /// # Safety
    /// The descriptor is alive and the caller's alone; it stays alive until it has been taken out.
    pub(super) unsafe fn insert(&mut self, block: NonNull<Descriptor>) {
        self.insert_behind(None, block);
    }

    /// Puts a block to its place, which is behind `start` (`None`: the beginning).
    fn insert_behind(&mut self, start: Option<NonNull<Descriptor>>, block: NonNull<Descriptor>) {
        let used = self.at(block).used_bytes();
        let mut previous = start;
        let mut next = self.behind(previous);
        while let Some(candidate) = next
            && self.at(candidate).used_bytes() > used
        {
            previous = next;
            next = self.at(candidate).next;
        }
        self.at_mut(block).previous = previous;
        self.at_mut(block).next = next;
        match previous {
            Some(previous) => self.at_mut(previous).next = Some(block),
            None => self.first = Some(block),
        }
        if let Some(next) = next {
            self.at_mut(next).previous = Some(block);
        }
        // All blocks in front of one that is not full, and of the first such one so far, are full.
        if !self.at(block).is_full() && self.first_not_full == next {
            self.first_not_full = Some(block);
        }
    }

    fn behind(&self, block: Option<NonNull<Descriptor>>) -> Option<NonNull<Descriptor>> {
        match block {
            Some(block) => self.at(block).next,
            None => self.first,
        }
    }

    /// Takes a block out; returns the one in front of it.
    pub(super) fn remove(&mut self, block: NonNull<Descriptor>) -> Option<NonNull<Descriptor>> {
        let (previous, next) = (self.at(block).previous, self.at(block).next);
        match previous {
            Some(previous) => self.at_mut(previous).next = next,
            None => self.first = next,
        }
        if let Some(next) = next {
            self.at_mut(next).previous = previous;
        }
        if self.first_not_full == Some(block) {
            self.first_not_full = next;
        }
        previous
    }

    /// Moves a block whose used bytes changed to its place.
    fn reposition(&mut self, block: NonNull<Descriptor>) {
        let mut start = self.remove(block);
        let used = self.at(block).used_bytes();
        while let Some(candidate) = start
            && self.at(candidate).used_bytes() < used
        {
            start = self.at(candidate).previous;
        }
        self.insert_behind(start, block);
    }

    /// Lets the first block with room do what `take` does; returns the block and the result.
    pub(super) fn allocate<R>(
        &mut self,
        mut take: impl FnMut(&mut Descriptor) -> Option<R>,
    ) -> Option<(NonNull<Descriptor>, R)> {
        let mut next = self.first_not_full;
        while let Some(block) = next {
            if let Some(result) = take(self.at_mut(block)) {
                self.reposition(block);
                return Some((block, result));
            }
            next = self.at(block).next;
        }
        None
    }

    /// Changes a block of the list so that it has fewer used bytes. An empty one is taken out; says whether it was.
    ///
    /// # Safety
    /// The block is on this list.
    pub(super) unsafe fn free<R>(
        &mut self,
        block: NonNull<Descriptor>,
        give: impl FnOnce(&mut Descriptor) -> R,
    ) -> (R, bool) {
        let result = give(self.at_mut(block));
        let empty = self.at(block).used_bytes() == 0;
        if empty {
            self.remove(block);
        } else {
            self.reposition(block);
        }
        (result, empty)
    }

    /// The blocks in order, with their addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NonNull<Descriptor>, &Descriptor)> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let block = next?;
            next = self.at(block).next;
            Some((block, self.at(block)))
        })
    }

    /// Checks the order and the blocks; for tests.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let (mut last, mut not_full, mut previous) = (usize::MAX, None, None);
        for (block, descriptor) in self.iter() {
            if descriptor.used_bytes() > last {
                return Err("the list is not sorted");
            }
            if descriptor.previous != previous {
                return Err("a block does not know the one in front");
            }
            if not_full.is_none() && !descriptor.is_full() {
                not_full = Some(block);
            }
            descriptor.check()?;
            (last, previous) = (descriptor.used_bytes(), Some(block));
        }
        if not_full == self.first_not_full { Ok(()) } else { Err("the first block with room is another") }
    }
}
