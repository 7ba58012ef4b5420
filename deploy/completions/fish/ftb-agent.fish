complete -c ftb-agent -l config -d 'The configuration file' -r -F
complete -c ftb-agent -l check-config -d 'Check the configuration and its certificates, show the settings of this host, and exit'
complete -c ftb-agent -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ftb-agent -s V -l version -d 'Print version'
