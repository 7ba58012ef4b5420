//! Section 7: `ftb` from the pages of the documentation, `ftb-events` from the catalogue.

use ftb_core::catalog::EVENTS;
use ftb_tests::roff::{entry, escape, head, paragraphs, running, table};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The overview: what ftb is, its programs, filters, exit codes, terms.
pub(crate) fn ftb(root: &Path) -> String {
    let read = |page: &str| fs::read_to_string(root.join(page)).unwrap();
    let (readme, ctl, glossary) =
        (read("README.md"), read("docs/ftbctl.md"), read("docs/glossary.md"));
    let mut text = head("ftb", 7, "fault-tolerance backplane for clusters");
    let title = readme.lines().next().unwrap();
    text += ".SH DESCRIPTION\n";
    for paragraph in paragraphs(&readme, title) {
        writeln!(text, "{}\n.PP", running(&paragraph)).unwrap();
    }
    text.truncate(text.len() - ".PP\n".len());
    text += ".SH PROGRAMS\n";
    text += &entries(&table(&readme, "## The picture"));
    text += ".SH FILTERS\n";
    for paragraph in paragraphs(&ctl, "## Filters") {
        writeln!(text, "{}\n.PP", running(&paragraph)).unwrap();
    }
    text.truncate(text.len() - ".PP\n".len());
    text += &entries(&table(&ctl, "## Filters"));
    text += ".SH EXIT STATUS\n";
    text += &entries(&table(&ctl, "Exit codes of all programs"));
    text += ".SH ENVIRONMENT\n";
    let socket = ftb_client::config::SOCKET_ENV;
    text += &entry(
        socket,
        "The socket of the agent of this host (default: `/run/ftb/agent.sock`). The option \
         `--agent-socket` and the key `agent_socket` of configuration files go before it.",
    );
    text += ".SH TERMS\n";
    text += &entries(&table(&glossary, "# Glossary"));
    text += ".SH EXAMPLES\n.nf\n";
    for line in [
        "ftbctl tail 'severity>=warning'",
        "ftbctl publish my.health.check DISK_FULL --severity error '/scratch is full'",
        "ftbctl tree",
        "ftbctl doctor",
    ] {
        writeln!(text, "{}", escape(line)).unwrap();
    }
    text += ".fi\n.SH SEE ALSO\n";
    let pages = ["ftb-agent(8)", "ftbctl(1)", "ftb-launch(1)", "ftb-ipmi(8)", "ftb-ib(8)"];
    let pages = pages.into_iter().chain(["ftb-slurm(8)", "ftb-agent.toml(5)", "ftb-events(7)"]);
    let pages = pages.map(|page| {
        let (name, section) = page.split_once('(').unwrap();
        format!("\\fB{}\\fR({section}", escape(name))
    });
    text + &pages.collect::<Vec<_>>().join(", ") + "\n"
}

/// The rows of a table: the first cell is the term, the second its meaning; a third follows.
fn entries(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    assert!(rows.len() > 3, "the table is gone: {rows:?}");
    for row in &rows[1..] {
        let term = row[0].replace('`', "");
        let rest: Vec<&str> = row[1..].iter().map(|c| &**c).filter(|c| !c.is_empty()).collect();
        text += &entry(&term, &rest.join(". "));
    }
    text
}

/// Every event that programs of ftb publish.
pub(crate) fn events() -> String {
    let mut text = head("ftb-events", 7, "events that programs of ftb publish");
    text += ".SH DESCRIPTION\n";
    text += &running(
        "`ftbctl explain NAME` shows an entry, its conditions, and what the policies of your jobs \
         do. The payload is text where nothing is said; `A` is ADAPTER:<i> (from 0), `P` PORT:<j> \
         (from 1), `C` COUNTER:<c>::RATE:<r>::LIMIT:<l>. A tag with ? is not always there.",
    );
    text += "\n.SH EVENTS\n";
    let mut space = "";
    for event in EVENTS {
        if event.space != space {
            space = event.space;
            writeln!(text, ".SS {}, by {}", escape(space), escape(event.publisher)).unwrap();
        }
        text += &entry(event.name, event.cause);
        let mut facts = vec![format!("Severity: {}.", event.severity)];
        let sets: Vec<&str> = event.sets().map(|condition| condition.key).collect();
        let clears: Vec<&str> = event.clears().map(|condition| condition.key).collect();
        let all = [
            ("Payload: ", event.payload.to_owned()),
            ("Tags: ", event.tags.to_owned()),
            ("Sets ", sets.join(", ")),
            ("Clears ", clears.join(", ")),
        ];
        let said = all.into_iter().filter(|(_, what)| !what.is_empty());
        facts.extend(said.map(|(word, what)| format!("{word}{what}.")));
        writeln!(text, "{}", running(&facts.join(" "))).unwrap();
    }
    text += ".SH EXAMPLES\n.nf\n";
    for line in ["ftbctl explain FTB_IPMI_FANFAIL", "ftbctl tail 'event_space=ftb.agent'"] {
        writeln!(text, "{}", escape(line)).unwrap();
    }
    text + ".fi\n.SH SEE ALSO\n\\fBftb\\fR(7), \\fBftbctl\\fR(1), \\fBftbctl\\-explain\\fR(1)\n"
}
