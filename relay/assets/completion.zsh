#compdef relay
# zsh completion for relay; the relay itself knows what fits, and where it has
# nothing to say, file names do.
_relay() {
  local line
  local -a candidates
  for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -z $line ]] || candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  if (( $#candidates )); then
    _describe relay candidates
  else
    _files
  fi
}
if [[ $funcstack[1] == _relay ]]; then
  _relay "$@"
else
  compdef _relay relay
fi
