//! Steps that run programs in the guest: the command's promises, and programs compared with the host's Linux.

use std::time::Duration;

use super::step::Step;
use super::tally;
use crate::machine::Repository;

/// How long the long campaign may take.
const LONG_LIMIT: Duration = Duration::from_secs(3 * 3600);

/// The steps of this group.
pub(super) fn steps(repository: &Repository, long: bool) -> Vec<Step> {
    let step = |name: &str, package: &str| {
        let mut tests = repository.cargo("run");
        tests.args(["--quiet", "--package", package, "--"]);
        if long {
            tests.arg("--long");
        }
        let step = Step::new(name, tests, tally::closing_line);
        if long { step.within(LONG_LIMIT) } else { step }
    };
    vec![step("the command", "command-tests"), step("programs", "abi-tests")]
}
