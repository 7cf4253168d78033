//! File systems in files as the guest's root: Debian's `mke2fs` and `mksquashfs` make them, and `e2fsck` looks at what was written.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::case::starling;
use crate::disks::{Check, e2fsck, said, successful, text};
use crate::images::make_folder_with_busybox;

/// What is promised.
pub(crate) const CHECKS: [(&str, Check); 2] = [
    ("a root image is read, and changed in memory only", read),
    ("a root image that can't be used is refused in one line that says why", refused),
];

/// What takes long.
pub(crate) const LONG_CHECKS: [(&str, Check); 2] = [
    ("a root image that is written is sound when the command has ended", written),
    ("a root image is taken up again after the machine was cut off", cut_off),
];

/// Machines with their numbers of processors.
const MACHINES: [(&str, &str); 3] = [("microvm", "1"), ("microvm", "4"), ("q35", "2")];
const IMAGE_BYTES: u64 = 24 << 20;
const EXT: [&str; 3] = ["ext2", "ext3", "ext4"];
const SQUASHFS: [&str; 4] = ["gzip", "lz4", "xz", "zstd"];

/// A folder with a tree to make images of.
fn folder() -> Result<tempfile::TempDir, String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let tree = folder.path().join("tree");
    make_folder_with_busybox(&tree).map_err(text)?;
    fs::create_dir(tree.join("etc")).map_err(text)?;
    fs::write(tree.join("etc/motd"), "welcome\n").map_err(text)?;
    // Larger than a block of squashfs, and not all alike.
    let large: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
    fs::write(tree.join("large"), large).map_err(text)?;
    Ok(folder)
}

fn ext_image(folder: &Path, kind: &str) -> Result<PathBuf, String> {
    let image = folder.join(format!("image of {kind}"));
    fs::File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).map_err(text)?;
    let tree = folder.join("tree").display().to_string();
    successful("mke2fs", &["-q", "-F", "-t", kind, "-d", &tree], &image)?;
    Ok(image)
}

fn squashfs_image(folder: &Path, compression: &str) -> Result<PathBuf, String> {
    let image = folder.join(format!("image, {compression}"));
    let tree = folder.join("tree").display().to_string();
    let name = image.display().to_string();
    successful(
        "mksquashfs",
        &[&tree, &name, "-noappend", "-no-progress", "-quiet", "-comp", compression],
        Path::new("-all-root"),
    )?;
    Ok(image)
}

fn run(machine: (&str, &str), options: &[&str], image: &Path, script: &str) -> Result<Output, String> {
    let (kind, cpus) = machine;
    starling()
        .args(["--machine", kind, "--cpus", cpus, "--timeout", "100"])
        .args(options)
        .arg(image)
        .args(["--", "/bin/sh", "-c", script])
        .output()
        .map_err(text)
}

fn expect(what: &str, output: &Output, status: i32, printed: &str) -> Result<(), String> {
    if output.status.code() == Some(status) && output.stdout == printed.as_bytes() {
        Ok(())
    } else {
        Err(format!("{what}: {}", said(output)))
    }
}

fn read() -> Result<(), String> {
    let folder = folder()?;
    let script = "cat /etc/motd; echo new > /etc/motd; mkdir /more; echo more > /more/file; rm /bin/ls; \
        cat /etc/motd /more/file; md5sum < /large; [ -e /bin/ls ] || echo gone";
    let sum = std::process::Command::new("sh")
        .args(["-c", "md5sum < tree/large"])
        .current_dir(folder.path())
        .output()
        .map_err(text)?;
    let printed = format!("welcome\nnew\nmore\n{}gone\n", String::from_utf8_lossy(&sum.stdout));
    let images = EXT.iter().map(|kind| ext_image(folder.path(), kind));
    for image in images.chain(SQUASHFS.iter().map(|compression| squashfs_image(folder.path(), compression))) {
        let image = image?;
        let before = fs::read(&image).map_err(text)?;
        for machine in MACHINES {
            let output = run(machine, &[], &image, script)?;
            expect(&format!("{} on {machine:?}", image.display()), &output, 0, &printed)?;
        }
        if fs::read(&image).map_err(text)? != before {
            return Err(format!("{} was changed", image.display()));
        }
    }
    Ok(())
}

