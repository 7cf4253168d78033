//! Children: the few calls that Rust's library has no safe form of.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use rustix::process::{Pid, WaitOptions, waitpid};

/// The end of the name of the program that does nothing, a link to this one.
pub const NOTHING: &str = "nothing";
/// Where that link is.
pub const NOTHING_PATH: &str = "/tmp/nothing";
/// The end of the name of the program that executes itself a number of times.
pub const AGAIN: &str = "again";

/// Forks; the child runs `body` and ends with status 0, or 1 if it panics.
///
/// # Errors
/// Those of fork(2).
pub fn fork(body: impl FnOnce()) -> io::Result<Pid> {
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

/// Replaces the program by the one that does nothing. Returns only when that fails.
pub fn execute_nothing() {
    execute(c"/tmp/nothing", &[c"/tmp/nothing"]);
}

/// Replaces the program by one that executes itself so many times more, and then ends. Returns only when that fails.
pub fn execute_times(count: u64) {
    let Ok(count) = CString::new(count.to_string()) else { return };
    execute(c"/bench", &[c"again", &count]);
}

/// The program that executes itself.
pub fn execute_again(count: Option<String>) -> ExitCode {
    match count.and_then(|count| count.parse::<u64>().ok()) {
        Some(0) => ExitCode::SUCCESS,
        Some(count) => {
            execute_times(count - 1);
            ExitCode::FAILURE
        }
        None => ExitCode::FAILURE,
    }
}

fn execute<const COUNT: usize>(path: &CStr, arguments: &[&CStr; COUNT]) {
    let mut pointers = arguments.map(CStr::as_ptr).to_vec();
    pointers.push(std::ptr::null());
    let environment = [std::ptr::null()];
    // SAFETY: the path and the arguments are C strings, and both arrays end with a null pointer; all outlive the call.
    unsafe { libc::execve(path.as_ptr(), pointers.as_ptr(), environment.as_ptr()) };
}

/// Switches the randomisation of addresses off for programs that this one executes; false when it was off already, or can't be.
pub fn fix_addresses() -> bool {
    let wanted = libc::ADDR_NO_RANDOMIZE.cast_unsigned();
    let ask = libc::c_ulong::from(u32::MAX);
    // SAFETY: the call takes a number, and changes nothing when it is all ones.
    let Ok(now) = u32::try_from(unsafe { libc::personality(ask) }) else { return false };
    // SAFETY: as before; the flag only matters for programs that are executed from now on.
    now & wanted == 0 && unsafe { libc::personality((now | wanted).into()) } >= 0
}

/// Executes this program anew, with these arguments. Returns only when that fails.
pub fn start_again(arguments: &[String]) {
    let error = std::process::Command::new("/proc/self/exe").arg0("bench").args(arguments).exec();
    eprintln!("bench: starting again: {error}");
}

/// Makes a child by vfork that executes the program that does nothing.
///
/// # Errors
/// Those of vfork(2).
pub fn vfork_and_execute_nothing() -> io::Result<Pid> {
    let status = std::process::Command::new(NOTHING_PATH).env_clear().spawn()?;
    Pid::from_raw(status.id().cast_signed()).ok_or_else(|| io::Error::other("a child without a number"))
}

/// Waits until a child has ended.
///
/// # Errors
/// Those of waitpid(2), and when the child failed.
pub fn wait(pid: Pid) -> io::Result<()> {
    match waitpid(Some(pid), WaitOptions::empty())? {
        Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
        status => Err(io::Error::other(format!("a child ended with {status:?}"))),
    }
}

/// Forks a child that does nothing but sleep until it is killed.
///
/// # Errors
/// Those of fork(2).
pub fn fork_sleeper() -> io::Result<Pid> {
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
pub fn kill(pid: Pid) -> io::Result<()> {
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    waitpid(Some(pid), WaitOptions::empty())?;
    Ok(())
}
