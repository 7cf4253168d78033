//! `cpuinfo`: what CPUID says about the processors. All processors of a machine are alike, so the one that is asked speaks
//! for all.

use core::arch::x86_64::__cpuid_count;
use core::fmt::Write;

use machine::cpu;
use vfs::Result;
use vfs::text::Text;

/// First leaf of the extended range.
const EXTENDED: u32 = 0x8000_0000;

/// The four registers of a CPUID leaf: eax, ebx, ecx, edx. Zeros for leaves beyond the last.
fn leaf(number: u32, part: u32) -> [u32; 4] {
    let last = __cpuid_count(number & EXTENDED, 0).eax;
    if number > last {
        return [0; 4];
    }
    let result = __cpuid_count(number, part);
    [result.eax, result.ebx, result.ecx, result.edx]
}

/// A feature word: leaf, part, register, and the names of its bits ("" for bits without a name).
type FeatureWord = (u32, u32, usize, &'static [&'static str]);

/// Feature words in the order in which Linux lists their flags.
const FEATURES: [FeatureWord; 5] = [
    (
        1,
        0,
        3,
        &[
            "fpu", "vme", "de", "pse", "tsc", "msr", "pae", "mce", "cx8", "apic", "", "sep", "mtrr", "pge",
            "mca", "cmov", "pat", "pse36", "pn", "clflush", "", "dts", "acpi", "mmx", "fxsr", "sse", "sse2",
            "ss", "ht", "tm", "ia64", "pbe",
        ],
    ),
    (
        0x8000_0001,
        0,
        3,
        &[
            "", "", "", "", "", "", "", "", "", "", "", "syscall", "", "", "", "", "", "", "", "mp", "nx",
            "", "mmxext", "", "", "fxsr_opt", "pdpe1gb", "rdtscp", "", "lm", "3dnowext", "3dnow",
        ],
    ),
    (
        1,
        0,
        2,
        &[
            "pni",
            "pclmulqdq",
            "dtes64",
            "monitor",
            "ds_cpl",
            "vmx",
            "smx",
            "est",
            "tm2",
            "ssse3",
            "cid",
            "sdbg",
            "fma",
            "cx16",
            "xtpr",
            "pdcm",
            "",
            "pcid",
            "dca",
            "sse4_1",
            "sse4_2",
            "x2apic",
            "movbe",
            "popcnt",
            "tsc_deadline_timer",
            "aes",
            "xsave",
            "",
            "avx",
            "f16c",
            "rdrand",
            "hypervisor",
        ],
    ),
    (
        0x8000_0001,
        0,
        2,
        &[
            "lahf_lm",
            "cmp_legacy",
            "svm",
            "extapic",
            "cr8_legacy",
            "abm",
            "sse4a",
            "misalignsse",
            "3dnowprefetch",
            "osvw",
            "ibs",
            "xop",
            "skinit",
            "wdt",
            "",
            "lwp",
            "fma4",
            "tce",
            "",
            "nodeid_msr",
            "",
            "tbm",
            "topoext",
        ],
    ),
    (
        7,
        0,
        1,
        &[
            "fsgsbase",
            "tsc_adjust",
            "sgx",
            "bmi1",
            "hle",
            "avx2",
            "",
            "smep",
            "bmi2",
            "erms",
            "invpcid",
            "rtm",
            "cqm",
            "",
            "mpx",
            "rdt_a",
            "avx512f",
            "avx512dq",
            "rdseed",
            "adx",
            "smap",
            "avx512ifma",
            "",
            "clflushopt",
            "clwb",
            "intel_pt",
            "avx512pf",
            "avx512er",
            "avx512cd",
            "sha_ni",
            "avx512bw",
            "avx512vl",
        ],
    ),
];

fn write_features(out: &mut dyn Write) {
    let _ = out.write_str("flags\t\t:");
    for (number, part, register, names) in FEATURES {
        let word = leaf(number, part)[register];
        for (bit, name) in names.iter().enumerate() {
            if word & (1 << bit) != 0 && !name.is_empty() {
                let _ = write!(out, " {name}");
            }
        }
    }
    let _ = out.write_str("\n");
}

