#!/bin/sh
# Stands in front of git inside: says why the hooks of a project are not to be skipped, and is git for everything else. It
# protects nothing. Variables begin with `_`, since one of the environment that is changed here would be changed for git too.

refuse() {
  printf 'git: `%s` is refused in this sandbox: it would skip the hooks of this project\n' "$1" >&2
  printf '  instead: let the hooks run and mend what they report; if a hook itself is wrong, ask the user\n' >&2
  exit 1
}

# Whether a word begins with `core.hooksPath`, which git reads in any case.
names_hooks_path() {
  case $1 in
    [cC][oO][rR][eE].[hH][oO][oO][kK][sS][pP][aA][tT][hH] | [cC][oO][rR][eE].[hH][oO][oO][kK][sS][pP][aA][tT][hH]=*) ;;
    *) return 1 ;;
  esac
}

# Git's own options, then a command.
judge() {
  _elsewhere=
  while :; do
    case ${1-} in
      -c | --config-env)
        ! names_hooks_path "${2-}" || _elsewhere="$1 core.hooksPath"
        [ $# -gt 1 ] || return 0
        shift
        ;;
      --config-env=*) ! names_hooks_path "${1#*=}" || _elsewhere='--config-env=core.hooksPath' ;;
      -C | --git-dir | --work-tree | --namespace | --super-prefix | --attr-source | --shallow-file)
        [ $# -gt 1 ] || return 0
        shift
        ;;
      # These do something else than the command says.
      '' | -h | --help | -v | --version) return 0 ;;
      -*) ;;
      *) break ;;
    esac
    shift
  done
  _command=$1
  shift
  case $_command in
    # Tools give these another `core.hooksPath` for good reasons: they skip no hook of this project.
    clone | fetch | init | ls-files | ls-remote | rev-parse | status | submodule) return 0 ;;
    config)
      judge_config "$@"
      return 0
      ;;
  esac
  judge_variables
  [ -z "$_elsewhere" ] || refuse "$_command $_elsewhere"
  # Short options that take the rest of their word or the next one; that take only the rest; that skip hooks. git COMMAND -h
  case $_command in
    commit) judge_words FmcCtU Su n "$@" ;;
    am) judge_words Cp S n "$@" ;;
    merge) judge_words sXmF S '' "$@" ;;
    rebase) judge_words CxsX Sr '' "$@" ;;
    pull) judge_words sXo rSj '' "$@" ;;
    push) judge_words o '' '' "$@" ;;
  esac
}

# To ask for the setting, or to remove it, skips nothing.
judge_config() {
  _sets=
  for _word; do
    case $_word in
      --get* | --unset* | get | unset) return 0 ;;
    esac
    [ "$_sets" != named ] || _sets=yes
    [ -n "$_sets" ] || ! names_hooks_path "$_word" || _sets=named
  done
  [ "$_sets" != yes ] || refuse 'config core.hooksPath'
}

judge_variables() {
  case ${GIT_CONFIG_PARAMETERS-} in
    *[cC][oO][rR][eE].[hH][oO][oO][kK][sS][pP][aA][tT][hH]*) _elsewhere='with core.hooksPath in GIT_CONFIG_PARAMETERS' ;;
  esac
  case ${GIT_CONFIG_COUNT-} in
    '' | *[!0-9]* | ????*) return 0 ;;
  esac
  _at=0
  while [ "$_at" -lt "$GIT_CONFIG_COUNT" ]; do
    eval "_key=\${GIT_CONFIG_KEY_$_at-} _value=\${GIT_CONFIG_VALUE_$_at-none}"
    # An empty one is what Gemini gives to every command of its: no word of the model's would let it commit.
    [ -z "$_value" ] || ! names_hooks_path "$_key" || _elsewhere="with core.hooksPath in GIT_CONFIG_KEY_$_at"
    _at=$((_at + 1))
  done
}

judge_words() {
  _with_argument=$1 _with_rest=$2 _skipping=$3
  shift 3
  [ "${HUSKY-}" != 0 ] || refuse "HUSKY=0 git $_command"
  _skips=
  while [ $# -gt 0 ]; do
    _word=$1 _takes_next=
    shift
    case $_word in
      --) break ;;
      --no-veri | --no-verif | --no-verify) _skips=$_word ;;
      --veri | --verif | --verify) _skips= ;;
      --*=*) ;;
      --mess* | --file | --author | --date | --trailer | --template | --cleanup | --reuse-message | --reedit-message | \
        --onto | --exec | --strategy | --strategy-option | --push-option | --repo) _takes_next=yes ;;
      --*) ;;
      -?*)
        _letters=${_word#-}
        while [ -n "$_letters" ]; do
          _letter=${_letters%"${_letters#?}"}
          _letters=${_letters#?}
          case $_with_argument in
            *"$_letter"*)
              [ -n "$_letters" ] || _takes_next=yes
              break
              ;;
          esac
          case $_with_rest in *"$_letter"*) break ;; esac
          [ "$_letter" != "$_skipping" ] || _skips=$_word
        done
        ;;
    esac
    [ -z "$_takes_next" ] || [ $# -eq 0 ] || shift
  done
  [ -z "$_skips" ] || refuse "$_command $_skips"
}

judge "$@"
# The next git on PATH that is not this file.
IFS=:
set -f
for _directory in ${PATH-/usr/bin:/bin}; do
  _program=${_directory:-.}/git
  if [ -f "$_program" ] && [ -x "$_program" ] && ! [ "$_program" -ef "$0" ]; then
    exec "$_program" "$@"
  fi
done
echo 'git: command not found' >&2
exit 127
