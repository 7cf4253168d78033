//! The classes there are, by number.
//!
//! A class is known by its name's text, its kind and its nesting. Looking one up compares addresses only: a hash table leads
//! from (address and length of the name, kind, nesting) to the number. The compiler may keep a text in several places; then
//! several keys lead to one number. Entries are only ever added, under a lock; a key is published after its number.

use core::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};

use machine::{interrupt, preempt};

use super::Kind;
use crate::QueueLock;

/// Most classes there can be; those beyond are not checked, and counted together.
pub(super) const CLASSES_MAX: usize = 512;
const KEYS: usize = 2048;

/// The number of a class; 0 is for those that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassId(pub(super) u16);

struct Record {
    address: AtomicUsize,
    length: AtomicUsize,
    /// Kind and nesting.
    variety: AtomicU16,
}

struct Slot {
    /// 0 while the slot is free.
    key: AtomicU64,
    class: AtomicU16,
}

static RECORDS: [Record; CLASSES_MAX] = [const {
    Record { address: AtomicUsize::new(0), length: AtomicUsize::new(0), variety: AtomicU16::new(0) }
}; CLASSES_MAX];
static SLOTS: [Slot; KEYS] = [const { Slot { key: AtomicU64::new(0), class: AtomicU16::new(0) } }; KEYS];
/// Numbers given, 0 included. Written under `REGISTERING`.
static COUNT: AtomicUsize = AtomicUsize::new(1);
static REGISTERING: QueueLock = QueueLock::new();

impl ClassId {
    /// The class of that name, kind and nesting.
    #[inline]
    pub(super) fn of(name: &'static str, kind: Kind, nesting: u8) -> Self {
        debug_assert!(nesting < 16, "a class has sixteen levels of nesting");
        let variety = u16::from(nesting) << 8 | kind as u16;
        // Kernel addresses differ in their low 48 bits.
        let key =
            (name.as_ptr() as u64) << 16 ^ (name.len() as u64) << 8 ^ u64::from(variety).rotate_right(11);
        let mut index = slot_of(key);
        loop {
            // Acquire: pairs with the Release in `register`.
            match SLOTS[index].key.load(Ordering::Acquire) {
                found if found == key => return Self(SLOTS[index].class.load(Ordering::Relaxed)),
                0 => return register(key, name, variety),
                _ => index = (index + 1) % KEYS,
            }
        }
    }

    /// Its index into tables of [`CLASSES_MAX`].
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// All classes, the collective one first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..COUNT.load(Ordering::Acquire) as u16).map(Self)
    }

    /// Whether its locks are shared by readers.
    #[cfg(feature = "lcount")]
    pub(super) fn has_readers(self) -> bool {
        [Kind::RwSpin, Kind::RwLock].iter().any(|kind| *kind as u16 == self.variety() & 0xff)
    }

    fn text(self) -> &'static str {
        let record = &RECORDS[self.index()];
        let address = record.address.load(Ordering::Relaxed) as *const u8;
        if address.is_null() {
            return "others";
        }
        // SAFETY: address and length are those of a `&'static str`, stored in `add` before the class's number was published.
        unsafe {
            core::str::from_utf8_unchecked(core::slice::from_raw_parts(
                address,
                record.length.load(Ordering::Relaxed),
            ))
        }
    }

    fn variety(self) -> u16 {
        RECORDS[self.index()].variety.load(Ordering::Relaxed)
    }
}

impl core::fmt::Display for ClassId {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [kind, nesting] = self.variety().to_le_bytes();
        let kinds = [Kind::Spin, Kind::IrqSpin, Kind::RwSpin, Kind::Mutex, Kind::RwLock];
        let kind = kinds.get(usize::from(kind)).map_or("", |kind| kind.name());
        // Paths inside of types are told by their last parts, which keeps lines short.
        for part in self.text().split_inclusive(['<', '>', ',', ' ', '(', ')', '[', ']', ';', '&']) {
            formatter.write_str(short(part))?;
        }
        if nesting > 0 { write!(formatter, "/{nesting}:{kind}") } else { write!(formatter, ":{kind}") }
    }
}

/// The last two parts of a path.
fn short(path: &str) -> &str {
    path.rmatch_indices("::").nth(1).map_or(path, |(place, _)| &path[place + 2..])
}

fn slot_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % KEYS
}

#[cold]
#[inline(never)]
fn register(key: u64, name: &'static str, variety: u16) -> ClassId {
    let _preemption = preempt::disable();
    let _interrupts = interrupt::disable();
    REGISTERING.lock();
    let count = COUNT.load(Ordering::Relaxed);
    let known =
        (1..count as u16).map(ClassId).find(|class| class.variety() == variety && class.text() == name);
    let class = known.unwrap_or_else(|| add(count, name, variety));
    let mut index = slot_of(key);
    let mut steps = 0;
    while ![0, key].contains(&SLOTS[index].key.load(Ordering::Relaxed)) && steps < KEYS / 2 {
        index = (index + 1) % KEYS;
        steps += 1;
    }
    if SLOTS[index].key.load(Ordering::Relaxed) == 0 {
        SLOTS[index].class.store(class.0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `of`.
        SLOTS[index].key.store(key, Ordering::Release);
    }
    REGISTERING.unlock();
    class
}

fn add(count: usize, name: &'static str, variety: u16) -> ClassId {
    if count == CLASSES_MAX {
        return ClassId(0);
    }
    let record = &RECORDS[count];
    record.length.store(name.len(), Ordering::Relaxed);
    record.variety.store(variety, Ordering::Relaxed);
    record.address.store(name.as_ptr() as usize, Ordering::Relaxed);
    // Release: pairs with the Acquire in `all`.
    COUNT.store(count + 1, Ordering::Release);
    ClassId(count as u16)
}
