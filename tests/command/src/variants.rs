//! Virtio devices in their variants: interrupts by pins that are shared, packed rings, more and fewer queues than processors; and their bus in `/sys`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::case::starling;
use crate::consoles;
use crate::disks::{said, text};
use crate::images;

type Check = fn() -> Result<(), String>;

/// What is promised, and what shows it.
pub(crate) const CHECKS: [(&str, Check); 5] = [
    ("two virtio disks share a line, and one goes while the other is busy", shared_line),
    ("virtio disks, consoles, file servers and random bytes work with packed rings", packed_rings),
    ("a virtio disk has as many queues as processors, or fewer, and each interrupts one", queues),
    ("an interrupt is moved by /proc/irq while its disk is busy, and nothing is lost", moved),
    (
        "virtio devices are on a bus of their own, where drivers let go of them and take them, on PCI and in memory",
        bus,
    ),
];

const DISK_BYTES: u64 = 16 << 20;
/// How long QEMU may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes to a disk and reads back, so many times.
const TRANSFER: &str = r#"
set -e
fail() { echo "$@"; exit 1; }
transfer() {
    dd if=/dev/urandom of=/tmp/$1 bs=64k count=32 2>/dev/null
    for round in $(seq $2); do
        dd if=/tmp/$1 of=/dev/$1 bs=64k conv=notrunc,fsync 2>/dev/null
        echo 1 > /proc/sys/vm/drop_caches
        dd if=/dev/$1 bs=64k count=32 2>/dev/null | cmp - /tmp/$1 || fail "$1 has other bytes"
        dd if=/dev/urandom of=/tmp/$1 bs=4k count=4 seek=$round conv=notrunc 2>/dev/null
    done
}
"#;

/// An interrupt that all queues share is moved; so is one by a pin.
const MOVED: &str = r#"
name=$(basename $(readlink /sys/block/vda/device))
irq=$(sed -n "s/^ *\([0-9]*\):.* $name\(-virtqueues\)\{0,1\}\$/\1/p" /proc/interrupts)
count() { grep "^ *$irq:" /proc/interrupts | awk "{ print \$$(($1 + 2)) }"; }
cd /proc/irq/$irq || fail "$(cat /proc/interrupts)"
[ "$(cat smp_affinity smp_affinity_list | tr '\n' ' ')" = '3 0-1 ' ] || fail "$(grep . *)"
for cpu in 0 1 0 1; do
    echo $cpu > smp_affinity_list
    said=$(cat smp_affinity effective_affinity effective_affinity_list | tr '\n' ' ')
    [ "$said" = "$((1 << cpu)) $((1 << cpu)) $cpu " ] || fail "processor $cpu: $said"
    own=$(count $cpu) other=$(count $((1 - cpu)))
    transfer vda 2
    [ $(count $cpu) -gt $own ] && [ $(count $((1 - cpu))) = $other ] || fail "on $cpu: $(cat /proc/interrupts)"
done
transfer vda 20 & busy=$!
while kill -0 $busy 2>/dev/null; do
    echo 1 > smp_affinity
    echo 2 > smp_affinity
done
wait $busy
echo 3 > smp_affinity
[ "$(cat smp_affinity effective_affinity | tr '\n' ' ')" = '3 2 ' ] || fail "$(grep . *)"
for bad in 0 4 g 1,; do
    said=$({ echo $bad > smp_affinity; } 2>&1) && fail "$bad was taken"
    case $said in *'nvalid argument') ;; *) fail "$bad: $said" ;; esac
done
said=$({ echo 64 > smp_affinity_list; } 2>&1) && fail 'processor 64 was taken'
case $said in *'out of range'|*'representable') ;; *) fail "$said" ;; esac
[ $(cat /proc/irq/default_smp_affinity) = 3 ] || fail 'interrupts may not come everywhere'
echo 1 > /proc/irq/default_smp_affinity
echo 0000:00:10.0 > /sys/bus/pci/drivers/virtio-pci/unbind
[ ! -e /proc/irq/$irq/smp_affinity ] || fail 'an interrupt without a device is there'
echo 0000:00:10.0 > /sys/bus/pci/drivers/virtio-pci/bind
name=$(basename $(readlink /sys/block/vda/device))
irq=$(sed -n "s/^ *\([0-9]*\):.* $name\(-virtqueues\)\{0,1\}\$/\1/p" /proc/interrupts)
[ "$(cat /proc/irq/$irq/smp_affinity)" = 1 ] || fail 'a new interrupt may come elsewhere'
transfer vda 1
echo end
"#;

