//! Checks the licences of all third-party crates, and how many of them are in the kernel image.
//!
//! Every crate that the workspace can pull in, for whatever purpose, must be usable under [`ALLOWED`] licences.
//! [`EXCEPTIONS`] are for crates that only run while something is built or tested; no such crate may be in the kernel
//! image.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use spdx::{Expression, LicenseReq, ParseMode};

/// Licences that allow everything the project wants to do.
const ALLOWED: [&str; 10] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "ISC",
    "Zlib",
    "MPL-2.0",
];

/// Crates that may come under another licence, and why.
const EXCEPTIONS: [(&str, &str, &str); 1] = [(
    "unicode-ident",
    "Unicode-3.0",
    "carries tables of the Unicode standard; used by procedural macros only",
)];

/// Third-party crates in the kernel image at most: each one is code that somebody must trust.
const MOST_IN_IMAGE: usize = 25;

/// The kernel image's package and target.
const KERNEL: &str = "starling-kernel";
const KERNEL_TARGET: &str = "x86_64-unknown-none";

fn main() -> ExitCode {
    match run() {
        Ok(violations) if violations.is_empty() => ExitCode::SUCCESS,
        Ok(violations) => {
            violations.iter().for_each(|violation| println!("{violation}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("check-licences: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Vec<String>, cargo_metadata::Error> {
    let everything = MetadataCommand::new().features(CargoOpt::AllFeatures).exec()?;
    let filter = ["--filter-platform".to_string(), KERNEL_TARGET.to_string()];
    let bare = MetadataCommand::new().other_options(filter).exec()?;
    let image = image(&bare);
    println!(
        "{} third-party crates in all, {} in the kernel image",
        third_party(&everything).count(),
        image.len()
    );
    let mut violations = Vec::new();
    for package in third_party(&everything) {
        let in_image = image.contains(package.name.as_str());
        violations.extend(judge(&package.name, package.license.as_deref(), in_image));
    }
    violations.extend(judge_count(&image));
    Ok(violations)
}

fn third_party(metadata: &Metadata) -> impl Iterator<Item = &Package> {
    metadata.packages.iter().filter(|package| package.source.is_some())
}

/// The names of the third-party crates that are linked into the kernel.
fn image(metadata: &Metadata) -> BTreeSet<String> {
    let packages: BTreeMap<&PackageId, &Package> =
        metadata.packages.iter().map(|package| (&package.id, package)).collect();
    let nodes: BTreeMap<_, _> =
        metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node)).collect();
    let mut pending: Vec<&PackageId> = metadata
        .packages
        .iter()
        .filter(|package| *package.name == KERNEL)
        .map(|package| &package.id)
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = pending.pop() {
        let Some(package) = packages.get(id).filter(|package| !is_macro(package)) else { continue };
        if !seen.insert(id) {
            continue;
        }
        debug_assert_eq!(package.id, *id);
        let linked = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let linked =
            linked.filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        pending.extend(linked.map(|dep| &dep.pkg));
    }
    let linked =
        seen.into_iter().filter_map(|id| packages.get(id)).filter(|package| package.source.is_some());
    linked.map(|package| package.name.to_string()).collect()
}

/// Procedural macros run in the compiler.
fn is_macro(package: &Package) -> bool {
    package.targets.iter().any(|target| target.kind.contains(&TargetKind::ProcMacro))
}

/// What is wrong with one crate's licence.
fn judge(name: &str, licence: Option<&str>, in_image: bool) -> Option<String> {
    let Some(text) = licence else {
        return Some(format!("{name}: does not say its licence"));
    };
    let Ok(expression) = Expression::parse_mode(text, ParseMode::LAX) else {
        return Some(format!("{name}: its licence {text:?} cannot be understood"));
    };
    let excepted = |licence: &str| {
        !in_image && EXCEPTIONS.iter().any(|(crate_name, other, _)| *crate_name == name && *other == licence)
    };
    let allowed = |requirement: &LicenseReq| {
        let licence = requirement.license.id().map(|id| id.name);
        licence.is_some_and(|licence| ALLOWED.contains(&licence) || excepted(licence))
    };
    (!expression.evaluate(allowed))
        .then(|| format!("{name}: its licence {text} is not one that the project takes"))
}

/// What is wrong with the number of crates in the image.
fn judge_count(image: &BTreeSet<String>) -> Option<String> {
    let names = || image.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    (image.len() > MOST_IN_IMAGE).then(|| {
        format!(
            "{} third-party crates in the kernel image, more than {MOST_IN_IMAGE}: {}",
            image.len(),
            names()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_licences_are_taken() {
        for licence in
            ["MIT", "MIT OR Apache-2.0", "MIT/Apache-2.0", "GPL-2.0 OR MIT", "BSD-3-Clause AND Zlib", "0BSD"]
        {
            assert_eq!(judge("some", Some(licence), true), None, "{licence}");
        }
    }

    #[test]
    fn other_licences_are_violations() {
        for licence in
            ["GPL-2.0", "GPL-3.0-only", "MIT AND GPL-2.0", "Unicode-3.0", "nonsense", "LGPL-2.1", ""]
        {
            assert!(judge("some", Some(licence), false).is_some(), "{licence}");
        }
        assert!(judge("some", None, false).is_some());
    }

    #[test]
    fn exceptions_do_not_reach_the_kernel_image() {
        let licence = Some("(MIT OR Apache-2.0) AND Unicode-3.0");
        assert_eq!(judge("unicode-ident", licence, false), None);
        assert!(judge("unicode-ident", licence, true).is_some());
        assert!(judge("another", licence, false).is_some());
    }

    #[test]
    fn crowded_image_is_a_violation() {
        let crates = |count: usize| (0..count).map(|number| format!("crate-{number}")).collect();
        assert_eq!(judge_count(&crates(25)), None);
        assert!(judge_count(&crates(26)).is_some());
    }
}
