//! What can be looked at from outside: counts, statistics, orders. Without counting there are none.

use core::fmt;

/// Whether locks are counted.
pub const COUNTING: bool = cfg!(feature = "lcount");
/// Whether their order is checked.
pub const CHECKING: bool = cfg!(debug_assertions);

/// Locks that the running thread has taken; None where they are not counted.
pub fn locks_taken() -> Option<u64> {
    #[cfg(feature = "lcount")]
    return Some(super::count::of_current_thread());
    #[cfg(not(feature = "lcount"))]
    None
}

/// Writes how many locks the running thread has taken, in all and of each class.
///
/// # Errors
/// The writer's.
pub fn write_taken(to: &mut dyn fmt::Write) -> fmt::Result {
    #[cfg(feature = "lcount")]
    super::count::write_current(to)?;
    let _ = to;
    Ok(())
}

/// Writes how often locks of each class were taken, waited for and held, as Linux' `/proc/lock_stat` does.
///
/// # Errors
/// The writer's.
pub fn write_statistics(to: &mut dyn fmt::Write) -> fmt::Result {
    #[cfg(feature = "lcount")]
    super::statistics::write(to)?;
    let _ = to;
    Ok(())
}

/// Forgets the statistics.
pub fn reset_statistics() {
    #[cfg(feature = "lcount")]
    super::statistics::reset();
}

/// Whether statistics are kept.
pub fn keeps_statistics() -> bool {
    #[cfg(feature = "lcount")]
    return super::statistics::is_enabled();
    #[cfg(not(feature = "lcount"))]
    false
}

/// Has statistics kept, or not.
pub fn keep_statistics(keep: bool) {
    #[cfg(feature = "lcount")]
    super::statistics::enable(keep);
    let _ = keep;
}

/// Writes how many locks system calls have taken: lines `call NUMBER CALLS LOCKS MOST`, each followed by lines
/// `class COUNT CLASS`. Who counts atomic operations from outside writes them out now.
///
/// # Errors
/// The writer's.
pub fn write_calls(to: &mut dyn fmt::Write) -> fmt::Result {
    #[cfg(feature = "lcount")]
    {
        super::count::write_calls(to)?;
        super::count::mark_end();
    }
    let _ = to;
    Ok(())
}

/// Writes the classes and the orders between them.
///
/// # Errors
/// The writer's.
pub fn write_order(to: &mut dyn fmt::Write) -> fmt::Result {
    #[cfg(debug_assertions)]
    super::order::write(to)?;
    let _ = to;
    Ok(())
}
