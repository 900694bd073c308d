# Completions of belljar for fish. `belljar complete` knows what fits.
function __belljar_complete
    set -l words (commandline -opc)
    for line in ($words[1] complete fish -- $words[2..-1] (commandline -ct) 2>/dev/null)
        switch $line
            case ':files*'
                __fish_complete_path (commandline -ct)
            case ':folders*'
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c belljar -f -a '(__belljar_complete)'
