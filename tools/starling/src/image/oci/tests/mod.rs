//! Tests on images in two layers, made here in each of the forms.

mod forms;
mod hostile;

use std::io::Write;

use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::super::content::Section;
use super::digest::Digest;

/// An archive with these files.
pub(super) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *bytes).expect("memory");
    }
    builder.into_inner().expect("memory")
}

/// The lower layer's archive and the upper one's, which hides a file.
pub(super) fn layers() -> [Vec<u8>; 2] {
    [
        archive(&[("etc/motd", b"lower"), ("etc/gone", b"x"), ("data", b"lower")]),
        archive(&[("etc/.wh.gone", b""), ("data", b"upper")]),
    ]
}

/// A configuration for these layers.
pub(super) fn configuration(layers: &[Vec<u8>], architecture: &str) -> Vec<u8> {
    let digests: Vec<_> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
    let configuration = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["A=1"], "Entrypoint": ["/bin/echo"], "Cmd": ["hello"], "WorkingDir": "/etc", "User": null},
        "rootfs": {"type": "layers", "diff_ids": digests},
    });
    configuration.to_string().into_bytes()
}

/// The files of an image layout.
pub(super) struct Files(pub(super) Vec<(String, Vec<u8>)>);

impl Files {
    /// A layout with one image, whose layers are stored as `pack` has them.
    pub(super) fn layout(architecture: &str, pack: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let mut files = Self(vec![("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())]);
        let layers = layers();
        let config = files.blob(configuration(&layers, architecture));
        let stored: Vec<_> = layers.iter().map(|layer| files.blob(pack(layer))).collect();
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": stored});
        let mut manifest = files.blob(manifest.to_string().into_bytes());
        manifest["annotations"] = json!({super::NAME: "sample:1"});
        files.top(&[manifest]);
        files
    }

    /// Adds a blob; its descriptor.
    pub(super) fn blob(&mut self, bytes: Vec<u8>) -> Value {
        let digest = Digest::of(&bytes);
        let descriptor = json!({"mediaType": "", "digest": digest.to_string(), "size": bytes.len()});
        self.0.push((digest.path(), bytes));
        descriptor
    }

    /// Says which manifests there are.
    pub(super) fn top(&mut self, manifests: &[Value]) {
        self.0.retain(|(name, _)| name != "index.json");
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        self.0.push(("index.json".into(), index.to_string().into_bytes()));
    }

    /// The manifests that it says there are.
    pub(super) fn manifests(&self) -> Vec<Value> {
        let top = self.0.iter().find(|(name, _)| name == "index.json").expect("has one");
        let index: Value = serde_json::from_slice(&top.1).expect("well formed");
        index["manifests"].as_array().expect("a list").clone()
    }

    /// As an archive.
    pub(super) fn archive(&self) -> Vec<u8> {
        let files: Vec<_> = self.0.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        archive(&files)
    }
}

/// What `docker save` wrote before it wrote layouts.
pub(super) fn saved() -> Vec<u8> {
    let layers = layers();
    let configuration = configuration(&layers, "amd64");
    let name = Digest::of(&configuration).path().replace("blobs/sha256/", "") + ".json";
    let manifest =
        json!([{"Config": name, "RepoTags": ["sample:1"], "Layers": ["a/layer.tar", "b/layer.tar"]}]);
    let manifest = manifest.to_string();
    archive(&[
        ("a/layer.tar", &layers[0]),
        ("b/layer.tar", &layers[1]),
        (&name, &configuration),
        ("manifest.json", manifest.as_bytes()),
    ])
}

/// Bytes as a file.
pub(super) fn section(bytes: &[u8]) -> Section {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).expect("room");
    Section::whole(file).expect("a file")
}
