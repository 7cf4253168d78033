//! Images that are kept: an OCI image layout in the user's cache, whose blobs are named by their digests, so that images share layers.
//!
//! Whoever changes the store holds its lock exclusively, whoever reads shared. Blobs appear by renaming, then the index names them; what
//! the index no longer leads to is removed afterwards. So a crash at any moment leaves a store that works, with blobs too many at worst.

mod build;
mod command;
mod debian;
pub(crate) mod disk;
mod name;
mod space_tools;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

pub(crate) use command::{ImageArguments, image};
pub(crate) use debian::{make as make_debian, suite as debian_suite};
pub(crate) use name::ImageName;

use crate::cache;
use crate::failure::{Context, Failure, Outcome};
use crate::image::oci::{
    Bundle, Choice, Descriptor, Digest, HashingWriter, Index, Layout, MANIFEST, Manifest, NAME, document,
};

/// A file of the layout, from OCI's image specification.
const MARK: (&str, &str) = ("oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
const TOP: &str = "index.json";
const BLOBS: &str = "blobs/sha256";

/// The store, locked.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    _lock: File,
}

/// An image in the store.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Its name.
    pub(crate) name: String,
    /// Its manifest's digest.
    pub(crate) digest: Digest,
    /// Bytes of its manifest, configuration and layers.
    pub(crate) bytes: u64,
}

impl Store {
    /// The store for reading, if there is one.
    ///
    /// # Errors
    /// When the cache cannot be used.
    pub(crate) fn existing() -> Outcome<Option<Self>> {
        Self::existing_at(cache::directory()?.join("images"))
    }

    fn existing_at(path: PathBuf) -> Outcome<Option<Self>> {
        if !path.join(TOP).is_file() {
            return Ok(None);
        }
        Self::locked(path, FlockOperation::LockShared).map(Some)
    }

    /// The store for changes, made if there is none.
    ///
    /// # Errors
    /// When the cache cannot be used.
    pub(crate) fn writable() -> Outcome<Self> {
        Self::writable_at(cache::directory()?.join("images"))
    }

