complete -c ftb-ipmi -l config -d 'Configuration file' -r -F
complete -c ftb-ipmi -l agent-socket -d 'Socket of the agent [default: from the configuration, FTB_AGENT_SOCKET, or the client library]' -r -F
complete -c ftb-ipmi -l bmc -d 'Watch this BMC without a configuration file: a device, or a host list with an optional port. Set the password in the environment variable FTB_IPMI_PASSWORD' -r
complete -c ftb-ipmi -l node -d 'With --bmc: host list of the nodes [default: this host]' -r
complete -c ftb-ipmi -l user -d 'With --bmc: user name' -r
complete -c ftb-ipmi -l check-config -d 'Check the configuration and exit. A missing password is bad input'
complete -c ftb-ipmi -l once -d 'Dry run: read every sensor once, print a table with the verdicts, publish nothing'
complete -c ftb-ipmi -l json -d 'With --once: one JSON object per line instead of a table'
complete -c ftb-ipmi -l print -d 'Print events as JSON lines instead of publishing them'
complete -c ftb-ipmi -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-ipmi -s V -l version -d 'Print version'
