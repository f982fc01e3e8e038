//! The name of this machine's processor, by which a calibration is recognised as its own.

/// The processor's name as the kernel gives it; `None` where it gives none (not Linux, some other architectures).
#[must_use]
pub fn processor_name() -> Option<String> {
    name_in(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// The name in the text of `/proc/cpuinfo`, with its blanks folded.
fn name_in(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    let name = line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processor_names_the_machine() {
        let text = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R)   CPU @ 2.20GHz\nflags\t\t: fpu\n";
        assert_eq!(name_in(text).as_deref(), Some("Intel(R) Xeon(R) CPU @ 2.20GHz"));
        assert_eq!((name_in("model name\t:  \n"), name_in("Processor: ARMv8\n")), (None, None));
    }
}
