//! Checks that unsafe code is only where it may be, and never without a word about why it is sound.
//!
//! * The kernel crates in [`MAY_BE_UNSAFE`], programs for the guest and the plugin for QEMU may have `unsafe`; every other crate's root must say `forbid(unsafe_code)`.
//! * Every `unsafe` has a comment with `SAFETY:` on the lines right above it, or in its own line; a declaration of an unsafe
//!   function or trait may have a `# Safety` section in its documentation instead.
//!
//! The sources are cut into tokens, so that neither comments nor strings are taken for code; macro bodies are looked into.
#![forbid(unsafe_code)]

mod scan;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Crates below `kernel/` that may have unsafe code: the table of layers in ARCHITECTURE.md says why.
const MAY_BE_UNSAFE: [&str; 7] = ["machine", "sync", "memory", "sched", "device", "drivers", "trace"];

/// Folders with crates of this project.
const CRATE_FOLDERS: [&str; 4] = ["kernel", "tools", "tests", "user"];

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or_else(|| Path::new("."));
    match check(root) {
        Ok(violations) if violations.is_empty() => ExitCode::SUCCESS,
        Ok(violations) => {
            violations.iter().for_each(|violation| println!("{violation}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("check-unsafe: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All violations below the root of a checkout, one line each.
fn check(root: &Path) -> io::Result<Vec<String>> {
    let mut violations = Vec::new();
    for folder in CRATE_FOLDERS {
        for path in rust_files(&root.join(folder))? {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            violations.extend(check_file(&name, &fs::read_to_string(&path)?));
        }
    }
    Ok(violations)
}

/// The violations in one file; `name` is its path from the root.
fn check_file(name: &str, text: &str) -> Vec<String> {
    let found = match scan::find_unsafe(text) {
        Ok(found) => found,
        Err(error) => return vec![format!("{name}: {error}")],
    };
    let allowed = may_be_unsafe(name);
    let mut violations = Vec::new();
    if is_crate_root(name) && !allowed && !text.contains("#![forbid(unsafe_code)]") {
        violations.push(format!("{name}: the crate does not say #![forbid(unsafe_code)]"));
    }
    for place in found {
        if !allowed {
            violations.push(format!("{name}:{}: unsafe code in a crate that may have none", place.line));
        } else if !place.explained {
            violations.push(format!("{name}:{}: unsafe without a SAFETY comment", place.line));
        }
    }
    violations
}

/// What runs in the guest makes system calls that Rust has no safe form of, and can harm nobody but itself. The plugin is called
/// by the emulator, through an interface of C.
fn may_be_unsafe(name: &str) -> bool {
    let mut folders = name.split('/');
    match folders.next() {
        Some("kernel") => folders.next().is_some_and(|layer| MAY_BE_UNSAFE.contains(&layer)),
        Some("tools") => folders.next() == Some("qemu-plugin"),
        top => top == Some("user"),
    }
}

fn is_crate_root(name: &str) -> bool {
    name.ends_with("/src/lib.rs") || name.ends_with("/src/main.rs")
}

/// All Rust sources below a folder, in order. A folder that is not there has none.
fn rust_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![folder.to_path_buf()];
    while let Some(folder) = pending.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() && entry.file_name() != "target" {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPLAINED: &str = "fn f() {\n    // SAFETY: p is valid.\n    unsafe { *p };\n}\n";

    #[test]
    fn explained_unsafe_is_allowed_at_the_bottom_only() {
        assert!(check_file("kernel/machine/src/x86_64/mmu.rs", EXPLAINED).is_empty());
        assert!(check_file("kernel/drivers/uart/src/port.rs", EXPLAINED).is_empty());
        for name in ["kernel/vfs/src/path.rs", "tools/starling/src/cache.rs", "tests/abi/src/x.rs"] {
            assert_eq!(
                check_file(name, EXPLAINED),
                [format!("{name}:3: unsafe code in a crate that may have none")]
            );
        }
    }

    #[test]
    fn unexplained_unsafe_is_a_violation() {
        let found = check_file("kernel/sync/src/lock.rs", "fn f() {\n    unsafe { *p };\n}\n");
        assert_eq!(found, ["kernel/sync/src/lock.rs:2: unsafe without a SAFETY comment"]);
    }

    #[test]
    fn safe_crate_must_forbid() {
        assert_eq!(check_file("kernel/linux/src/lib.rs", "//! Docs.\n").len(), 1);
        assert!(check_file("kernel/linux/src/lib.rs", "#![forbid(unsafe_code)]\n").is_empty());
        assert!(check_file("kernel/machine/src/lib.rs", "//! Docs.\n").is_empty());
    }

    #[test]
    fn broken_source_is_a_violation() {
        assert_eq!(check_file("kernel/sync/src/lock.rs", "fn f( {").len(), 1);
    }
}
