//! `starling trace sharing`: cache lines that calls on two processors share though they commute.
//!
//! The program (`probes sharing`) makes pairs of such calls, the plugin tells what each touched, and here is found which lines one
//! side wrote and the other one touched, who did, and in what. A pair that shares nothing scales; one that does is in the table of
//! the book, with the reason, or it is a regression.

use clap::Args;

use super::comparison::{self, Column};
use super::conflict::{self, Conflict};
use super::expectation::{self, Known};
use super::window::{self, Window};
use super::{code::Names, plugin};
use crate::bench::guest_image::{self, Program};
use crate::bench::revision;
use crate::failure::{Failure, Outcome};
use crate::image::Tree;
use crate::machine::{Kernel, Repository};
use crate::progress::Progress;

/// What the program's lines start with.
const MARK: &str = "bench sharing ";
/// Functions of a sort that are shown.
const SHOWN: usize = 6;

/// Report cache lines that pairs of commuting system calls on two processors share.
#[derive(Args, Debug)]
#[command(after_help = "\
Each pair is made by two processes, or two threads, on a processor each and on objects of their own. A line is shared when one
side writes it and the other one reads or writes it, in at least half of the rounds. With --check the exit status is 1 if a pair
shares more than the table in docs/src/scalability.md says.")]
pub(super) struct SharingArguments {
    /// Only pairs whose names contain one of these
    pairs: Vec<String>,

    /// Compare with the table in the book; the last line is `N passed, N failed`
    #[arg(long, conflicts_with = "pairs")]
    check: bool,

    /// Append a word to the kernel command line
    #[arg(long, value_name = "WORD", conflicts_with = "check")]
    kernel_arg: Vec<String>,

    /// Count instead: shared lines and atomic operations of a call, in the kernel of this commit, in this one with clustered=off,
    /// and in this one
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["check", "kernel_arg", "verbose"])]
    against: Option<String>,

    /// Name also the functions that touch the lines
    #[arg(short, long)]
    verbose: bool,
}

/// A pair and how often it was made.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    name: String,
    rounds: usize,
}

/// Records, compares, reports; returns the exit status.
///
/// # Errors
/// When the machine cannot be had or did not do what it was to do.
pub(super) fn trace(arguments: &SharingArguments) -> Outcome<u8> {
    let progress = Progress::new();
    let repository = Repository::find()?;
    let known = if arguments.check { expectation::read(&repository)? } else { Known::new() };
    let kernel = Kernel::build(&repository, &progress)?;
    let tree = guest_image::tree(Program::Probes, &repository, &progress)?;
    if let Some(commit) = &arguments.against {
        return compare(arguments, &repository, (&kernel, commit), &tree, &progress);
    }
    let names = Names::of(&kernel.symbols)?;
    let machine =
        plugin::Recorded { kernel: &kernel, kernel_arguments: &arguments.kernel_arg, tree: &tree, cpus: 2 };
    let (pairs, windows) = record(arguments, &repository, &machine, &progress)?;
    let (mut passed, mut failed) = (0, 0);
    for (pair, rounds) in assign(&pairs, &windows)? {
        let conflicts = conflict::find(&rounds, &names);
        print(pair, &conflicts, arguments.verbose);
        if conflicts.len() > known.get(&pair.name).copied().unwrap_or(0) {
            failed += 1;
        } else {
            passed += 1;
        }
    }
    if arguments.check {
        let gone = known.keys().filter(|name| !pairs.iter().any(|pair| pair.name == **name));
        for name in gone {
            println!("{name}: in the book, but there is no such pair");
            failed += 1;
        }
        println!("{passed} passed, {failed} failed");
    } else {
        println!("{} pairs, {failed} share cache lines", passed + failed);
    }
    Ok(u8::from(arguments.check && failed > 0))
}

/// Makes the pairs, and tells which ones were made and what was recorded.
fn record(
    arguments: &SharingArguments,
    repository: &Repository,
    machine: &plugin::Recorded<'_>,
    progress: &Progress,
) -> Outcome<(Vec<Made>, Vec<Window>)> {
    let suite = match arguments.pairs.join(",") {
        words if words.is_empty() => "sharing".to_owned(),
        words => format!("sharing={words}"),
    };
    let recording = plugin::record(repository, machine, &["/probes", &suite], progress)?;
    let windows = window::parse(&recording.accesses)
        .map_err(|line| Failure::ours(format!("the plugin recorded nonsense: {line}")))?;
    Ok((made(&recording.output), windows))
}

