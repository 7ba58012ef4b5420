# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_ftb_launch_global_optspecs
    string join \n h/help V/version
end

function __fish_ftb_launch_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_ftb_launch_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_ftb_launch_using_subcommand
    set -l cmd (__fish_ftb_launch_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -s V -l version -d 'Print version'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "run" -d 'Run a program'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "restart" -d 'Start a job again from one of its sets (JOBDIR/sets/SET), on other nodes if you like'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "attach" -d 'Take over a job whose launcher is gone'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "ps" -d 'List your jobs on this host with their state'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "status" -d 'Show a job: its phase, sets, checkpoint interval, and the ranks of each node'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "checkpoint" -d 'Save a running job as a set and wait until it is done'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "migrate" -d 'Move the ranks of a node to a hot spare and wait until it is done'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "drain" -d 'Move the ranks of a node to a hot spare, and leave the node out until `usable`'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "usable" -d 'Let a job use a node again that was left or drained: it becomes a hot spare'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "add" -d 'Add nodes to a running job as hot spares and wait until they are there'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "kill" -d 'End a job: SIGTERM to all ranks, SIGKILL after its --kill-grace; `run` exits with code 143'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "policy" -d 'Check and try policies, close the circuit breaker'
complete -c ftb-launch -n "__fish_ftb_launch_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -s n -l n -d 'Number of ranks' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l nodes -d 'The nodes: a TOML file of `[[node]]` tables with name and optionally agent (its socket), images, listen, address' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l local-nodes -d 'The nodes on this host: NODE=SOCKET,...' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l hosts -d 'Primary nodes, as a host list (default: all that are not spares; in a Slurm allocation its nodes; without any node, this host)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l spares -d 'Hot spares, as a host list' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l ppn -d 'Ranks on each node (default: as few as possible)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l rank-file -d 'Placement of ranks: a file with lines `rank N=HOST` or `rank N-M=HOST`' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l start -d 'How to start launch agents (default: local for nodes of --local-nodes or --nodes and without hosts, slurm in a Slurm allocation, else ssh)' -r -f -a "local\t'As children: all nodes are this host'
ssh\t'In a tree, over ssh'
slurm\t'By srun, in this Slurm allocation'"
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l ssh-command -d 'The ssh command, before the name of the host' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l srun-options -d 'Extra options passed to srun' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l nla -d 'Path of ftb-nla on the nodes (default: as on this host)' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l fanout -d 'Launch agents that the launcher and each launch agent start over ssh' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l start-deadline -d 'How long a launch agent may take to come up before its node counts as lost' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l address -d 'How the nodes reach this host: a name or an address (default: its host name)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l agent-socket -d 'Socket of the agents, of this host and of the nodes given by name alone; %n is the name of the node [default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock]' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l agent -d 'Socket of the launcher\'s own agent, where it is another one' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l policy -d 'The policy (default: the built-in one, see deploy/config/policy.toml)' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l backend -d 'How ranks are saved and moved: auto (the default), app (programs that link ftb-job), loop (programs that call ftb_loop), criu (any program), or a TOML file with a table [backend.criu] or [backend.command]' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l deadlines -d 'Deadlines of the protocol\'s phases, as a TOML file' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l on-death -d 'Reaction to the death of a rank or a node (default: of the policy; the built-in one says rollback)' -r -f -a "rollback\t'Survivors go back to the last set in place, dead ranks start again; otherwise as restart'
shrink\t'The job goes on without dead ranks, in place; a spare takes the place of a lost node'
restart\t'End all ranks and start again from the last set; without one, stop'
stop\t'End the job'
continue\t'The others go on without dead ranks, and repair their communicators (ftb-job programs)'"
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l wait-for-nodes -d 'Wait this long for a node, if a lost one has no spare, instead of ending the job (exit code 75 when the time is over)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l warm-spares -d 'Start N more processes of the program on each spare, which wait in the initialization of ftb-job and become the ranks of another node without being started (programs that link ftb-job)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l warm-local -d 'Start N more processes on each node with ranks, which become ranks that die there' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l on-hang -d 'What is done about a hung rank; without a set to go back to it is only reported, unless kill is chosen (default: of the policy; the built-in one says report)' -r -f -a "report\t'Only report it'
restart\t'End all ranks and start again from the last set'
rollback\t'Kill the hung rank; survivors go back to the last set in place, otherwise as restart'
kill\t'End the job (exit code 137)'"
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l hang-after -d 'A rank that is stopped counts as hung after this time (default: of the policy; the built-in one says 20s)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l stall-after -d 'A rank that makes no progress counts as hung after this time (default: of the policy; the built-in one says 10m)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l checkpoint-every -d 'Checkpoint interval: a time, never, or auto, the optimum for the cost of a checkpoint and the rate of failures (default: of the policy; the built-in one says auto)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l disk-every -d 'Interval of checkpoints on the disks of the nodes, which bear the death of ranks and of the launcher, not the loss of a node: a time, never, or auto' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l memory -d 'Save the job in the memory of its nodes too: buddy:K, with K copies of each node\'s images on others, or xor:N, with parity in groups of N nodes, which bears the loss of one of each' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l memory-every -d 'Interval of checkpoints in memory: a time, never, or auto' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l memory-bytes -d 'Most bytes that a node holds in memory, for two generations with their protection, as 8GiB (default: a quarter of its available memory); a node with less available memory is not used' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l mtbf -d 'Mean time between failures of the job\'s nodes, for auto (default: of the policy); observed failures correct it' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l keep-sets -d 'How many sets are kept; with pods one more from before a hang' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l time-limit -d 'End the job after this time (exit code 124)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l orphan-grace -d 'How long nodes go on without a launcher before they end the job' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l kill-grace -d 'Time between SIGTERM and SIGKILL' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l job -d 'Name of the job (default: generated)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l cwd -d 'Working directory of the ranks (default: this one)' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l env -d 'Set an environment variable of the ranks, in addition to this process\' environment' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l ignore-conditions -d 'Place ranks also on nodes with conditions that hold at the start (`ftbctl conditions`)'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l no-memory-first -d 'Do not save the job in memory before its first step'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l no-stdin -d 'No standard input for any rank (default: rank 0 gets it)'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l prefix -d 'Print each line with the rank that wrote it'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -s q -l quiet -d 'Print only the output of the ranks'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -l keep -d 'Keep the job\'s directory after a good end too'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l nodes -d 'The nodes: a TOML file of `[[node]]` tables with name and optionally agent (its socket), images, listen, address' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l local-nodes -d 'The nodes on this host: NODE=SOCKET,...' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l hosts -d 'Primary nodes, as a host list (default: all that are not spares; in a Slurm allocation its nodes; without any node, this host)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l spares -d 'Hot spares, as a host list' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l ppn -d 'Ranks on each node (default: as few as possible)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l rank-file -d 'Placement of ranks: a file with lines `rank N=HOST` or `rank N-M=HOST`' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l start -d 'How to start launch agents (default: local for nodes of --local-nodes or --nodes and without hosts, slurm in a Slurm allocation, else ssh)' -r -f -a "local\t'As children: all nodes are this host'
ssh\t'In a tree, over ssh'
slurm\t'By srun, in this Slurm allocation'"
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l ssh-command -d 'The ssh command, before the name of the host' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l srun-options -d 'Extra options passed to srun' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l nla -d 'Path of ftb-nla on the nodes (default: as on this host)' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l fanout -d 'Launch agents that the launcher and each launch agent start over ssh' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l start-deadline -d 'How long a launch agent may take to come up before its node counts as lost' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l address -d 'How the nodes reach this host: a name or an address (default: its host name)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l agent-socket -d 'Socket of the agents, of this host and of the nodes given by name alone; %n is the name of the node [default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock]' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l agent -d 'Socket of the launcher\'s own agent, where it is another one' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l policy -d 'The policy (default: the built-in one, see deploy/config/policy.toml)' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l backend -d 'How ranks are saved and moved: auto (the default), app (programs that link ftb-job), loop (programs that call ftb_loop), criu (any program), or a TOML file with a table [backend.criu] or [backend.command]' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l deadlines -d 'Deadlines of the protocol\'s phases, as a TOML file' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l on-death -d 'Reaction to the death of a rank or a node (default: of the policy; the built-in one says rollback)' -r -f -a "rollback\t'Survivors go back to the last set in place, dead ranks start again; otherwise as restart'
shrink\t'The job goes on without dead ranks, in place; a spare takes the place of a lost node'
restart\t'End all ranks and start again from the last set; without one, stop'
stop\t'End the job'
continue\t'The others go on without dead ranks, and repair their communicators (ftb-job programs)'"
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l wait-for-nodes -d 'Wait this long for a node, if a lost one has no spare, instead of ending the job (exit code 75 when the time is over)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l warm-spares -d 'Start N more processes of the program on each spare, which wait in the initialization of ftb-job and become the ranks of another node without being started (programs that link ftb-job)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l warm-local -d 'Start N more processes on each node with ranks, which become ranks that die there' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l on-hang -d 'What is done about a hung rank; without a set to go back to it is only reported, unless kill is chosen (default: of the policy; the built-in one says report)' -r -f -a "report\t'Only report it'
restart\t'End all ranks and start again from the last set'
rollback\t'Kill the hung rank; survivors go back to the last set in place, otherwise as restart'
kill\t'End the job (exit code 137)'"
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l hang-after -d 'A rank that is stopped counts as hung after this time (default: of the policy; the built-in one says 20s)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l stall-after -d 'A rank that makes no progress counts as hung after this time (default: of the policy; the built-in one says 10m)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l checkpoint-every -d 'Checkpoint interval: a time, never, or auto, the optimum for the cost of a checkpoint and the rate of failures (default: of the policy; the built-in one says auto)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l disk-every -d 'Interval of checkpoints on the disks of the nodes, which bear the death of ranks and of the launcher, not the loss of a node: a time, never, or auto' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l memory -d 'Save the job in the memory of its nodes too: buddy:K, with K copies of each node\'s images on others, or xor:N, with parity in groups of N nodes, which bears the loss of one of each' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l memory-every -d 'Interval of checkpoints in memory: a time, never, or auto' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l memory-bytes -d 'Most bytes that a node holds in memory, for two generations with their protection, as 8GiB (default: a quarter of its available memory); a node with less available memory is not used' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l mtbf -d 'Mean time between failures of the job\'s nodes, for auto (default: of the policy); observed failures correct it' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l keep-sets -d 'How many sets are kept; with pods one more from before a hang' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l time-limit -d 'End the job after this time (exit code 124)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l orphan-grace -d 'How long nodes go on without a launcher before they end the job' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l kill-grace -d 'Time between SIGTERM and SIGKILL' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l ignore-conditions -d 'Place ranks also on nodes with conditions that hold at the start (`ftbctl conditions`)'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l no-memory-first -d 'Do not save the job in memory before its first step'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l no-stdin -d 'No standard input for any rank (default: rank 0 gets it)'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l prefix -d 'Print each line with the rank that wrote it'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -s q -l quiet -d 'Print only the output of the ranks'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -l keep -d 'Keep the job\'s directory after a good end too'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand restart" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand attach" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand ps" -l json -d 'One JSON object a line'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand ps" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand status" -l what-if -d 'Show instead what the death of this node would cost now' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand status" -l json -d 'One JSON object'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand checkpoint" -l timeout -d 'How long to wait for the result' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand checkpoint" -l json -d 'Answers as one JSON object a line'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand checkpoint" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand migrate" -l timeout -d 'How long to wait for the result' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand migrate" -l json -d 'Answers as one JSON object a line'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand migrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand drain" -l timeout -d 'How long to wait for the result of each job' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand drain" -l json -d 'Answers as one JSON object a line'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand drain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand usable" -l timeout -d 'How long to wait for the result' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand usable" -l json -d 'Answers as one JSON object a line'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand usable" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand add" -l nodes -d 'What is known of them: a nodes file as of `run`' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand add" -l local-nodes -d 'Their agents, where they are this host: NODE=SOCKET,...' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand add" -l agent-socket -d 'Socket of the agents of nodes given by name alone; %n is the name of the node [default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock]' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand add" -l timeout -d 'How long to wait for the result' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand add" -l json -d 'Answers as one JSON object a line'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand kill" -l timeout -d 'How long to wait for the result' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand kill" -l json -d 'Answers as one JSON object a line'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand kill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and not __fish_seen_subcommand_from check test reset help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and not __fish_seen_subcommand_from check test reset help" -f -a "check" -d 'Read a policy file and report errors'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and not __fish_seen_subcommand_from check test reset help" -f -a "test" -d 'Show what a policy would have done with recorded events: one JSON object a line with space, name and host, and time_ns or `time_s`'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and not __fish_seen_subcommand_from check test reset help" -f -a "reset" -d 'Close the circuit breaker of a running job\'s policy'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and not __fish_seen_subcommand_from check test reset help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from test" -l policy -d 'The policy (default: the built-in one)' -r -F
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from test" -l nodes -d 'The nodes of the job, as a host list; events about other hosts are ignored (default: all hosts of the events)' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from test" -l json -d 'One JSON object a line: `time_s` (since the first event), action, node, faults, words'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from test" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from reset" -l timeout -d 'How long to wait for the result' -r
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from reset" -l json -d 'Answers as one JSON object a line'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from reset" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "check" -d 'Read a policy file and report errors'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "test" -d 'Show what a policy would have done with recorded events: one JSON object a line with space, name and host, and time_ns or `time_s`'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "reset" -d 'Close the circuit breaker of a running job\'s policy'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "run" -d 'Run a program'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "restart" -d 'Start a job again from one of its sets (JOBDIR/sets/SET), on other nodes if you like'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "attach" -d 'Take over a job whose launcher is gone'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "ps" -d 'List your jobs on this host with their state'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "status" -d 'Show a job: its phase, sets, checkpoint interval, and the ranks of each node'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "checkpoint" -d 'Save a running job as a set and wait until it is done'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "migrate" -d 'Move the ranks of a node to a hot spare and wait until it is done'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "drain" -d 'Move the ranks of a node to a hot spare, and leave the node out until `usable`'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "usable" -d 'Let a job use a node again that was left or drained: it becomes a hot spare'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "add" -d 'Add nodes to a running job as hot spares and wait until they are there'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "kill" -d 'End a job: SIGTERM to all ranks, SIGKILL after its --kill-grace; `run` exits with code 143'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "policy" -d 'Check and try policies, close the circuit breaker'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and not __fish_seen_subcommand_from run restart attach ps status checkpoint migrate drain usable add kill policy help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "check" -d 'Read a policy file and report errors'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "test" -d 'Show what a policy would have done with recorded events: one JSON object a line with space, name and host, and time_ns or `time_s`'
complete -c ftb-launch -n "__fish_ftb_launch_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "reset" -d 'Close the circuit breaker of a running job\'s policy'
