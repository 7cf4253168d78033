//! Sources of random bytes that devices are: which there are, and which of them programs read.
//!
//! # Current
//! One source is *current*: the one that was chosen by name as long as it is there, else the first of those that are. Who reads while the current one goes away goes
//! on with the next one, and is told that there is none when there is none.
//!
//! # Locking
//! A spin lock for the list; nothing is called with it.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::{OutOfMemory, fallible};
use sync::SpinLock;

/// Why there are no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The source is not there any more, or there is none.
    Gone,
    /// None now, and the caller does not wait.
    NotNow,
    /// A signal came before any byte.
    Interrupted,
    /// The source is broken.
    Broken,
}

/// A source.
pub trait RandomSource: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// Bytes into the front of this, at least one; how many. Sleeps if it may.
    ///
    /// # Errors
    /// [`Failure`].
    fn read(&self, into: &mut [u8], may_wait: bool) -> Result<usize, Failure>;
}

struct Sources {
    /// In the order in which they came.
    all: Vec<Arc<dyn RandomSource>>,
    /// The one that was chosen by name, by its address.
    chosen: Option<usize>,
}

static SOURCES: SpinLock<Sources> =
    SpinLock::named("sources of random bytes", Sources { all: Vec::new(), chosen: None });

fn address(source: &Arc<dyn RandomSource>) -> usize {
    Arc::as_ptr(source).cast::<()>().addr()
}

/// A source is there.
///
/// # Errors
/// No memory.
pub fn register(source: Arc<dyn RandomSource>) -> Result<(), OutOfMemory> {
    let mut room = Vec::new();
    let mut left = Some(source);
    loop {
        let wanted = SOURCES.lock().all.len() + 1;
        fallible::try_reserve(&mut room, wanted)?;
        let mut sources = SOURCES.lock();
        if room.capacity() > sources.all.len() {
            room.append(&mut sources.all);
            room.extend(left.take());
            core::mem::swap(&mut sources.all, &mut room);
            return Ok(());
        }
    }
}

/// A source goes. Nobody who reads from now on finds it.
pub fn unregister(source: &Arc<dyn RandomSource>) {
    let mut sources = SOURCES.lock();
    if sources.chosen == Some(address(source)) {
        sources.chosen = None;
    }
    let at = sources.all.iter().position(|known| Arc::ptr_eq(known, source));
    let gone = at.map(|at| sources.all.remove(at));
    drop(sources);
    drop(gone);
}

/// The source that programs read, if there is one.
pub fn current() -> Option<Arc<dyn RandomSource>> {
    let sources = SOURCES.lock();
    let chosen = sources.all.iter().find(|source| sources.chosen == Some(address(source)));
    chosen.or_else(|| sources.all.first()).cloned()
}

/// Whether the current source was chosen by name.
pub fn is_chosen() -> bool {
    SOURCES.lock().chosen.is_some()
}

/// Makes the source of that name current; without a name, the one that is so by itself. False if there is no such source.
pub fn choose(name: Option<&str>) -> bool {
    let mut sources = SOURCES.lock();
    let chosen = match name {
        None => None,
        Some(name) => match sources.all.iter().find(|source| source.name() == name) {
            Some(source) => Some(address(source)),
            None => return false,
        },
    };
    sources.chosen = chosen;
    true
}

/// The names of all, in the order in which they came.
pub fn names() -> Vec<String> {
    let sources = SOURCES.lock().all.clone();
    sources.iter().map(|source| source.name().into()).collect()
}

/// Bytes from the current source, at least one.
///
/// # Errors
/// [`Failure`]; [`Failure::Gone`] if there is none, or the last one went meanwhile.
pub fn read(into: &mut [u8], may_wait: bool) -> Result<usize, Failure> {
    loop {
        let source = current().ok_or(Failure::Gone)?;
        match source.read(into, may_wait) {
            // It is in the list no more: this ends with the list.
            Err(Failure::Gone) if !current().is_some_and(|now| Arc::ptr_eq(&now, &source)) => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering};

    struct Constant {
        name: &'static str,
        byte: u8,
        is_gone: AtomicBool,
    }

    impl RandomSource for Constant {
        fn name(&self) -> &str {
            self.name
        }

        fn read(&self, into: &mut [u8], _may_wait: bool) -> Result<usize, Failure> {
            if self.is_gone.load(Ordering::Relaxed) {
                return Err(Failure::Gone);
            }
            into.fill(self.byte);
            Ok(into.len())
        }
    }

    #[test]
    fn next_source_is_read_when_the_current_one_goes() {
        let source = |name, byte| Arc::new(Constant { name, byte, is_gone: AtomicBool::new(false) });
        let byte = || {
            let mut bytes = [0; 2];
            read(&mut bytes, true).map(|count| (count, bytes[0]))
        };
        assert_eq!(byte(), Err(Failure::Gone));
        let all = [source("a", 1), source("b", 2), source("c", 3)];
        let known = all.clone().map(|source| -> Arc<dyn RandomSource> { source });
        known.iter().for_each(|source| register(source.clone()).unwrap());
        assert_eq!(
            (byte(), names(), is_chosen()),
            (Ok((2, 1)), vec!["a".into(), "b".into(), "c".into()], false)
        );
        assert!(choose(Some("c")) && !choose(Some("d")) && is_chosen());
        assert_eq!(byte(), Ok((2, 3)));
        unregister(&known[2]);
        assert_eq!((byte(), is_chosen()), (Ok((2, 1)), false));
        assert!(choose(Some("b")) && choose(None));
        all[0].is_gone.store(true, Ordering::Relaxed);
        assert_eq!(byte(), Err(Failure::Gone), "it says so, but is there");
        unregister(&known[0]);
        assert_eq!(byte(), Ok((2, 2)));
        unregister(&known[1]);
        assert_eq!((byte(), names().len()), (Err(Failure::Gone), 0));
    }
}
