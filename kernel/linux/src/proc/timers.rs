//! `timers`: the POSIX timers of a process (proc(5)).

use core::fmt::Write;

use vfs::Result;
use vfs::text::Text;

use super::process::Subject;
use crate::timer::Description;

/// `timers`
pub(super) fn timers(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    process.timers.describe(|timer| {
        let (kind, number) = match timer.thread {
            Some(tid) => ("tid", subject.seen(tid)),
            None => ("pid", subject.seen(process.pid())),
        };
        write(timer, kind, number, out);
    });
    Ok(())
}

fn write(timer: &Description, kind: &str, number: u32, out: &mut dyn Write) {
    let notice = if timer.is_silent { "none" } else { "signal" };
    let _ = write!(
        out,
        "ID: {}\nsignal: {}/{:016x}\nnotify: {notice}/{kind}.{number}\nClockID: {}\n",
        timer.id, timer.signal, timer.value, timer.clock,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn timers_are_told_in_four_lines() {
        let mut text = String::new();
        let timer = Description {
            id: 1,
            clock: 0,
            signal: 60,
            value: 0x7fff_86e4_52a8,
            thread: None,
            is_silent: false,
        };
        write(&timer, "pid", 2634, &mut text);
        assert_eq!(text, "ID: 1\nsignal: 60/00007fff86e452a8\nnotify: signal/pid.2634\nClockID: 0\n");
    }
}
