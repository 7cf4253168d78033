//! Whose pages reclaim takes.

use super::account::{self, AccountNumber};
use super::limits::Limit;
use crate::frame::Frame;

/// Which protections count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The lower one and the hard one.
    Low,
    /// The hard one.
    Hard,
}

/// Whose pages reclaim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Anybody's.
    Anybodys,
    /// Those of accounts that are not protected.
    Unprotected(Protection),
    /// Those of one account and of those below.
    Of(AccountNumber),
}

impl Whose {
    /// What the whole machine's reclaim takes, in this order: the last ones only if that is not enough.
    pub fn in_turn() -> &'static [Whose] {
        const PROTECTED: &[Whose] =
            &[Whose::Unprotected(Protection::Low), Whose::Unprotected(Protection::Hard)];
        if account::begin_round() { PROTECTED } else { &[Whose::Anybodys] }
    }

    /// Whether it takes a frame, to which the caller has a reference.
    #[inline]
    pub(crate) fn admits(self, frame: &Frame) -> bool {
        self == Self::Anybodys || self.admits_account(AccountNumber::new(frame.account()))
    }

    #[inline(never)]
    fn admits_account(self, payer: Option<AccountNumber>) -> bool {
        match (self, payer) {
            (Self::Anybodys, _) | (Self::Unprotected(_), None) => true,
            (Self::Of(_), None) => false,
            (Self::Of(account), Some(payer)) => payer.is_within(account),
            (Self::Unprotected(protection), Some(payer)) => {
                if payer.is_protected(Limit::Min) {
                    return false;
                }
                let low = payer.is_protected(Limit::Low);
                if low && protection == Protection::Hard {
                    payer.note_low();
                }
                !low || protection == Protection::Hard
            }
        }
    }
}
