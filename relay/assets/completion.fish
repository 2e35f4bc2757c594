# fish completion for relay; the relay itself knows what fits, and where it has
# nothing to say, file names do.
function __relay_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    test (count $current) -gt 0; or set current ''
    set -l found ($words[1] __complete $words[2..-1] $current 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path $current
    end
end
complete -c relay -f -a '(__relay_complete)'
