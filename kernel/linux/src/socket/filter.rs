//! Filters of sockets: attaching and showing them (socket(7)).

use core::mem::size_of;

use net::bpf::machine::LENGTH_MAX;
use net::bpf::{Filter, Slot};

use crate::abi::{FilterInstruction, FilterProgram};
use crate::errno::Errno;
use crate::user_pointer::UserPointer;

/// Attaches the program that `SO_ATTACH_FILTER` gives.
///
/// # Errors
/// EINVAL, EFAULT, EPERM if the filter is locked, ENOMEM.
pub(super) fn attach(slot: &Slot, value: u64, length: usize) -> Result<(), Errno> {
    if length != size_of::<FilterProgram>() {
        return Err(Errno::EINVAL);
    }
    let FilterProgram { count, instructions, .. } = UserPointer::<FilterProgram>::new(value).read()?;
    if slot.is_locked() {
        return Err(Errno::EPERM);
    }
    let count = usize::from(count);
    if instructions == 0 || count == 0 || count > LENGTH_MAX {
        return Err(Errno::EINVAL);
    }
    let filter = Filter::new(UserPointer::<FilterInstruction>::new(instructions).read_vector(count)?)?;
    slot.attach(memory::fallible::try_arc(filter).map_err(|_| Errno::ENOMEM)?)?;
    Ok(())
}

/// Writes the instructions of the filter, if there is room for so many; without any only their number is asked for, which is the result.
///
/// # Errors
/// EINVAL, EFAULT.
pub(super) fn show(slot: &Slot, to: u64, room: usize) -> Result<usize, Errno> {
    let Some(filter) = slot.get() else { return Ok(0) };
    let instructions = filter.instructions();
    if room > 0 {
        if room < instructions.len() {
            return Err(Errno::EINVAL);
        }
        UserPointer::<FilterInstruction>::new(to).write_slice(instructions)?;
    }
    Ok(instructions.len())
}
