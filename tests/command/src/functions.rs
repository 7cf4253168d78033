//! The files of PCI functions below `/sys/bus/pci` and `/proc/bus/pci`, as Linux's `Documentation/ABI/testing/sysfs-bus-pci` has them, in the machine of [`devices`](crate::devices).

use crate::devices::{Machine, NETWORK};

/// Bus of functions, and where the function is that has no driver.
const PCI: &str = "/sys/bus/pci";

/// What a command in the guest says must be this.
fn says(machine: &mut Machine, command: &str, wanted: &str) -> Result<(), String> {
    let said = machine.guest(command)?;
    if said.trim() == wanted { Ok(()) } else { Err(format!("{command} says {said:?}, not {wanted:?}")) }
}

pub(crate) fn files(machine: &mut Machine) -> Result<(), String> {
    machine.guest(&format!("device=$({NETWORK} | tail -n 1); place=${{device##*/}}; rest=${{place#*:}}; proc=/proc/bus/pci/${{rest%%:*}}/${{rest#*:}}"))?;
    // There is no driver for its kind of virtio device, but one for the function.
    machine.guest(&format!("echo $place > {PCI}/drivers/virtio-pci/unbind"))?;
    machine.guest("mkdir -p /etc; echo nobody:x:65534:65534::/:/bin/sh > /etc/passwd")?;
    let constants = "numa_node local_cpulist local_cpus driver_override enable reset_method current_link_speed current_link_width msi_bus power_state";
    let values = "-1 0-1 3 (null) 0 flr bus 2.5 GT/s PCIe 1 1 D0";
    says(machine, &format!("cd $device; cat {constants} | tr '\\n' ' '; cd /"), values)?;
    // Beyond the header, configuration space is for those who may administrate.
    for (file, program, bytes) in [
        ("$device/config", "sh", 4096),
        ("$proc", "sh", 4096),
        ("$device/config", "su nobody", 64),
        ("$proc", "su nobody", 64),
    ] {
        says(machine, &format!("{program} -c \"cat {file}\" | wc -c"), &bytes.to_string())?;
    }
    says(machine, "(su nobody -c 'cat <&5' | wc -c) 5< $device/config", "4096")?;
    says(machine, "(su nobody -c 'cat <&5' | wc -c) 5< $proc", "64")?;
    let failed = |command: &str| format!("(echo {command}) 2>&1 | sed 's/.*: //'");
    // Enabling is counted; what nobody has enabled can't be disabled, and what has a driver is that one's.
    says(machine, "echo 1 > $device/enable; echo 1 > $device/enable; cat $device/enable", "2")?;
    says(machine, "echo 0 > $device/enable; echo 0 > $device/enable; cat $device/enable", "0")?;
    says(machine, &failed("0 > $device/enable"), "Input/output error")?;
    says(machine, &failed(&format!("1 > {PCI}/devices/0000:00:01.0/enable")), "Device or resource busy")?;
    // Resets.
    says(machine, &failed("2 > $device/reset"), "Invalid argument")?;
    says(
        machine,
        "dmesg -c > /dev/null; printf '\\007' | dd of=$device/config bs=1 seek=4 2> /dev/null; echo 1 > $device/reset && dmesg | grep -c 'reset by flr'",
        "1",
    )?;
    says(machine, "head -c 5 $device/config | tail -c 1 | od -A n -t x1", "07")?;
    says(
        machine,
        "ls /sys/bus/pci/devices/0000:00:01.0/reset 2>&1 | sed 's/.*: //'",
        "No such file or directory",
    )?;
    // Interrupts by message have numbers that /proc/interrupts has, too.
    says(machine, "cat /sys/bus/pci/devices/0000:00:0[12].0/msi_irqs/* | tr '\\n' ' '", "msix msi")?;
    says(
        machine,
        "for n in $(ls /sys/bus/pci/devices/0000:00:01.0/msi_irqs); do grep -c \"^ *$n: .*pciehp\" /proc/interrupts; done",
        "1",
    )?;
    drivers(machine)
}

/// Which driver gets a function.
fn drivers(machine: &mut Machine) -> Result<(), String> {
    let driver = format!("{PCI}/drivers/pcieport");
    let failed = |command: &str| format!("(echo {command}) 2>&1 | sed 's/.*: //'");
    machine.guest(&format!("port=$(ls {driver} | grep : | tail -n 1)"))?;
    says(
        machine,
        &format!(
            "echo nobody > {PCI}/devices/$port/driver_override; cat {PCI}/devices/$port/driver_override"
        ),
        "nobody",
    )?;
    says(machine, &format!("echo $port > {driver}/unbind; ls {driver} | grep -c :"), "4")?;
    says(machine, &failed(&format!("$port > {driver}/bind")), "No such device")?;
    says(machine, &format!("echo $port > {PCI}/drivers_probe; ls {driver} | grep -c :"), "4")?;
    says(
        machine,
        &format!("echo > {PCI}/devices/$port/driver_override; cat {PCI}/devices/$port/driver_override"),
        "(null)",
    )?;
    says(machine, &format!("echo $port > {PCI}/drivers_probe; ls {driver} | grep -c :"), "5")?;
    // Entries of a table that were added can be taken out again, once.
    says(
        machine,
        &format!("echo 1234 5678 > {driver}/new_id && echo 1234 5678 > {driver}/remove_id && echo done"),
        "done",
    )?;
    says(machine, &failed(&format!("1234 5678 > {driver}/remove_id")), "No such device")?;
    says(machine, &failed(&format!("x > {driver}/new_id")), "Invalid argument")?;
    says(machine, "ls /sys/bus/pci_express/drivers/aer | grep -c id", "0")
}

pub(crate) fn stale(machine: &mut Machine) -> Result<(), String> {
    let count = format!("{NETWORK} | wc -l");
    let present = machine.number(&count)?.to_string();
    machine.guest(&format!("device=$({NETWORK} | tail -n 1)"))?;
    // Files that were opened before know only the function that went.
    machine.guest("exec 5> $device/remove 6< $device/config; echo 1 > $device/remove")?;
    says(machine, "[ -e $device ] || echo gone", "gone")?;
    says(machine, "cat <&6 2>&1 | sed 's/.*: //'", "No such device")?;
    says(machine, &format!("echo 1 > {PCI}/rescan; {count}"), &present)?;
    says(machine, &format!("echo 1 >&5; exec 5>&- 6<&-; {count}"), &present)?;
    // A port goes with all that is behind, and comes back beside others, with its services.
    let services = "ls /sys/bus/pci_express/devices | wc -l";
    let all = machine.number(services)?.to_string();
    for port in ["0000:00:01.0", "0000:00:02.0"] {
        machine.guest(&format!("echo 1 > {PCI}/devices/{port}/remove"))?;
        says(machine, &format!("[ -e {PCI}/devices/{port} ] || echo gone"), "gone")?;
        says(machine, &format!("echo 1 > {PCI}/rescan; {services}"), &all)?;
        machine.until(&count, &present)?;
    }
    Ok(())
}
