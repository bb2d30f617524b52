complete --keep-order --exclusive --command pmuscope --arguments "(PMUSCOPE_COMPLETE=fish pmuscope -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
