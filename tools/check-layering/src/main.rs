//! Checks that every kernel crate uses only crates of lower layers.
//!
//! The layers, lowest first, are those of ARCHITECTURE.md. A crate may use crates of lower layers; crates of one layer
//! (two file systems, two drivers) do not use each other. Dependencies for tests only are free. Programs under `tools/`
//! and `tests/` may use only the kernel's leaf crates: everything else of the kernel is not meant for them.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// The layers below `kernel/`, lowest first. A folder with a `*` holds one crate in each of its folders.
const LAYERS: [&str; 21] = [
    "sorting",
    "drivers/hostlink-protocol",
    "machine",
    "sync",
    "memory",
    "sched",
    "ipc",
    "device",
    "block",
    "vfs",
    "tty",
    "fs/*",
    "net",
    // The host link stands on a serial port, and the console on both.
    "drivers/serial",
    "drivers/hostlink",
    // Its bus is shown by `device-files`, as those of crate `device` are.
    "drivers/virtio",
    "drivers/*",
    "linux",
    "trace",
    "tests",
    "starling",
];

/// Leaf crates: shared with programs on the host.
const LEAVES: [&str; 1] = ["drivers/hostlink-protocol"];

fn main() -> ExitCode {
    let metadata = match MetadataCommand::new().no_deps().exec() {
        Ok(metadata) => metadata,
        Err(error) => {
            eprintln!("check-layering: {error}");
            return ExitCode::FAILURE;
        }
    };
    let violations = check(&edges(&metadata));
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Where a crate lives, and where the crates of this workspace that it uses live.
struct Uses {
    folder: String,
    used: Vec<String>,
}

/// The dependencies inside the workspace.
fn edges(metadata: &Metadata) -> Vec<Uses> {
    let root = metadata.workspace_root.as_std_path();
    let folder = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    let of_package = |package: &Package| Uses {
        folder: package.manifest_path.parent().map(|path| folder(path.as_std_path())).unwrap_or_default(),
        used: package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind != DependencyKind::Development)
            .filter_map(|dependency| dependency.path.as_ref().map(|path| folder(path.as_std_path())))
            .collect(),
    };
    metadata.packages.iter().map(of_package).collect()
}

/// What is wrong, one line each.
fn check(crates: &[Uses]) -> Vec<String> {
    let mut violations = Vec::new();
    for Uses { folder, used } in crates {
        let own = kernel_folder(folder).map(layer);
        if own == Some(None) {
            violations.push(format!("{folder}: no layer of the kernel has this folder"));
            continue;
        }
        for other in used {
            let Some(inside) = kernel_folder(other) else { continue };
            match (own.flatten(), layer(inside)) {
                (Some(own), Some(below)) if below < own => {}
                (None, Some(_)) if LEAVES.contains(&inside) => {}
                (Some(_), _) => {
                    violations.push(format!("{folder} uses {other}, which is not in a lower layer"))
                }
                (None, _) => violations.push(format!("{folder} uses {other}, which is for the kernel only")),
            }
        }
    }
    violations
}

/// The folder below `kernel/`, if it is there.
fn kernel_folder(folder: &str) -> Option<&str> {
    folder.strip_prefix("kernel/")
}

/// The place of a folder below `kernel/` among the layers.
fn layer(folder: &str) -> Option<usize> {
    let exact = LAYERS.iter().position(|layer| *layer == folder);
    exact.or_else(|| {
        LAYERS.iter().position(|layer| {
            let inside = layer.strip_suffix('*').and_then(|group| folder.strip_prefix(group));
            inside.is_some_and(|name| !name.is_empty() && !name.contains('/'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(folder: &str, used: &[&str]) -> Vec<String> {
        check(&[Uses { folder: folder.into(), used: used.iter().map(|name| (*name).into()).collect() }])
    }

    #[test]
    fn lower_layers_may_be_used() {
        assert!(violations("kernel/vfs", &["kernel/sync", "kernel/memory"]).is_empty());
        assert!(violations("kernel/fs/tmpfs", &["kernel/vfs", "kernel/tty"]).is_empty());
        assert!(violations("kernel/starling", &["kernel/linux", "kernel/drivers/console"]).is_empty());
        assert!(violations("kernel/machine", &["kernel/drivers/hostlink-protocol"]).is_empty());
    }

    #[test]
    fn higher_layer_is_a_violation() {
        let found = violations("kernel/memory", &["kernel/sched"]);
        assert_eq!(found, ["kernel/memory uses kernel/sched, which is not in a lower layer"]);
    }

    #[test]
    fn own_layer_is_a_violation() {
        assert_eq!(violations("kernel/fs/procfs", &["kernel/fs/tmpfs"]).len(), 1);
    }

    #[test]
    fn crate_outside_the_table_is_a_violation() {
        assert_eq!(violations("kernel/misc", &[]).len(), 1);
        assert_eq!(violations("kernel/linux", &["kernel/misc"]).len(), 1);
        assert_eq!(violations("kernel/fs/a/b", &[]).len(), 1);
    }

    #[test]
    fn tools_may_use_leaves_only() {
        assert!(
            violations("tools/starling", &["kernel/drivers/hostlink-protocol", "tools/other"]).is_empty()
        );
        assert_eq!(violations("tools/starling", &["kernel/machine"]).len(), 1);
    }
}
