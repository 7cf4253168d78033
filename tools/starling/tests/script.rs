//! The script `./starling` on a machine where something is missing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// Runs a copy of the script in `folder`, with nothing in the search path but `readlink` and an `id` of an ordinary user.
fn run_without_tools(folder: &Path) -> Output {
    let tools = folder.join("bin");
    fs::create_dir_all(&tools).expect("created");
    symlink("/usr/bin/readlink", tools.join("readlink")).expect("linked");
    fs::write(tools.join("id"), "#!/bin/sh\necho 1000\n").expect("written");
    fs::set_permissions(tools.join("id"), fs::Permissions::from_mode(0o755)).expect("executable");
    let script = folder.join("starling");
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../starling"), &script).expect("copied");
    let link = folder.join("a link");
    symlink(&script, &link).expect("linked");
    let mut command = Command::new(link);
    command.arg("run").current_dir("/").env_clear().env("PATH", tools).output().expect("runs")
}

#[test]
fn what_is_missing_is_one_line_to_type() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let checkout = folder.path().join("a checkout");
    fs::create_dir(&checkout).expect("created");
    let output = run_without_tools(&checkout);
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(text.lines().count(), 1, "{text}");
    let command =
        "starling: something is missing; type: sudo apt-get install --yes --no-install-recommends gcc";
    assert!(text.starts_with(command), "{text}");
    assert!(text.contains("qemu-system-x86") && text.contains("cargo-web"), "{text}");
    let mut left: Vec<_> = fs::read_dir(&checkout)
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["a link", "bin", "starling"], "nothing is left behind");
}

/// The script decides by itself whether the command must be built anew, so it must know all the sources.
#[test]
fn script_knows_all_sources_of_the_command() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = fs::read_to_string(folder.join("../../starling")).expect("readable");
    let sources =
        script.lines().find_map(|line| line.strip_prefix("sources=")).expect("a list").trim_matches('"');
    let sources: Vec<_> = sources.split(' ').collect();
    let mut pending = vec!["tools/starling".to_owned()];
    while let Some(package) = pending.pop() {
        assert!(sources.contains(&package.as_str()), "{package} is not among the sources in ./starling");
        let manifest =
            fs::read_to_string(folder.join("../..").join(&package).join("Cargo.toml")).expect("readable");
        // What only tests of a package need is not built with it.
        let sections = manifest.split("\n[").filter(|section| !section.starts_with("dev-dependencies]"));
        let manifest: String = sections.collect();
        let paths = manifest.split("path = \"").skip(1).filter_map(|rest| rest.split('"').next());
        pending.extend(paths.filter_map(|path| {
            let up = path.matches("../").count();
            let mut base: Vec<_> = package.split('/').collect();
            base.truncate(base.len().checked_sub(up)?);
            base.push(path.trim_start_matches("../"));
            (up > 0).then(|| base.join("/"))
        }));
    }
}
