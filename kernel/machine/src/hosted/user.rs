//! User mode on the host: a script instead of a program.
//!
//! A test registers a function that plays the user program: it sees the registers as user mode would and answers
//! with the event that brings the thread back into the kernel.

use std::cell::RefCell;

use crate::user::{UserEvent, UserRegisters};

/// Plays a user program between two entries into the kernel.
pub type Script = Box<dyn FnMut(&mut UserRegisters) -> UserEvent>;

thread_local! {
    static SCRIPT: RefCell<Option<Script>> = const { RefCell::new(None) };
}

/// Sets the script of the processor that runs on this host thread.
pub fn set_script(script: Script) {
    SCRIPT.with(|slot| *slot.borrow_mut() = Some(script));
}

pub(crate) fn next_event(registers: &mut UserRegisters) -> UserEvent {
    SCRIPT.with(|slot| match slot.borrow_mut().as_mut() {
        Some(script) => script(registers),
        None => panic!("hosted user mode needs a script (machine::hosted_user::set_script)"),
    })
}
