//! Archives as `docker save` writes them: layers one above the other, what the image says of its program, and a layer that is not what its digest says.

use std::fs;
use std::path::Path;
use std::process::Command;

use tar::{Builder, EntryType, Header};

use crate::case::starling;
use crate::damaged::Random;
use crate::disks::{said, text};
use crate::images::Images;

/// What is promised.
pub(crate) const NAME: &str =
    "an archive of docker save runs as its image says, and is refused when a layer was changed";

/// The same of damage. Half of it is in layers whose digests are right, so that it is not refused for those.
pub(crate) const DAMAGED_NAME: &str = "two hundred damaged images in layers are refused, or run";

const DAMAGED: u64 = 200;
const BLOCK_BYTES: usize = 512;

fn append(archive: &mut Builder<Vec<u8>>, name: &str, bytes: &[u8]) -> Result<(), String> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, name, bytes).map_err(text)
}

fn digest(folder: &Path, bytes: &[u8]) -> Result<String, String> {
    let file = folder.join("bytes");
    fs::write(&file, bytes).map_err(text)?;
    let output = Command::new("sha256sum").arg(&file).output().map_err(text)?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    line.split_whitespace().next().map(str::to_owned).ok_or_else(|| said(&output))
}

/// The archive, whose upper layer may be another one than the configuration's.
fn archive(folder: &Path, layers: &[&[u8]; 2], is_changed: bool) -> Result<Vec<u8>, String> {
    let digests = [digest(folder, layers[0])?, digest(folder, layers[1])?];
    let configuration = format!(
        "{{\"architecture\": \"amd64\", \"os\": \"linux\", \
          \"config\": {{\"Env\": [\"COLOUR=green\"], \"Cmd\": [\"/bin/sh\", \"-c\", \"pwd; echo $COLOUR; cat motd; ls noexec\"], \"WorkingDir\": \"/etc\"}}, \
          \"rootfs\": {{\"type\": \"layers\", \"diff_ids\": [\"sha256:{}\", \"sha256:{}\"]}}}}",
        digests[0], digests[1]
    );
    let name = digest(folder, configuration.as_bytes())? + ".json";
    let manifest = format!(
        "[{{\"Config\": \"{name}\", \"RepoTags\": [\"sample:1\"], \"Layers\": [\"a/layer.tar\", \"b/layer.tar\"]}}]"
    );
    let mut upper = layers[1].to_vec();
    if is_changed {
        let middle = upper.len() / 2;
        upper[middle] ^= 1;
    }
    let mut archive = Builder::new(Vec::new());
    append(&mut archive, "a/layer.tar", layers[0])?;
    append(&mut archive, "b/layer.tar", &upper)?;
    append(&mut archive, &name, configuration.as_bytes())?;
    append(&mut archive, "manifest.json", manifest.as_bytes())?;
    archive.into_inner().map_err(text)
}

fn layers(images: &Images) -> Result<[Vec<u8>; 2], String> {
    let lower = fs::read(images.path("image.tar")).map_err(text)?;
    let mut upper = Builder::new(Vec::new());
    append(&mut upper, "etc/motd", b"from above\n")?;
    append(&mut upper, "etc/.wh.noexec", b"")?;
    Ok([lower, upper.into_inner().map_err(text)?])
}

/// Runs the image, then the one that was changed.
pub(crate) fn check(images: &Images) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let [lower, upper] = layers(images)?;
    let run = |is_changed| {
        let file = folder.path().join("saved.tar");
        fs::write(&file, archive(folder.path(), &[&lower, &upper], is_changed)?).map_err(text)?;
        starling().args(["--timeout", "300"]).arg(&file).output().map_err(text)
    };
    let output = run(false)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.stdout != b"/etc\ngreen\nfrom above\n" || !errors.contains("noexec: No such file or directory")
    {
        return Err(said(&output));
    }
    let refused = run(true)?;
    let errors = String::from_utf8_lossy(&refused.stderr);
    if refused.status.code() != Some(125) || !errors.contains(&digest(folder.path(), &upper)?) {
        return Err(format!("a changed layer: {}", said(&refused)));
    }
    Ok(())
}

/// Changes up to four bytes, most of them in the first bytes of blocks, where headers of members are.
fn damage(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let block = random.below(bytes.len() / BLOCK_BYTES) * BLOCK_BYTES;
        bytes[block + random.below(BLOCK_BYTES)] = random.byte();
        // The first members are small.
        bytes[random.below(40 * BLOCK_BYTES)] = random.byte();
    }
}

/// Damages the image and runs it. The same damage is done in every run.
pub(crate) fn check_damaged(images: &Images) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let file = folder.path().join("saved.tar");
    let (mut refused, mut run) = (0, 0);
    for number in 0..DAMAGED {
        let mut random = Random(number + 1);
        let mut layers = layers(images)?;
        let is_in_layer = number % 2 == 0;
        if is_in_layer {
            damage(&mut layers[0], &mut random);
        }
        let mut whole = archive(folder.path(), &[&layers[0], &layers[1]], false)?;
        if !is_in_layer {
            damage(&mut whole, &mut random);
        }
        fs::write(&file, whole).map_err(text)?;
        let output = starling().args(["--timeout", "300"]).arg(&file).output().map_err(text)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(125) if errors.lines().count() == 1 && !errors.contains("panic") => refused += 1,
            // The shell itself may be damaged.
            Some(0..=2 | 126..=159) if !errors.contains("panic") => run += 1,
            _ => return Err(format!("image {number}: {}", said(&output))),
        }
    }
    println!("{refused} of {DAMAGED} images were refused, {run} were run");
    // Were all refused, or none, little was tested.
    if refused < DAMAGED / 10 || run < DAMAGED / 10 {
        Err(format!("{refused} were refused, {run} run"))
    } else {
        Ok(())
    }
}
