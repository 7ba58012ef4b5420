//! The man page is that of this program.

use clap::CommandFactory as _;
use ftb_agent::process::Args;

#[test]
fn the_man_page_says_the_same() {
    ftb_tests::man::assert_page_is_current(Args::command(), "8");
}
