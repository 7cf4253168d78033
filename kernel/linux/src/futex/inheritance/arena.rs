//! Values that are named by index: places are used again, and the memory of many goes back when none is used.

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops;

use memory::OutOfMemory;
use memory::fallible::try_reserve;

/// Room that an empty arena keeps.
const KEPT: usize = 32;

/// The name of a value in an [`Arena`] of kind `N`.
pub(super) struct Index<N> {
    number: u32,
    kind: PhantomData<N>,
}

impl<N> Index<N> {
    pub(super) const fn new(number: u32) -> Self {
        Index { number, kind: PhantomData }
    }

    pub(super) const fn number(self) -> u32 {
        self.number
    }
}

impl<N> Clone for Index<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Index<N> {}

impl<N> PartialEq for Index<N> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<N> core::fmt::Debug for Index<N> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{}", self.number)
    }
}

/// See the module.
pub(super) struct Arena<T, N> {
    places: Vec<Option<T>>,
    /// Numbers of free places; has room for all that there are.
    free: Vec<u32>,
    kind: PhantomData<N>,
}

impl<T, N> Arena<T, N> {
    pub(super) const fn new() -> Self {
        Arena { places: Vec::new(), free: Vec::new(), kind: PhantomData }
    }

    /// Makes sure that so many more values find a place.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let new = more.saturating_sub(self.free.len());
        try_reserve(&mut self.places, new)?;
        let free = self.places.len() + new - self.free.len();
        try_reserve(&mut self.free, free)
    }

    /// Takes a value in; a place was reserved.
    pub(super) fn put(&mut self, value: T) -> Index<N> {
        let number = match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = Some(value);
                number
            }
            None => {
                self.places.push(Some(value));
                self.places.len() as u32 - 1
            }
        };
        Index::new(number)
    }

    /// Takes a value out.
    pub(super) fn take(&mut self, index: Index<N>) -> T {
        let value = self.places[index.number as usize].take().expect("an index names a value");
        self.free.push(index.number);
        if self.free.len() == self.places.len() {
            self.clear();
        }
        value
    }

    /// Nothing is in it: gives back what it does not need soon.
    fn clear(&mut self) {
        self.places.clear();
        self.free.clear();
        if self.places.capacity() > KEPT {
            (self.places, self.free) = (Vec::new(), Vec::new());
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    #[cfg(test)]
    pub(super) fn indices(&self) -> impl Iterator<Item = Index<N>> {
        let used =
            |(number, place): (usize, &Option<T>)| place.is_some().then_some(Index::new(number as u32));
        self.places.iter().enumerate().filter_map(used)
    }
}

impl<T, N> ops::Index<Index<N>> for Arena<T, N> {
    type Output = T;
    fn index(&self, index: Index<N>) -> &T {
        self.places[index.number as usize].as_ref().expect("an index names a value")
    }
}

impl<T, N> ops::IndexMut<Index<N>> for Arena<T, N> {
    fn index_mut(&mut self, index: Index<N>) -> &mut T {
        self.places[index.number as usize].as_mut().expect("an index names a value")
    }
}
