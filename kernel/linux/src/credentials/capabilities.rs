//! capget, capset and the capability part of prctl.

use vfs::Capabilities;

use super::identity::{Credentials, SecureBits};
use crate::abi::{CapabilityData, CapabilityHeader};
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

const VERSION_1: u32 = 0x1998_0330;
const VERSION_2: u32 = 0x2007_1026;
const VERSION_3: u32 = 0x2008_0522;

/// How many 32-bit halves the version has; for an unknown version the kernel's own is written back.
fn halves(
    header: UserPointer<CapabilityHeader>,
    data_given: bool,
) -> Result<(CapabilityHeader, usize), Errno> {
    let mut read = header.read()?;
    match read.version {
        VERSION_1 => Ok((read, 1)),
        VERSION_2 | VERSION_3 => Ok((read, 2)),
        _ => {
            read.version = VERSION_3;
            header.write(&read)?;
            // A probe without data only asks for the version.
            if data_given { Err(Errno::EINVAL) } else { Ok((read, 0)) }
        }
    }
}

/// Reads the capabilities of a thread.
pub fn capget(task: &mut Task, header: u64, data: u64) -> SysResult {
    let (header, halves) = halves(UserPointer::new(header), data != 0)?;
    if data == 0 || halves == 0 {
        return Ok(0);
    }
    if header.pid < 0 {
        return Err(Errno::EINVAL);
    }
    let credentials = if header.pid == 0 {
        task.credentials.clone()
    } else {
        let number = header.pid as u32;
        match task.find_thread(number) {
            Some(thread) => thread.credentials(),
            // Process 1 has no thread.
            None => task.find_process(number).ok_or(Errno::ESRCH)?.credentials(),
        }
    };
    let part = |set: Capabilities, half: usize| (set.bits() >> (32 * half)) as u32;
    for half in 0..halves {
        let words = CapabilityData {
            effective: part(credentials.file.capabilities, half),
            permitted: part(credentials.permitted, half),
            inheritable: part(credentials.inheritable, half),
        };
        UserPointer::<CapabilityData>::new(data).add(half).write(&words)?;
    }
    Ok(0)
}

/// Sets the calling thread's capabilities.
pub fn capset(task: &mut Task, header: u64, data: u64) -> SysResult {
    let (header, halves) = halves(UserPointer::new(header), true)?;
    if header.pid != 0 && header.pid as u32 != task.seen_number(task.thread.tid()) {
        return Err(Errno::EPERM);
    }
    let mut words = [CapabilityData::default(); 2];
    for (half, word) in words.iter_mut().enumerate().take(halves) {
        *word = UserPointer::<CapabilityData>::new(data).add(half).read()?;
    }
    let whole =
        |low: u32, high: u32| Capabilities::from_bits_truncate(u64::from(low) | u64::from(high) << 32);
    let effective = whole(words[0].effective, words[1].effective);
    let permitted = whole(words[0].permitted, words[1].permitted);
    let inheritable = whole(words[0].inheritable, words[1].inheritable);

    let old = &task.credentials;
    let free_to_inherit = old.has_here(Capabilities::SETPCAP);
    if !old.permitted.contains(permitted)
        || !permitted.contains(effective)
        || !(old.inheritable | old.bounding).contains(inheritable)
        || (!free_to_inherit && !(old.inheritable | old.permitted).contains(inheritable))
    {
        return Err(Errno::EPERM);
    }
    let mut new = Credentials::clone(old);
    new.file.capabilities = effective;
    new.permitted = permitted;
    new.inheritable = inheritable;
    new.ambient &= permitted & inheritable;
    install(task, new)
}

fn install(task: &mut Task, new: Credentials) -> SysResult {
    task.install_credentials(memory::fallible::try_arc(new).map_err(|_| Errno::ENOMEM)?);
    Ok(0)
}

fn capability(number: u64) -> Result<Capabilities, Errno> {
    1u64.checked_shl(number.min(64) as u32).and_then(Capabilities::from_bits).ok_or(Errno::EINVAL)
}

/// PR_CAPBSET_READ.
pub fn bounding_read(task: &Task, number: u64) -> SysResult {
    Ok(task.credentials.bounding.contains(capability(number)?) as usize)
}

/// PR_CAPBSET_DROP.
pub fn bounding_drop(task: &mut Task, number: u64) -> SysResult {
    task.credentials.require_in(task.credentials.space(), Capabilities::SETPCAP)?;
    let mut new = Credentials::clone(&task.credentials);
    new.bounding.remove(capability(number)?);
    install(task, new)
}

/// PR_SET_SECUREBITS.
pub fn set_secure_bits(task: &mut Task, bits: u64) -> SysResult {
    let old = task.credentials.secure_bits;
    let new_bits = u32::try_from(bits).ok().and_then(SecureBits::from_bits).ok_or(Errno::EPERM)?;
    // Each lock bit stands directly above the bit it locks.
    let locked = old.bits() & 0b1010_1010;
    let frozen = locked | locked >> 1;
    if (old.bits() ^ new_bits.bits()) & frozen != 0 {
        return Err(Errno::EPERM);
    }
    task.credentials.require_in(task.credentials.space(), Capabilities::SETPCAP)?;
    let mut new = Credentials::clone(&task.credentials);
    new.secure_bits = new_bits;
    install(task, new)
}

/// PR_SET_KEEPCAPS.
pub fn set_keep(task: &mut Task, keep: u64) -> SysResult {
    if keep > 1 {
        return Err(Errno::EINVAL);
    }
    if task.credentials.secure_bits.contains(SecureBits::KEEP_CAPS_LOCKED) {
        return Err(Errno::EPERM);
    }
    let mut new = Credentials::clone(&task.credentials);
    new.secure_bits.set(SecureBits::KEEP_CAPS, keep == 1);
    install(task, new)
}

/// PR_CAP_AMBIENT.
pub fn ambient(task: &mut Task, operation: u64, number: u64) -> SysResult {
    const IS_SET: u64 = 1;
    const RAISE: u64 = 2;
    const LOWER: u64 = 3;
    const CLEAR_ALL: u64 = 4;
    let mut new = Credentials::clone(&task.credentials);
    match operation {
        CLEAR_ALL if number == 0 => new.ambient = Capabilities::empty(),
        IS_SET => return Ok(new.ambient.contains(capability(number)?) as usize),
        RAISE => {
            let wanted = capability(number)?;
            let possible = new.permitted & new.inheritable;
            if !possible.contains(wanted) || new.secure_bits.contains(SecureBits::NO_CAP_AMBIENT_RAISE) {
                return Err(Errno::EPERM);
            }
            new.ambient |= wanted;
        }
        LOWER => new.ambient.remove(capability(number)?),
        _ => return Err(Errno::EINVAL),
    }
    install(task, new)
}
