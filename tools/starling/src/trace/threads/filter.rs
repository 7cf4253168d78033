//! Which records are wanted.

use clap::Args;

use super::file::{Parameter, Record, Trace};
use super::names::Names;

#[derive(Args, Debug, Default)]
pub(super) struct FilterArguments {
    /// Of this process only
    #[arg(short, long, value_name = "PID")]
    pid: Vec<u32>,

    /// Of this thread only: its number, its handle (0x...) or its name
    #[arg(long, value_name = "THREAD")]
    thread: Vec<String>,

    /// With this object only: its address (0x...) or its name
    #[arg(long, value_name = "OBJECT")]
    object: Vec<String>,

    /// Of this event only; * stands for any letters
    #[arg(short, long, value_name = "NAME")]
    event: Vec<String>,

    /// From this second on
    #[arg(long, value_name = "SECONDS")]
    from: Option<f64>,

    /// Up to this second
    #[arg(long, value_name = "SECONDS")]
    to: Option<f64>,
}

impl FilterArguments {
    /// Whether a record is wanted. Of several values of an option one must fit, and of each option that is given.
    pub(super) fn takes(&self, trace: &Trace, record: &Record, names: &Names) -> bool {
        let seconds = record.time_ns as f64 / 1e9;
        let fits = |wanted: &[String], found: &dyn Fn(&str) -> bool| {
            wanted.is_empty() || wanted.iter().any(|word| found(word))
        };
        let is_object = |wanted: &str| {
            record.parameters.iter().any(|parameter| match parameter {
                Parameter::Address(address) => {
                    wanted == format!("{address:#x}")
                        || names.object(record.process, *address) == Some(wanted)
                }
                _ => false,
            })
        };
        let is_thread = |wanted: &str| {
            let handle = names.handle(record.process, record.thread);
            wanted == record.thread.to_string()
                || handle.is_some_and(|handle| wanted == format!("{handle:#x}"))
                || names.thread(record.process, record.thread).is_some_and(|name| name == wanted)
        };
        (self.pid.is_empty() || self.pid.contains(&record.process))
            && self.from.is_none_or(|from| seconds >= from)
            && self.to.is_none_or(|to| seconds <= to)
            && fits(&self.event, &|wanted| matches(wanted.as_bytes(), trace.event(record).name.as_bytes()))
            && fits(&self.thread, &is_thread)
            && fits(&self.object, &is_object)
    }
}

/// Whether a word fits a pattern in which `*` stands for any letters.
fn matches(pattern: &[u8], word: &[u8]) -> bool {
    match pattern.split_first() {
        None => word.is_empty(),
        Some((b'*', rest)) => (0..=word.len()).any(|skipped| matches(rest, &word[skipped..])),
        Some((letter, rest)) => {
            word.split_first().is_some_and(|(first, word)| first == letter && matches(rest, word))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_letters() {
        let fits = |pattern: &str, word: &str| matches(pattern.as_bytes(), word.as_bytes());
        assert!(fits("MUTEX_*", "MUTEX_LOCK_IN") && fits("*_IN", "MUTEX_LOCK_IN") && fits("*", ""));
        assert!(fits("MUTEX_LOCK_IN", "MUTEX_LOCK_IN") && fits("M*X_*N", "MUTEX_LOCK_IN"));
        assert!(!fits("MUTEX", "MUTEX_LOCK_IN") && !fits("*_OUT", "MUTEX_LOCK_IN") && !fits("", "X"));
    }
}
