//! `starling trace messages`: what messages on one processor cost more because there are other processors.
//!
//! Table 5 of specs/fiasco-mp.md: the kernel's own ping-pong on one processor, in instructions, on the usual kernel and on one that has
//! no way to other processors (`--build local-ipc`).

use std::process::{Command, Stdio};

use clap::Args;

use crate::failure::{Context, Failure, Outcome};

/// The builds that are compared: without cross-processor support, and with it.
const BUILDS: [&str; 2] = ["local-ipc", "release"];
/// What the kernel's line of the row begins with, and the word before its median.
const ROW: &str = "ipc_costs local ";
const MEDIAN: &str = "median";
/// How often each kernel is booted.
const BOOTS: usize = 3;
/// How many percent the support may cost (docs/src/ipc.md).
const PERCENT_MAX: u64 = 2;

/// Compare messages on one processor with those of a kernel that knows no other processors.
#[derive(Args, Debug)]
#[command(
    after_help = "The last line is `N passed, N failed`: with --check the exit status is 1 if the support costs more than 2 %."
)]
pub(super) struct MessagesArguments {
    /// Fail if the support costs too much
    #[arg(long)]
    check: bool,
}

/// Measures both kernels and returns the exit status.
///
/// # Errors
/// When a kernel can't be had, or does not tell what a round trip takes.
pub(super) fn trace(arguments: &MessagesArguments) -> Outcome<u8> {
    let [without, with] = BUILDS.map(round_trip);
    let (without, with) = (without?, with?);
    println!("round trip on one processor: {without} instructions, {with} with cross-processor support");
    let is_cheap = with * 100 <= without * (100 + PERCENT_MAX);
    println!("{} passed, {} failed", u8::from(is_cheap), u8::from(!is_cheap));
    Ok(u8::from(arguments.check && !is_cheap))
}

/// Instructions of most round trips on a kernel, in the best of some boots: what lies beside what in memory is not the same in each, which
/// is worth as much as what is compared.
fn round_trip(build: &str) -> Outcome<u64> {
    let boots: Outcome<Vec<u64>> = (0..BOOTS).map(|_| round_trip_of_boot(build)).collect();
    Ok(boots?.into_iter().min().unwrap_or(u64::MAX))
}

fn round_trip_of_boot(build: &str) -> Outcome<u64> {
    let mut starling = Command::new(std::env::current_exe().context(|| "this program".into())?);
    starling.args([
        "run",
        "--build",
        build,
        "--verbose",
        "--accel",
        "icount",
        "--cpus",
        "1",
        "--timeout",
        "900",
    ]);
    starling.args(["--kernel-arg", "test=ipc_costs", "--", "/bin/true"]).stdin(Stdio::null());
    let end = starling.output().context(|| "starling run".into())?;
    let log = String::from_utf8_lossy(&end.stderr) + String::from_utf8_lossy(&end.stdout);
    median(&log).ok_or_else(|| Failure::ours(format!("the kernel {build} told no round trip:\n{log}")))
}

/// The median of the row in a kernel's log.
fn median(log: &str) -> Option<u64> {
    let row = log.lines().find_map(|line| Some(line.split_once(ROW)?.1))?;
    row.split_whitespace().skip_while(|word| *word != MEDIAN).nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_that_of_the_row() {
        let log = "ipc_costs local, queues  mean 5 median 6 best 4 cycles\nipc_costs local          mean      2186 median      2187 best 1 cycles\n";
        assert_eq!(median(log), Some(2187));
        assert_eq!(median("ipc_costs cross mean 1 median 2"), None);
    }
}
