# bash completion for relay; the relay itself knows what fits, and where it has
# nothing to say, file names do.
_relay() {
  local current=${COMP_WORDS[COMP_CWORD]} value
  [[ $current != '=' ]] || current=
  COMPREPLY=()
  while IFS=$'\t' read -r value _; do
    [[ $value != "$current"* ]] || COMPREPLY+=("$value")
  done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _relay relay relayctl
