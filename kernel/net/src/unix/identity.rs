//! Who sent a message, as `SCM_CREDENTIALS` and `SO_PEERCRED` show it.
//!
//! Messages carry the sender's identity when either end asked for it (`SO_PASSCRED`). `write` comes without a word about
//! who calls, so the personality registers a function that says it.
//!
//! Connections also keep the supplementary groups of who made them (`SO_PEERGROUPS`).

use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::set_once::SetOnce;

/// The user and group id that stand for nobody in particular.
const OVERFLOW_ID: u32 = 65534;

/// A process with the user and group it acts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The process; 0 when unknown.
    pub process: u32,
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

impl Identity {
    /// Nobody known.
    pub const UNKNOWN: Self = Self { process: 0, user: OVERFLOW_ID, group: OVERFLOW_ID };
    /// There is nobody.
    pub const NOBODY: Self = Self { process: 0, user: u32::MAX, group: u32::MAX };
}

/// Who makes an end of a connection, as the other end is told.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The process.
    pub identity: Identity,
    /// Its supplementary groups, if it has any.
    pub groups: Option<Arc<Vec<u32>>>,
}

static SOURCE: SetOnce<fn() -> Identity> = SetOnce::new();

/// Registers what tells the identity of the calling process. Once, at start-up.
pub fn set_identity_source(source: fn() -> Identity) {
    SOURCE.set(source);
}

/// The calling process.
pub(crate) fn of_caller() -> Identity {
    SOURCE.get().map_or(Identity::UNKNOWN, |source| source())
}
