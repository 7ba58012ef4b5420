complete -c ftb-ib -l config -d 'Configuration file [default: /etc/ftb/ib.toml if it exists, else built-in defaults]' -r -F
complete -c ftb-ib -l check-config -d 'Check the configuration and exit. An unknown counter is bad input'
complete -c ftb-ib -l print -d 'Print events as JSON lines instead of publishing them; needs no agent'
complete -c ftb-ib -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-ib -s V -l version -d 'Print version'
