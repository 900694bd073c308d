#compdef belljar
# Completions of belljar for zsh. `belljar complete` knows what fits.
_belljar() {
  local line
  local -a offered
  for line in "${(@f)$("${words[1]}" complete zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case "$line" in
      '') ;;
      :files*) _files ;;
      :folders*) _files -/ ;;
      *) offered+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done
  (( ! $#offered )) || _describe -t words word offered
}
if [ "$funcstack[1]" = "_belljar" ]; then
  _belljar "$@"
else
  compdef _belljar belljar
fi
