//! The file of a trace: a header, the table of events as text, and records.
//!
//! `user/threads/record.c` writes it, and `ring.h` there says what a record is. It may be cut off anywhere, records that their thread never finished may be in it, and
//! holes of zeros: who reads goes on with the next whole record.

use std::fs;
use std::path::Path;

use crate::failure::{Context, Failure, Outcome};

const MAGIC: &[u8; 8] = b"PTTRACE1";
/// Magic, length, length of the table, and three times.
const HEADER_BYTES: usize = 40;
const WORD: usize = 4;
/// Words of a record before its parameters: header, thread, process, and two of the time.
const WORDS_BEFORE_PARAMETERS: usize = 5;
/// A header's uppermost byte, of a record that is whole and of one that was begun.
const WHOLE: u32 = 0xa5;
const BEGUN: u32 = 0x5a;

/// A kind of event, as the file's table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Its name, in capital letters.
    pub(super) name: String,
    /// The kind of object that it is about.
    pub(super) class: String,
    /// A letter for each parameter.
    parameters: String,
    /// What a thread does, in words.
    pub(super) phrase: String,
}

impl Event {
    /// Whether it is an entry of a function.
    pub(super) fn is_entry(&self) -> bool {
        self.name.ends_with("_IN")
    }

    /// Whether it is an exit.
    pub(super) fn is_exit(&self) -> bool {
        self.name.ends_with("_OUT")
    }

    /// The function of an entry or exit.
    pub(super) fn function(&self) -> &str {
        self.phrase.rsplit(' ').next().unwrap_or_default()
    }
}

/// A parameter of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// An address or handle.
    Address(u64),
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

/// A record: that a thread did something at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its event, by place in the table; the first is 1.
    event: u16,
    /// The kernel's number of the thread.
    pub(super) thread: u32,
    /// And of its process.
    pub(super) process: u32,
    /// Nanoseconds since the beginning.
    pub(super) time_ns: u64,
    /// What the table says.
    pub(super) parameters: Vec<Parameter>,
}

impl Record {
    /// A parameter that is an address or handle.
    pub(super) fn address(&self, place: usize) -> Option<u64> {
        match self.parameters.get(place) {
            Some(Parameter::Address(address)) => Some(*address),
            _ => None,
        }
    }

