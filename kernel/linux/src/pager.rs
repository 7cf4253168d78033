//! Page faults as messages (specs/fiasco-mp.md, items 1 and 4): Starling's own system calls, continued from [`crate::ipc`].
//!
//! A thread gives a range of its process's memory a *pager*, another thread (`ipc_pager`). Who touches a page there that nobody has provided sends
//! a message to the pager and waits for the answer, as by a call without time-outs; it goes on with the instruction when the pager has answered. The pager
//! answers with pages of its own address space: an operation that sends may carry them (`give_pages`). What pages, and which may be given, is
//! decided in [`memory::address_space`] (`pager`).
//!
//! | what the faulting thread gets | what happens |
//! |---|---|
//! | the page | the instruction is tried again |
//! | an answer, and the page is there by now | likewise |
//! | an answer without the page, or one whose page could not be given | SIGBUS; SIGSEGV if the answer says so |
//! | nothing: the pager has ended, or takes no messages from it | SIGBUS |
//! | a signal, or `ipc_cancel` | the signal is handled, then the instruction is tried again, with another message |
//!
//! So a thread never waits for somebody who can't answer, and dies at once when it is killed.
//!
//! The kernel's own accesses to such a range do not ask: a system call given a page that is not there fails with EFAULT. It would sleep with whatever locks it has, as
//! long as a program likes, and others would wait for these without a way to kill them. Who gives memory to system calls touches it first.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use ::ipc::{Error, Failure, Message, Operation, ThreadId, Timeout};
use ::memory::address_space::{MapError, PagerId, Provision, TakeBack};
use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};
use machine::fault::{Access, FaultError};

use crate::errno::{Errno, SysResult};
use crate::ipc::{caller_of, errno_of_failure, partner_of, register};
use crate::memory::errno_of;
use crate::process::thread::Thread;
use crate::task::Task;

/// In the first word of a message that carries pages: the sender loses them.
const GRANT: u64 = 1;
/// There, and in the first word of a fault: stores too.
const STORE: u64 = 2;
/// In the first word of a fault: it was an instruction fetch.
const FETCH: u64 = 1;
/// Bits of the first word that are no address.
const LOW_BITS: u64 = PAGE_SIZE as u64 - 1;
/// Bits of a fault's address that are not told.
const ACCESS_BITS: u64 = 3;

/// The third word of a fault.
const FAULT_LABEL: u64 = -2_i64 as u64;

/// In the first word of an answer that carries no pages: there is none, and the access was wrong.
const DENIED: u64 = 1;

/// Pages that a message carries at most: what a leaf table maps.
const PAGES_MAX: u64 = 512;

/// Code of a message whose pages could not be given; nothing was sent.
const SEND_MAP_FAILED: usize = 0x70;

/// Flag of `ipc_unmap`: the pages stay, for loads.
const ONLY_STORES: u32 = 1;

/// Questions that a fault asks at most: pages may be taken back before the thread runs, but not for ever.
const QUESTIONS_MAX: usize = 16;

/// How a fault of a thread is with the pager that it asked.
#[derive(Default)]
pub(crate) struct Asked {
    /// The pager's number; 0 when it asks nobody. Written by the thread.
    pager: AtomicU64,
    /// What came of the pages that the answer carried. Written by the pager, and reset by the thread.
    given: AtomicU8,
}

/// The answer carried no pages.
const NONE: u8 = 0;
/// They are there.
const GIVEN: u8 = 1;

impl Asked {
    /// Whether the thread waits for this pager.
    fn waits_for(&self, pager: ThreadId) -> bool {
        // Acquire: pairs with the Release in `ask`.
        self.pager.load(Ordering::Acquire) == pager.to_bits()
    }
}

/// Gives a range a pager.
pub fn ipc_pager(task: &mut Task, address: u64, length: u64, pager: u64) -> SysResult {
    if task.ipc.is_none() {
        register(task, 0)?;
    }
    let pager = partner_of(pager);
    ::ipc::check_reach(pager, &caller_of(task), task.ipc.as_ref()).map_err(errno_of_failure)?;
    let start = UserAddr::new(address);
    task.address_space.set_pager(start, length, PagerId(pager.to_bits())).map_err(errno_of)?;
    Ok(0)
}

/// Takes back what was provided out of the pages of a range; returns from how many places.
pub fn ipc_unmap(task: &mut Task, address: u64, length: u64, flags: u32) -> SysResult {
    let what = match flags {
        0 => TakeBack::Pages,
        ONLY_STORES => TakeBack::Stores,
        _ => return Err(Errno::EINVAL),
    };
    task.address_space.take_back(UserAddr::new(address), length, what).map_err(errno_of)
}

/// What the words of a message say that carries pages.
fn provision_of(words: &Message) -> Result<Provision, Errno> {
    let [from, to, pages] = *words;
    let flags = from & LOW_BITS;
    if flags & !(GRANT | STORE) != 0 || to & LOW_BITS != 0 || !(1..=PAGES_MAX).contains(&pages) {
        return Err(Errno::EINVAL);
    }
    Ok(Provision {
        from: UserAddr::new(from & !LOW_BITS),
        to: UserAddr::new(to),
        length: pages << PAGE_SHIFT,
        store: flags & STORE != 0,
        grant: flags & GRANT != 0,
    })
}

