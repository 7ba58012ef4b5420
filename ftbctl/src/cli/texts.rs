//! What help and man pages say behind the options, short help too. Examples stand at the commands
//! themselves.

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    success, also when the reader of the output closed it
  1    failure
  3    no answer of an agent within the deadline
  64   wrong usage: an option, filter, event space, time... Nothing was started
  130  interrupted with Ctrl-C";

pub(super) const CA: &str = "\
The folder has ca.pem and crl.pem for every host, hosts/HOST/agent.pem and agent.key for one host,
and ca.key, which never leaves it. Keys are ECDSA P-256. Needs no agent.";

pub(super) const TREE: &str = "\
Exit codes with --wait: 0 when the state is reached, 3 when it is not within --timeout. Without
--wait: 0. JSON: objects `node`, then one `tree`; with --summary the `tree` only.";

pub(super) const CONDITIONS: &str = "\
Watches (key WATCHED), silences and conditions that do not hold are shown with --all. With
--wait-clear the command ends when no shown condition holds or is unknown.";

pub(super) const SILENCE: &str = "\
At most 1024 at a time, each for at most 30 days. Users other than root remove a silence on the host
where it was added.";

pub(super) const EXPLAIN: &str = "\
NAME is a name (FTB_IPMI_FANFAIL), a key of a condition (FANFAIL), an event space (ftb.ib), or the
beginning of a word (fan). More than two matches become a list.";

pub(super) const TRACE: &str = "\
Delays count from the first step. Between hosts they contain the difference of the clocks; a step
before the first one shows as negative. Exit code 1: no agent remembers the event. Exit code 3:
some agents did not answer (a line for each).";

pub(super) const DRILL: &str = "\
Times count from the publish: the local agent took the event, it was committed, a subscription here
got it, the last launcher answered. Exit code 0: passed; without a job that runs the path is tested
up to the delivery. Exit code 1: a stage was missing, a launcher that runs did not answer or would
refuse such a fault, or you may not drill. Exit code 3: no agent answered. FTB_DRILL_DONE has the
result (ERROR if it failed).";

pub(super) const TOP: &str = "\
Keys: q quits, Tab goes to the other part, arrows and page keys scroll, / searches hosts, names and
texts, s sorts the conditions by severity, age or hosts. The rate counts all events.";

pub(super) const DOCTOR: &str = "\
Exit codes: 0: nothing was found, or notes alone (what this user may not read); 1: something was.
JSON: objects `finding`, then one `doctor`.";

pub(super) const HEALTH_CODES: &str = "\
Exit codes:
  0    healthy: a publisher watches the node, and no condition of WARNING or worse holds
  1    unhealthy
  2    unknown: a publisher is lost, none watches the node, or the agent does not answer
  64   wrong usage";

pub(super) const FILTERS: &str = "\
Filters: conditions separated by commas, all must hold.
  event_space=ftb.ipmi.*          severity>=error        event_name=FTB_IPMI_*
  hostname=node[001-032]          jobid=4711             client_name=ftb-ib|ftb-ipmi
  uid=1000                        (the user that published, by number)
  condition=FANFAIL|PORT_*        subject=node[001-032]  (events that state a condition)";
