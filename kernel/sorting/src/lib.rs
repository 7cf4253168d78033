//! Sorting in place whose code is there once, for whatever kind of element.
//!
//! The library's `sort_unstable` takes some 4 KiB of the kernel's file for each kind of element, and lists are sorted seldom. This
//! one is a heapsort that knows its elements by their places only: what is different for each kind is a comparison and an exchange.
//! It allocates nothing, takes at most 2 n log₂ n comparisons whatever the order before, and does not keep the order of equals.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

/// Sorts the list.
pub fn sort<T: Ord>(list: &mut [T]) {
    sort_by(list, |one, other| one < other);
}

/// Sorts the list by a key of its elements.
pub fn sort_by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(list, |one, other| key(one) < key(other));
}

/// Sorts the list by a relation that says which of two elements comes before the other one.
pub fn sort_by<T>(list: &mut [T], is_before: impl Fn(&T, &T) -> bool) {
    heapsort(&mut Elements { list, is_before });
}

/// Elements as the algorithm sees them: numbered from 0.
trait Places {
    fn count(&self) -> usize;
    fn is_before(&self, one: usize, other: usize) -> bool;
    fn exchange(&mut self, one: usize, other: usize);
}

struct Elements<'a, T, F> {
    list: &'a mut [T],
    is_before: F,
}

impl<T, F: Fn(&T, &T) -> bool> Places for Elements<'_, T, F> {
    fn count(&self) -> usize {
        self.list.len()
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        (self.is_before)(&self.list[one], &self.list[other])
    }

    fn exchange(&mut self, one: usize, other: usize) {
        self.list.swap(one, other);
    }
}

/// The first `end` places become a heap whose last element is at its top, place 0; then the top changes places with the end of
/// the heap, which gets shorter by one, until nothing is left of it.
fn heapsort(places: &mut dyn Places) {
    let count = places.count();
    for top in (0..count / 2).rev() {
        sift_down(places, top, count);
    }
    for end in (1..count).rev() {
        places.exchange(0, end);
        sift_down(places, 0, end);
    }
}

/// Lets the element at `top` sink until none of the two below it comes after it.
fn sift_down(places: &mut dyn Places, mut top: usize, end: usize) {
    loop {
        let mut below = 2 * top + 1;
        if below >= end {
            return;
        }
        if below + 1 < end && places.is_before(below, below + 1) {
            below += 1;
        }
        if !places.is_before(top, below) {
            return;
        }
        places.exchange(top, below);
        top = below;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_orders_of_a_few_elements_are_sorted() {
        fn permute(list: &mut Vec<u8>, from: usize) {
            if from == list.len() {
                let mut sorted = list.clone();
                sort(&mut sorted);
                assert!(sorted.is_sorted(), "{list:?} became {sorted:?}");
            }
            for place in from..list.len() {
                list.swap(from, place);
                permute(list, from + 1);
                list.swap(from, place);
            }
        }
        for count in 0..8 {
            permute(&mut (0..count).collect(), 0);
        }
    }

    #[test]
    fn long_lists_with_equals_keep_all_elements() {
        let list: Vec<u32> = (0..5000u32).map(|number| number.wrapping_mul(2_654_435_761) % 700).collect();
        let mut expected = list.clone();
        expected.sort_unstable();
        let mut sorted = list;
        sort(&mut sorted);
        assert_eq!(sorted, expected);
    }

    #[test]
    fn keys_and_relations_decide() {
        let mut list = [(1, 'c'), (2, 'a'), (3, 'b')];
        sort_by_key(&mut list, |&(_, letter)| letter);
        assert_eq!(list.map(|(number, _)| number), [2, 3, 1]);
        sort_by(&mut list, |one, other| one.0 > other.0);
        assert_eq!(list.map(|(number, _)| number), [3, 2, 1]);
    }
}
