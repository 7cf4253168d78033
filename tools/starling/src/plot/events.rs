//! The records of RCU: one a line, `time_ns,cpu,event,flavour,value`.

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A grace period began; its number.
    GracePeriodStart,
    /// One ended; its length in nanoseconds.
    GracePeriodEnd,
    /// Callbacks ran in one go; how many.
    Batch,
    /// A window of 4 ms is over; how many softirqs it had.
    SoftirqWindow,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) time_ns: u64,
    pub(super) cpu: u32,
    pub(super) kind: Kind,
    pub(super) value: u64,
}

/// The first line.
const HEADINGS: &str = "time_ns,cpu,event,flavour,value";

/// Reads all records.
pub(super) fn parse(text: &str) -> Result<Vec<Event>, String> {
    let mut lines = text.lines().map(str::trim_end);
    if lines.next() != Some(HEADINGS) {
        return Err(format!("the first line is not {HEADINGS}"));
    }
    let numbered = lines.enumerate().filter(|(_, line)| !line.is_empty());
    numbered.map(|(index, line)| record(line).ok_or(format!("line {} is no record", index + 2))).collect()
}

fn record(line: &str) -> Option<Event> {
    let mut fields = line.split(',');
    let (time_ns, cpu) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let kind = match fields.next()? {
        "gp_start" => Kind::GracePeriodStart,
        "gp_end" => Kind::GracePeriodEnd,
        "cb_batch" => Kind::Batch,
        "softirq_window" => Kind::SoftirqWindow,
        _ => return None,
    };
    let _flavour = fields.next()?;
    let value = fields.next()?.parse().ok()?;
    fields.next().is_none().then_some(Event { time_ns, cpu, kind, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_others_refused() {
        let events =
            parse("time_ns,cpu,event,flavour,value\n5,1,gp_end,classic,700\n9,0,cb_batch,bh,3\n").unwrap();
        assert_eq!(events[0], Event { time_ns: 5, cpu: 1, kind: Kind::GracePeriodEnd, value: 700 });
        assert_eq!(events.len(), 2);
        for wrong in ["", "time\n", "time_ns,cpu,event,flavour,value\n5,1,gp_end,classic\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(
            parse("time_ns,cpu,event,flavour,value\n5,1,x,classic,1\n").unwrap_err(),
            "line 2 is no record"
        );
    }
}
