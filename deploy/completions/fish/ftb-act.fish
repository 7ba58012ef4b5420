# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_ftb_act_global_optspecs
    string join \n h/help V/version
end

function __fish_ftb_act_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_ftb_act_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_ftb_act_using_subcommand
    set -l cmd (__fish_ftb_act_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c ftb-act -n "__fish_ftb_act_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-act -n "__fish_ftb_act_needs_command" -s V -l version -d 'Print version'
complete -c ftb-act -n "__fish_ftb_act_needs_command" -f -a "run" -d 'Act until a signal'
complete -c ftb-act -n "__fish_ftb_act_needs_command" -f -a "check" -d 'Check the configuration: a mistake is named with line and column'
complete -c ftb-act -n "__fish_ftb_act_needs_command" -f -a "status" -d 'Show the breaker, and the orders that are saved'
complete -c ftb-act -n "__fish_ftb_act_needs_command" -f -a "resume" -d 'Close the breaker: what it refused passes once, if its conditions still hold'
complete -c ftb-act -n "__fish_ftb_act_needs_command" -f -a "tied" -d 'Become a program that ends with its parent'
complete -c ftb-act -n "__fish_ftb_act_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand run" -l config -d 'Configuration file' -r -F
complete -c ftb-act -n "__fish_ftb_act_using_subcommand run" -l since -d 'How far to go back, like 7d' -r
complete -c ftb-act -n "__fish_ftb_act_using_subcommand run" -l dry-run -d 'Do nothing: read the log of the cluster since then, print what would have been done, end'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand check" -l config -d 'Configuration file' -r -F
complete -c ftb-act -n "__fish_ftb_act_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand status" -l config -d 'Configuration file' -r -F
complete -c ftb-act -n "__fish_ftb_act_using_subcommand status" -l json -d 'Print one JSON object'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand resume" -l config -d 'Configuration file' -r -F
complete -c ftb-act -n "__fish_ftb_act_using_subcommand resume" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand tied" -s h -l help -d 'Print help'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand help; and not __fish_seen_subcommand_from run check status resume tied help" -f -a "run" -d 'Act until a signal'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand help; and not __fish_seen_subcommand_from run check status resume tied help" -f -a "check" -d 'Check the configuration: a mistake is named with line and column'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand help; and not __fish_seen_subcommand_from run check status resume tied help" -f -a "status" -d 'Show the breaker, and the orders that are saved'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand help; and not __fish_seen_subcommand_from run check status resume tied help" -f -a "resume" -d 'Close the breaker: what it refused passes once, if its conditions still hold'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand help; and not __fish_seen_subcommand_from run check status resume tied help" -f -a "tied" -d 'Become a program that ends with its parent'
complete -c ftb-act -n "__fish_ftb_act_using_subcommand help; and not __fish_seen_subcommand_from run check status resume tied help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
