//! In-kernel tests, selected by `test=` on the command line: `all`, a module's name or a test's name.
//!
//! Each prints one line, `test NAME ... ok` or `test NAME ... FAILED: why`; the last line is
//! `tests: N passed, N failed`, then the machine turns itself off.

pub(crate) mod machine;
mod outcome;

pub(crate) use outcome::{Failure, Outcome, check, fail};

/// A test.
pub(crate) struct Test {
    /// `module::behaviour`.
    pub(crate) name: &'static str,
    /// Its body.
    pub(crate) run: fn() -> Outcome,
}

/// The tests by module.
const MODULES: &[&[Test]] = &[machine::TESTS];

/// Crashes on purpose, to see the report.
fn crash(selection: &str) {
    match selection {
        "panic" => panic!("asked for on the command line"),
        _ => {}
    }
}

/// Runs what the selection names and turns the machine off.
pub(crate) fn run(selection: &str) -> ! {
    crash(selection);
    let (mut passed, mut failed) = (0, 0);
    for test in MODULES.iter().copied().flatten().filter(|test| is_selected(test.name, selection)) {
        match (test.run)() {
            Ok(()) => {
                passed += 1;
                print(format_args!("test {} ... ok\n", test.name));
            }
            Err(failure) => {
                failed += 1;
                print(format_args!("test {} ... FAILED: {failure}\n", test.name));
            }
        }
    }
    print(format_args!("tests: {passed} passed, {failed} failed\n"));
    ::machine::power::power_off()
}

fn is_selected(name: &str, selection: &str) -> bool {
    selection == "all"
        || selection.split(',').any(|item| name == item || name.split("::").next() == Some(item))
}

fn print(arguments: core::fmt::Arguments<'_>) {
    ::machine::console::print(arguments);
}