/// An interrupt that a driver placed stays there.
const PLACED: &str = r#"
name=$(basename $(readlink /sys/block/vda/device))
irq=$(sed -n "s/^ *\([0-9]*\):.* $name-.*\.0\$/\1/p" /proc/interrupts)
cd /proc/irq/$irq || fail "$(cat /proc/interrupts)"
[ "$(cat smp_affinity effective_affinity | tr '\n' ' ')" = '1 1 ' ] || fail "$(grep . *)"
said=$({ echo 2 > smp_affinity; } 2>&1) && fail 'it was moved'
case $said in *'nput/output error') ;; *) fail "$said" ;; esac
transfer vda 1
echo end
"#;

const SHARED_LINE: &str = r#"
transfer vda 3 & first=$!
transfer vdb 3
wait $first
[ $(grep -c 'IO-APIC.*virtio[0-9]*, virtio[0-9]*$' /proc/interrupts) = 1 ] || fail "$(cat /proc/interrupts)"
transfer vdb 20 & busy=$!
for turn in 1 2 3; do
    echo 0000:00:10.0 > /sys/bus/pci/drivers/virtio-pci/unbind
    [ ! -e /sys/block/vda ] || fail 'it is there'
    echo 0000:00:10.0 > /sys/bus/pci/drivers/virtio-pci/bind
    transfer vda 1
done
wait $busy
echo end
"#;

const PACKED_RINGS: &str = r#"
transfer vda 5
head -c 10000 /dev/hwrng | wc -c
mkdir -p /tmp/shared
mount -t 9p -o trans=virtio,version=9p2000.L shared /tmp/shared
[ "$(cat /tmp/shared/name)" = shared ]
exec 3<>/dev/virtio-ports/test
head -c 2000000 <&3 >&3
read line <&3
echo end
"#;

/// Each processor reads; then those that were interrupted are counted.
const QUEUES: &str = r#"
transfer vda 2
for cpu in 0 1 2 3; do
    taskset $((1 << cpu)) dd if=/dev/vda of=/dev/null bs=4k count=200 skip=$((cpu * 200)) 2>/dev/null
done
awk "/PCI-MSI.* $(basename $(readlink /sys/block/vda/device))-.*\\.[0-9]+\$/"' {
    rows++
    for (cpu = 0; cpu < 4; cpu++) if ($(cpu + 2) > 0) { of[cpu]++; had = had " " NR }
}
END { for (cpu = 0; cpu < 4; cpu++) if (of[cpu] > 0) cpus++; print rows, cpus }' /proc/interrupts
echo end
"#;

/// What `/sys/bus/virtio` has of a disk with that interrupt and vendor, behind the driver `$1`.
const BUS: &str = r#"
transfer vda 1
cd /sys/bus/virtio
for driver in 9pnet_virtio virtio_balloon virtio_blk virtio_console virtio_rng; do
    [ -d drivers/$driver ] || fail "no $driver"
done
disk=$(readlink -f /sys/block/vda/device) name=${disk##*/}
case $disk in
    /sys/devices/pci*/virtio[0-9]*) interrupt=$name-req.0 vendor=0x1af4 ;;
    /sys/devices/platform/virtio-mmio.*/virtio[0-9]*) interrupt=$name vendor=0x554d4551 ;;
    *) fail "it is at $disk" ;;
esac
[ $(readlink -f devices/$name) = $disk ] || fail "it is not among the devices"
[ $(readlink -f $disk/driver) = $PWD/drivers/virtio_blk ] || fail "another driver has it"
[ $(readlink -f $disk/subsystem) = $PWD ] || fail "it is on another bus"
[ "$(cd $disk; echo $(cat device vendor status))" = "0x0002 $vendor 0x0000000f" ] || fail "$(cd $disk; cat device vendor status)"
[ "$(cut -c33 $disk/features)" = 1 ] || fail "$(cat $disk/features)"
[ "$(cat $disk/uevent)" = "DRIVER=virtio_blk
MODALIAS=$(cat $disk/modalias)" ] || fail "$(cat $disk/uevent)"
grep -qi "^virtio:d00000002v0*${vendor#0x}\$" $disk/modalias || fail "$(cat $disk/modalias)"
grep -q " $interrupt\$" /proc/interrupts || fail "$(cat /proc/interrupts)"
echo $name > drivers/virtio_blk/unbind
[ ! -e /sys/block/vda ] || fail 'it is there'
[ -e $disk ] || fail 'the device went with its driver'
[ ! -e $disk/driver ] || fail 'it has a driver'
if echo $name > drivers/virtio_console/bind 2>/dev/null; then fail 'it is no console'; fi
echo $name > drivers/virtio_blk/bind
transfer vda 2
echo end
"#;

/// Runs a script with devices and disks.
fn run(folder: &Path, machine: &str, cpus: &str, words: &[String], script: &str) -> Result<String, String> {
    let root = folder.join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    let mut command = starling();
    command.args(["--machine", machine, "--cpus", cpus, "--timeout", "300", "--kernel-arg", "devices=first"]);
    words.iter().for_each(|word| _ = command.args(["--qemu-arg", word]));
    let script = format!("{TRANSFER}{script}");
    let output = command.arg(&root).args(["--", "sh", "-c", &script]).output().map_err(text)?;
    let told = String::from_utf8_lossy(&output.stdout);
    match told.strip_suffix("end\n") {
        Some(told) if output.status.success() && output.stderr.is_empty() => Ok(told.into()),
        _ => Err(said(&output)),
    }
}

/// A disk, and what QEMU is told to have it.
fn disk(folder: &Path, name: &str, options: &str) -> Result<[String; 4], String> {
    let path = folder.join(name);
    fs::File::create(&path).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
    let drive = format!("if=none,format=raw,id={name},file={}", path.display());
    let device = format!("virtio-blk-pci,drive={name},{options}");
    Ok(["-drive".into(), drive, "-device".into(), device])
}

fn shared_line() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let first = disk(folder.path(), "first", "vectors=0,addr=0x10")?;
    // Four places further on, a device's pin has the same line.
    let second = disk(folder.path(), "second", "vectors=0,addr=0x14")?;
    run(folder.path(), "q35", "2", &[first, second].concat(), SHARED_LINE).map(|_| ())
}

