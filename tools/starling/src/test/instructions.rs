//! The step that counts instructions: what a system call costs may not grow unnoticed.

use std::process::Command;
use std::time::Duration;

use super::step::Step;
use super::tally;
use crate::failure::{Context, Outcome};
use crate::machine::Repository;

/// The counting takes 20 s on an idle machine; before it, a kernel may have to be built.
const LIMIT: Duration = Duration::from_secs(3600);

/// The steps of this group.
///
/// # Errors
/// When this program does not know where it is.
pub(super) fn steps(repository: &Repository) -> Outcome<Vec<Step>> {
    let program = std::env::current_exe().context(|| "this program".into())?;
    let mut starling = Command::new(program);
    starling.current_dir(repository.root()).args(["bench", "--check"]);
    Ok(vec![Step::new("instructions per call", starling, tally::closing_line).within(LIMIT)])
}
