#!/bin/sh
# What `make install` puts under DESTDIR is whole, knows PREFIX and nothing of DESTDIR, and `make uninstall`
# takes all of it away.
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
prefix=/opt/weir
say() { echo "install: $*" >&2; exit 1; }

make --silent install DESTDIR="$root" PREFIX=$prefix >/dev/null
for file in bin/weir lib/libweir.so include/weir.h include/weir.f90 lib/pkgconfig/weir.pc share/man/man1/weir.1 \
    share/bash-completion/completions/weir lib/systemd/user/weir-coordinator.service share/doc/weir/README.md \
    share/doc/weir/docs/scenarios/README.md; do
    [ -s "$root$prefix/$file" ] || say "no $file"
done
for text in lib/pkgconfig/weir.pc lib/systemd/user/weir-coordinator.service share/modulefiles/weir; do
    grep -rq "$prefix" "$root$prefix/$text" || say "$text does not know $prefix"
done
if grep -rIlE "@[A-Z]+@|$root" "$root$prefix"; then say "these have something that was not filled in, or DESTDIR"; fi
for binary in bin/weir lib/libweir.so; do
    if readelf --sections "$root$prefix/$binary" | grep -q '\.debug_info'; then say "$binary is not stripped"; fi
done
"$root$prefix/bin/weir" --version >/dev/null || say "the command does not run"

make --silent uninstall DESTDIR="$root" PREFIX=$prefix
left=$(find "$root" -type f)
[ -z "$left" ] || say "left behind:" "$left"
echo "install: all there, and all gone again"