/// The same pairs on another commit's kernel, on this one without clustered objects, and on this one.
fn compare(
    arguments: &SharingArguments,
    repository: &Repository,
    (kernel, commit): (&Kernel, &str),
    tree: &Tree,
    progress: &Progress,
) -> Outcome<u8> {
    let (name, other) = revision::kernel(repository, commit, progress)?;
    let off = ["clustered=off".to_owned()];
    let mut columns = Vec::new();
    for (name, kernel, words) in [
        (name, &Kernel::given(&other)?, &[][..]),
        (off[0].clone(), kernel, &off[..]),
        ("now".into(), kernel, &[]),
    ] {
        let machine = plugin::Recorded { kernel, kernel_arguments: words, tree, cpus: 2 };
        let (pairs, windows) = record(arguments, repository, &machine, progress)?;
        let mut column = Column::new(name);
        assign(&pairs, &windows)?.iter().for_each(|(pair, rounds)| column.add(&pair.name, rounds));
        columns.push(column);
    }
    print!("{}", comparison::table(&columns));
    Ok(0)
}

/// The pairs that the program says it made.
fn made(output: &str) -> Vec<Made> {
    let pair = |line: &str| {
        let mut words = line.trim().strip_prefix(MARK)?.split(' ');
        let name = words.next()?.to_owned();
        if words.next()? != "rounds" {
            println!("{name}: not made: {}", words.collect::<Vec<_>>().join(" "));
            return None;
        }
        let rounds: f64 = words.next()?.parse().ok()?;
        Some(Made { name, rounds: rounds as usize })
    };
    output.lines().filter_map(pair).collect()
}

/// One round: what each of the two processors did.
type Round<'a> = [&'a Window; 2];

/// Gives each pair its windows: those of each processor are in the order of the pairs.
fn assign<'a>(pairs: &'a [Made], windows: &'a [Window]) -> Outcome<Vec<(&'a Made, Vec<Round<'a>>)>> {
    let of = |processor: usize| windows.iter().filter(move |window| window.processor == processor);
    let sum: usize = pairs.iter().map(|pair| pair.rounds).sum();
    let counts = [of(0).count(), of(1).count()];
    if sum == 0 || counts != [sum, sum] {
        return Err(Failure::ours(format!(
            "the program made {sum} rounds, but {} and {} were recorded",
            counts[0], counts[1]
        )));
    }
    let mut rounds = of(0).zip(of(1)).map(|(first, second)| [first, second]);
    Ok(pairs.iter().map(|pair| (pair, rounds.by_ref().take(pair.rounds).collect())).collect())
}

fn print(pair: &Made, conflicts: &[Conflict], verbose: bool) {
    if conflicts.is_empty() {
        println!("{:38} free", pair.name);
        return;
    }
    println!("{:38} {} shared", pair.name, conflicts.len());
    for conflict in conflicts {
        let Conflict { object, lines, rounds, .. } = conflict;
        println!("    {object}: {lines} lines in {rounds} of {} rounds", pair.rounds);
        let writer = conflict.writers.first().map_or("?", String::as_str);
        if !verbose {
            println!("        written by {writer}");
            continue;
        }
        let list = |what: &str, functions: &std::collections::BTreeSet<String>| {
            functions.iter().take(SHOWN).for_each(|function| println!("        {what} by {function}"));
        };
        list("written", &conflict.writers);
        list("read", &conflict.readers);
        let places: Vec<_> = conflict.example.iter().map(|address| format!("{address:#x}")).collect();
        println!("        for example at {}", places.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(processor: usize) -> Window {
        Window { processor, accesses: Vec::new() }
    }

    #[test]
    fn pairs_are_read_off_the_output() {
        let output = "bench started\nbench sharing stat rounds 16.000\r\nbench sharing x unsupported no room\nbench done\n";
        assert_eq!(made(output), [Made { name: "stat".into(), rounds: 16 }]);
    }

    #[test]
    fn windows_are_assigned_in_order_and_all_of_them() {
        let pairs = [Made { name: "a".into(), rounds: 1 }, Made { name: "b".into(), rounds: 2 }];
        let windows = [0, 1, 0, 1, 0, 1].map(window);
        let assigned = assign(&pairs, &windows).expect("they fit");
        assert_eq!(assigned.iter().map(|(_, rounds)| rounds.len()).collect::<Vec<_>>(), [1, 2]);
        assert!(assign(&pairs, &windows[..5]).is_err());
        assert!(assign(&[], &[]).is_err());
    }
}
