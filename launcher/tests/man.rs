//! The man page is that of this program.

use clap::CommandFactory as _;
use ftb_launcher::cli::Cli;

#[test]
fn the_man_page_says_the_same() {
    ftb_tests::man::assert_page_is_current(Cli::command(), "1");
}
