//! The words of `ftbctl hosts`.

use clap::Subcommand;

/// The commands of `ftbctl hosts`. A list is like `node[001-032],login1`; standard input is read
/// where no list is given.
#[derive(Debug, Subcommand)]
pub(crate) enum HostsCommand {
    /// Write all hosts as one list
    #[command(after_long_help = "\
Examples:
  squeue -h -t R -o %N | ftbctl hosts fold
  ftbctl hosts fold node1 node2 node3  # node[1-3]")]
    Fold {
        /// Host lists, or names [default: standard input]
        #[arg(value_name = "HOSTLIST")]
        lists: Vec<String>,
    },
    /// Write one host a line
    #[command(after_long_help = "\
Examples:
  for host in $(ftbctl hosts expand node[1-3]); do ssh $host uptime; done")]
    Expand {
        /// Host lists, or names [default: standard input]
        #[arg(value_name = "HOSTLIST")]
        lists: Vec<String>,
    },
    /// Write how many hosts there are
    #[command(after_long_help = "\
Examples:
  ftbctl hosts count node[001-032]  # 32")]
    Count {
        /// Host lists, or names [default: standard input]
        #[arg(value_name = "HOSTLIST")]
        lists: Vec<String>,
    },
    /// Write the hosts of the first list that are in none of the others
    #[command(after_long_help = "\
Examples:
  ftbctl hosts diff node[1-9] node[3-4]  # node[1-2,5-9]")]
    Diff {
        /// The hosts
        #[arg(value_name = "HOSTLIST")]
        list: String,
        /// Hosts to leave out
        #[arg(value_name = "OTHER", required = true)]
        others: Vec<String>,
    },
    /// Write the hosts that are in all lists
    #[command(after_long_help = "\
Examples:
  ftbctl hosts intersect node[1-9] node[3-12]  # node[3-9]")]
    Intersect {
        /// The hosts
        #[arg(value_name = "HOSTLIST")]
        list: String,
        /// Further lists
        #[arg(value_name = "OTHER", required = true)]
        others: Vec<String>,
    },
}
