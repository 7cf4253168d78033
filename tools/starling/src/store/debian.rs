//! Images of Debian, made from its packages by `mmdebstrap` when they are asked for by name: `debian`, or `debian:SUITE`.
//!
//! `mmdebstrap` checks the signatures of the package lists, and works for root and for ordinary users; where packages come from is its choice, and what
//! configures apt on this machine counts.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{ImageName, Store, build};
use crate::failure::{Context, Failure, Outcome};
use crate::image::oci::{Choice, Digest};
use crate::progress::Progress;

/// The name of all these images, before the tag.
const NAME: &str = "debian";
/// The suite of an image without a tag: Debian 12.
const USUAL_SUITE: &str = "bookworm";
const USUAL_TAG: &str = "latest";
const PROGRAM: &str = "mmdebstrap";
/// What runs in an image of Debian unless told otherwise.
const COMMAND: &str = "bash";

/// The suite that an image is to be made of; `None`: the name is none of Debian's.
pub(crate) fn suite(name: &ImageName) -> Option<&str> {
    match name.as_str().split_once(':')? {
        (NAME, USUAL_TAG) => Some(USUAL_SUITE),
        (NAME, suite) => Some(suite),
        _ => None,
    }
}

/// Makes the image and takes it into the store. `packages` are installed besides those that every Debian has.
///
/// # Errors
/// When the name is none of Debian's, or `mmdebstrap` is missing or fails: a suite or a package that there is not, no way to them, a full disk.
pub(crate) fn make(
    store: &Store,
    name: &ImageName,
    packages: &[String],
    progress: &Progress,
) -> Outcome<Digest> {
    let suite = suite(name).ok_or_else(|| {
        Failure::ours(format!(
            "image {name}: without a source only images of Debian are made, such as {NAME}:{USUAL_SUITE}"
        ))
    })?;
    let folder = tempfile::tempdir().context(|| "a temporary directory".into())?;
    let archive = folder.path().join("debian.tar");
    progress.say(&format!("making {name} from packages"));
    run(mmdebstrap(suite, packages, "tar", &[], &archive), name, progress)?;
    build::build_with_command(store, name, &archive, Choice::Only, &[COMMAND], progress)
}

/// What makes a tree of a suite with these packages, in that format at that place. The hooks are scripts that get the tree before it is finished.
pub(super) fn mmdebstrap(
    suite: &str,
    packages: &[String],
    format: &str,
    hooks: &[String],
    target: &Path,
) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("--variant=minbase").arg(format!("--format={format}"));
    if !packages.is_empty() {
        command.arg(format!("--include={}", packages.join(",")));
    }
    command.args(hooks.iter().map(|hook| format!("--customize-hook={hook}")));
    command.arg("--").arg(suite).arg(target);
    command
}

/// Runs it, and shows what it says. Its last lines say why it failed.
pub(super) fn run(mut command: Command, name: &ImageName, progress: &Progress) -> Outcome<()> {
    let doing = || format!("image {name}");
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::ours(format!(
                "image {name}: {PROGRAM}, which makes it, is missing; type: sudo apt-get install {PROGRAM}"
            )));
        }
        spawned => spawned.context(doing)?,
    };
    let mut complaints = Vec::new();
    if let Some(lines) = child.stderr.take() {
        for line in BufReader::new(lines).split(b'\n') {
            let line = String::from_utf8_lossy(&line.context(doing)?).into_owned();
            match line.strip_prefix("I: ") {
                Some(step) => progress.say(step),
                None if line.starts_with("E: ") => complaints.push(line),
                None => {}
            }
        }
    }
    if child.wait().context(doing)?.success() {
        return Ok(());
    }
    Err(Failure::ours(format!("image {name}: {PROGRAM}: {}", complaints.join("\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ImageName {
        text.parse().expect("a name")
    }

    #[test]
    fn tags_are_suites() {
        assert_eq!(suite(&name("debian")), Some("bookworm"));
        assert_eq!(suite(&name("debian:trixie")), Some("trixie"));
        assert_eq!(suite(&name("debian-12")), None);
        assert_eq!(suite(&name("my/debian:trixie")), None);
    }

    #[test]
    fn packages_are_what_is_included() {
        let words = |packages: &[&str]| {
            let packages: Vec<_> = packages.iter().map(ToString::to_string).collect();
            let command = mmdebstrap("bookworm", &packages, "tar", &[], Path::new("/a/tar"));
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(&[]), "--variant=minbase --format=tar -- bookworm /a/tar");
        assert!(words(&["gcc", "python3"]).contains(" --include=gcc,python3 -- "));
    }

    #[test]
    fn a_failure_says_what_the_program_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'I: trying' >&2; echo 'E: no such package' >&2; exit 1"]);
        let failure = run(command, &name("debian"), &Progress::silent()).expect_err("it fails").to_string();
        assert_eq!(failure, "image debian:latest: mmdebstrap: E: no such package");
        let missing = run(Command::new("/nonexistent/mmdebstrap"), &name("debian"), &Progress::silent());
        assert!(missing.expect_err("it is missing").to_string().contains("apt-get install mmdebstrap"));
    }
}
