//! `debian-tests`: Debian's programs, unmodified and from one disk, on Starling and on Debian's own kernel in the same virtual machine. What they print, and how
//! they end, must be the same.
//!
//! [`list`] reads the invocations, [`disk`] makes the disk, [`machine`] boots either kernel with it, [`expectation`] keeps what Debian's said, and [`table`] says
//! what a comparison came to. What may differ, with reasons, is in `tests/debian/exceptions.txt`.
#![forbid(unsafe_code)]

mod disk;
mod expectation;
mod list;
mod long_run;
mod machine;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abi_tests::difference::difference;
use abi_tests::known::Known;
use abi_tests::stream::Outcome;
use abi_tests::tally::Tally;

use list::Invocation;
use machine::Machine;
use table::Table;

const USAGE: &str = "usage: debian-tests [--cpus N,...] [--list | --show | --self-check | --long-run MINUTES] [=NAME | TOPIC | PART_OF_A_NAME]...";

/// What is to be done with the invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Compare with Starling.
    Compare,
    /// Name them.
    List,
    /// Show what Debian's kernel makes of them.
    Show,
    /// Ask Debian's kernel a second time, and compare.
    SelfCheck,
    /// Stress Starling for so many minutes.
    LongRun(u32),
}

#[derive(Debug)]
struct Arguments {
    mode: Mode,
    cpus: Vec<u32>,
    words: Vec<String>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments { mode: Mode::Compare, cpus: vec![1, 2, 4], words: Vec::new() };
    while let Some(word) = words.next() {
        match word.as_str() {
            // All that there is to run is long: the step is one of the long ones.
            "--long" => {}
            "--list" => arguments.mode = Mode::List,
            "--show" => arguments.mode = Mode::Show,
            "--self-check" => arguments.mode = Mode::SelfCheck,
            "--long-run" => arguments.mode = Mode::LongRun(words.next()?.parse().ok()?),
            "--cpus" => {
                let numbers = words.next()?.split(',').map(str::parse).collect::<Result<_, _>>();
                arguments.cpus = numbers.ok()?;
            }
            option if option.starts_with('-') => return None,
            _ => arguments.words.push(word),
        }
    }
    Some(arguments)
}

impl Arguments {
    fn wants(&self, one: &Invocation) -> bool {
        let fits = |word: &String| match word.strip_prefix('=') {
            Some(name) => one.name == name,
            None => one.topic == *word || one.name.contains(word.as_str()),
        };
        self.words.is_empty() || self.words.iter().any(fits)
    }
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(125);
    };
    match run(&arguments) {
        Ok(tally) => {
            if tally.differing != 0 {
                println!("{} exceptions (tests/debian/exceptions.txt)", tally.differing);
            }
            println!("{} passed, {} failed", tally.passed, tally.failed);
            ExitCode::from(u8::from(tally.failed != 0))
        }
        Err(message) => {
            eprintln!("debian-tests: {message}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<Tally, String> {
    let root = Path::new(disk::ROOT);
    let all = list::load(&root.join("tests/debian/list"))?;
    let chosen: Vec<_> = all.iter().filter(|one| arguments.wants(one)).collect();
    if chosen.is_empty() {
        return Err("no invocation is called so: --list names them".into());
    }
    let mut tally =
        Tally { known: Known::load(&root.join("tests/debian/exceptions.txt"))?, ..Tally::default() };
    if arguments.mode == Mode::List {
        chosen.iter().for_each(|one| println!("{} ({})", one.name, one.topic));
        return Ok(tally);
    }
    let starling = std::env::var_os("STARLING").map_or_else(|| root.join("starling"), PathBuf::from);
    let disk = disk::make(&starling, &all)?;
    if let Mode::LongRun(minutes) = arguments.mode {
        machine::build(&starling)?;
        for &cpus in &arguments.cpus {
            let machine = Machine { starling: &starling, disk: &disk.file, linux: false, cpus };
            let complaints = long_run::run(&machine, minutes)?.join("\n");
            tally.record("long_run", &format!("cpus {cpus}"), &complaints);
        }
        return Ok(tally);
    }
    let expected = expectation::of(&starling, &disk, &chosen, false)?;
    match arguments.mode {
        Mode::Compare => {
            machine::build(&starling)?;
            let mut table = Table::new(arguments.cpus.clone());
            for &cpus in &arguments.cpus {
                let machine = Machine { starling: &starling, disk: &disk.file, linux: false, cpus };
                let label = format!("cpus {cpus}");
                for topic in chosen.chunk_by(|one, other| one.topic == other.topic) {
                    machine.run(topic, |one, found| {
                        let equal = compare(one, &label, expected.get(&one.name), found, &mut tally);
                        table.count(one, cpus, equal);
                    })?;
                }
            }
            println!("{table}");
        }
        Mode::SelfCheck => {
            let again = expectation::of(&starling, &disk, &chosen, true)?;
            for one in chosen {
                compare(one, "linux", expected.get(&one.name), again.get(&one.name), &mut tally);
            }
        }
        Mode::Show => expected.iter().for_each(|(name, outcome)| show(name, outcome)),
        Mode::List | Mode::LongRun(_) => {}
    }
    Ok(tally)
}

fn show(name: &str, outcome: &Outcome) {
    println!("---- {name}: {} in {} ms", outcome.status, outcome.milliseconds);
    print!("{}{}", String::from_utf8_lossy(&outcome.out), String::from_utf8_lossy(&outcome.err));
}

/// Whether they are equal; prints and counts it.
fn compare(
    one: &Invocation,
    label: &str,
    linux: Option<&Outcome>,
    found: Option<&Outcome>,
    tally: &mut Tally,
) -> bool {
    let explanation = match (linux, found) {
        (None, _) => "Debian's kernel has no result for it\n".into(),
        (_, None) => "no result: the machine stopped or hung while it ran\n".into(),
        (Some(linux), Some(found)) => {
            let mut explanation = String::new();
            if linux.status != found.status {
                explanation += &format!("status: Linux {}, here {}\n", linux.status, found.status);
            }
            explanation += &difference("stdout", &linux.out, &found.out);
            explanation + &difference("stderr", &linux.err, &found.err)
        }
    };
    tally.record(&one.name, label, &explanation);
    explanation.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_by_topic_and_by_name() {
        let line = |text: &str| parse(text.split_whitespace().map(str::to_owned));
        let all = list::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/list"))).expect("the list");
        let count = |text: &str| {
            let arguments = line(text).expect("a good line");
            all.iter().filter(|one| arguments.wants(one)).count()
        };
        assert_eq!(count(""), all.len());
        assert_eq!(count("=git_hooks"), 1);
        assert_eq!(count("git"), all.iter().filter(|one| one.topic == "git").count());
        assert!(line("--cpus one").is_none() && line("--nonsense").is_none());
        assert!(line("--long-run").is_none() && line("--long-run for").is_none());
        assert_eq!(line("--cpus 1,8").map(|arguments| arguments.cpus), Some(vec![1, 8]));
    }

    #[test]
    fn there_are_five_exceptions_at_most() {
        let lines = include_str!("../exceptions.txt").lines();
        assert!(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).count() <= 5);
    }
}
