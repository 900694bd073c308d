#!/bin/sh
# Installs belljar from a release: one static executable, manual pages and completions. It asks nothing.
#
#   sh install.sh [--prefix FOLDER] [--from URL-OR-FOLDER] [--version VERSION] [--uninstall]
#
# --prefix    default: /usr/local for root, ~/.local for others
# --from      where the files of the release are; default: the release on GitHub. A folder works without a network
# --version   default: the newest release
set -eu

REPOSITORY=https://github.com/belljar/belljar

main() {
  prefix= from= version= action=install
  while [ $# -gt 0 ]; do
    case "$1" in
      --prefix | --from | --version)
        [ $# -ge 2 ] || fail "$1 needs a value"
        eval "${1#--}=\$2"
        shift 2
        ;;
      --uninstall)
        action=uninstall
        shift
        ;;
      *) fail "unknown option $1: see the head of this script" ;;
    esac
  done
  if [ -z "$prefix" ]; then
    if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
  fi
  "$action"
}

install() {
  [ "$(uname -s)" = Linux ] || fail "belljar runs on Linux; on macOS and Windows install it in a Linux machine (docs/install.md)"
  case "$(uname -m)" in
    x86_64 | aarch64) target=$(uname -m)-unknown-linux ;;
    *) fail "no release for $(uname -m): build it from source (docs/install.md)" ;;
  esac
  for program in sha256sum tar gzip; do
    has "$program" || fail "there is no \`$program\` on PATH, which installing needs"
  done
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT INT TERM
  if [ -z "$from" ]; then
    if [ -n "$version" ]; then from=$REPOSITORY/releases/download/v$version; else from=$REPOSITORY/releases/latest/download; fi
  fi
  fetch SHA256SUMS
  archive=$(sed -n "s/^[0-9a-f]\{64\}  \(belljar-${version:-[0-9.]*}-$target-[a-z]*\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS" | head -n 1)
  [ -n "$archive" ] || fail "the release at $from has no archive for $target"
  fetch "$archive"
  (cd "$work" && grep "  $archive\$" SHA256SUMS | sha256sum -c - >/dev/null) ||
    fail "$archive does not match its checksum: download it again"
  tar -xzf "$work/$archive" -C "$work"
  tree=$work/${archive%.tar.gz}
  place 755 "$tree/belljar" bin/belljar
  # An older version may have had other commands.
  remove_pages
  for page in "$tree"/man/*.1; do place 644 "$page" "share/man/man1/${page##*/}"; done
  place 644 "$tree/completions/belljar.bash" share/bash-completion/completions/belljar
  place 644 "$tree/completions/_belljar" share/zsh/site-functions/_belljar
  place 644 "$tree/completions/belljar.fish" share/fish/vendor_completions.d/belljar.fish
  echo "installed $("$prefix/bin/belljar" --version) in $prefix/bin"
  case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "add $prefix/bin to your PATH" ;;
  esac
  echo "\`belljar doctor\` checks this machine"
}

uninstall() {
  remove_pages
  for file in bin/belljar share/bash-completion/completions/belljar \
    share/zsh/site-functions/_belljar share/fish/vendor_completions.d/belljar.fish; do
    rm -f "$prefix/$file"
  done
  echo "removed belljar from $prefix; sandboxes, secrets and logs are still in ${XDG_STATE_HOME:-$HOME/.local/state}/belljar"
}

# One for each command: belljar-run.1.
remove_pages() {
  rm -f "$prefix/share/man/man1/belljar.1" "$prefix"/share/man/man1/belljar-*.1
}

# A file of the release, by its name.
fetch() {
  case "$from" in
    https://* | http://127.0.0.1:* | http://localhost:*)
      if has curl; then
        curl -fsSL --retry 3 -o "$work/$1" "$from/$1" || fail "cannot download $from/$1"
      elif has wget; then
        wget -q -O "$work/$1" "$from/$1" || fail "cannot download $from/$1"
      else
        fail "there is neither \`curl\` nor \`wget\` on PATH to download the release with: install one of them, or download SHA256SUMS and the tarball elsewhere and use --from FOLDER"
      fi
      ;;
    http://*) fail "$from is not encrypted: use https" ;;
    *) cp "$from/$1" "$work/$1" || fail "there is no $1 in $from" ;;
  esac
}

# Beside its place first: a running belljar keeps its own file.
place() {
  mkdir -p "$prefix/${3%/*}"
  cp "$2" "$prefix/$3.new"
  chmod "$1" "$prefix/$3.new"
  mv -f "$prefix/$3.new" "$prefix/$3"
}

has() {
  command -v "$1" >/dev/null
}

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

main "$@"
