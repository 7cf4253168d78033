//! A queue of what a handler has seen, of a fixed size.

/// At most `ROOM` notes.
pub(super) struct Notes<T, const ROOM: usize> {
    notes: [Option<T>; ROOM],
    first: usize,
    count: usize,
}

impl<T: Copy, const ROOM: usize> Notes<T, ROOM> {
    /// Without any.
    pub(super) const fn new() -> Self {
        Self { notes: [None; ROOM], first: 0, count: 0 }
    }

    /// Adds one; false if there is no room.
    pub(super) fn push(&mut self, note: T) -> bool {
        if self.count == ROOM {
            return false;
        }
        self.notes[(self.first + self.count) % ROOM] = Some(note);
        self.count += 1;
        true
    }

    /// Takes the oldest out.
    pub(super) fn pop(&mut self) -> Option<T> {
        let note = self.notes[self.first].take()?;
        self.first = (self.first + 1) % ROOM;
        self.count -= 1;
        Some(note)
    }
}
