//! kcmp(2): whether two threads share something, and which comes first if not.
//!
//! The order is that of where the objects are, changed by a number of this boot, so that it says nothing about addresses.

use alloc::sync::Arc;
use core::cmp::Ordering;

use sync::Lazy;

use crate::credentials::inspection::Inspector;
use crate::errno::{Errno, SysResult};
use crate::process::thread::Thread;
use crate::task::Task;

/// What hides where things are.
static ORDER: Lazy<u64> = Lazy::new(|| {
    let mut bytes = [0; size_of::<u64>()];
    crate::random::fill(&mut bytes);
    u64::from_le_bytes(bytes)
});

/// `KCMP_*`
#[derive(Clone, Copy)]
enum What {
    File(u32, u32),
    Memory,
    Descriptors,
    Places,
    Actions,
    Transfers,
    Undo,
}

impl What {
    fn of(number: i32, first: u64, second: u64) -> Result<What, Errno> {
        Ok(match number {
            0 => {
                let descriptor = |index: u64| u32::try_from(index).map_err(|_| Errno::EBADF);
                What::File(descriptor(first)?, descriptor(second)?)
            }
            1 => What::Memory,
            2 => What::Descriptors,
            3 => What::Places,
            4 => What::Actions,
            5 => What::Transfers,
            6 => What::Undo,
            _ => return Err(Errno::EINVAL),
        })
    }
}

fn place_of<T: ?Sized>(object: Option<&Arc<T>>) -> u64 {
    object.map_or(0, |object| Arc::as_ptr(object).cast::<()>().addr() as u64)
}

/// Where the thing is that a thread has; the first thread's if `is_first`.
fn place(thread: &Thread, what: What, is_first: bool) -> Result<u64, Errno> {
    Ok(match what {
        What::File(first, second) => {
            let files = thread.files().ok_or(Errno::EBADF)?;
            place_of(Some(&files.get(if is_first { first } else { second })?))
        }
        What::Memory => place_of(thread.process().address_space().as_ref()),
        What::Descriptors => place_of(thread.files().as_ref()),
        What::Places => place_of(thread.file_system().as_ref()),
        What::Actions => place_of(Some(&thread.process().actions())),
        What::Transfers => thread.kernel_thread().map_or(0, |kernel| kernel.io_owner()),
        What::Undo => place_of(thread.shared.lock().undo.as_ref()),
    })
}

/// Compares what two threads have.
pub fn kcmp(task: &mut Task, first: i32, second: i32, kind: i32, one: u64, two: u64) -> SysResult {
    const LESS: usize = 1;
    const GREATER: usize = 2;
    let thread = |tid: i32| u32::try_from(tid).ok().and_then(|tid| task.find_thread(tid)).ok_or(Errno::ESRCH);
    let (first, second) = (thread(first)?, thread(second)?);
    let inspector = Inspector::calling(task);
    inspector.inspect(first.process(), || ())?;
    inspector.inspect(second.process(), || ())?;
    let what = What::of(kind, one, two)?;
    let ours = inspector.inspect(first.process(), || place(&first, what, true))??;
    let theirs = inspector.inspect(second.process(), || place(&second, what, false))??;
    let order = *ORDER;
    Ok(match (ours ^ order).cmp(&(theirs ^ order)) {
        Ordering::Equal => 0,
        Ordering::Less => LESS,
        Ordering::Greater => GREATER,
    })
}
