//! Chooses what executes the guest's instructions.
//!
//! That `/dev/kvm` exists says little: inside other virtual machines it can be there and run a guest a thousand times
//! slower than TCG, or not at all. So `auto` boots a tiny guest on KVM against the clock. The answer is kept in the
//! user's cache until the host is booted again or QEMU changes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::probe_guest;
use super::qemu;
use crate::cache;
use crate::failure::{Context, Outcome};
use crate::progress::Progress;

/// The probe guest must be done within this: TCG needs about a twentieth of it.
const PROBE_LIMIT: Duration = Duration::from_millis(1000);
/// How often the probe is looked at.
const PROBE_INTERVAL: Duration = Duration::from_millis(2);

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// The host's processors.
    Kvm,
    /// QEMU's translator.
    Tcg,
    /// QEMU's translator with a clock that counts instructions.
    Icount,
}

impl Accelerator {
    /// KVM if it runs a guest at speed, else TCG.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub(crate) fn detect(progress: &Progress) -> Outcome<Self> {
        if !Path::new("/dev/kvm").exists() {
            return Ok(Self::Tcg);
        }
        let qemu = qemu::program()?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let metadata = fs::metadata(&qemu).context(|| qemu.display().to_string())?;
        let answer_for = format!("{} {} {}", boot.trim(), metadata.len(), metadata.mtime());
        let path = cache::directory()?.join("accelerator");
        let known = fs::read_to_string(&path).unwrap_or_default();
        if let Some(answer) = known.strip_prefix(&answer_for) {
            return Ok(if answer.trim() == "kvm" { Self::Kvm } else { Self::Tcg });
        }
        progress.say("probing KVM");
        let found = if runs_within(PROBE_LIMIT, &qemu, Self::Kvm)? { Self::Kvm } else { Self::Tcg };
        cache::replace(&path, |file| writeln!(file, "{answer_for} {}", found.name()))?;
        Ok(found)
    }

    /// Its name, as `--accel` takes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
            Self::Icount => "icount",
        }
    }

    /// QEMU's arguments.
    pub(super) const fn arguments(self) -> &'static str {
        match self {
            Self::Kvm => "-accel kvm",
            Self::Tcg => "-accel tcg,thread=multi",
            // Also what differs between two runs without being an instruction is always the same: random numbers and the date.
            Self::Icount => {
                "-accel tcg,thread=single -icount shift=0,sleep=off -seed 1 -rtc base=2026-01-01,clock=vm"
            }
        }
    }

    /// The most that the accelerator's processor can do.
    pub(super) const fn processor(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg | Self::Icount => "max",
        }
    }
}

/// Boots the probe guest and tells whether it came to its end within the limit.
fn runs_within(limit: Duration, qemu: &Path, accelerator: Accelerator) -> Outcome<bool> {
    let mut image = tempfile::NamedTempFile::new().context(|| "a temporary file".into())?;
    image.write_all(&probe_guest::image()).context(|| "a temporary file".into())?;
    let mut command = Command::new(qemu);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-machine", "microvm"]);
    command.args(["-accel", accelerator.name(), "-cpu", accelerator.processor(), "-m", "16M"]);
    command.args(["-device", &format!("isa-debug-exit,iobase={:#x},iosize=1", probe_guest::EXIT_PORT)]);
    command.arg("-kernel").arg(image.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context(|| qemu.display().to_string())?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context(|| "waiting for QEMU".into())? {
            return Ok(status.code() == Some(probe_guest::EXIT_STATUS));
        }
        if start.elapsed() > limit {
            child.kill().and_then(|()| child.wait()).context(|| "ending QEMU".into())?;
            return Ok(false);
        }
        std::thread::sleep(PROBE_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without QEMU there is nothing to test.
    #[test]
    fn probe_guest_runs_to_its_end_under_tcg() {
        let Ok(qemu) = qemu::program() else { return };
        // A busy host may not run it for a while: only that it ends is of interest.
        assert!(runs_within(Duration::from_secs(60), &qemu, Accelerator::Tcg).expect("QEMU starts"));
    }
}
