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

/// A flood of garbage on a small machine with RCU's defences, and without them, when it must exhaust memory.
const FLOODS: [(&str, &str); 2] =
    [("with defences", "rcu.unprotected=0"), ("without defences", "rcu.unprotected=1")];
/// Ten minutes of torture for each flavour.
const TORTURE: &str = "test=rcu::torture_classic,rcu::torture_bh";
const TORTURE_SECONDS: &str = "rcu.torture_secs=600";
const TORTURE_LIMIT: Duration = Duration::from_secs(1500);

/// The steps of this group.
///
/// # Errors
/// When this program does not know where it is.
pub(super) fn steps(repository: &Repository, long: bool) -> Outcome<Vec<Step>> {
    let program = std::env::current_exe().context(|| "this program".into())?;
    let more = if long { &LONG_MACHINES[..] } else { &[] };
    let kernel = |machine: &str, cpus: u32, limit: Duration, options: &[&str]| {
        let mut starling = Command::new(&program);
        starling.current_dir(repository.root()).args(["run", "--verbose", "--machine", machine]);
        starling.args(["--cpus", &cpus.to_string(), "--timeout", &limit.as_secs().to_string()]);
        starling.args(options).args(["--", "/bin/true"]);
        starling
    };
    let boot = |&(machine, cpus): &(&str, u32)| {
        let starling = kernel(machine, cpus, LIMIT, &["--kernel-arg", "test=all"]);
        Step::new(format!("kernel tests on {machine} with {cpus} CPUs"), starling, tally::kernel_log)
            .within(LIMIT * 2)
    };
    let flood = |&(name, unprotected): &(&str, &str)| {
        let options = ["--memory", "64M", "--kernel-arg", "test=rcu_flood", "--kernel-arg", unprotected];
        Step::new(format!("RCU flood {name}"), kernel("microvm", 2, LIMIT, &options), tally::kernel_log)
            .within(LIMIT * 2)
    };
    let mut steps: Vec<Step> =
        MACHINES.iter().chain(more).map(boot).chain(FLOODS.iter().map(flood)).collect();
    if long {
        let options = ["--kernel-arg", TORTURE, "--kernel-arg", TORTURE_SECONDS];
        let starling = kernel("q35", 8, TORTURE_LIMIT, &options);
        steps.push(
            Step::new("RCU torture for 20 minutes", starling, tally::kernel_log).within(TORTURE_LIMIT * 2),
        );
    }
    Ok(steps)
}