fn moved() -> Result<(), String> {
    for (options, script) in [
        ("vectors=2,num-queues=2,addr=0x10", MOVED),
        ("vectors=0,addr=0x10", MOVED),
        ("num-queues=2,addr=0x10", PLACED),
    ] {
        let folder = tempfile::tempdir().map_err(text)?;
        let words = disk(folder.path(), "moved", options)?;
        run(folder.path(), "q35", "2", &words, script).map_err(|why| format!("{options}: {why}"))?;
    }
    Ok(())
}

fn bus() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let words = disk(folder.path(), "on-pci", "addr=0x10")?;
    run(folder.path(), "q35", "2", &words, BUS)?;
    let folder = tempfile::tempdir().map_err(text)?;
    let [drive, file, option, device] = disk(folder.path(), "in-memory", "bus=virtio-mmio-bus.0")?;
    let device = device.replace("virtio-blk-pci", "virtio-blk-device");
    let mut words = vec![drive, file, option, device];
    words.extend(["-global".into(), "virtio-mmio.force-legacy=false".into()]);
    run(folder.path(), "microvm", "1", &words, BUS).map(|_| ())
}

fn packed_rings() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let path = folder.path();
    let shared = path.join("shared");
    fs::create_dir(&shared).map_err(text)?;
    fs::write(shared.join("name"), "shared").map_err(text)?;
    let port = path.join("port");
    let mut words = disk(path, "packed", "packed=on,addr=0x10")?.to_vec();
    let mut device = |word: &str| words.extend(["-device".into(), format!("{word},packed=on")]);
    device("virtio-rng-pci");
    device("virtio-serial-pci,id=ports");
    device("virtio-9p-pci,fsdev=shared,mount_tag=shared");
    words.extend([
        "-fsdev".into(),
        format!("local,id=shared,security_model=none,readonly=on,path={}", shared.display()),
    ]);
    words.extend(["-chardev".into(), format!("socket,id=bytes,path={},server=on,wait=off", port.display())]);
    words.extend(["-device".into(), "virtserialport,bus=ports.0,chardev=bytes,name=test".into()]);
    let (told, echoed) = std::thread::scope(|scope| {
        let host = scope.spawn(|| echo_through(&port));
        let told = run(path, "q35", "2", &words, PACKED_RINGS);
        (told, host.join())
    });
    let told = told?;
    echoed.map_err(|_| "the host's side panicked")??;
    if told == "10000\n" { Ok(()) } else { Err(format!("it says {told:?}")) }
}

/// The host's side of the port: sends bytes and compares what comes back, once QEMU is there, and then lets the guest go on.
fn echo_through(path: &Path) -> Result<(), String> {
    let began = Instant::now();
    let mut stream = loop {
        match consoles::connect(path) {
            Ok(stream) => break stream,
            Err(why) if began.elapsed() > PATIENCE => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    consoles::echo(&stream)?;
    stream.write_all(b"end\n").map_err(text)
}

fn queues() -> Result<(), String> {
    for (queues, each) in [(1, 1), (2, 2), (4, 4), (9, 4)] {
        let folder = tempfile::tempdir().map_err(text)?;
        let words = disk(folder.path(), "queues", &format!("num-queues={queues}"))?;
        let told =
            run(folder.path(), "q35", "4", &words, QUEUES).map_err(|why| format!("{queues}: {why}"))?;
        if told != format!("{each} {each}\n") {
            return Err(format!("{queues} queues: {told:?}, not {each} interrupts of as many processors"));
        }
    }
    Ok(())
}
