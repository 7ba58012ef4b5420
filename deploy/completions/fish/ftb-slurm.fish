# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_ftb_slurm_global_optspecs
    string join \n config= check-config h/help V/version
end

function __fish_ftb_slurm_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_ftb_slurm_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_ftb_slurm_using_subcommand
    set -l cmd (__fish_ftb_slurm_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c ftb-slurm -n "__fish_ftb_slurm_needs_command" -l config -d 'Configuration file [default: /etc/ftb/slurm.toml if it exists, else built-in defaults]' -r -F
complete -c ftb-slurm -n "__fish_ftb_slurm_needs_command" -l check-config -d 'Check the configuration and exit'
complete -c ftb-slurm -n "__fish_ftb_slurm_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-slurm -n "__fish_ftb_slurm_needs_command" -s V -l version -d 'Print version'
complete -c ftb-slurm -n "__fish_ftb_slurm_needs_command" -f -a "health" -d 'Say whether this node is healthy, for HealthCheckProgram, prolog and epilog'
complete -c ftb-slurm -n "__fish_ftb_slurm_needs_command" -f -a "advice" -d 'Say which nodes a job should not get: those with a condition that holds'
complete -c ftb-slurm -n "__fish_ftb_slurm_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -l node -d 'The node [default: the host of the agent]' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -l agent-socket -d 'Socket of the agent [default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock]' -r -F
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -l config -d 'Configuration whose severity, conditions and ignore count [default: /etc/ftb/slurm.toml if it exists, else built-in defaults]' -r -F
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -l severity -d 'The mildest condition that counts [default: that of the configuration, else error]' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -l conditions -d 'The only keys of conditions that count [default: those of the configuration, else all]' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -l ignore -d 'Keys of conditions that do not count [default: those of the configuration, else CERTIFICATE_EXPIRES]' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -l drain -d 'Drain the node if it is unhealthy, with the reason of the bridge, unless it is drained or has a reason already. The bridge resumes it later' -r -f -a "never\t'Never: the bridge does'
alone\t'If no bridge watches Slurm'
always\t'Always'"
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -l timeout -d 'How long to wait for the agent, in milliseconds' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -l strict -d 'End with code 2 if the health is unknown, such as without an agent'
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand health" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -l nodes -d 'Name only these nodes, as Slurm rejects hosts that are not its nodes: "$(sinfo -h -o %N)" [default: all hosts]' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -l also -d 'Exclude these nodes too, such as those that the job excludes already: "$(squeue -h -j JOB -o %x)"' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -l config -d 'Configuration whose severity, conditions and ignore count [default: /etc/ftb/slurm.toml if it exists, else built-in defaults]' -r -F
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -l severity -d 'The mildest condition that counts [default: that of the configuration, else error]' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -l conditions -d 'The only keys of conditions that count [default: those of the configuration, else all]' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -l ignore -d 'Keys of conditions that do not count [default: those of the configuration, else CERTIFICATE_EXPIRES]' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -l agent-socket -d 'Socket of the agent [default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock]' -r -F
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -l timeout -d 'How long to wait for the agent, in milliseconds' -r
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -l json -d 'Print one JSON object with the reasons'
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand advice" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand help; and not __fish_seen_subcommand_from health advice help" -f -a "health" -d 'Say whether this node is healthy, for HealthCheckProgram, prolog and epilog'
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand help; and not __fish_seen_subcommand_from health advice help" -f -a "advice" -d 'Say which nodes a job should not get: those with a condition that holds'
complete -c ftb-slurm -n "__fish_ftb_slurm_using_subcommand help; and not __fish_seen_subcommand_from health advice help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
