//! Steps that run programs on Starling and on the host's Linux and compare what they do.

use std::time::Duration;

use super::step::Step;
use super::tally;
use crate::machine::Repository;

/// How long the long campaign may take.
const LONG_LIMIT: Duration = Duration::from_secs(3 * 3600);

/// The steps of this group.
pub(super) fn steps(repository: &Repository, long: bool) -> Vec<Step> {
    if !repository.root().join("tests/abi/Cargo.toml").is_file() {
        return Vec::new();
    }
    let mut programs = repository.cargo("run");
    programs.args(["--quiet", "--package", "abi-tests", "--"]);
    if long {
        programs.arg("--long");
    }
    let step = Step::new("programs", programs, tally::closing_line);
    vec![if long { step.within(LONG_LIMIT) } else { step }]
}
