//! From the first document to the configuration and the layers of one image.

use super::super::content::Section;
use super::super::tree::Tree;
use super::digest::Digest;
use super::documents::{Configuration, Descriptor, Execution, Index, Manifest, SavedImage};
use super::layer;
use super::layout::{Layout, SAVED_TOP, TOP, bytes, document};
use crate::failure::{Context, Failure, Outcome};

/// Lists of manifests inside each other.
const DEPTH_MAX: u32 = 4;
/// More layers than any tool makes.
const LAYERS_MAX: usize = 1024;

/// Which image of several.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'a> {
    /// The only one.
    Only,
    /// The one of this name.
    Named(&'a str),
}

/// One image: everything checked, nothing unpacked.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// Its configuration, as it stands.
    pub(crate) configuration: Vec<u8>,
    /// How a program in it is run.
    pub(crate) execution: Execution,
    /// Its layers as they are stored, the lowest first, with the digests of their uncompressed archives.
    pub(crate) layers: Vec<(Section, Digest)>,
    /// What its manifest says of the layers; none if it has no manifest, as in docker's older archives.
    pub(crate) described: Option<Vec<Descriptor>>,
}

impl Bundle {
    /// Finds an image in a layout.
    ///
    /// # Errors
    /// When there is none or several, it is for another kind of machine, or something is damaged.
    pub(crate) fn find(layout: &Layout, choice: Choice<'_>) -> Outcome<Self> {
        if !layout.has(TOP) {
            return Self::find_saved(layout, choice);
        }
        let index: Index = document(&layout.file(TOP)?, TOP)?;
        let named: Vec<_> = index.manifests.iter().filter(|one| choice.takes(one.name())).collect();
        let descriptor = match (named.as_slice(), choice) {
            ([], _) => return Err(Failure::ours("there is no such image in it")),
            ([one], _) => (*one).clone(),
            // One image for several kinds of machines, without a list between.
            (several, _) => match ours(several.iter().copied())?.as_slice() {
                [one] => one.clone(),
                _ => return Err(several_images(several.iter().filter_map(|one| one.name()))),
            },
        };
        let manifest = find_manifest(layout, descriptor)?;
        let file = layout.blob(&manifest.config)?;
        let configuration = bytes(&file, "the configuration")?;
        if manifest.layers.len() > LAYERS_MAX {
            return Err(Failure::ours(format!("it has {} layers: too many", manifest.layers.len())));
        }
        let layers = manifest.layers.iter().map(|layer| layout.blob(layer)).collect::<Outcome<Vec<_>>>()?;
        Self::new(configuration, layers, Some(manifest.layers))
    }

    /// Finds an image in one of docker's archives.
    fn find_saved(layout: &Layout, choice: Choice<'_>) -> Outcome<Self> {
        let images: Vec<SavedImage> = document(&layout.file(SAVED_TOP)?, SAVED_TOP)?;
        let names = |image: &SavedImage| image.repo_tags.clone().unwrap_or_default();
        let chosen: Vec<_> = images
            .iter()
            .filter(|image| match choice {
                Choice::Only => true,
                Choice::Named(name) => names(image).iter().any(|known| known == name),
            })
            .collect();
        let image = match chosen.as_slice() {
            [] => return Err(Failure::ours("there is no such image in it")),
            [image] => image,
            several => {
                let all: Vec<_> = several.iter().flat_map(|image| names(image)).collect();
                return Err(several_images(all.iter().map(String::as_str)));
            }
        };
        let file = layout.file(&image.config)?;
        let configuration = bytes(&file, "the configuration")?;
        if let Some(digest) = digest_in_name(&image.config) {
            digest.verify(configuration.as_slice())?;
        }
        if image.layers.len() > LAYERS_MAX {
            return Err(Failure::ours(format!("it has {} layers: too many", image.layers.len())));
        }
        let layers = image.layers.iter().map(|name| layout.file(name)).collect::<Outcome<Vec<_>>>()?;
        Self::new(configuration, layers, None)
    }

    fn new(
        configuration: Vec<u8>,
        layers: Vec<Section>,
        described: Option<Vec<Descriptor>>,
    ) -> Outcome<Self> {
        let parsed: Configuration =
            serde_json::from_slice(&configuration).context(|| "the configuration".into())?;
        if parsed.architecture != "amd64" || parsed.os != "linux" {
            let (os, architecture) = (parsed.os.escape_debug(), parsed.architecture.escape_debug());
            return Err(Failure::ours(format!("it is for {os}/{architecture}, not for linux/amd64")));
        }
        let digests = parsed.rootfs.diff_ids;
        if digests.len() != layers.len() {
            let (found, wanted) = (layers.len(), digests.len());
            return Err(Failure::ours(format!("it has {found} layers, its configuration says {wanted}")));
        }
        Ok(Self {
            configuration,
            execution: parsed.config.unwrap_or_default(),
            layers: layers.into_iter().zip(digests).collect(),
            described,
        })
    }

    /// Its root file system.
    ///
    /// # Errors
    /// When a layer is damaged.
    pub(crate) fn tree(&self) -> Outcome<Tree> {
        layer::tree(&self.layers)
    }

    /// The uncompressed archive of a layer.
    ///
    /// # Errors
    /// When it is damaged.
    pub(crate) fn unpacked(layer: &Section, digest: &Digest) -> Outcome<Section> {
        layer::unpack(layer, digest)
    }
}

impl Choice<'_> {
    fn takes(self, name: Option<&str>) -> bool {
        match self {
            Self::Only => true,
            Self::Named(wanted) => name == Some(wanted),
        }
    }
}

/// Follows lists of manifests to the one for this kind of machine.
fn find_manifest(layout: &Layout, mut descriptor: Descriptor) -> Outcome<Manifest> {
    for _ in 0..DEPTH_MAX {
        let blob = layout.blob(&descriptor)?;
        let name = descriptor.digest.to_string();
        if !descriptor.is_index() {
            return document(&blob, &name);
        }
        let index: Index = document(&blob, &name)?;
        descriptor = match ours(index.manifests.iter())?.as_slice() {
            [] => return Err(Failure::ours("it is not for linux/amd64")),
            [first, ..] => first.clone(),
        };
    }
    Err(Failure::ours("its lists of manifests go too deep"))
}

/// Those for this kind of machine, or that do not say.
fn ours<'a>(manifests: impl Iterator<Item = &'a Descriptor>) -> Outcome<Vec<Descriptor>> {
    Ok(manifests
        .filter(|one| one.platform.as_ref().is_none_or(|platform| platform.is_ours()))
        .cloned()
        .collect())
}

fn several_images<'a>(names: impl Iterator<Item = &'a str>) -> Failure {
    let names: Vec<_> = names.map(|name| name.escape_debug().to_string()).collect();
    Failure::ours(format!(
        "there are several images in it ({}): take one out with starling image build --from",
        names.join(", ")
    ))
}

/// The digest that a configuration's name in docker's archives is.
fn digest_in_name(name: &str) -> Option<Digest> {
    let digits = name.strip_prefix("blobs/sha256/").or_else(|| name.strip_suffix(".json"))?;
    format!("sha256:{digits}").parse().ok()
}
