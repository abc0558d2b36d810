#!/bin/sh
# Installs what building and testing need and this machine lacks. Asks nothing. Debian and its
# relatives: apt-get, as root or through sudo without a password. Elsewhere: says what to install.
# Where everything is there already it takes a tenth of a second.
#
#   scripts/setup-packages.sh build    a C compiler and Rust
#   scripts/setup-packages.sh demo     that, and an MPI if there is none
#   scripts/setup-packages.sh test     that, and the MPIs and languages of the test matrix
set -eu

rust_minimum=1.88
want=
need() { # file-or-command package…
    probe=$1
    shift
    case $probe in
    /*) [ -e "$probe" ] && return 0 ;;
    *) command -v "$probe" >/dev/null 2>&1 && return 0 ;;
    esac
    want="$want $*"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_packages() {
    [ -n "$want" ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "setup: this is no Debian; install these yourself (Debian's names):$want" >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
        echo "setup: not root and no sudo without a password; run: apt-get install$want" >&2
        return 1
    fi
    echo "setup: installing$want"
    as_root apt-get update -qq
    # shellcheck disable=SC2086 # a list of names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $want >/dev/null
}

rust_is_new_enough() {
    if [ -x "$HOME/.cargo/bin/cargo" ]; then PATH=$HOME/.cargo/bin:$PATH; fi
    command -v cargo >/dev/null 2>&1 || return 1
    have=$(rustc --version 2>/dev/null | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$rust_minimum" "$have" | sort -V | head -n1)" = "$rust_minimum" ]
}

# Debian's Rust is older than the language edition used here. The installer has two addresses; some sites let
# only one of them through.
install_rust() {
    echo "setup: installing Rust (rustup, into \$HOME/.cargo)"
    installer=$(mktemp)
    trap 'rm -f "$installer"' EXIT
    curl --proto '=https' -sSf -o "$installer" https://sh.rustup.rs 2>/dev/null ||
        curl --proto '=https' -sSf -o "$installer" https://static.rust-lang.org/rustup/rustup-init.sh || {
        echo "setup: Rust $rust_minimum or newer is needed and rustup cannot be downloaded: see https://rustup.rs" >&2
        return 1
    }
    sh "$installer" -y -q --profile minimal -c rustfmt -c clippy >/dev/null
}

need cc build-essential
has_rust=
if rust_is_new_enough; then has_rust=yes; else need curl curl ca-certificates; fi
if [ "${1:-build}" = demo ] && ! command -v mpicc >/dev/null 2>&1; then
    need mpicc.openmpi openmpi-bin libopenmpi-dev
    need mpicc.mpich mpich libmpich-dev
fi
if [ "${1:-build}" = test ]; then
    need mpicc.openmpi openmpi-bin libopenmpi-dev
    need mpicc.mpich mpich libmpich-dev
    need gfortran gfortran
    need g++ g++
    need /usr/bin/python3 python3
    [ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || want="$want python3-venv"
    ls /usr/include/python3*/Python.h >/dev/null 2>&1 || want="$want python3-dev"
    need /usr/lib/python3/dist-packages/mpi4py python3-mpi4py
    need /usr/lib/R/site-library/Rmpi r-cran-rmpi
    need ip iproute2
    need valgrind valgrind # make bench
    ls /usr/lib/llvm-*/lib/libclang.so >/dev/null 2>&1 || want="$want libclang-dev"
fi
install_packages
[ -n "$has_rust" ] || install_rust
