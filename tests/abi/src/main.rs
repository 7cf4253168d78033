//! `abi-tests`: programs run on Starling and on the host's Linux, and what they print must agree.
//!
//! The host is the oracle. A case is one program (or one script) that prints deterministic text; its standard output,
//! standard error and exit status on Starling are compared, byte by byte, with those on the host. Nothing is expected
//! by hand, so adding a test is adding a program.
//!
//! The flow: [`cases`] finds the programs, [`compile`] builds them (cached by content), [`image`] lays out one root
//! directory that serves both sides, [`oracle`] runs it on the host in private name spaces, [`guest`] runs it in
//! Starling's VM, [`abi_tests::stream`] reads what the runner inside reports, and [`verdict`] compares.
//!
//! One boot runs many cases: starting a VM costs more than most programs do. The runner inside (`user/runner.c`)
//! limits each case in time; the harness limits the VM. When a VM hangs, the case that ran last has failed, and the
//! cases after it run in a new VM.
#![forbid(unsafe_code)]

mod arguments;
mod cases;
mod compile;
mod guest;
mod image;
mod oracle;
mod terminal;
mod verdict;

use std::collections::BTreeSet;
use std::process::ExitCode;

use abi_tests::known::Known;
use abi_tests::tally::Tally;
use arguments::Arguments;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("abi-tests: {message}");
            eprintln!("{}", arguments::USAGE);
            return ExitCode::from(125);
        }
    };
    match run(&arguments) {
        Ok(tally) => {
            if tally.differing != 0 {
                println!("{} known differences (tests/abi/known_differences.txt)", tally.differing);
            }
            println!("{} passed, {} failed", tally.passed, tally.failed);
            if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            eprintln!("abi-tests: {message}");
            println!("{} passed, {} failed", 0, 1);
            ExitCode::FAILURE
        }
    }
}

/// Builds what is asked for, runs it on both sides and compares.
fn run(arguments: &Arguments) -> Result<Tally, String> {
    let place = image::Place::find()?;
    let all = cases::find(&place, arguments.long)?;
    if let Some(name) = arguments.unknown_name(&all, &["terminal"]) {
        return Err(format!("no test is called {name}; --list names them"));
    }
    let mut chosen: Vec<_> = all.into_iter().filter(|case| arguments.wants(case)).collect();
    let mut tally = Tally::default();
    if !arguments.judges_all() {
        tally.known = Known::load(&place.root().join("tests/abi/known_differences.txt"))?;
        chosen.retain(|case| !tally.known.hangs(&case.name));
    }
    if arguments.list {
        for case in &chosen {
            println!("{}{}", case.name, if case.long { " (long)" } else { "" });
        }
        return Ok(tally);
    }
    let skipped = image::build(&place, &chosen)?;
    for (name, reason) in &skipped {
        println!("test {name} ... skipped: {reason}");
    }
    let chosen: Vec<_> =
        chosen.into_iter().filter(|case| skipped.iter().all(|(name, _)| *name != case.name)).collect();
    if let Some(directory) = &arguments.image_only {
        image::copy_to(&place, directory)?;
        println!("the image is in {}", directory.display());
        return Ok(tally);
    }
    let compared: Vec<_> = chosen.iter().filter(|case| case.kind == cases::Kind::Compared).cloned().collect();
    let expected = oracle::run(&place, &compared)?;
    if arguments.show {
        for (name, outcome) in &expected {
            println!("---- {name}: {} in {} ms", outcome.status, outcome.milliseconds);
            print!("{}{}", String::from_utf8_lossy(&outcome.out), String::from_utf8_lossy(&outcome.err));
        }
        return Ok(tally);
    }
    if arguments.self_check {
        let again = oracle::run(&place, &compared)?;
        for case in &compared {
            verdict::compare(case, "host", expected.get(&case.name), again.get(&case.name), &mut tally);
        }
        return Ok(tally);
    }
    let chosen = match arguments.seconds {
        Some(seconds) => image::prolong(&place, chosen, seconds)?,
        None => chosen,
    };
    let sizes: BTreeSet<u32> = chosen.iter().flat_map(|case| arguments.cpus(case)).collect();
    for cpus in sizes {
        let here: Vec<_> =
            chosen.iter().filter(|case| arguments.cpus(case).contains(&cpus)).cloned().collect();
        let label = format!("cpus {cpus}");
        guest::run(&place, arguments, cpus, &here, |case, found| {
            let failed = tally.failed;
            match case.kind {
                cases::Kind::Compared => {
                    verdict::compare(case, &label, expected.get(&case.name), found, &mut tally)
                }
                cases::Kind::Guest => verdict::judge(case, &label, found, &mut tally),
            }
            tally.failed == failed
        })?;
    }
    if arguments.wants_name("terminal") {
        terminal::run(&place, arguments, &mut tally)?;
    }
    Ok(tally)
}
