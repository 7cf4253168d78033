//! Windows that are being recorded, one a processor.
//!
//! Only the processor itself changes its window, from its own thread of QEMU, so the lock around it is never waited for; outside
//! of a window one load of a flag is all that an access costs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::instruction::Marker;

/// Processors that can be told apart.
const PROCESSORS: usize = 64;
/// Bytes of a cache line.
const LINE: u64 = 64;

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Read,
    Write,
    Atomic,
}

impl Kind {
    const fn letter(self) -> char {
        match self {
            Self::Read => 'r',
            Self::Write => 'w',
            Self::Atomic => 'a',
        }
    }
}

/// One access, as the hooks see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) kind: Kind,
    pub(crate) physical: u64,
    pub(crate) virtual_address: u64,
    pub(crate) code: u64,
}

/// What is told of accesses to one line by one instruction.
#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Access,
    count: u64,
}

/// What a processor did since the marker.
#[derive(Debug, Default)]
pub(crate) struct Window {
    label: u16,
    seen: BTreeMap<(u64, u64, Kind), Seen>,
}

impl Window {
    fn new(label: u16) -> Self {
        Self { label, seen: BTreeMap::new() }
    }

    fn add(&mut self, access: Access) {
        let key = (access.physical / LINE, access.code, access.kind);
        self.seen.entry(key).or_insert(Seen { first: access, count: 0 }).count += 1;
    }

    /// The block that is printed for it.
    fn text(&self, processor: usize) -> String {
        let mut text = format!("window {processor} {}\n", self.label);
        for Seen { first, count } in self.seen.values() {
            let Access { kind, physical, virtual_address, code } = first;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {physical:x} {virtual_address:x} {code:x} {count:x}", kind.letter());
        }
        text.push_str("end\n");
        text
    }
}

/// A processor's window, if one is open.
struct Processor {
    /// Whether there is a window: what is looked at first. Relaxed: the processor's own thread writes it.
    recording: AtomicBool,
    window: Mutex<Option<Window>>,
}

static ALL: [Processor; PROCESSORS] =
    [const { Processor { recording: AtomicBool::new(false), window: Mutex::new(None) } }; PROCESSORS];

static OUTPUT: OnceLock<Mutex<File>> = OnceLock::new();

/// Where closed windows are written. Only the first call counts.
pub(crate) fn write_to(file: File) {
    let _ = OUTPUT.set(Mutex::new(file));
}

/// Whether accesses of a processor are to be recorded now.
pub(crate) fn is_recording(processor: usize) -> bool {
    ALL.get(processor).is_some_and(|processor| processor.recording.load(Ordering::Relaxed))
}

/// A processor has come to a marker. A window that is open when another begins is forgotten.
pub(crate) fn mark(processor: usize, marker: Marker) {
    let Some(own) = ALL.get(processor) else { return };
    let mut window = own.window.lock().unwrap_or_else(PoisonError::into_inner);
    let closed = match marker {
        Marker::Begin(label) => {
            *window = Some(Window::new(label));
            None
        }
        Marker::End => window.take(),
    };
    own.recording.store(window.is_some(), Ordering::Relaxed);
    drop(window);
    if let (Some(closed), Some(output)) = (closed, OUTPUT.get()) {
        let text = closed.text(processor);
        let mut file = output.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever reads the file finds a block without an end.
        let _ = file.write_all(text.as_bytes());
    }
}

/// Records an access of a processor with an open window.
pub(crate) fn record(processor: usize, access: Access) {
    let Some(own) = ALL.get(processor) else { return };
    if let Some(window) = own.window.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        window.add(access);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(kind: Kind, physical: u64) -> Access {
        Access { kind, physical, virtual_address: physical + 0x1000, code: 0xc0de }
    }

    #[test]
    fn accesses_to_one_line_by_one_instruction_are_told_once() {
        let mut window = Window::new(7);
        window.add(access(Kind::Read, 0x40));
        window.add(access(Kind::Read, 0x7f));
        window.add(access(Kind::Read, 0x80));
        window.add(access(Kind::Atomic, 0x80));
        let text = "window 3 7\nr 40 1040 c0de 2\nr 80 1080 c0de 1\na 80 1080 c0de 1\nend\n";
        assert_eq!(window.text(3), text);
    }

    #[test]
    fn accesses_count_between_markers_only() {
        assert!(!is_recording(5));
        record(5, access(Kind::Write, 0));
        mark(5, Marker::Begin(1));
        assert!(is_recording(5));
        assert!(!is_recording(6));
        record(5, access(Kind::Write, 0));
        mark(5, Marker::End);
        assert!(!is_recording(5));
        assert!(!is_recording(PROCESSORS));
    }
}