fn written() -> Result<(), String> {
    let folder = folder()?;
    // Others write on, and have files open that are gone, when the command ends.
    let script = "(while echo more >> /log; do :; done) 2> /dev/null & (exec 3> /gone; rm /gone; cat /large >&3; sleep 1000) & \
        sleep 1; cp -r /bin /copy; echo end > /last; exit 7";
    for kind in EXT {
        for machine in MACHINES {
            let image = ext_image(folder.path(), kind)?;
            let what = format!("{kind} on {machine:?}");
            expect(&what, &run(machine, &["--rw"], &image, script)?, 7, "")?;
            e2fsck("-fn", &image, 0).map_err(|why| format!("{what}: {why}"))?;
            let look =
                "cat /last; cmp /bin/busybox /copy/busybox && [ -s /log ] && [ ! -e /gone ] && echo whole";
            expect(&what, &run(machine, &["--rw"], &image, look)?, 0, "end\nwhole\n")?;
            let end = "echo again > /last; poweroff -f; sleep 1000";
            expect(&what, &run(machine, &["--rw"], &image, end)?, 130, "")?;
            e2fsck("-fn", &image, 0).map_err(|why| format!("{what}, turned off: {why}"))?;
        }
    }
    // Nor does it matter why it ends: what can't be executed, or has no directory to start in, has its root written to before.
    let image = ext_image(folder.path(), "ext4")?;
    for (directory, status) in [("/", 127), ("/nowhere", 125)] {
        let output = starling()
            .args(["--machine", "microvm", "--cpus", "2", "--timeout", "100", "--rw", "--workdir", directory])
            .arg(&image)
            .args(["--", "nosuch"])
            .output()
            .map_err(text)?;
        if output.status.code() != Some(status) {
            return Err(format!("a program that does not exist, in {directory}: {}", said(&output)));
        }
        e2fsck("-fn", &image, 0).map_err(|why| format!("nothing executed in {directory}: {why}"))?;
    }
    Ok(())
}

fn cut_off() -> Result<(), String> {
    let folder = folder()?;
    let image = ext_image(folder.path(), "ext4")?;
    let script = "echo lasting > /file; sync; echo cut; while echo more >> /log; do :; done";
    let output = run(("microvm", "2"), &["--rw", "--timeout", "20"], &image, script)?;
    expect("what is cut off", &output, 124, "cut\n")?;
    // Its journal holds what is missing: who only reads sees it, too.
    expect("read after that", &run(("microvm", "2"), &[], &image, "cat /file")?, 0, "lasting\n")?;
    expect("written after that", &run(("microvm", "2"), &["--rw"], &image, "cat /file")?, 0, "lasting\n")?;
    e2fsck("-fn", &image, 0)
}

fn refused() -> Result<(), String> {
    let folder = folder()?;
    let (ext, squash) = (ext_image(folder.path(), "ext4")?, squashfs_image(folder.path(), "gzip")?);
    // Without a checksum of the superblock.
    let old = ext_image(folder.path(), "ext2")?;
    let lzo = squashfs_image(folder.path(), "lzo")?;
    let damaged = |of: &Path, name: &str, place: u64, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::copy(of, &path).map_err(text)?;
        let file = fs::File::options().write(true).open(&path).map_err(text)?;
        file.write_all_at(bytes, place).map_err(text)?;
        Ok::<_, String>(path)
    };
    let cut = folder.path().join("cut");
    fs::write(&cut, &fs::read(&squash).map_err(text)?[..8192]).map_err(text)?;
    let short = folder.path().join("short");
    fs::write(&short, &fs::read(&ext).map_err(text)?[..1 << 20]).map_err(text)?;
    let cases: [(PathBuf, &str, &str); 7] = [
        (cut, "", "damaged: the size of the image"),
        (short, "", "damaged: "),
        (lzo, "", "the compression lzo (3) is not supported"),
        (damaged(&squash, "version", 28, &[3])?, "", "the version of the format (3) is not supported"),
        // The superblock's checksum is of other bytes.
        (damaged(&ext, "sum", 1024 + 4, &[0xff; 4])?, "", "damaged: "),
        (damaged(&old, "features", 1024 + 0x62, &[1])?, "", "the feature encrypt (0x10000) is not supported"),
        (squash, "--rw", "--rw: only"),
    ];
    for (image, option, why) in cases {
        let options = if option.is_empty() { vec![] } else { vec![option] };
        let output = run(("microvm", "1"), &options, &image, "echo used")?;
        let line = String::from_utf8_lossy(&output.stderr);
        let is_good = output.status.code() == Some(125) && line.contains(why) && line.lines().count() == 1;
        if !is_good {
            return Err(format!("{} {option}, where {why:?} is meant: {}", image.display(), said(&output)));
        }
    }
    Ok(())
}
