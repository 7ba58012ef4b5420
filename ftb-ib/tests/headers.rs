//! The types of the crates must match the installed C headers.
#![allow(clippy::unwrap_used)]

use ftb_ib::kind::Kind;
use ftb_ib::verbs;
use std::fmt::Write as _;
use std::process::Command;

/// Values of C expressions: compiles and runs a program with the installed headers.
fn values_in_c(expressions: &[String]) -> Vec<usize> {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("ask.c"), folder.path().join("ask"));
    let mut text = String::from(
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\n\
         int main(void) {\n",
    );
    for expression in expressions {
        writeln!(text, "  printf(\"%zu\\n\", (size_t)({expression}));").unwrap();
    }
    text.push_str("  return 0;\n}\n");
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).status().unwrap();
    assert!(compiled.success(), "the C compiler rejects the program");
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn sizes_and_offsets_match_the_installed_headers() {
    let layout = verbs::layout();
    let expressions: Vec<_> = layout.iter().map(|(text, _)| (*text).to_owned()).collect();
    let values = values_in_c(&expressions);
    assert_eq!(values.len(), layout.len());
    for ((expression, ours), c) in layout.into_iter().zip(values) {
        assert_eq!(ours, c, "{expression}");
    }
}

#[test]
fn the_library_never_writes_past_our_struct() {
    let size = values_in_c(&["sizeof(struct ibv_port_attr)".to_owned()])[0];
    assert!(size <= verbs::port_attr_bytes(), "the headers have {size} bytes");
}

#[test]
fn every_event_number_of_the_headers_has_its_kind() {
    let names = [
        ("CQ_ERR", Kind::CqErr),
        ("QP_FATAL", Kind::QpFatal),
        ("QP_REQ_ERR", Kind::QpReqErr),
        ("QP_ACCESS_ERR", Kind::QpAccessErr),
        ("COMM_EST", Kind::CommEst),
        ("SQ_DRAINED", Kind::SqDrained),
        ("PATH_MIG", Kind::PathMig),
        ("PATH_MIG_ERR", Kind::PathMigErr),
        ("DEVICE_FATAL", Kind::DeviceFatal),
        ("PORT_ACTIVE", Kind::PortActive),
        ("PORT_ERR", Kind::PortErr),
        ("LID_CHANGE", Kind::LidChange),
        ("PKEY_CHANGE", Kind::PkeyChange),
        ("SM_CHANGE", Kind::SmChange),
        ("SRQ_ERR", Kind::SrqErr),
        ("SRQ_LIMIT_REACHED", Kind::SrqLimitReached),
        ("QP_LAST_WQE_REACHED", Kind::QpLastWqeReached),
        ("CLIENT_REREGISTER", Kind::ClientReregister),
        ("GID_CHANGE", Kind::GidChange),
        ("WQ_FATAL", Kind::WqFatal),
    ];
    let expressions: Vec<_> = names.iter().map(|(name, _)| format!("IBV_EVENT_{name}")).collect();
    for ((name, kind), number) in names.into_iter().zip(values_in_c(&expressions)) {
        assert_eq!(Kind::from_verbs(u32::try_from(number).unwrap()), kind, "{name}");
    }
}
