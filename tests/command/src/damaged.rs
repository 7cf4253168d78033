//! Damaged images in a running machine: file systems are mounted, walked, read and written, partition tables read, four at a time. Nothing may bring the
//! machine down or stay behind: afterwards it has as much memory as before, and a sound image is written and judged by `e2fsck`.
//!
//! The images lie in a folder of the host and are mounted from files in memory. The same damage is done in every run.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::case::starling;
use crate::disks::{Check, e2fsck, said, successful, text};
use crate::images;

/// What is promised.
pub(crate) const CHECKS: [(&str, Check); 1] =
    [("two hundred damaged images of each kind bring no machine down", damaged)];

const MACHINES: [(&str, &str); 2] = [("microvm", "4"), ("q35", "1")];
/// How many there are of each kind.
const IMAGES: u64 = 200;
/// Images of a worker have its number.
const WORKERS: u64 = 4;
const IMAGE_BYTES: u64 = 3 << 20;
const EXT: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024", "-N", "128", "-O", "^metadata_csum", "-J", "size=1"],
    &["-t", "ext4", "-b", "1024", "-N", "128", "-J", "size=1"],
    &["-t", "ext2", "-b", "1024", "-N", "128"],
    &["-t", "ext4", "-b", "4096", "-N", "128", "-O", "^has_journal,^metadata_csum"],
];
const SQUASHFS: [&str; 4] = ["gzip", "lz4", "xz", "zstd"];
const SCHEMES: [&str; 2] = [
    "label: dos\nstart=64, size=512, type=83\nstart=1024, size=4096, type=5\nstart=1088, size=256, type=83\nstart=2048, size=256, type=83\n",
    "label: gpt\nfirst-lba: 64\nstart=64, size=512\nstart=1024, size=2048, name=\"second\"\n",
];
/// Memory that may be less afterwards, in KiB.
const LOST_KB_MAX: i64 = 8192;

/// What is done with a file system mounted at `$1`.
const WORK: &str = r#"
cd $1
find . -maxdepth 6 2> /dev/null | head -n 200 | while IFS= read -r name; do stat "$name"; readlink "$name"; done
find . -maxdepth 4 -type f 2> /dev/null | head -n 40 | while IFS= read -r name; do head -c 300000 "$name"; done
for name in $(ls | head -n 6); do
    echo more >> $name; mv $name $name.moved; ln $name.moved $name.linked; truncate -s 5000 $name.linked
done
mkdir new; dd if=/dev/zero of=new/file bs=4k count=30 conv=fsync; ln -s file new/link; mv new newer
head -c 300000 /bin/busybox > d/copy; rm -rf d newer; mknod null c 1 3; sync -f .
"#;

/// What is done with each image. An end that does not come is a failure of its own.
const SCRIPT: &str = r#"
mounted() {
    image=$1; place=$2/m
    mount -t $3 -o loop $2/image $place 2> /dev/null || return
    echo mounted
    timeout -s KILL 100 sh /work $place > /dev/null 2>&1
    [ $? != 137 ] || echo "no end: $image"
    umount $place || echo "not unmounted: $image"
}
partitions() {
    loop=$(losetup -f)
    until losetup -P $loop $2/image 2> /dev/null; do loop=$(losetup -f); done
    for part in ${loop}p*; do [ -e $part ] && dd if=$part of=/dev/null bs=64k count=20 2> /dev/null && echo partition; done
    losetup -d $loop
}
worker() {
    mkdir -p /tmp/$1/m
    for image in /images/$1.*; do
        cp $image /tmp/$1/image
        case $image in
            *.ext) mounted $image /tmp/$1 ext4 ;;
            *.squashfs) mounted $image /tmp/$1 squashfs ;;
            *) partitions $image /tmp/$1 ;;
        esac
        echo done
    done
    rm -r /tmp/$1
}
free() { sync; echo 3 > /proc/sys/vm/drop_caches; sed -n 's/MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo; }
worker first
before=$(free)
for number in 0 1 2 3; do worker $number & workers="$workers $!"; done
wait $workers
[ -z "$(losetup -a)" ] || { echo bound; losetup -a; }
! grep -c /tmp/ /proc/mounts > /dev/null || echo "still mounted"
dmesg | grep -i -e panic -e 'assertion' -e 'BUG'
rm -f /images/written && cp /images/sound /tmp/sound && mount -t ext4 -o loop /tmp/sound /m && head -c 300000 /bin/busybox > /m/copy && umount /m && cp /tmp/sound /images/written
rm /tmp/sound
for i in 1 2 3 4 5 6 7 8 9 10; do after=$(free); [ $((before - after)) -lt $((LOST / 4)) ] && break; sleep 1; done
echo "free $before $after"
"#;

fn damaged() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    fs::create_dir(root.join("m")).map_err(text)?;
    fs::write(root.join("work"), WORK).map_err(text)?;
    let shared = folder.path().join("images");
    fs::create_dir(&shared).map_err(text)?;
    make_images(folder.path(), &shared)?;
    for machine in MACHINES {
        on_machine(&root, &shared, machine).map_err(|why| format!("{machine:?}: {why}"))?;
    }
    Ok(())
}

