//! Which message of a queue a receiver takes (msgop(2)).

use alloc::collections::VecDeque;

use super::queue::Message;

/// By the argument `msgtyp` and the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// The first.
    Any,
    /// The first of the lowest type that is not above this one.
    Lowest(i64),
    /// The first of this type.
    Equal(i64),
    /// The first of another type.
    Other(i64),
    /// The one in this place, of which a copy is made (MSG_COPY).
    Place(i64),
}

impl Selection {
    /// What a type asks for; with MSG_EXCEPT, and with MSG_COPY.
    pub(super) fn new(kind: i64, except: bool, copy: bool) -> Self {
        match kind {
            place if copy => Self::Place(place),
            0 => Self::Any,
            i64::MIN => Self::Lowest(i64::MAX),
            kind if kind < 0 => Self::Lowest(-kind),
            kind if except => Self::Other(kind),
            kind => Self::Equal(kind),
        }
    }

    /// Whether a receiver that waits takes a message of the type.
    pub(super) fn takes(self, kind: i64) -> bool {
        match self {
            Self::Any => true,
            Self::Lowest(highest) => kind <= highest,
            Self::Equal(wanted) => kind == wanted,
            Self::Other(unwanted) => kind != unwanted,
            Self::Place(_) => false,
        }
    }

    /// Where the message is.
    pub(super) fn find(self, messages: &VecDeque<Message>) -> Option<usize> {
        match self {
            Self::Any => (!messages.is_empty()).then_some(0),
            Self::Lowest(_) => {
                let candidates = messages.iter().enumerate().filter(|(_, message)| self.takes(message.kind));
                // Of several of one type it is the first.
                candidates.min_by_key(|(index, message)| (message.kind, *index)).map(|(index, _)| index)
            }
            Self::Place(place) => usize::try_from(place).ok().filter(|&place| place < messages.len()),
            Self::Equal(_) | Self::Other(_) => messages.iter().position(|message| self.takes(message.kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn types_choose_as_the_manual_says() {
        let messages: VecDeque<Message> =
            [5, 3, 9, 3, 1].into_iter().map(|kind| Message { kind, text: Vec::new() }).collect();
        let found = |kind, except, copy| Selection::new(kind, except, copy).find(&messages);
        assert_eq!(found(0, false, false), Some(0));
        assert_eq!(found(3, false, false), Some(1));
        assert_eq!(found(7, false, false), None);
        assert_eq!(found(5, true, false), Some(1));
        assert_eq!(found(-4, false, false), Some(4));
        assert_eq!(found(i64::MIN, false, false), Some(4));
        assert_eq!(found(-3, true, false), Some(4));
        assert_eq!(found(2, false, true), Some(2));
        assert_eq!(found(5, false, true), None);
        assert_eq!(found(-1, false, true), None);
        let threes: VecDeque<Message> =
            [5, 3, 3].into_iter().map(|kind| Message { kind, text: Vec::new() }).collect();
        assert_eq!(Selection::new(-9, false, false).find(&threes), Some(1));
    }
}
