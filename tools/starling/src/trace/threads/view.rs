//! Records as text: for programs `seconds:EVENT : pid : thread : parameters`, for people a sentence each.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::file::{Event, Parameter, Record, Trace};
use super::filter::FilterArguments;
use super::names::{NameArguments, Names};
use super::replay;
use crate::failure::{Context, Outcome};

#[derive(Args, Debug)]
pub(super) struct ViewArguments {
    /// What was recorded
    file: PathBuf,

    /// A form that programs read easily
    #[arg(short, long)]
    raw: bool,

    /// Names of threads instead of their handles
    #[arg(short, long)]
    names: bool,

    #[command(flatten)]
    filter: FilterArguments,

    #[command(flatten)]
    aliases: NameArguments,
}

/// Writes the records that are wanted.
///
/// # Errors
/// When the file is no trace.
pub(super) fn view(arguments: &ViewArguments, out: &mut Vec<u8>) -> Outcome<()> {
    let trace = Trace::read(&arguments.file)?;
    let names = Names::new(&replay::replay(&trace), &arguments.aliases)?;
    let wanted = trace.records.iter().filter(|record| arguments.filter.takes(&trace, record, &names));
    for record in wanted {
        let line = line(&trace, record, &names, arguments.raw, arguments.names);
        writeln!(out, "{line}").context(|| "the view".into())?;
    }
    Ok(())
}

fn line(trace: &Trace, record: &Record, names: &Names, raw: bool, by_name: bool) -> String {
    let event = trace.event(record);
    let seconds = record.time_ns as f64 / 1e9;
    let process = record.process;
    let known = names.thread(process, record.thread).filter(|_| by_name);
    let thread = match (known, names.handle(process, record.thread)) {
        (Some(name), _) => name.to_owned(),
        (None, Some(handle)) => format!("{handle:#x}"),
        (None, None) => record.thread.to_string(),
    };
    let shown = |parameter: &Parameter| match parameter {
        Parameter::Address(0) => "(nil)".to_owned(),
        Parameter::Address(address) => {
            let name = names.object(process, *address).filter(|_| !raw || by_name);
            name.map_or_else(|| format!("{address:#x}"), str::to_owned)
        }
        Parameter::Number(number) => number.to_string(),
        Parameter::Text(text) => text.clone(),
    };
    let parameters: Vec<_> = record.parameters.iter().map(shown).collect();
    if raw {
        let head = format!("{seconds:.6}:{} : {process} : {thread}", event.name);
        return std::iter::once(head).chain(parameters).collect::<Vec<_>>().join(" : ");
    }
    format!("{seconds:.6} : Pid {process}, Thread {thread} {}", sentence(event, record, &parameters))
}

/// The event's phrase with its parameters. What an entry was called with is left to the raw form.
fn sentence(event: &Event, record: &Record, parameters: &[String]) -> String {
    if event.is_entry() {
        return format!("{}.", event.phrase);
    }
    if event.is_exit() {
        let result = record.number(0).filter(|result| *result != 0);
        return result.map_or_else(
            || format!("{}.", event.phrase),
            |result| format!("{}, result {result}.", event.phrase),
        );
    }
    let mut text = String::new();
    let mut next = 0;
    let mut letters = event.phrase.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let place = letters.peek().and_then(|digit| digit.to_digit(10)).map(|digit| digit as usize - 1);
        if place.is_some() {
            letters.next();
        }
        text.push_str(parameters.get(place.unwrap_or(next)).map_or("?", String::as_str));
        next += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::Written;
    use super::*;

    #[test]
    fn both_forms_are_the_papers() {
        let trace = Written::begin()
            .add(5, 0, "THREAD_INIT", &[0xabc0, 0, 0, 0, 0x6e_69_61_6d, 0])
            .add(5, 3_448_000, "START_USER_FUNC", &[])
            .add(5, 3_816_000, "MUTEX_LOCK_IN", &[0x0804_9d28, 0])
            .add(5, 3_818_000, "MUTEX_LOCK_OUT", &[22])
            .end();
        let names =
            Names::new(&replay::replay(&trace), &NameArguments::default()).expect("there are no aliases");
        let line = |place: usize, raw| line(&trace, &trace.records[place], &names, raw, false);
        assert_eq!(line(1, true), "0.001724:START_USER_FUNC : 7 : 0xabc0");
        assert_eq!(line(2, true), "0.001908:MUTEX_LOCK_IN : 7 : 0xabc0 : 0x8049d28");
        assert_eq!(line(1, false), "0.001724 : Pid 7, Thread 0xabc0 starts user function");
        assert_eq!(line(2, false), "0.001908 : Pid 7, Thread 0xabc0 enters function pthread_mutex_lock.");
        assert_eq!(
            line(3, false),
            "0.001909 : Pid 7, Thread 0xabc0 leaves function pthread_mutex_lock, result 22."
        );
    }
}
