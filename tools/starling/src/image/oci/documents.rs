//! The JSON documents of OCI's image specification, as far as they are used, and docker's older ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::digest::Digest;

/// The annotation with an image's name.
pub(crate) const NAME: &str = "org.opencontainers.image.ref.name";
/// Media types of manifests.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Of configurations.
pub(crate) const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
/// Of layers that are not compressed.
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Of lists of manifests.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The same, as docker calls them.
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// What a document says of a blob.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    /// What the blob is.
    #[serde(default)]
    pub(crate) media_type: String,
    /// Its digest.
    pub(crate) digest: Digest,
    /// Its length.
    pub(crate) size: u64,
    /// Where what it describes runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    /// Texts by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    /// Whether it describes a list of manifests.
    pub(crate) fn is_index(&self) -> bool {
        matches!(self.media_type.as_str(), INDEX | DOCKER_LIST)
    }

    /// The name of the image.
    pub(crate) fn name(&self) -> Option<&str> {
        self.annotations.as_ref()?.get(NAME).map(String::as_str)
    }
}

/// A kind of machine.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Platform {
    /// As Go calls it.
    pub(crate) architecture: String,
    /// As Go calls it.
    pub(crate) os: String,
}

impl Platform {
    /// Whether it is ours.
    pub(crate) fn is_ours(&self) -> bool {
        self.architecture == "amd64" && self.os == "linux"
    }
}

/// `index.json`, or a list of manifests.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    /// 2.
    pub(crate) schema_version: u32,
    /// The manifests.
    pub(crate) manifests: Vec<Descriptor>,
}

/// A manifest.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    /// 2.
    pub(crate) schema_version: u32,
    /// [`MANIFEST`].
    #[serde(default)]
    pub(crate) media_type: String,
    /// The configuration.
    pub(crate) config: Descriptor,
    /// The layers, the lowest first.
    pub(crate) layers: Vec<Descriptor>,
}

/// An image's configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Configuration {
    /// Where it runs.
    pub(crate) architecture: String,
    /// Where it runs.
    pub(crate) os: String,
    /// What it runs, unless told otherwise.
    #[serde(default)]
    pub(crate) config: Option<Execution>,
    /// Its layers.
    pub(crate) rootfs: Layers,
}

/// The layers by the digests of their uncompressed archives.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Layers {
    /// `layers`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The lowest first.
    #[serde(default)]
    pub(crate) diff_ids: Vec<Digest>,
}

/// How a program in the image is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Execution {
    /// User and group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// Variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<Vec<String>>,
    /// What comes before the command's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entrypoint: Option<Vec<String>>,
    /// The command's words, unless others are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cmd: Option<Vec<String>>,
    /// Where it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) working_dir: Option<String>,
}

/// One image in the `manifest.json` of docker's archives.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct SavedImage {
    /// Where its configuration is.
    pub(crate) config: String,
    /// What it is called.
    #[serde(default)]
    pub(crate) repo_tags: Option<Vec<String>>,
    /// Where its layers are, the lowest first.
    pub(crate) layers: Vec<String>,
}