/// Bytes of registers as text, up to the first NUL and without blanks around it.
fn write_text(registers: &[u32], out: &mut Text) {
    let mut bytes = [0; 48];
    for (part, register) in bytes.chunks_exact_mut(4).zip(registers) {
        part.copy_from_slice(&register.to_le_bytes());
    }
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    out.push_bytes(bytes[..length].trim_ascii());
}

/// Family, model and stepping out of the signature in leaf 1.
fn signature(eax: u32) -> (u32, u32, u32) {
    let (family, model) = (eax >> 8 & 0xf, eax >> 4 & 0xf);
    let long_family = if family == 0xf { family + (eax >> 20 & 0xff) } else { family };
    let long_model = if family == 6 || family == 0xf { model | (eax >> 12 & 0xf0) } else { model };
    (long_family, long_model, eax & 0xf)
}

fn write_brand(out: &mut Text) {
    let mut registers = [0; 12];
    for (part, into) in registers.chunks_exact_mut(4).enumerate() {
        into.copy_from_slice(&leaf(EXTENDED + 2 + part as u32, 0));
    }
    match registers[0] {
        0 => out.push_bytes(b"unknown"),
        _ => write_text(&registers, out),
    }
}

/// `cpuinfo`
pub(super) fn processors(out: &mut Text) -> Result<()> {
    let [last, vendor_0, vendor_2, vendor_1] = leaf(0, 0);
    let [eax, ebx, ..] = leaf(1, 0);
    let (family, model, stepping) = signature(eax);
    let line_bytes = (ebx >> 8 & 0xff) * 8;
    let [sizes, ..] = leaf(EXTENDED + 8, 0);
    let khz = machine::time::cycles_per_second() / 1000;
    let count = cpu::online().count();
    for cpu in cpu::online().iter() {
        let number = cpu.index();
        let _ = write!(out, "processor\t: {number}\nvendor_id\t: ");
        write_text(&[vendor_0, vendor_1, vendor_2], out);
        let _ = write!(out, "\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: ");
        write_brand(out);
        let _ = write!(
            out,
            "\nstepping\t: {stepping}\ncpu MHz\t\t: {}.{:03}\nphysical id\t: 0\nsiblings\t: {count}\ncore id\t\t: {number}\n\
             cpu cores\t: {count}\nfpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {last}\nwp\t\t: yes\n",
            khz / 1000,
            khz % 1000,
        );
        write_features(out);
        // Two loops a cycle, as the loop that the number is named after runs.
        let bogus = khz / 500;
        let _ = write!(
            out,
            "bogomips\t: {bogus}.{:02}\nclflush size\t: {line_bytes}\ncache_alignment\t: {line_bytes}\n\
             address sizes\t: {} bits physical, {} bits virtual\npower management:\n\n",
            khz % 500 / 5,
            sizes & 0xff,
            sizes >> 8 & 0xff,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_combine_base_and_extension() {
        assert_eq!(signature(0x00a1_0f11), (25, 17, 1));
        assert_eq!(signature(0x0005_0654), (6, 85, 4));
        assert_eq!(signature(0x0000_0543), (5, 4, 3));
    }

    #[test]
    fn every_processor_of_this_architecture_has_these_flags() {
        let mut text = alloc::string::String::new();
        write_features(&mut text);
        assert!(text.starts_with("flags\t\t: fpu "));
        for flag in [" sse2", " syscall", " lm"] {
            assert!(text.contains(flag), "{flag} is missing");
        }
    }

    #[test]
    fn texts_end_at_the_first_nul() {
        let mut out = Text::new();
        write_text(&[0x756e_6547, 0x4965_6e69, 0x6c65_746e], &mut out);
        assert_eq!(out.as_bytes(), b"GenuineIntel");
    }
}
