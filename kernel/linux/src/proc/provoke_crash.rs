//! `provoke-crash/DIRECT` in debugfs: faults of kernel stacks on request, by the names of Linux's `LKDTM`
//! (specs/kernel-stacks.md §M12).
//!
//! A name that is written to the file makes the fault happen in the writer's system call:
//!
//! - `EXHAUST_STACK`: recursion without end, so that the stack overflows into its guard;
//! - `STACK_GUARD_PAGE_LEADING`, `STACK_GUARD_PAGE_TRAILING`: an access right below and right above the stack;
//! - `REPORT_STACK`: no fault, but a line in the kernel's log that says how deep the stack is.
//!
//! What becomes of the writer decides `kernel.stack_overflow`, as with any overflow. Reading the file lists the names.

use core::fmt::Write;

use memory::kstack::{End, Exercise, bytes_in_use, exercise, touch_guard};
use vfs::generated::{Node, knob};
use vfs::text::Text;
use vfs::{Error, Result};

/// A fault and what provokes it.
struct Fault {
    name: &'static str,
    provoke: fn(),
}

const FAULTS: [Fault; 4] = [
    Fault { name: "EXHAUST_STACK", provoke: exhaust },
    Fault { name: "REPORT_STACK", provoke: report },
    Fault { name: "STACK_GUARD_PAGE_LEADING", provoke: || touch_guard(End::Bottom) },
    Fault { name: "STACK_GUARD_PAGE_TRAILING", provoke: || touch_guard(End::Top) },
];

/// Fills the tree.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn register() -> Result<()> {
    debugfs::add("provoke-crash/DIRECT", Node::file(0o644, knob(list, provoke)?))
}

fn list(out: &mut Text) -> Result<()> {
    // A text remembers when memory ran out.
    let _ = out.write_str("Available crash types:\n");
    for fault in &FAULTS {
        let _ = writeln!(out, "{}", fault.name);
    }
    Ok(())
}

fn provoke(bytes: &[u8]) -> Result<()> {
    let name = bytes.trim_ascii();
    let fault = FAULTS.iter().find(|fault| fault.name.as_bytes() == name).ok_or(Error::Invalid)?;
    log::info!("performing direct entry {}", fault.name);
    (fault.provoke)();
    Ok(())
}

fn exhaust() {
    // Deeper than any stack.
    exercise(usize::MAX, Exercise::Recurse, &mut || ());
}

fn report() {
    if let Some(bytes) = bytes_in_use() {
        log::info!("stack offset: {bytes} bytes below the top");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_and_others_refused() {
        let mut out = Text::new();
        list(&mut out).unwrap();
        let text = out.finish().unwrap();
        assert!(text.ends_with(b"STACK_GUARD_PAGE_TRAILING\n"));
        assert_eq!(provoke(b"NO_SUCH_FAULT\n"), Err(Error::Invalid));
        assert_eq!(provoke(b"REPORT_STACK\n"), Ok(()));
    }
}
