//! Traps: descriptor tables, entry stubs, and what happens before other layers are asked.

mod exception_table;
mod exceptions;
pub(crate) mod frame;
pub(crate) mod gates;
mod interrupts;
mod page_fault;
mod report;
mod stubs;

pub use gates::fault_on_own_stack;
pub use page_fault::abandon_page_fault;
pub(crate) use stubs::{PAGE_FAULT_SLOT_BYTES, enter_user};
