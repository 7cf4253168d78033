//! Where the time went between the start of QEMU and the command's first instruction.
//!
//! The kernel counts from its own entry. When that was on the host's clock follows from the arrival of `HELLO`, which says how
//! long the kernel had run when it was sent. The estimate is late by the time the frame took to arrive.

use std::fmt;
use std::time::Duration;

use hostlink_protocol::BootRecords;

/// The moments of one boot.
#[derive(Debug, Default)]
pub(super) struct BootTrace {
    /// When the kernel was entered, after the start of QEMU.
    entry: Duration,
    /// Names and times since the kernel's entry.
    records: Vec<(String, Duration)>,
    first_user: Option<Duration>,
    /// When the command's first output arrived, after the start of QEMU.
    first_output: Option<Duration>,
}

impl BootTrace {
    /// `HELLO` arrived `now` after the start of QEMU and said that the kernel had run for `nanoseconds`.
    pub(super) const fn hello(&mut self, now: Duration, nanoseconds: u64) {
        self.entry = now.saturating_sub(Duration::from_nanos(nanoseconds));
    }

    /// The kernel's records.
    pub(super) fn records(&mut self, records: BootRecords<'_>) {
        let named = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        self.records
            .extend(records.map(|record| (named(record.name), Duration::from_nanos(record.nanoseconds))));
    }

    /// Output arrived `now` after the start of QEMU.
    pub(super) fn output(&mut self, now: Duration) {
        self.first_output.get_or_insert(now);
    }

    /// The command's first instruction was about to be executed.
    pub(super) const fn first_user(&mut self, nanoseconds: u64) {
        self.first_user = Some(Duration::from_nanos(nanoseconds));
    }
}

impl fmt::Display for BootTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let mut records = self.records.clone();
        if let Some(time) = self.first_user {
            records.push(("first user instruction".into(), time));
        }
        records.sort_by_key(|(_, time)| *time);
        writeln!(f, "{:<32} {:>9} {:>9}", "boot trace", "at ms", "took ms")?;
        let entry = milliseconds(self.entry);
        writeln!(f, "{:<32} {entry:>9.2} {entry:>9.2}", "QEMU and firmware")?;
        let mut before = Duration::ZERO;
        for (name, time) in records {
            let (at, took) = (self.entry + time, time.saturating_sub(before));
            writeln!(f, "{name:<32} {:>9.2} {:>9.2}", milliseconds(at), milliseconds(took))?;
            before = time;
        }
        if let Some(at) = self.first_output {
            let took = at.saturating_sub(self.entry + before);
            writeln!(f, "{:<32} {:>9.2} {:>9.2}", "first output", milliseconds(at), milliseconds(took))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_adds_up() {
        let mut bytes = [0; 64];
        let record = hostlink_protocol::BootRecord { nanoseconds: 2_000_000, name: b"memory" };
        let length = record.encode(&mut bytes).expect("fits");
        let mut trace = BootTrace::default();
        trace.hello(Duration::from_millis(30), 5_000_000);
        trace.records(BootRecords::decode(&bytes[..length]).expect("one record"));
        trace.first_user(6_000_000);
        let lines: Vec<_> = trace.to_string().lines().map(str::to_owned).collect();
        assert!(lines[1].ends_with("    25.00     25.00"), "{}", lines[1]);
        assert!(lines[2].starts_with("memory") && lines[2].ends_with("    27.00      2.00"), "{}", lines[2]);
        assert!(
            lines[3].starts_with("first user") && lines[3].ends_with("    31.00      4.00"),
            "{}",
            lines[3]
        );
    }
}
