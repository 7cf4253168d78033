//! Taking an image into the store, from whatever form it comes in.

use std::io;
use std::path::Path;

use super::{ImageName, Store};
use crate::failure::{Context, Failure, Outcome};
use crate::image::oci::{
    Bundle, CONFIGURATION, Choice, Configuration, Descriptor, Digest, Execution, LAYER, Layers, MANIFEST,
    Manifest,
};
use crate::image::{self, Source, Tree, tar_writer};
use crate::progress::Progress;

/// Where programs of an image made here are looked for.
const SEARCH_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Takes the image at `source` into the store.
///
/// # Errors
/// When it is no image, or damaged, or the disk is full.
pub(super) fn build(
    store: &Store,
    name: &ImageName,
    source: &Path,
    choice: Choice<'_>,
    progress: &Progress,
) -> Outcome<Digest> {
    build_with_command(store, name, source, choice, &[], progress)
}

/// The same; what says nothing of how it is run itself runs the command, if there are words.
///
/// # Errors
/// As [`build`].
pub(super) fn build_with_command(
    store: &Store,
    name: &ImageName,
    source: &Path,
    choice: Choice<'_>,
    command: &[&str],
    progress: &Progress,
) -> Outcome<Digest> {
    let found = image::source(source, choice, progress)?;
    progress.say("storing the image");
    let manifest = match found {
        Source::Tree(tree) => from_tree(store, &tree, command)?,
        Source::Bundle(bundle) => from_bundle(store, &bundle)?,
        Source::FileSystem(found) => {
            let (path, kind) = (source.display(), found.name());
            return Err(Failure::ours(format!(
                "image {path}: a file system ({kind}), not an archive: starling run takes it where it is"
            )));
        }
    };
    store.add_image(name, &manifest)
}

fn descriptor(media_type: &str, (digest, size): (Digest, u64)) -> Descriptor {
    Descriptor { media_type: media_type.into(), digest, size, platform: None, annotations: None }
}

fn manifest(config: Descriptor, layers: Vec<Descriptor>) -> Manifest {
    Manifest { schema_version: 2, media_type: MANIFEST.into(), config, layers }
}

/// One layer with all of it.
fn from_tree(store: &Store, tree: &Tree, command: &[&str]) -> Outcome<Manifest> {
    let layer = store.add_blob(|out| tar_writer::write(tree, out))?;
    let words: Vec<String> = command.iter().map(ToString::to_string).collect();
    let execution = Execution {
        env: Some(vec![SEARCH_PATH.into()]),
        cmd: (!words.is_empty()).then_some(words),
        ..Execution::default()
    };
    let configuration = Configuration {
        architecture: "amd64".into(),
        os: "linux".into(),
        config: Some(execution),
        rootfs: Layers { kind: "layers".into(), diff_ids: vec![layer.0.clone()] },
    };
    let text = serde_json::to_vec(&configuration).context(|| "the configuration".into())?;
    let config = store.add_blob(|out| out.write_all(&text))?;
    Ok(manifest(descriptor(CONFIGURATION, config), vec![descriptor(LAYER, layer)]))
}

/// The layers as they are; those without a description, which docker may have cut short by links, unpacked.
fn from_bundle(store: &Store, bundle: &Bundle) -> Outcome<Manifest> {
    let config = store.add_blob(|out| out.write_all(&bundle.configuration))?;
    let mut layers = Vec::new();
    for (index, (layer, digest)) in bundle.layers.iter().enumerate() {
        // What is stored can be unpacked later.
        let plain = Bundle::unpacked(layer, digest)?;
        let described = bundle.described.as_ref().and_then(|all| all.get(index));
        let (stored, media_type) = match described {
            Some(known) => (layer, known.media_type.as_str()),
            None => (&plain, LAYER),
        };
        let blob = store.add_blob(|out| io::copy(&mut stored.reader(), out).map(drop))?;
        layers.push(descriptor(media_type, blob));
    }
    Ok(manifest(descriptor(CONFIGURATION, config), layers))
}