/// Gives the partner the pages that a message carries, before it is sent. Returns a code if it is not to be sent. The task has its number.
///
/// # Errors
/// Of a message that is refused: malformed, to the caller itself, to somebody who must not be sent to.
#[inline(never)]
pub(crate) fn give_pages(task: &mut Task, partner: ThreadId, words: Message) -> Result<Option<usize>, Errno> {
    let provision = provision_of(&words)?;
    let caller = caller_of(task);
    match ::ipc::check_reach(partner, &caller, task.ipc.as_ref()) {
        Ok(()) => {}
        Err(Failure::Ipc(error)) => return Ok(Some(error as usize)),
        Err(refused) => return Err(errno_of_failure(refused)),
    }
    let gone = Ok(Some(Error::NotExistent as usize));
    let Some(thread) = ::ipc::thread_of(partner) else { return gone };
    let thread = thread.personality().and_then(|thread| thread.downcast::<Thread>().ok());
    let Some(thread) = thread else { return gone };
    let Some(target) = thread.process().address_space() else { return gone };
    let endpoint = task.ipc.as_mut().ok_or(Errno::ENOMEM)?;
    let own = endpoint.id();
    let provided = task.address_space.provide(&target, PagerId(own.to_bits()), &provision);
    let asked = thread.asked.waits_for(own);
    if provided.is_ok() {
        if asked {
            // Relaxed: the message that follows orders it.
            thread.asked.given.store(GIVEN, Ordering::Relaxed);
        }
        return Ok(None);
    }
    if asked {
        if matches!(provided, Err(MapError::Busy | MapError::OutOfMemory)) {
            // Not the pager's doing: the fault asks again, as often as a fault may.
            thread.asked.given.store(GIVEN, Ordering::Relaxed);
        }
        // The question is answered: there is no page. It would not be asked again otherwise.
        let _ = endpoint.operate(&Operation::send(partner, [0; ::ipc::WORDS], Timeout::Zero), &caller);
    }
    Ok(Some(SEND_MAP_FAILED))
}

/// Asks the pager of an address for the page, as the program's own access: sends the fault and waits for the answer.
///
/// # Errors
/// What becomes of the fault, if there is no page.
#[inline(never)]
pub(crate) fn ask(task: &mut Task, address: u64, access: Access) -> Result<(), FaultError> {
    for _ in 0..QUESTIONS_MAX {
        let Some(pager) = task.address_space.pager_of(UserAddr::new(address)) else { break };
        let Some(answer) = ask_once(task, ThreadId::from_bits(pager.0), address, access)? else {
            return Ok(());
        };
        match task.address_space.fault(UserAddr::new(address), access) {
            Err(FaultError::Pager) if answer.given => {}
            Err(FaultError::Pager) if answer.words[0] == DENIED => return Err(FaultError::AccessDenied),
            outcome => return outcome,
        }
    }
    match task.address_space.fault(UserAddr::new(address), access) {
        Err(FaultError::Pager) => Err(FaultError::Bus),
        outcome => outcome,
    }
}

struct Answer {
    words: Message,
    /// Pages came with it.
    given: bool,
}

/// One question; `None` if a signal came first, or a cancellation.
fn ask_once(
    task: &mut Task,
    pager: ThreadId,
    address: u64,
    access: Access,
) -> Result<Option<Answer>, FaultError> {
    if task.ipc.is_none() {
        register(task, 0).map_err(|_| FaultError::Bus)?;
    }
    let flags = match access {
        Access::Read => 0,
        Access::Write => STORE,
        Access::Execute => FETCH,
    };
    let message = [address & !ACCESS_BITS | flags, task.user.registers.rip, FAULT_LABEL];
    let caller = caller_of(task);
    let endpoint = task.ipc.as_mut().ok_or(FaultError::Bus)?;
    let asked = &task.thread.asked;
    asked.given.store(NONE, Ordering::Relaxed);
    // Release: the pager sees the line above when it sees this.
    asked.pager.store(pager.to_bits(), Ordering::Release);
    let call = Operation::call(pager, message, Timeout::Never, Timeout::Never);
    let outcome = endpoint.operate(&call, &caller);
    asked.pager.store(0, Ordering::Release);
    match outcome {
        Ok(received) => {
            let given = asked.given.load(Ordering::Relaxed) == GIVEN;
            Ok(Some(Answer { words: received.message, given }))
        }
        Err(Failure::Ipc(Error::ReceiveCanceled | Error::SendCanceled)) => Ok(None),
        Err(_) => Err(FaultError::Bus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_pages_names_whole_pages() {
        let good = provision_of(&[0x5000 | STORE, 0x9000, 2]).unwrap();
        assert_eq!((good.from, good.to, good.length), (UserAddr::new(0x5000), UserAddr::new(0x9000), 0x2000));
        assert_eq!((good.store, good.grant), (true, false));
        for bad in [[0x5004, 0x9000, 1], [0x5800, 0x9000, 1], [0x5000, 0x9001, 1], [0x5000, 0x9000, 0]] {
            assert_eq!(provision_of(&bad), Err(Errno::EINVAL), "{bad:x?}");
        }
        assert_eq!(provision_of(&[0x5000, 0x9000, PAGES_MAX + 1]), Err(Errno::EINVAL));
        assert_eq!(provision_of(&[0x5000, 0x9000, u64::MAX]), Err(Errno::EINVAL));
    }
}
