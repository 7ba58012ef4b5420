//! The reasons by which the bridge owns a drain: `ftb:<condition> <component>`.

use ftb_core::condition::Subject;

/// How each reason of the bridge begins.
pub const PREFIX: &str = "ftb:";

/// The reason of a drain for this condition. The host is no part of it, so that one call drains all
/// hosts with the same fault. Publishers choose the component: characters that a command line may
/// change become `_`.
pub fn reason_of(subject: &Subject) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " ._:/+-".contains(c);
    let plain = |c: char| if is_plain(c) { c } else { '_' };
    let text = format!("{PREFIX}{} {}", subject.key(), subject.component());
    text.trim_end().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_condition_and_component() {
        let reason = |component| reason_of(&Subject::new("node01", component, "FANFAIL"));
        assert_eq!(reason("CPU 1 FAN"), "ftb:FANFAIL CPU 1 FAN");
        assert_eq!(reason(""), "ftb:FANFAIL");
        assert_eq!(reason("a'\"\u{e9}|$(x)"), "ftb:FANFAIL a______x_");
    }
}
