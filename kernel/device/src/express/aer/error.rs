//! Errors: severities, the bits and their names, layer and agent, counters.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Hardware has corrected it.
    Correctable,
    /// A transaction is lost; the link works.
    NonFatal,
    /// The link is not reliable.
    Fatal,
}

impl Severity {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Correctable, Self::NonFatal, Self::Fatal];
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Correctable => "Correctable",
            Self::NonFatal => "Uncorrectable (Non-Fatal)",
            Self::Fatal => "Uncorrectable (Fatal)",
        })
    }
}

const CORRECTABLE: [&str; 16] = [
    "RxErr",
    "",
    "",
    "",
    "",
    "",
    "BadTLP",
    "BadDLLP",
    "Rollover",
    "",
    "",
    "",
    "Timeout",
    "NonFatalErr",
    "CorrIntErr",
    "HeaderOF",
];
const UNCORRECTABLE: [&str; 27] = [
    "Undefined",
    "",
    "",
    "",
    "DLP",
    "SDES",
    "",
    "",
    "",
    "",
    "",
    "",
    "TLP",
    "FCP",
    "CmpltTO",
    "CmpltAbrt",
    "UnxCmplt",
    "RxOF",
    "MalfTLP",
    "ECRC",
    "UnsupReq",
    "ACSViol",
    "UncorrIntErr",
    "BlockedTLP",
    "AtomicOpBlocked",
    "TLPBlockedErr",
    "PoisonTLPBlocked",
];

/// The names of the bits; empty ones mean nothing.
pub const fn names(severity: Severity) -> &'static [&'static str] {
    match severity {
        Severity::Correctable => &CORRECTABLE,
        Severity::NonFatal | Severity::Fatal => &UNCORRECTABLE,
    }
}

/// The layer that has found an error.
pub(super) fn layer(severity: Severity, status: u32) -> &'static str {
    match severity {
        Severity::Correctable if status & 0x0001 != 0 => "Physical Layer",
        Severity::Correctable if status & 0x11c0 != 0 => "Data Link Layer",
        Severity::NonFatal | Severity::Fatal if status & 0x10 != 0 => "Data Link Layer",
        _ => "Transaction Layer",
    }
}

/// What the agent was in the transaction.
pub(super) fn role(severity: Severity, status: u32) -> &'static str {
    match severity {
        Severity::Correctable if status & 0x1100 != 0 => "Transmitter ID",
        Severity::NonFatal | Severity::Fatal if status & 0x8000 != 0 => "Completer ID",
        Severity::NonFatal | Severity::Fatal if status & 0x10_4000 != 0 => "Requester ID",
        _ => "Receiver ID",
    }
}

/// What an agent has noted about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Details {
    pub(super) severity: Severity,
    /// The errors of this severity.
    pub(super) status: u32,
    pub(super) mask: u32,
    /// The number of the first one.
    pub(super) first: Option<u32>,
    /// The header of the packet in question.
    pub(super) header: Option<[u32; 4]>,
}

impl Details {
    /// The errors that are not masked, by number.
    pub(super) fn bits(&self) -> impl Iterator<Item = u32> {
        let reported = self.status & !self.mask;
        (0..32).filter(move |bit| reported & 1 << bit != 0)
    }
}

/// Errors that a function has reported, by severity and kind.
pub struct ErrorCounters {
    counts: [[AtomicU64; 27]; 3],
    totals: [AtomicU64; 3],
}

impl ErrorCounters {
    /// None so far.
    pub const fn new() -> Self {
        Self {
            counts: [const { [const { AtomicU64::new(0) }; 27] }; 3],
            totals: [const { AtomicU64::new(0) }; 3],
        }
    }

    pub(super) fn count(&self, details: &Details) {
        let severity = details.severity as usize;
        self.totals[severity].fetch_add(1, Ordering::Relaxed);
        for bit in details.bits() {
            if let Some(count) = self.counts[severity].get(bit as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Errors of a kind.
    pub fn of(&self, severity: Severity, bit: usize) -> u64 {
        self.counts[severity as usize].get(bit).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Errors of a severity.
    pub fn total(&self, severity: Severity) -> u64 {
        self.totals[severity as usize].load(Ordering::Relaxed)
    }
}

impl Default for ErrorCounters {
    fn default() -> Self {
        Self::new()
    }
}
