//! `/dev/hwrng` with two virtio devices, one of which soon has no bytes: readers that wait, devices that go.

use crate::case::starling;

/// What is promised.
pub(crate) const NAME: &str =
    "who reads random bytes of a device goes on with the next one when it goes, and hears when none is left";

/// The first device gives 64 bytes, which the kernel takes, and then none for an hour.
const DEVICES: [&str; 2] =
    ["virtio-rng-pci,addr=0x10,max-bytes=64,period=3600000", "virtio-rng-pci,addr=0x11"];
const GUEST: &str = "cd /sys/class/misc/hw_random; cat uevent rng_available rng_current rng_selected
    echo virtio_rng.1 > rng_current && cat rng_current rng_selected
    echo virtio_rng.7 > rng_current 2>/dev/null || echo no such device
    head -c 100000 /dev/hwrng | wc -c
    echo virtio_rng.0 > rng_current
    head -c 100 /dev/hwrng | wc -c >/tmp/first & head -c 100 /dev/hwrng | wc -c >/tmp/second &
    until [ $(cat /proc/[0-9]*/status | grep -A3 '^Name:.head' | grep -c '^State:.S') = 2 ]; do usleep 1000; done
    echo 0000:00:10.0 >/sys/bus/pci/drivers/virtio-pci/unbind
    wait; cat /tmp/first /tmp/second rng_available
    cat /dev/hwrng 2>/tmp/why >/dev/null & reader=$!
    echo 0000:00:11.0 >/sys/bus/pci/drivers/virtio-pci/unbind
    wait $reader; echo $?; grep -o 'No such device' /tmp/why; cat rng_current
    echo 0000:00:11.0 >/sys/bus/pci/drivers/virtio-pci/bind; cat rng_current
    echo x 2>/dev/null >/dev/hwrng || echo not to be written";
const WANTED: &str = "MAJOR=10\nMINOR=183\nDEVNAME=hwrng\nDEVMODE=0600\nvirtio_rng.0 virtio_rng.1 \nvirtio_rng.0\n0\n\
    virtio_rng.1\n1\nno such device\n100000\n100\n100\nvirtio_rng.1 \n1\nNo such device\nnone\nvirtio_rng.0\nnot to be written\n";

/// See [`NAME`].
pub(crate) fn check() -> Result<(), String> {
    let mut command = starling();
    command.args(["--machine", "q35", "--cpus", "2", "--timeout", "300", "--kernel-arg", "devices=first"]);
    for device in DEVICES {
        command.args(["--device", device]);
    }
    let output = command.args(["--", "sh", "-c", GUEST]).output().map_err(|error| error.to_string())?;
    let told = String::from_utf8_lossy(&output.stdout);
    if told == WANTED {
        return Ok(());
    }
    Err(format!("it says {told:?}, not {WANTED:?}; {}", String::from_utf8_lossy(&output.stderr)))
}
