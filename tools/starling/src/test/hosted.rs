//! Steps that run on the host: the unit tests of all crates, the kernel's on its hosted machine.

use super::step::Step;
use super::tally;
use crate::machine::Repository;

/// The steps of this group.
pub(super) fn steps(repository: &Repository, _long: bool) -> Vec<Step> {
    let mut tests = repository.cargo("test");
    tests.args(["--workspace", "--no-fail-fast"]);
    vec![Step::new("unit tests", tests, tally::cargo)]
}
