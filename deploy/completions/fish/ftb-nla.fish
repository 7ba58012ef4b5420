# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_ftb_nla_global_optspecs
    string join \n h/help V/version
end

function __fish_ftb_nla_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_ftb_nla_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_ftb_nla_using_subcommand
    set -l cmd (__fish_ftb_nla_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -s h -l help -d 'Print help'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -s V -l version -d 'Print version'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -f -a "serve" -d 'Serve one job on this node; read its specification from standard input'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -f -a "guard" -d 'Kill processes that the ranks have started when the launch agent is gone'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -f -a "make-pod" -d 'Make the namespaces of a pod'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -f -a "hold-memory" -d 'Hold images of pods in memory'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -f -a "pause" -d 'Be the first process of a pod'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -f -a "supervise" -d 'Start the ranks of a pod and pass on their output'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -f -a "hold-user" -d 'Hold the user namespace of an ordinary user\'s pods'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -f -a "enter-user" -d 'Run a command in it'
complete -c ftb-nla -n "__fish_ftb_nla_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand serve" -l node-from -d 'Environment variable with this node\'s name, if all agents get the same specification' -r
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand serve" -s h -l help -d 'Print help'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand guard" -l agent -d 'The socket of the agent' -r -F
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand guard" -l job -r
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand guard" -l node -r
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand guard" -s h -l help -d 'Print help'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand make-pod" -l mounts -d 'The process whose mounts it begins with' -r
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand make-pod" -l fresh -d 'For ranks that start, not for restored ones'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand make-pod" -l user -d 'For an ordinary user'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand make-pod" -s h -l help -d 'Print help'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand hold-memory" -s h -l help -d 'Print help'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand pause" -l fresh -d 'See make-pod'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand pause" -s h -l help -d 'Print help'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand supervise" -l user -d 'For an ordinary user'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand supervise" -s h -l help -d 'Print help'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand hold-user" -s h -l help -d 'Print help'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand enter-user" -s h -l help -d 'Print help'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand help; and not __fish_seen_subcommand_from serve guard make-pod hold-memory pause supervise hold-user enter-user help" -f -a "serve" -d 'Serve one job on this node; read its specification from standard input'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand help; and not __fish_seen_subcommand_from serve guard make-pod hold-memory pause supervise hold-user enter-user help" -f -a "guard" -d 'Kill processes that the ranks have started when the launch agent is gone'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand help; and not __fish_seen_subcommand_from serve guard make-pod hold-memory pause supervise hold-user enter-user help" -f -a "make-pod" -d 'Make the namespaces of a pod'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand help; and not __fish_seen_subcommand_from serve guard make-pod hold-memory pause supervise hold-user enter-user help" -f -a "hold-memory" -d 'Hold images of pods in memory'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand help; and not __fish_seen_subcommand_from serve guard make-pod hold-memory pause supervise hold-user enter-user help" -f -a "pause" -d 'Be the first process of a pod'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand help; and not __fish_seen_subcommand_from serve guard make-pod hold-memory pause supervise hold-user enter-user help" -f -a "supervise" -d 'Start the ranks of a pod and pass on their output'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand help; and not __fish_seen_subcommand_from serve guard make-pod hold-memory pause supervise hold-user enter-user help" -f -a "hold-user" -d 'Hold the user namespace of an ordinary user\'s pods'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand help; and not __fish_seen_subcommand_from serve guard make-pod hold-memory pause supervise hold-user enter-user help" -f -a "enter-user" -d 'Run a command in it'
complete -c ftb-nla -n "__fish_ftb_nla_using_subcommand help; and not __fish_seen_subcommand_from serve guard make-pod hold-memory pause supervise hold-user enter-user help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
