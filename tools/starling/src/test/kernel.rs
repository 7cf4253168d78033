//! Steps that boot the kernel with its own tests on the command line.

use std::process::Command;
use std::time::Duration;

use super::step::Step;
use super::tally;
use crate::failure::{Context, Outcome};
use crate::machine::Repository;

/// Machines and numbers of processors to boot.
const MACHINES: [(&str, u32); 4] = [("microvm", 1), ("microvm", 2), ("microvm", 4), ("q35", 2)];
/// And when there is time.
const LONG_MACHINES: [(&str, u32); 4] = [("q35", 1), ("q35", 4), ("microvm", 8), ("q35", 8)];
/// How long the tests may take on one machine.
const LIMIT: Duration = Duration::from_secs(180);

/// The steps of this group.
///
/// # Errors
/// When this program does not know where it is.
pub(super) fn steps(repository: &Repository, long: bool) -> Outcome<Vec<Step>> {
    let program = std::env::current_exe().context(|| "this program".into())?;
    let more = if long { &LONG_MACHINES[..] } else { &[] };
    let boot = |(machine, cpus): &(&str, u32)| {
        let mut starling = Command::new(&program);
        starling.current_dir(repository.root()).args(["run", "--verbose", "--machine", machine]);
        starling.args(["--cpus", &cpus.to_string(), "--timeout", &LIMIT.as_secs().to_string()]);
        starling.args(["--kernel-arg", "test=all", "--", "/bin/true"]);
        Step::new(format!("kernel tests on {machine} with {cpus} CPUs"), starling, tally::kernel_log)
            .within(LIMIT * 2)
    };
    Ok(MACHINES.iter().chain(more).map(boot).collect())
}
