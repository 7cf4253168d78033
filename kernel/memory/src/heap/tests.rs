//! The heap against what its users rely on: objects do not overlap, memory comes back.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use proptest::prelude::*;

use super::class::TABLE;
use super::slab::Refusal;
use super::{class, magazine, slab};

/// Slabs and magazines are the machine's; a test that counts them must be alone.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    // With magazines, as in the kernel.
    crate::initialize();
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn fill(object: NonNull<u8>, size: usize, byte: u8) {
    // SAFETY: the object was allocated with at least this size and is ours.
    unsafe { object.write_bytes(byte, size) };
}

fn is_filled(object: NonNull<u8>, size: usize, byte: u8) -> bool {
    // SAFETY: the object was filled by us and is still ours.
    unsafe { std::slice::from_raw_parts(object.as_ptr(), size) }.iter().all(|&found| found == byte)
}

#[test]
fn the_object_freed_last_is_reused_first() {
    let _alone = alone();
    let index = class::index_of_layout(std::alloc::Layout::new::<[u64; 5]>()).expect("a small layout");
    let first = magazine::allocate(index, Refusal::Error).expect("memory");
    // SAFETY: allocated just now.
    unsafe { magazine::free(index, first) };
    let second = magazine::allocate(index, Refusal::Error).expect("memory");
    assert_eq!(first, second);
    // SAFETY: as above.
    unsafe { magazine::free(index, second) };
}

#[test]
fn every_class_gives_all_objects_of_several_slabs_and_takes_them_back() {
    let _alone = alone();
    magazine::drain_this_cpu();
    slab::free_empty();
    for (index, class) in TABLE.iter().enumerate() {
        let size = class.size as usize;
        let before = slab::counts(index);
        let count = usize::from(class.objects) * 3 + 5;
        let objects: Vec<_> =
            (0..count).map(|_| magazine::allocate(index, Refusal::Error).expect("memory")).collect();
        for (number, object) in objects.iter().enumerate() {
            fill(*object, size, number as u8);
        }
        assert!(slab::counts(index).slabs >= before.slabs + 3);
        for (number, object) in objects.iter().enumerate() {
            assert!(is_filled(*object, size, number as u8), "an object of {size} bytes overlaps another");
            // SAFETY: allocated above.
            unsafe { magazine::free(index, *object) };
        }
        magazine::drain_this_cpu();
        slab::free_empty();
        let after = slab::counts(index);
        assert_eq!((after.slabs, after.in_use), (before.slabs, before.in_use), "class of {size} bytes");
    }
}

#[test]
#[should_panic(expected = "written after it was freed")]
fn writing_to_a_freed_object_is_caught() {
    let _alone = alone();
    let index = 20;
    let object = magazine::allocate(index, Refusal::Error).expect("memory");
    // SAFETY: allocated just now.
    unsafe { magazine::free(index, object) };
    // SAFETY: this is the misuse that the test is about; the memory exists.
    unsafe { object.add(16).write(1) };
    magazine::allocate(index, Refusal::Error);
}

#[test]
fn objects_freed_on_another_processor_come_back() {
    let _alone = alone();
    let index = class::index_of_layout(std::alloc::Layout::new::<[u64; 100]>()).expect("a small layout");
    let before = slab::counts(index).in_use;
    let objects: Vec<usize> = (0..500)
        .map(|_| magazine::allocate(index, Refusal::Error).expect("memory").as_ptr().expose_provenance())
        .collect();
    std::thread::spawn(move || {
        for object in objects {
            let object = NonNull::new(std::ptr::with_exposed_provenance_mut(object)).expect("not null");
            // SAFETY: allocated by the other thread, which gave it away.
            unsafe { magazine::free(index, object) };
        }
        magazine::drain_this_cpu();
    })
    .join()
    .expect("the thread ends");
    magazine::drain_this_cpu();
    assert!(slab::counts(index).in_use <= before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn live_objects_never_overlap(steps in prop::collection::vec((any::<bool>(), 1usize..3000, any::<u16>()), 1..400)) {
        let _alone = alone();
        let mut live: BTreeMap<usize, (usize, usize, u8)> = BTreeMap::new();
        for (number, (take, size, pick)) in steps.into_iter().enumerate() {
            if take {
                let layout = std::alloc::Layout::from_size_align(size, 8).expect("valid");
                let index = class::index_of_layout(layout).expect("slabs serve it");
                let object = magazine::allocate(index, Refusal::Error).expect("memory");
                let address = object.as_ptr().expose_provenance();
                let below = live.range(..address + size).next_back();
                prop_assert!(below.is_none_or(|(&other, &(length, ..))| other + length <= address));
                fill(object, size, number as u8);
                live.insert(address, (size, index, number as u8));
            } else if !live.is_empty() {
                let address = *live.keys().nth(usize::from(pick) % live.len()).expect("not empty");
                let (size, index, byte) = live.remove(&address).expect("just found");
                let object = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("not null");
                prop_assert!(is_filled(object, size, byte));
                // SAFETY: allocated above.
                unsafe { magazine::free(index, object) };
            }
        }
        for (address, (_, index, _)) in live {
            let object = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("not null");
            // SAFETY: allocated above.
            unsafe { magazine::free(index, object) };
        }
    }
}
