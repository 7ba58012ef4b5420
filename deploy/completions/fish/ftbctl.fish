# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_ftbctl_global_optspecs
    string join \n agent-socket= timeout= json color= utc h/help V/version
end

function __fish_ftbctl_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_ftbctl_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_ftbctl_using_subcommand
    set -l cmd (__fish_ftbctl_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c ftbctl -n "__fish_ftbctl_needs_command" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_needs_command" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_needs_command" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_needs_command" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -s V -l version -d 'Print version'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "publish" -d 'Publish one event, and wait until it is committed'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "subscribe" -d 'Print events as they arrive'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "tail" -d 'Print events as they arrive'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "events" -d 'Print the events that the cluster still stores'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "tree" -d 'Show the tree of agents'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "hosts" -d 'Fold, expand, count and compare host lists'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "conditions" -d 'Show what is wrong now: the conditions of the cluster'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "health" -d 'Show the health of one node, in one line and as the exit code'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "silence" -d 'Silence conditions of hosts during maintenance: no program drains, pages or runs for them'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "explain" -d 'Explain an event or a condition: cause, severity, what ftb\'s programs do about it'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "trace" -d 'Show the path of an event: each step of each agent, with its delay'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "drill" -d 'Suppose that a fan of a node has failed: test the path of a fault up to the decisions'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "demo" -d 'Demonstrate on this machine: a fan fails, the job moves, the result is right'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "node" -d 'Show one node: state, place in the tree, version, health, conditions'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "top" -d 'Show the cluster live: acting root, agents, event rate, conditions, newest events'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "status" -d 'Show the status of the local agent'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "doctor" -d 'Examine ftb itself: configuration, socket, tree, versions, clocks, certificates, journals'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "init" -d 'Write a configuration of the agent with certificates, and say what to do next'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "ca" -d 'Create, renew and revoke the certificates of agents'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "generate" -d 'Write a man page or shell completion to standard output'
complete -c ftbctl -n "__fish_ftbctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -s s -l severity -d 'info, warning, error or fatal' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -s t -l tag -d 'A tag; may be repeated' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l payload-file -d 'The payload from a file, - for standard input' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l job-id -d 'The job of the event' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l confirm -d 'What the event must survive before it is confirmed, if that can be had: memory or disk [default: that of the agent]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l response-to -d 'The id of the event that this event answers' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l condition -d 'The event sets this condition, or clears it; it stays so until another event changes it' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l host -d 'The host of the condition [default: this host]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l component -d 'The component of the condition, like a fan [default: the host itself]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l action -d 'What to do: none, watch, reset-component, restart-process, migrate, reboot or replace' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l expires -d 'The condition becomes unknown after this time, like 10m [default: never]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l trace -d 'Agents remember the path of the event, whatever its severity is (ftbctl trace)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand publish" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -l filter -d 'The filter, as an option' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -l since -d 'Begin in the past: "1 hour ago", 10m, 2026-11-21T13:00:00Z, or "2026-11-21 13:00"' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -l after -d 'Resume after this position (field `position` of `--json`)' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -s n -l count -d 'Stop after N events; fewer within --timeout: exit code 3' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand subscribe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -l filter -d 'The filter, as an option' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -l since -d 'Begin in the past: "1 hour ago", 10m, 2026-11-21T13:00:00Z, or "2026-11-21 13:00"' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -l after -d 'Resume after this position (field `position` of `--json`)' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -s n -l count -d 'Stop after N events; fewer within --timeout: exit code 3' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tail" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand events" -l filter -d 'The filter, as an option' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand events" -l since -d 'Begin at this time: "1 hour ago", 10m, 2026-11-21T13:00:00Z, or "2026-11-21 13:00"' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand events" -s n -l count -d 'Stop after N events' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand events" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand events" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand events" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand events" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand events" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand events" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tree" -l wait -d 'Wait, at most --timeout, until the acting root answers (tree) or all listed agents are up (full)' -r -f -a "tree\t'The acting root answers'
full\t'Every host of the member list is up'"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tree" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tree" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tree" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tree" -l summary -d 'Print one line: how many agents are in which state, acting root, standby, depth'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tree" -l down -d 'Print only the hosts that are not up, as a host list for each state'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tree" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tree" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand tree" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -f -a "fold" -d 'Write all hosts as one list'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -f -a "expand" -d 'Write one host a line'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -f -a "count" -d 'Write how many hosts there are'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -f -a "diff" -d 'Write the hosts of the first list that are in none of the others'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -f -a "intersect" -d 'Write the hosts that are in all lists'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and not __fish_seen_subcommand_from fold expand count diff intersect help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from fold" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from fold" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from fold" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from fold" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from fold" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from fold" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from expand" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from expand" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from expand" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from expand" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from expand" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from expand" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from count" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from count" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from count" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from count" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from count" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from count" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from diff" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from diff" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from diff" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from diff" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from diff" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from intersect" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from intersect" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from intersect" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from intersect" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from intersect" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from intersect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from help" -f -a "fold" -d 'Write all hosts as one list'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from help" -f -a "expand" -d 'Write one host a line'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from help" -f -a "count" -d 'Write how many hosts there are'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from help" -f -a "diff" -d 'Write the hosts of the first list that are in none of the others'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from help" -f -a "intersect" -d 'Write the hosts that are in all lists'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand hosts; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand conditions" -l key -d 'The key, like FANFAIL or PORT_*' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand conditions" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand conditions" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand conditions" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand conditions" -l all -d 'Show watches and conditions that do not hold too'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand conditions" -l wait-clear -d 'Wait until no shown condition holds or is unknown, at most --timeout'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand conditions" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand conditions" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand conditions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand health" -l watched-by -d 'Watchers that a healthy node must have, such as ftb.agent,ftb.ipmi' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand health" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand health" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand health" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand health" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand health" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand health" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -f -a "add" -d 'Begin a silence, and write its id'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -f -a "list" -d 'List the silences that have not ended'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -f -a "remove" -d 'End a silence'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and not __fish_seen_subcommand_from add list remove help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -l key -d 'Only conditions with this key, like FANFAIL [default: all]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -l from -d 'When it begins: a time, or a duration from now, like 14h; at most 30 days ahead [default: now]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -l for -d 'How long, like 2h; at most 30 days' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -l reason -d 'Why' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from list" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from list" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from list" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from list" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from remove" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from remove" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from remove" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from remove" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from remove" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from help" -f -a "add" -d 'Begin a silence, and write its id'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the silences that have not ended'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from help" -f -a "remove" -d 'End a silence'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand silence; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand explain" -l policy -d 'Show what this policy of ftb-launch does, instead of those of your jobs' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand explain" -l act -d 'The configuration of ftb-act [default: /etc/ftb/act.toml, if it is there]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand explain" -l slurm -d 'The configuration of ftb-slurm [default: /etc/ftb/slurm.toml, if it is there]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand explain" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand explain" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand explain" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand explain" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand explain" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand trace" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand trace" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand trace" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand trace" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand trace" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand drill" -l node -d 'The node [default: this host, with --job the first one with ranks]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand drill" -l from -d 'The host that publishes the fault [default: the one whose ftb-ipmi watches the node, else the node]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand drill" -l job -d 'Ask only the launcher of this job' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand drill" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand drill" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand drill" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand drill" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand drill" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand drill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand demo" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand demo" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand demo" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand demo" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand demo" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand node" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand node" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand node" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand node" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand node" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand node" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand top" -l interval -d 'How often the agents are asked, like 5s. Below 2s the rate may lag: an agent that passes no event on learns with a heartbeat, once a second, how far the log is' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand top" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand top" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand top" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand top" -l once -d 'Print one frame and exit: for programs, and where there is no terminal'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand top" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand top" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand status" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand status" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand status" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand status" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand status" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand doctor" -l config -d 'The configuration file of the local agent' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand doctor" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand doctor" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand doctor" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand doctor" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand doctor" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l dir -d 'The folder of the configuration' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l ca-dir -d 'The folder of the CA, which is made if there is none' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l host -d 'This host as it stands in the list [default: its host name, long or short]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l socket -d 'The name of `--agent-socket` in older releases' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l insecure -d 'Without certificates, for a test: every process that reaches the port can act as an agent'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand init" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -l dir -l ca-dir -d 'The folder of the CA: keep it on a machine that only you can read' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -f -a "init" -d 'Create a CA: its key, its certificate, and an empty revocation list'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -f -a "issue" -d 'Create keys and certificates of hosts; again: renew those that need it'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -f -a "revoke" -d 'Revoke all certificates of hosts, and write the revocation list'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -f -a "show" -d 'Show the certificates: host, serial number, end, state'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and not __fish_seen_subcommand_from init issue revoke show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -l days -d 'The CA ends after this time' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -l crl-days -d 'A revocation list should be renewed within this time' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -l dir -l ca-dir -d 'The folder of the CA: keep it on a machine that only you can read' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -l force -d 'Replace the CA in the folder: its certificates end with it'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from init" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from issue" -l days -d 'The certificates end after this time, at most with the CA' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from issue" -l dir -l ca-dir -d 'The folder of the CA: keep it on a machine that only you can read' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from issue" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from issue" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from issue" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from issue" -l force -d 'Replace certificates that need no renewal, and files of unknown origin'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from issue" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from issue" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from issue" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from revoke" -l dir -l ca-dir -d 'The folder of the CA: keep it on a machine that only you can read' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from revoke" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from revoke" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from revoke" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from revoke" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from revoke" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from show" -l dir -l ca-dir -d 'The folder of the CA: keep it on a machine that only you can read' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from show" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from show" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from show" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from show" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from show" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from help" -f -a "init" -d 'Create a CA: its key, its certificate, and an empty revocation list'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from help" -f -a "issue" -d 'Create keys and certificates of hosts; again: renew those that need it'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from help" -f -a "revoke" -d 'Revoke all certificates of hosts, and write the revocation list'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show the certificates: host, serial number, end, state'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand ca; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and not __fish_seen_subcommand_from man completion help" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and not __fish_seen_subcommand_from man completion help" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and not __fish_seen_subcommand_from man completion help" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and not __fish_seen_subcommand_from man completion help" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and not __fish_seen_subcommand_from man completion help" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and not __fish_seen_subcommand_from man completion help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and not __fish_seen_subcommand_from man completion help" -f -a "man" -d 'The man page'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and not __fish_seen_subcommand_from man completion help" -f -a "completion" -d 'Completion for a shell'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and not __fish_seen_subcommand_from man completion help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from man" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from man" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from man" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from man" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from man" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from completion" -l agent-socket -d 'Unix socket of the local agent [default: /run/ftb/agent.sock]' -r -F
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from completion" -l timeout -d 'Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command [default: 5s; none for subscribe once it is active]' -r
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from completion" -l color -d 'When to use colours' -r -f -a "auto\t'At a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from completion" -l json -d 'Print one JSON object a line, for programs'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from completion" -l utc -d 'Show times in UTC, and read times without a zone as UTC [default: local time]'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from completion" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from help" -f -a "man" -d 'The man page'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from help" -f -a "completion" -d 'Completion for a shell'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand generate; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "publish" -d 'Publish one event, and wait until it is committed'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "subscribe" -d 'Print events as they arrive'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "events" -d 'Print the events that the cluster still stores'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "tree" -d 'Show the tree of agents'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "hosts" -d 'Fold, expand, count and compare host lists'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "conditions" -d 'Show what is wrong now: the conditions of the cluster'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "health" -d 'Show the health of one node, in one line and as the exit code'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "silence" -d 'Silence conditions of hosts during maintenance: no program drains, pages or runs for them'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "explain" -d 'Explain an event or a condition: cause, severity, what ftb\'s programs do about it'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "trace" -d 'Show the path of an event: each step of each agent, with its delay'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "drill" -d 'Suppose that a fan of a node has failed: test the path of a fault up to the decisions'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "demo" -d 'Demonstrate on this machine: a fan fails, the job moves, the result is right'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "node" -d 'Show one node: state, place in the tree, version, health, conditions'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "top" -d 'Show the cluster live: acting root, agents, event rate, conditions, newest events'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "status" -d 'Show the status of the local agent'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "doctor" -d 'Examine ftb itself: configuration, socket, tree, versions, clocks, certificates, journals'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "init" -d 'Write a configuration of the agent with certificates, and say what to do next'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "ca" -d 'Create, renew and revoke the certificates of agents'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "generate" -d 'Write a man page or shell completion to standard output'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and not __fish_seen_subcommand_from publish subscribe events tree hosts conditions health silence explain trace drill demo node top status doctor init ca generate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from hosts" -f -a "fold" -d 'Write all hosts as one list'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from hosts" -f -a "expand" -d 'Write one host a line'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from hosts" -f -a "count" -d 'Write how many hosts there are'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from hosts" -f -a "diff" -d 'Write the hosts of the first list that are in none of the others'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from hosts" -f -a "intersect" -d 'Write the hosts that are in all lists'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from silence" -f -a "add" -d 'Begin a silence, and write its id'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from silence" -f -a "list" -d 'List the silences that have not ended'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from silence" -f -a "remove" -d 'End a silence'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from ca" -f -a "init" -d 'Create a CA: its key, its certificate, and an empty revocation list'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from ca" -f -a "issue" -d 'Create keys and certificates of hosts; again: renew those that need it'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from ca" -f -a "revoke" -d 'Revoke all certificates of hosts, and write the revocation list'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from ca" -f -a "show" -d 'Show the certificates: host, serial number, end, state'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from generate" -f -a "man" -d 'The man page'
complete -c ftbctl -n "__fish_ftbctl_using_subcommand help; and __fish_seen_subcommand_from generate" -f -a "completion" -d 'Completion for a shell'