    fn writable_at(path: PathBuf) -> Outcome<Self> {
        let blobs = path.join(BLOBS);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&blobs)
            .context(|| blobs.display().to_string())?;
        let store = Self::locked(path, FlockOperation::LockExclusive)?;
        if !store.path.join(TOP).is_file() {
            store.write(MARK.0, MARK.1.as_bytes())?;
            store.set_index(Vec::new())?;
        }
        Ok(store)
    }

    fn locked(path: PathBuf, how: FlockOperation) -> Outcome<Self> {
        let name = path.join("lock");
        let doing = || name.display().to_string();
        let lock = File::options().create(true).truncate(false).write(true).open(&name).context(doing)?;
        flock(&lock, how).context(doing)?;
        Ok(Self { path, _lock: lock })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Outcome<()> {
        cache::replace(&self.path.join(name), |file| file.write_all(bytes))
    }

    fn layout(&self) -> Layout {
        Layout::Directory(self.path.clone())
    }

    fn index(&self) -> Outcome<Vec<Descriptor>> {
        let file = File::open(self.path.join(TOP)).context(|| TOP.into())?;
        let file = crate::image::Section::whole(file).context(|| TOP.into())?;
        document::<Index>(&file, TOP).map(|index| index.manifests)
    }

    fn set_index(&self, manifests: Vec<Descriptor>) -> Outcome<()> {
        let index = Index { schema_version: 2, manifests };
        let text = serde_json::to_vec(&index).context(|| TOP.into())?;
        self.write(TOP, &text)
    }

    /// The image of that name.
    ///
    /// # Errors
    /// When something of it is damaged.
    pub(crate) fn find(&self, name: &ImageName) -> Outcome<Option<Bundle>> {
        if !self.index()?.iter().any(|one| one.name() == Some(name.as_str())) {
            return Ok(None);
        }
        Bundle::find(&self.layout(), Choice::Named(name.as_str())).map(Some)
    }

    /// All images by name.
    ///
    /// # Errors
    /// When the index or a manifest is damaged.
    pub(crate) fn list(&self) -> Outcome<Vec<Kept>> {
        let mut images = Vec::new();
        for one in self.index()? {
            let blobs: BTreeMap<Digest, u64> = self.reachable(&one)?.into_iter().collect();
            let name = one.name().unwrap_or("<none>").to_owned();
            images.push(Kept { name, digest: one.digest, bytes: blobs.values().sum() });
        }
        images.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(images)
    }

    /// The blobs of an image, with their lengths.
    fn reachable(&self, image: &Descriptor) -> Outcome<Vec<(Digest, u64)>> {
        let blob = self.layout().blob(image)?;
        let manifest: Manifest = document(&blob, &image.digest.to_string())?;
        let below = manifest.layers.into_iter().chain([manifest.config]).map(|blob| (blob.digest, blob.size));
        Ok(below.chain([(image.digest.clone(), image.size)]).collect())
    }

    /// Writes a blob, unless it is there.
    ///
    /// # Errors
    /// When the disk is full.
    fn add_blob(&self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Outcome<(Digest, u64)> {
        let doing = || self.path.display().to_string();
        let file = tempfile::NamedTempFile::new_in(&self.path).context(doing)?;
        let mut writer = HashingWriter::new(io::BufWriter::with_capacity(1 << 18, file));
        fill(&mut writer).context(doing)?;
        let length = writer.length;
        let (buffer, digest) = writer.finish();
        let file = buffer.into_inner().map_err(io::IntoInnerError::into_error).context(doing)?;
        let path = self.path.join(digest.path());
        if !path.exists() {
            file.persist(&path).map_err(|error| error.error).context(doing)?;
        }
        Ok((digest, length))
    }

    /// Gives a manifest a name. The image that had it loses it.
    ///
    /// # Errors
    /// When the disk is full.
    fn add_image(&self, name: &ImageName, manifest: &Manifest) -> Outcome<Digest> {
        let text = serde_json::to_vec(manifest).context(|| "the manifest".into())?;
        let (digest, size) = self.add_blob(|out| out.write_all(&text))?;
        let mut manifests = self.index()?;
        manifests.retain(|one| one.name() != Some(name.as_str()));
        manifests.push(Descriptor {
            media_type: MANIFEST.into(),
            digest: digest.clone(),
            size,
            platform: None,
            annotations: Some(BTreeMap::from([(NAME.to_owned(), name.to_string())])),
        });
        self.set_index(manifests)?;
        self.sweep()?;
        Ok(digest)
    }

    /// Takes images out.
    ///
    /// # Errors
    /// When there is none of a name; then none is taken out.
    fn remove(&self, names: &[ImageName]) -> Outcome<()> {
        let mut manifests = self.index()?;
        for name in names {
            let before = manifests.len();
            manifests.retain(|one| one.name() != Some(name.as_str()));
            if manifests.len() == before {
                return Err(Failure::ours(format!("there is no image {name}")));
            }
        }
        self.set_index(manifests)?;
        self.sweep()
    }

    /// Removes the blobs that no image has, and what a crash left half written. An image that is damaged keeps nothing but itself.
    fn sweep(&self) -> Outcome<()> {
        let mut used = BTreeSet::new();
        for image in self.index()? {
            match self.reachable(&image) {
                Ok(blobs) => used.extend(blobs.into_iter().map(|(digest, _)| digest.path())),
                Err(_) => drop(used.insert(image.digest.path())),
            }
        }
        let doing = |path: &Path| path.display().to_string();
        let blobs = self.path.join(BLOBS);
        for entry in fs::read_dir(&blobs).context(|| doing(&blobs))? {
            let path = entry.context(|| doing(&blobs))?.path();
            let name = path.strip_prefix(&self.path).unwrap_or(&path).display().to_string();
            if !used.contains(&name) {
                fs::remove_file(&path).context(|| doing(&path))?;
            }
        }
        for entry in fs::read_dir(&self.path).context(|| doing(&self.path))? {
            let path = entry.context(|| doing(&self.path))?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp")) {
                fs::remove_file(&path).context(|| doing(&path))?;
            }
        }
        Ok(())
    }
}
