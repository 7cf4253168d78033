//! Clustered objects under loom: `RUSTFLAGS="--cfg loom" cargo test --release -p sync --test clustered_models`.
//!
//! A model of the protocol of `clustered`: one CPU that calls, and one that swaps the root or deletes the object. The fields
//! are those of `clustered::object`, for the calling CPU; a grace period is the wait until its read section has ended.
#![cfg(loom)]

use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};

const NORMAL: u8 = 0;
const FORWARD: u8 = 1;
const DELETED: u8 = 2;

struct Shared {
    phase: u8,
    /// Which root: 0 the old one, 1 the new one.
    root: u32,
}

struct Object {
    /// The calling CPU's entry: 0 empty, else 1 + the root whose representative it leads to.
    entry: AtomicU32,
    shared: Mutex<Shared>,
    tracked: AtomicU32,
    /// Whether the calling CPU is in a read section, and how many it has ended.
    reading: AtomicBool,
    sections: AtomicU64,
    /// Per root: what its representative has counted, and whether its node has been freed.
    counted: [AtomicU32; 2],
    freed: [AtomicBool; 2],
}

impl Object {
    fn new() -> Self {
        Self {
            entry: AtomicU32::new(0),
            shared: Mutex::new(Shared { phase: NORMAL, root: 0 }),
            tracked: AtomicU32::new(0),
            reading: AtomicBool::new(false),
            sections: AtomicU64::new(0),
            counted: [AtomicU32::new(0), AtomicU32::new(0)],
            freed: [AtomicBool::new(false), AtomicBool::new(false)],
        }
    }

    fn begin_section(&self) {
        self.reading.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn end_section(&self) {
        self.sections.fetch_add(1, Ordering::Release);
        self.reading.store(false, Ordering::Release);
    }

    /// Waits until a read section that runs now has ended.
    fn synchronize(&self) {
        fence(Ordering::SeqCst);
        let before = self.sections.load(Ordering::Acquire);
        while self.reading.load(Ordering::Acquire) && self.sections.load(Ordering::Acquire) == before {
            loom::thread::yield_now();
        }
    }

    /// One call; false if the object is gone.
    fn call(&self) -> bool {
        self.begin_section();
        let entry = self.entry.load(Ordering::Acquire);
        let done = if entry != 0 {
            let root = entry as usize - 1;
            assert!(!self.freed[root].load(Ordering::Relaxed), "an entry led to a node that was freed");
            // A representative of one CPU: a plain addition. A lost one would show.
            let value = self.counted[root].load(Ordering::Relaxed);
            self.counted[root].store(value + 1, Ordering::Relaxed);
            true
        } else {
            self.call_missed()
        };
        self.end_section();
        done
    }

    fn call_missed(&self) -> bool {
        let (root, tracked) = {
            let shared = self.shared.lock().unwrap();
            match shared.phase {
                DELETED => return false,
                FORWARD => self.tracked.fetch_add(1, Ordering::Relaxed),
                _ => {
                    self.entry.store(shared.root + 1, Ordering::Release);
                    0
                }
            };
            (shared.root as usize, shared.phase == FORWARD)
        };
        let value = self.counted[root].load(Ordering::Relaxed);
        self.counted[root].store(value + 1, Ordering::Relaxed);
        if tracked {
            self.tracked.fetch_sub(1, Ordering::Release);
        }
        true
    }

    fn swap(&self) {
        {
            let mut shared = self.shared.lock().unwrap();
            shared.phase = FORWARD;
            self.entry.store(0, Ordering::Release);
        }
        self.synchronize();
        self.freed[0].store(true, Ordering::Relaxed);
        let mut shared = self.shared.lock().unwrap();
        while self.tracked.load(Ordering::Acquire) != 0 {
            loom::thread::yield_now();
        }
        // The transfer: plain moves, nobody may be counting.
        let value = self.counted[0].load(Ordering::Relaxed);
        self.counted[0].store(0, Ordering::Relaxed);
        self.counted[1].store(value, Ordering::Relaxed);
        shared.root = 1;
        shared.phase = NORMAL;
    }

    fn delete(&self) {
        {
            let mut shared = self.shared.lock().unwrap();
            shared.phase = DELETED;
            self.entry.store(0, Ordering::Release);
        }
        self.synchronize();
        self.freed[0].store(true, Ordering::Relaxed);
    }
}

fn check(calls: u32, change: fn(&Object), after: fn(&Object, u32)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let object = Arc::new(Object::new());
        let called = object.clone();
        let caller = loom::thread::spawn(move || (0..calls).filter(|_| called.call()).count() as u32);
        change(&object);
        let made = caller.join().unwrap();
        after(&object, made);
    });
}

#[test]
fn no_call_is_lost_by_a_swap() {
    check(3, Object::swap, |object, made| {
        assert_eq!(made, 3);
        let counted = object.counted.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counted, [0, 3], "every call is counted where the state went");
    });
}

#[test]
fn a_deleted_object_is_not_called() {
    check(3, Object::delete, |object, made| {
        assert_eq!(object.counted[0].load(Ordering::Relaxed), made);
        assert!(!object.call(), "after the deletion calls fail");
    });
}
