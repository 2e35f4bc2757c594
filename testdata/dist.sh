#!/usr/bin/env bash
# dist.sh [DIR]: the release of the commit that is checked out, in DIR (dist/), for linux on amd64 and
# arm64: a .tar.gz and a .deb each, and SHA256SUMS.
#
# It builds a clone of the commit and not the working tree, so that the same commit gives the same bytes in
# any directory; what else must be the same for that: the versions of Go, dpkg-deb, tar and gzip. It needs
# no server and no root.
#
# The version is the one that the Go toolchain stamps: the tag, or v0.0.0-DATE-COMMIT after none.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC GOFLAGS='' GOWORK=off CGO_ENABLED=0 GOOS=linux GOAMD64=v1 GOARM64=v8.0

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
mkdir -p "${1:-$top/dist}"
dist=$(cd "${1:-$top/dist}" && pwd -P)

say() { printf 'dist: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

for each in git go dpkg-deb gzip sha256sum; do
  command -v "$each" >/dev/null || die "$each is missing: install it (dpkg-deb is in the package dpkg, on other systems than Debian too)"
done
tar --version 2>/dev/null | grep -q GNU || die "tar is not GNU tar, whose archives can be made again byte for byte: install it"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
src=$stage/src
git clone --quiet "$top" "$src"
[[ -z $(git -C "$top" status --porcelain) ]] || say "the working tree has changes, which are not in the release: it is of commit $(git -C "$src" rev-parse --short=12 HEAD)"
SOURCE_DATE_EPOCH=$(git -C "$src" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

compile() { # ARCH FILE
  GOARCH=$1 go build -C "$src" -trimpath -buildvcs=true -ldflags='-s -w' -o "$2" .
}

# licences: those of the modules that are in the binary, and of Go, as they ask for.
licences() {
  local module version dir file
  cat <<TEXT
Upstream: https://github.com/outboxrelay/relay
The source of relay states no licence. It is its authors'.

The binary has the following in it, each under its own licence.
TEXT
  {
    echo "Go $(go env GOVERSION) $(go env GOROOT)"
    (cd "$src" && go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' . | sort -u)
  } | while read -r module version dir; do
    printf '\n==== %s %s\n' "$module" "$version"
    find "$dir" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'patents*' \) | sort >"$stage/files"
    [[ -s $stage/files ]] || die "$module has no licence file"
    while read -r file; do
      echo
      cat "$file"
    done <"$stage/files"
  done
}

# place FILE MODE PATH: FILE goes to PATH, in directories of mode 755.
place() {
  mkdir -p "$(dirname "$3")"
  cp "$1" "$3"
  chmod "$2" "$3"
}

archive() { # ARCH
  local name=relay_${version#v}_linux_$1 dir
  dir=$stage/$name
  place "$stage/relay.$1" 755 "$dir/relay"
  place "$src/README.md" 644 "$dir/README.md"
  place "$stage/relay.1" 644 "$dir/relay.1"
  place "$stage/licences" 644 "$dir/LICENCES"
  for shell in bash zsh fish; do place "$stage/completion.$shell" 644 "$dir/completion/relay.$shell"; done
  for file in relay.service relay@.service relay.env; do place "$src/relay/assets/$file" 644 "$dir/systemd/$file"; done
  place "$src/relay/assets/relayctl" 755 "$dir/systemd/relayctl"
  tar -C "$stage" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" |
    gzip -9n >"$dist/$name.tar.gz"
}

package() { # ARCH
  local dir=$stage/deb.$1 debian=$1 file
  place "$stage/relay.$1" 755 "$dir/usr/bin/relay"
  place "$src/relay/assets/relayctl" 755 "$dir/usr/sbin/relayctl"
  place "$src/relay/assets/relay.service" 644 "$dir/usr/lib/systemd/system/relay.service"
  place "$src/relay/assets/relay@.service" 644 "$dir/usr/lib/systemd/system/relay@.service"
  place "$src/relay/assets/relay.env" 640 "$dir/etc/relay/relay.env"
  chmod 750 "$dir/etc/relay"
  place "$stage/completion.bash" 644 "$dir/usr/share/bash-completion/completions/relay"
  ln -s relay "$dir/usr/share/bash-completion/completions/relayctl"
  place "$stage/completion.zsh" 644 "$dir/usr/share/zsh/vendor-completions/_relay"
  place "$stage/completion.fish" 644 "$dir/usr/share/fish/vendor_completions.d/relay.fish"
  place "$stage/relay.1" 644 "$dir/usr/share/man/man1/relay.1"
  place "$src/README.md" 644 "$dir/usr/share/doc/relay/README.md"
  gzip -9n "$dir/usr/share/man/man1/relay.1" "$dir/usr/share/doc/relay/README.md"
  place "$stage/licences" 644 "$dir/usr/share/doc/relay/copyright"
  for file in postinst prerm postrm; do place "$src/testdata/deb/$file" 755 "$dir/DEBIAN/$file"; done
  echo /etc/relay/relay.env >"$dir/DEBIAN/conffiles"
  (cd "$dir" && find usr -type f | sort | xargs md5sum) >"$dir/DEBIAN/md5sums"
  cat >"$dir/DEBIAN/control" <<CONTROL
Package: relay
Version: $debian_version
Architecture: $debian
Maintainer: $(git -C "$src" log -1 --format='%an <%ae>')
Installed-Size: $(cd "$dir" && find etc usr -type f -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
Recommends: ca-certificates
Section: database
Priority: optional
Homepage: https://github.com/outboxrelay/relay
Description: carries a MySQL outbox table to RabbitMQ
 relay follows a MySQL or MariaDB binlog, picks the rows that applications
 insert into their outbox table, and publishes each to a RabbitMQ
 consistent-hash exchange: nothing lost, nothing invented, in order for each
 aggregate.
CONTROL
  find "$dir" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  # gzip: xz makes it a quarter smaller, and takes ten times as long.
  dpkg-deb --root-owner-group -Zgzip -z9 --build "$dir" "$dist/relay_${debian_version}_$1.deb" >/dev/null
}

compile amd64 "$stage/relay.amd64"
compile arm64 "$stage/relay.arm64"
version=$(go version -m "$stage/relay.amd64" | awk '$1 == "mod" { print $3 }')
[[ $version == v[0-9]* ]] || die "Go stamped the version '$version' and none from git: clone the repository whole (git fetch --unshallow)"
# v0.0.0-DATE-COMMIT is before 0.0.0, and so Debian sorts it: 0.0.0~DATE.COMMIT
debian_version=$(sed 's/^v//; s/-/~/; s/-/./g' <<<"$version")

(unset GOOS; compile "$(go env GOHOSTARCH)" "$stage/here")
"$stage/here" print man >"$stage/relay.1"
for shell in bash zsh fish; do "$stage/here" completion "$shell" >"$stage/completion.$shell"; done
licences >"$stage/licences"

rm -f "$dist"/relay_*.tar.gz "$dist"/relay_*.deb "$dist/SHA256SUMS"
for arch in amd64 arm64; do
  archive "$arch"
  package "$arch"
done
(cd "$dist" && sha256sum relay_*.deb relay_*.tar.gz >SHA256SUMS && cat SHA256SUMS)