fn on_machine(root: &Path, shared: &Path, (machine, cpus): (&str, &str)) -> Result<(), String> {
    let output = starling()
        .args(["--machine", machine, "--cpus", cpus, "--memory", "512M", "--timeout", "6000"])
        .args(["--volume", &format!("{}:/images", shared.display())])
        .arg(root)
        .args(["--", "sh", "-c", &SCRIPT.replace("LOST", &LOST_KB_MAX.to_string())])
        .output()
        .map_err(text)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let count = |wanted: &str| printed.lines().filter(|line| *line == wanted).count() as u64;
    let others: Vec<_> =
        printed.lines().filter(|line| !matches!(*line, "done" | "mounted" | "partition")).collect();
    let [free] = others[..] else { return Err(said(&output)) };
    let numbers: Vec<i64> = free.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [before, after] = numbers[..] else { return Err(said(&output)) };
    // Three sound ones came first.
    let all = 3 * IMAGES + 3;
    // Damage that no mount ever survives would test little.
    if !output.status.success()
        || count("done") != all
        || count("mounted") < all / 4
        || before - after >= LOST_KB_MAX
    {
        return Err(said(&output));
    }
    println!(
        "{} of {all} images were mounted, {} partitions read; {} KiB less free",
        count("mounted"),
        count("partition"),
        before - after
    );
    e2fsck("-fn", &shared.join("written"), 0)
}

/// Numbers that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn byte(&mut self) -> u8 {
        [0, 1, 0x7f, 0x80, 0xff, self.next() as u8][self.below(6)]
    }
}

fn make_images(folder: &Path, shared: &Path) -> Result<(), String> {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("d")).map_err(text)?;
    for index in 0..60 {
        let name = format!("{} {index}", "n".repeat(40));
        fs::write(tree.join("d").join(name), vec![1; index * 50]).map_err(text)?;
    }
    fs::write(tree.join("large"), vec![3; 400_000]).map_err(text)?;
    let sparse: Vec<u8> = (0..200_000).map(|at| u8::from(at / 1024 % 2 == 0)).collect();
    fs::write(tree.join("sparse"), sparse).map_err(text)?;
    std::os::unix::fs::symlink("t".repeat(200), tree.join("link")).map_err(text)?;
    let sound = folder.join("sound");
    let make = |kind: &str, number: u64| {
        let _ = fs::remove_file(&sound);
        match kind {
            "ext" => ext(&tree, &sound, EXT[number as usize % EXT.len()]),
            "squashfs" => squashfs(&tree, &sound, SQUASHFS[number as usize % SQUASHFS.len()]),
            _ => table(&sound, SCHEMES[number as usize % SCHEMES.len()]),
        }
    };
    make("ext", 1)?;
    fs::copy(&sound, shared.join("sound")).map_err(text)?;
    for kind in ["ext", "squashfs", "table"] {
        make(kind, 0)?;
        fs::copy(&sound, shared.join(format!("first.0.{kind}"))).map_err(text)?;
        for number in 0..IMAGES {
            make(kind, number)?;
            let mut bytes = fs::read(&sound).map_err(text)?;
            damage(&mut bytes, kind, &mut Random(number + 1));
            fs::write(shared.join(format!("{}.{number}.{kind}", number / 4 % WORKERS)), bytes)
                .map_err(text)?;
        }
    }
    Ok(())
}

fn ext(tree: &Path, image: &Path, options: &[&str]) -> Result<(), String> {
    fs::File::create(image).and_then(|file| file.set_len(IMAGE_BYTES)).map_err(text)?;
    let tree = tree.display().to_string();
    successful("mke2fs", &[&["-q", "-F", "-d", &tree], options].concat(), image)
}

fn squashfs(tree: &Path, image: &Path, compression: &str) -> Result<(), String> {
    let (tree, name) = (tree.display().to_string(), image.display().to_string());
    // Plain metadata: what is damaged is looked at, and not just refused by the decompressor.
    let words = [&tree, &name, "-noappend", "-no-progress", "-quiet", "-noI", "-comp", compression];
    successful("mksquashfs", &words, Path::new("-all-root"))
}

fn table(image: &Path, scheme: &str) -> Result<(), String> {
    fs::File::create(image).and_then(|file| file.set_len(IMAGE_BYTES)).map_err(text)?;
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let made = Command::new("sh")
        .env("PATH", path)
        .args(["-c", "printf %s \"$1\" | sfdisk --quiet --no-tell-kernel \"$0\""])
        .args([&image.display().to_string(), scheme])
        .output()
        .map_err(text)?;
    if made.status.success() { Ok(()) } else { Err(format!("sfdisk: {}", said(&made))) }
}

fn damage(bytes: &mut [u8], kind: &str, random: &mut Random) {
    let used: Vec<usize> =
        (0..bytes.len() / 1024).filter(|at| bytes[at * 1024..][..1024] != [0; 1024]).collect();
    for _ in 0..1 + random.below(4) {
        let place = match (kind, random.below(6)) {
            ("ext", 0) => 1024 + random.below(1024),
            // Descriptors, bitmaps and inodes.
            ("ext", 1 | 2) => (2 + random.below(40)) * 1024 + random.below(1024),
            ("squashfs", 0) => random.below(96),
            // Metadata is behind the data.
            ("squashfs", 1..=3) => bytes.len() - 1 - random.below(bytes.len().min(12_000)),
            ("table", 0..=2) => 446 + random.below(66),
            ("table", 3 | 4) => 512 + random.below(2048),
            _ => used[random.below(used.len())] * 1024 + random.below(1024),
        };
        bytes[place] = random.byte();
    }
}
