//! Images in layers and images that are kept by name, from `starling image build` to a damaged blob.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::images::Images;

/// What is promised.
pub(crate) const NAME: &str =
    "images are kept by name, run as container tools would, and refused when damaged";

fn starling(cache: &Path, arguments: &[&str]) -> Result<Output, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../starling");
    Command::new(path)
        .env("XDG_CACHE_HOME", cache)
        .args(arguments)
        .output()
        .map_err(|error| error.to_string())
}

fn expect(output: &Output, status: i32, out: &str, errors: &str) -> Result<(), String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (found_out, found_errors) = (text(&output.stdout), text(&output.stderr));
    if output.status.code() == Some(status) && found_out.contains(out) && found_errors.contains(errors) {
        return Ok(());
    }
    Err(format!("{}, {found_out:?}, {found_errors:?}; not {status}, {out:?}, {errors:?}", output.status))
}

/// Keeps the directory of the images, runs it by name and as the layout that the store is, damages it, removes it.
pub(crate) fn check(images: &Images) -> Result<(), String> {
    let cache = tempfile::tempdir().map_err(|error| error.to_string())?;
    let run = |arguments: &[&str]| starling(cache.path(), arguments);
    let directory = images.path("directory").display().to_string();
    expect(&run(&["image", "build", "sample:1", &directory])?, 0, "sha256:", "")?;
    expect(&run(&["image", "ls"])?, 0, "sample:1", "")?;
    let store = cache.path().join("starling/images");
    let layout = store.display().to_string();
    for image in ["sample:1", &layout] {
        expect(&run(&["run", "--timeout", "300", image, "--", "cat", "/etc/motd"])?, 0, "welcome\n", "")?;
    }
    let blobs = fs::read_dir(store.join("blobs/sha256")).map_err(|error| error.to_string())?;
    let layer = blobs.filter_map(Result::ok).map(|entry| entry.path());
    let layer = layer.max_by_key(|path| path.metadata().map_or(0, |metadata| metadata.len()));
    let layer = layer.ok_or("no blobs")?;
    let mut bytes = fs::read(&layer).map_err(|error| error.to_string())?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&layer, bytes).map_err(|error| error.to_string())?;
    let digest = layer.file_name().unwrap_or_default().display().to_string();
    expect(&run(&["run", "sample:1", "--", "true"])?, 125, "", &digest)?;
    expect(&run(&["image", "rm", "sample:1"])?, 0, "", "")?;
    expect(&run(&["run", "sample:1", "--", "true"])?, 125, "", "No such file or directory")
}
