//! Children: the few calls that Rust's library has no safe form of.

use std::io;

use rustix::process::{Pid, WaitOptions, waitpid};

/// The end of the name of the program that does nothing, a link to this one.
pub(crate) const NOTHING: &str = "nothing";
/// Where that link is.
pub(crate) const NOTHING_PATH: &str = "/tmp/nothing";

/// Forks; the child runs `body` and ends with status 0, or 1 if it panics.
///
/// # Errors
/// Those of fork(2).
pub(crate) fn fork(body: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: this program has one thread when it forks (the tests that start threads wait for their end), so no lock of the
    // library can be held by a thread that is missing in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            end(i32::from(result.is_err()));
        }
        pid => Pid::from_raw(pid).ok_or_else(|| io::Error::other("a child without a number")),
    }
}

/// Ends the process without running destructors, as a forked child must.
fn end(status: i32) -> ! {
    // SAFETY: the call ends the process; nothing of it is used after.
    unsafe { libc::_exit(status) }
}

/// Replaces the program by the one that does nothing.
pub(crate) fn execute_nothing() {
    let path = c"/tmp/nothing";
    let arguments = [path.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];
    // SAFETY: the path is a C string, and both arrays end with a null pointer; all three outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
}

/// Makes a child by vfork that executes the program that does nothing.
///
/// # Errors
/// Those of vfork(2).
pub(crate) fn vfork_and_execute_nothing() -> io::Result<Pid> {
    let status = std::process::Command::new(NOTHING_PATH).env_clear().spawn()?;
    Pid::from_raw(status.id().cast_signed()).ok_or_else(|| io::Error::other("a child without a number"))
}

/// Waits until a child has ended.
///
/// # Errors
/// Those of waitpid(2), and when the child failed.
pub(crate) fn wait(pid: Pid) -> io::Result<()> {
    match waitpid(Some(pid), WaitOptions::empty())? {
        Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
        status => Err(io::Error::other(format!("a child ended with {status:?}"))),
    }
}

/// Forks a child that does nothing but sleep until it is killed.
///
/// # Errors
/// Those of fork(2).
pub(crate) fn fork_sleeper() -> io::Result<Pid> {
    fork(|| {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(1_000));
        }
    })
}

/// Kills a child and waits for its end.
///
/// # Errors
/// Those of kill(2) and waitpid(2).
pub(crate) fn kill(pid: Pid) -> io::Result<()> {
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    waitpid(Some(pid), WaitOptions::empty())?;
    Ok(())
}
