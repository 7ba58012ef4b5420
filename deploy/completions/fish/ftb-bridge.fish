# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_ftb_bridge_global_optspecs
    string join \n config= h/help V/version
end

function __fish_ftb_bridge_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_ftb_bridge_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_ftb_bridge_using_subcommand
    set -l cmd (__fish_ftb_bridge_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c ftb-bridge -n "__fish_ftb_bridge_needs_command" -l config -d 'Configuration file [default: /etc/ftb/bridge.toml if it exists, else built-in defaults]' -r -F
complete -c ftb-bridge -n "__fish_ftb_bridge_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-bridge -n "__fish_ftb_bridge_needs_command" -s V -l version -d 'Print version'
complete -c ftb-bridge -n "__fish_ftb_bridge_needs_command" -f -a "run" -d 'Be the bridge until SIGTERM or SIGINT'
complete -c ftb-bridge -n "__fish_ftb_bridge_needs_command" -f -a "check" -d 'Check the configuration and exit'
complete -c ftb-bridge -n "__fish_ftb_bridge_needs_command" -f -a "status" -d 'Show how far the bridge of this host is'
complete -c ftb-bridge -n "__fish_ftb_bridge_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand run" -l config -d 'Configuration file [default: /etc/ftb/bridge.toml if it exists, else built-in defaults]' -r -F
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand check" -l config -d 'Configuration file [default: /etc/ftb/bridge.toml if it exists, else built-in defaults]' -r -F
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand status" -l config -d 'Configuration file [default: /etc/ftb/bridge.toml if it exists, else built-in defaults]' -r -F
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand status" -l json -d 'Print one JSON object'
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand help; and not __fish_seen_subcommand_from run check status help" -f -a "run" -d 'Be the bridge until SIGTERM or SIGINT'
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand help; and not __fish_seen_subcommand_from run check status help" -f -a "check" -d 'Check the configuration and exit'
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand help; and not __fish_seen_subcommand_from run check status help" -f -a "status" -d 'Show how far the bridge of this host is'
complete -c ftb-bridge -n "__fish_ftb_bridge_using_subcommand help; and not __fish_seen_subcommand_from run check status help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
