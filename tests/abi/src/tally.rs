//! Results as they are printed and counted.

use crate::known::Known;

/// How many tests passed and failed.
#[derive(Debug, Default)]
pub struct Tally {
    /// As expected.
    pub passed: u32,
    /// Not so, and not known.
    pub failed: u32,
    /// Tests that differ and are on the list of known differences.
    pub differing: u32,
    /// What may differ.
    pub known: Known,
}

impl Tally {
    /// Prints one result and counts it; an empty explanation is a pass.
    pub fn record(&mut self, name: &str, label: &str, explanation: &str) {
        if explanation.is_empty() {
            self.passed += 1;
            println!("test {name} ({label}) ... ok");
        } else if let Some(reason) = self.known.reason(name) {
            self.differing += 1;
            println!("test {name} ({label}) ... differs, as known: {reason}");
        } else {
            self.failed += 1;
            println!("test {name} ({label}) ... FAILED");
            for line in explanation.lines() {
                println!("    {line}");
            }
        }
    }
}
