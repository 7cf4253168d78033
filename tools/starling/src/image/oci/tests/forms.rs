//! Each form in which an image comes, and what is refused.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::super::super::tree::{Kind, Tree};
use super::super::{Bundle, Choice, Layout};
use super::{Files, archive, configuration, layers, saved, section};
use crate::failure::Outcome;

fn in_archive(bytes: &[u8], choice: Choice<'_>) -> Outcome<Bundle> {
    let layout = Layout::in_archive(&section(bytes)).expect("well formed").expect("an image");
    Bundle::find(&layout, choice)
}

fn text(tree: &Tree, name: &str) -> Option<Vec<u8>> {
    match tree.lookup(name.as_bytes())?.kind {
        Kind::File(file) => Some(tree.content(file).read(100).expect("readable")),
        _ => None,
    }
}

fn check(bundle: &Bundle) {
    let tree = bundle.tree().expect("well formed");
    assert_eq!(text(&tree, "etc/motd").as_deref(), Some(&b"lower"[..]));
    assert_eq!(text(&tree, "data").as_deref(), Some(&b"upper"[..]));
    assert_eq!(text(&tree, "etc/gone"), None);
    let execution = &bundle.execution;
    assert_eq!(execution.entrypoint.as_deref(), Some(&["/bin/echo".to_owned()][..]));
    assert_eq!(execution.cmd.as_deref(), Some(&["hello".to_owned()][..]));
    assert_eq!((execution.working_dir.as_deref(), execution.user.as_deref()), (Some("/etc"), None));
}

fn plain(layer: &[u8]) -> Vec<u8> {
    layer.to_vec()
}

fn gzip(layer: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(layer).expect("memory");
    packer.finish().expect("memory")
}

fn zstd(layer: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(layer, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn layers_are_stored_plain_or_compressed() {
    for pack in [plain, gzip, zstd] {
        check(&in_archive(&Files::layout("amd64", pack).archive(), Choice::Only).expect("an image"));
    }
}

#[test]
fn docker_archives_are_read() {
    check(&in_archive(&saved(), Choice::Only).expect("an image"));
    check(&in_archive(&saved(), Choice::Named("sample:1")).expect("an image"));
    assert!(in_archive(&saved(), Choice::Named("sample:2")).is_err());
}

#[test]
fn layouts_in_directories_are_read() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    assert!(Layout::in_directory(folder.path()).is_none());
    for (name, bytes) in Files::layout("amd64", gzip).0 {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("room");
        fs::write(path, bytes).expect("room");
    }
    let layout = Layout::in_directory(folder.path()).expect("an image");
    check(&Bundle::find(&layout, Choice::Only).expect("an image"));
}

#[test]
fn root_file_systems_are_no_images() {
    let root = archive(&[("etc/motd", b"x"), ("manifest.json", b"{\"name\": \"an application\"}")]);
    assert!(Layout::in_archive(&section(&root)).expect("well formed").is_none());
}

#[test]
fn damaged_blobs_are_refused_by_name() {
    let whole = Files::layout("amd64", plain);
    for index in 0..whole.0.len() {
        let mut files = Files(whole.0.clone());
        let (name, bytes) = &mut files.0[index];
        let Some(digits) = name.strip_prefix("blobs/sha256/").map(str::to_owned) else { continue };
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let failure = in_archive(&files.archive(), Choice::Only).expect_err("refused").to_string();
        assert!(failure.starts_with(&format!("blob sha256:{digits} is damaged")), "{failure}");
        files.0[index].1.pop();
        let failure = in_archive(&files.archive(), Choice::Only).expect_err("refused").to_string();
        assert!(failure.contains(&digits) && failure.contains("bytes, not"), "{failure}");
        files.0.remove(index);
        let failure = in_archive(&files.archive(), Choice::Only).expect_err("refused").to_string();
        assert_eq!(failure, format!("blob sha256:{digits} is missing"));
    }
}

#[test]
fn layers_are_compared_with_the_configuration() {
    let [lower, upper] = layers();
    let name = "c.json";
    let manifest = json!([{"Config": name, "Layers": ["a", "b"]}]).to_string();
    let build = |layers: &[Vec<u8>], configuration: &[u8]| {
        let files = [
            ("a", layers[0].as_slice()),
            ("b", layers[1].as_slice()),
            (name, configuration),
            ("manifest.json", manifest.as_bytes()),
        ];
        in_archive(&archive(&files), Choice::Only)
    };
    let right = [lower.clone(), upper];
    let swapped = [right[1].clone(), lower.clone()];
    let bundle = build(&swapped, &configuration(&right, "amd64")).expect("names are as they should be");
    assert!(bundle.tree().expect_err("refused").to_string().contains("is damaged"));
    let failure = build(&right, &configuration(&[lower], "amd64")).expect_err("refused");
    assert_eq!(failure.to_string(), "it has 2 layers, its configuration says 1");
}

#[test]
fn image_for_this_kind_of_machine_is_taken() {
    let mut files = Files::layout("amd64", plain);
    let other = Files::layout("arm64", plain);
    let mut mine = files.manifests().remove(0);
    let mut theirs = other.manifests().remove(0);
    files.0.extend(other.0.into_iter().filter(|(name, _)| name.starts_with("blobs/")));
    mine["platform"] = json!({"architecture": "amd64", "os": "linux"});
    theirs["platform"] = json!({"architecture": "arm64", "os": "linux"});
    // Side by side at the top, and in a list below it.
    files.top(&[theirs.clone(), mine.clone()]);
    check(&in_archive(&files.archive(), Choice::Only).expect("an image"));
    let list = json!({"schemaVersion": 2, "manifests": [theirs, mine]}).to_string();
    let mut list = files.blob(list.into_bytes());
    list["mediaType"] = json!(super::super::documents::INDEX);
    files.top(&[list]);
    check(&in_archive(&files.archive(), Choice::Only).expect("an image"));
    let failure = in_archive(&Files::layout("arm64", plain).archive(), Choice::Only).expect_err("refused");
    assert_eq!(failure.to_string(), "it is for linux/arm64, not for linux/amd64");
}

#[test]
fn several_images_are_told_apart_by_name() {
    let mut files = Files::layout("amd64", plain);
    let one = files.manifests().remove(0);
    let mut two = one.clone();
    two["annotations"] = json!({super::super::NAME: "sample:2"});
    files.top(&[one, two]);
    check(&in_archive(&files.archive(), Choice::Named("sample:2")).expect("an image"));
    let failure = in_archive(&files.archive(), Choice::Only).expect_err("refused").to_string();
    assert!(failure.contains("several images in it (sample:1, sample:2)"), "{failure}");
}
