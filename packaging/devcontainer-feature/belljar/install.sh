#!/bin/sh
# Run as root while the container's image is made. The release has an installer that checks what it fetches.
set -eu
version=${VERSION:-latest}
[ "$version" != latest ] || version=
case $version in
  *[!0-9A-Za-z.-]*) echo "belljar: \`$version\` is not a version" >&2; exit 1 ;;
esac
command -v curl >/dev/null || {
  echo "belljar: this feature needs curl: add the feature common-utils, or an image that has it" >&2
  exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [ -n "$version" ]; then
  from=https://github.com/belljar/belljar/releases/download/v$version/install.sh
else
  from=https://github.com/belljar/belljar/releases/latest/download/install.sh
fi
curl -fsSL --proto '=https' "$from" -o "$folder/install.sh"
sh "$folder/install.sh" --prefix /usr/local ${version:+--version "$version"}
