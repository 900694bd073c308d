# Completions of belljar for bash. `belljar complete` knows what fits.
_belljar() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    case "$line" in
      :files*) compopt -o default ;;
      :folders*) compopt -o dirnames ;;
      *) [[ "${line%%$'\t'*}" != "${COMP_WORDS[COMP_CWORD]#[=:]}"* ]] || COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <("${COMP_WORDS[0]}" complete bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _belljar belljar