    /// A parameter that is a number.
    pub(super) fn number(&self, place: usize) -> Option<i64> {
        match self.parameters.get(place) {
            Some(Parameter::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A parameter that is a text.
    pub(super) fn text(&self, place: usize) -> Option<&str> {
        match self.parameters.get(place) {
            Some(Parameter::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// What was recorded.
#[derive(Debug)]
pub(super) struct Trace {
    events: Vec<Event>,
    /// In the order in which room was taken for them, which is nearly that of time.
    pub(super) records: Vec<Record>,
    /// Bytes that belong to no whole record.
    pub(super) skipped_bytes: usize,
    /// Bytes of records.
    pub(super) record_bytes: usize,
}

/// The records' part of a file.
pub(super) fn records_of(file: &[u8]) -> Option<&[u8]> {
    let (_, begin) = table_of(file)?;
    file.get(begin..)
}

/// The table, and where it ends.
fn table_of(file: &[u8]) -> Option<(&[u8], usize)> {
    if file.get(..MAGIC.len())? != MAGIC {
        return None;
    }
    let begin = usize::try_from(word(file, 8)?).ok()?;
    let end = begin.checked_add(usize::try_from(word(file, 12)?).ok()?)?;
    (begin >= HEADER_BYTES).then(|| Some((file.get(begin..end)?, end)))?
}

fn word(bytes: &[u8], place: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(place..place.checked_add(WORD)?)?.try_into().ok()?))
}

fn long_word(bytes: &[u8], place: usize) -> Option<u64> {
    Some(u64::from(word(bytes, place)?) | u64::from(word(bytes, place + WORD)?) << 32)
}

/// The ticks of time stamps as nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Clock {
    begin: u64,
    ticks: u64,
    ns: u64,
}

impl Clock {
    fn since_begin_ns(self, time: u64) -> u64 {
        let ticks = u128::from(time.saturating_sub(self.begin));
        u64::try_from(ticks * u128::from(self.ns) / u128::from(self.ticks.max(1))).unwrap_or(u64::MAX)
    }
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// When it can't be read or is no trace.
    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let file = fs::read(path).context(|| path.display().to_string())?;
        Self::parse(&file).ok_or_else(|| Failure::ours(format!("{} is no trace of threads", path.display())))
    }

    fn parse(file: &[u8]) -> Option<Self> {
        let (table, begin) = table_of(file)?;
        let table = String::from_utf8_lossy(table);
        let events = table.trim_end_matches('\0').lines().map(event).collect::<Option<Vec<_>>>()?;
        let mut trace = Self { events, records: Vec::new(), skipped_bytes: 0, record_bytes: 0 };
        let (first, first_ns) = (long_word(file, 16)?, long_word(file, 24)?);
        let mut clock = Clock { begin: first, ticks: 1, ns: 1 };
        let bytes = &file[begin..];
        let mut place = 0;
        while let Some(header) = word(bytes, place) {
            let length = WORD * (header >> 16 & 0xff) as usize;
            let fits = length >= WORD * WORDS_BEFORE_PARAMETERS && place + length <= bytes.len();
            let record = (header >> 24 == WHOLE && fits)
                .then(|| trace.record(&bytes[place..place + length]))
                .flatten();
            let step = if record.is_some() || header >> 24 == BEGUN && fits { length } else { WORD };
            if let Some(record) = record {
                trace.record_bytes += step;
                if trace.event(&record).name == "CLOCK"
                    && let Some(now_ns) = record.number(0)
                {
                    clock.ticks = record.time_ns.saturating_sub(first);
                    clock.ns = now_ns.cast_unsigned().saturating_sub(first_ns);
                }
                trace.records.push(record);
            } else {
                trace.skipped_bytes += step;
            }
            place += step;
        }
        trace.skipped_bytes += bytes.len().saturating_sub(place);
        for record in &mut trace.records {
            record.time_ns = clock.since_begin_ns(record.time_ns);
        }
        Some(trace)
    }

    /// The event of a record.
    pub(super) fn event(&self, record: &Record) -> &Event {
        // Records of other events are not taken for records.
        &self.events[usize::from(record.event) - 1]
    }

    /// A record with its time in ticks, or `None` if this is none.
    fn record(&self, bytes: &[u8]) -> Option<Record> {
        let event = u16::try_from(word(bytes, 0)? & 0xffff).ok()?;
        let kind = self.events.get(usize::from(event).checked_sub(1)?)?;
        let mut place = WORD * WORDS_BEFORE_PARAMETERS;
        let mut parameters = Vec::with_capacity(kind.parameters.len());
        for letter in kind.parameters.chars() {
            let (parameter, length) = match letter {
                'p' => (Parameter::Address(long_word(bytes, place)?), 2 * WORD),
                'q' => (Parameter::Number(long_word(bytes, place)?.cast_signed()), 2 * WORD),
                'd' => (Parameter::Number(word(bytes, place)?.cast_signed().into()), WORD),
                'u' => (Parameter::Number(word(bytes, place)?.into()), WORD),
                _ => {
                    let rest = bytes.get(place..)?;
                    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
                    (Parameter::Text(String::from_utf8_lossy(&rest[..end]).into_owned()), rest.len())
                }
            };
            parameters.push(parameter);
            place += length;
        }
        if place != bytes.len() {
            return None;
        }
        let (thread, process) = (word(bytes, WORD)?, word(bytes, 2 * WORD)?);
        Some(Record { event, thread, process, time_ns: long_word(bytes, 3 * WORD)?, parameters })
    }
}

fn event(line: &str) -> Option<Event> {
    let mut fields = line.split('\t').map(str::to_owned);
    let (name, class, _kind) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Event { name, class, parameters: fields.next()?, phrase: fields.next()? })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A table of which the tests use some.
    pub(crate) const TABLE: &str = "CLOCK\tPROCESS\tSTATE\tq\tthe time is % ns\n\
        THREAD_INIT\tTHREAD\tSTATE\tpps\tis thread %1, start routine %3 (%2)\n\
        MUTEX_LOCK_IN\tMUTEX\tIO\tp\tenters function pthread_mutex_lock\n\
        MUTEX_LOCK_OUT\tMUTEX\tIO\td\tleaves function pthread_mutex_lock\n\
        THREAD_STATE_WAIT\tTHREAD\tSTATE\tp\twaits for %\n\
        THREAD_STATE_WAKE\tTHREAD\tSTATE\tp\twaits no more for %\n\
        MUTEX_TAKEN\tMUTEX\tSTATE\tp\thas mutex %\n\
        MUTEX_FREE\tMUTEX\tSTATE\tp\tgives mutex % back\n\
        START_USER_FUNC\tTHREAD\tSTATE\t\tstarts user function\n\
        MUTEX_UNLOCK_IN\tMUTEX\tIO\tp\tenters function pthread_mutex_unlock\n\
        MUTEX_UNLOCK_OUT\tMUTEX\tIO\td\tleaves function pthread_mutex_unlock\n";

    /// A file that is put together.
    pub(crate) struct Written(pub(crate) Vec<u8>);

    impl Written {
        pub(crate) fn begin() -> Self {
            let mut table = TABLE.as_bytes().to_vec();
            table.resize(table.len().next_multiple_of(WORD), 0);
            let mut file = MAGIC.to_vec();
            for number in [HEADER_BYTES, table.len()] {
                file.extend(u32::try_from(number).expect("small").to_le_bytes());
            }
            // A tick is half a nanosecond.
            for time in [1000u64, 500, 0] {
                file.extend(time.to_le_bytes());
            }
            file.extend(table);
            Self(file)
        }

        /// A record at a time in ticks since the beginning.
        pub(crate) fn add(mut self, thread: u32, ticks: u64, name: &str, parameters: &[u32]) -> Self {
            let place = TABLE
                .lines()
                .position(|line| line.starts_with(&format!("{name}\t")))
                .expect("it is in the table");
            let length = u32::try_from(WORDS_BEFORE_PARAMETERS + parameters.len()).expect("small");
            let header = WHOLE << 24 | length << 16 | u32::try_from(place + 1).expect("small");
            let time = ticks + 1000;
            let time = [time as u32, (time >> 32) as u32];
            for word in [header, thread, 7, time[0], time[1]].iter().chain(parameters) {
                self.0.extend(word.to_le_bytes());
            }
            self
        }

        pub(crate) fn end(self) -> Trace {
            let trace = self.add(1, 4000, "CLOCK", &[2500, 0]);
            Trace::parse(&trace.0).expect("it is a trace")
        }
    }

    #[test]
    fn records_have_times_since_the_beginning() {
        let trace = Written::begin().add(5, 200, "MUTEX_LOCK_IN", &[0x10, 0]).end();
        let record = &trace.records[0];
        assert_eq!((record.thread, record.process, record.time_ns), (5, 7, 100));
        assert_eq!(record.address(0), Some(0x10));
        assert_eq!(trace.event(record).function(), "pthread_mutex_lock");
        assert_eq!(trace.skipped_bytes, 0);
    }

    #[test]
    fn holes_and_records_never_finished_are_passed_over() {
        let mut file = Written::begin().add(5, 200, "MUTEX_LOCK_IN", &[0x10, 0]);
        file.0.extend([0; 24]);
        let begun = file.0.len();
        file = file.add(5, 300, "MUTEX_TAKEN", &[0x10, 0]);
        file.0[begun + 3] = 0x5a;
        let trace = file.add(5, 400, "MUTEX_FREE", &[0x10, 0]).end();
        let names: Vec<_> = trace.records.iter().map(|record| trace.event(record).name.as_str()).collect();
        assert_eq!(names, ["MUTEX_LOCK_IN", "MUTEX_FREE", "CLOCK"]);
        assert_eq!(trace.skipped_bytes, 24 + 28);
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_read_up_to_there() {
        let file = Written::begin()
            .add(5, 200, "MUTEX_LOCK_IN", &[0x10, 0])
            .add(5, 300, "MUTEX_TAKEN", &[0x10, 0])
            .0;
        let begin = file.len() - 2 * 28;
        for length in begin..file.len() {
            let trace = Trace::parse(&file[..length]).expect("it is a trace");
            assert_eq!(trace.records.len(), (length - begin) / 28, "{length}");
        }
        assert!(Trace::parse(&file[..begin - 1]).is_none());
        assert!(Trace::parse(b"something else").is_none());
    }
}
