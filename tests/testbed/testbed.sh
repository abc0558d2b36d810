#!/bin/bash
# Storage with a known, small bandwidth that several jobs share, made on this machine and undone again. See README.md.
#
#   testbed.sh up quick   [-t TARGETS=1] [-r MBPS=100] [-s MB=512]
#   testbed.sh up gluster [-t SERVERS=4] [-r MBPS=25] [-c CLIENTS=1] [-l whole|striped|coded]
#   testbed.sh down
#   testbed.sh status
#
# `up` prints the mount points, a line each. Exit codes: 0 done; 1 went wrong (and was undone); 2 wrong usage;
# 77 not possible on this machine, the reason is on standard error. `status`: 0 up, 3 nothing there, 4 leftovers.
#
# What was made is not written down anywhere: mount points, images, namespaces carry the testbed's name, and
# processes live in its namespaces. `down` finds them by that, wherever an earlier run was killed.
set -eu

name=${WEIR_TESTBED:-weir-testbed}
base=${TMPDIR:-/tmp}/$name # mount points, logs
memory=/dev/shm/$name      # what the storage keeps
complete=$base/complete    # there when `up` got to its end
throttle=/sys/fs/cgroup/blkio/blkio.throttle

usage() {
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}
fail() {
    echo "testbed: $*" >&2
    exit 1
}
impossible() {
    echo "testbed: NOT POSSIBLE HERE: $*" >&2
    exit 77
}
number() { # number OPTION VALUE
    case $2 in '' | *[!0-9]* | 0*) fail "-$1 wants a number above 0, not '$2'" ;; esac
}
eventually() { # eventually COMMAND…: within five seconds
    local _
    for _ in $(seq 50); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    return 1
}

# ---- what there is, by name

mounts() { awk -v under="$base/" 'index($2, under) == 1 { print $2 }' /proc/self/mounts; }
loops() { losetup --list --noheadings --output NAME,BACK-FILE 2>/dev/null | awk -v under="$memory/" 'index($2, under) == 1 { print $1 }'; }
namespaces() { ip netns list 2>/dev/null | awk -v of="$name-" 'index($1, of) == 1 { print $1 }'; }
processes() {
    local space
    for space in $(namespaces); do ip netns pids "$space"; done
}
leftovers() {
    mounts | sed 's/^/mount /'
    loops | sed 's/^/loop device /'
    namespaces | sed 's/^/network namespace /'
    processes | sed 's/^/process /'
    find "$base" "$memory" -maxdepth 0 -printf 'directory %p\n' 2>/dev/null || true
}

# ---- what up needs

need() { # need COMMAND PACKAGE…
    local command=$1
    shift
    command -v "$command" >/dev/null && return
    command -v apt-get >/dev/null || impossible "no $command; install Debian's $*, or what it is called here"
    echo "testbed: installing $*" >&2
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } \
        >/dev/null 2>&1 || impossible "no $command, and apt-get cannot install $*"
}
need_root() { [ "$(id -u)" = 0 ] || impossible "needs root"; }

# Above the cgroup of a process, or buffered writes, which the kernel's own threads make, would escape it.
need_throttle() {
    [ -w "${throttle}.write_bps_device" ] || impossible "no ${throttle}.*: the block throttle of cgroup v1, in its root"
}
limit() { # limit LOOP BYTES_PER_SECOND; 0 lifts it
    local device direction
    device=$(cat "/sys/block/${1#/dev/}/dev")
    for direction in read write; do echo "$device $2" >"$throttle.${direction}_bps_device"; done
}

# ---- quick: a file system on a loop device over memory, behind the kernel's block throttle

up_quick() {
    local targets=1 rate=100 size=512 option i
    while getopts t:r:s: option; do
        case $option in t) targets=$OPTARG ;; r) rate=$OPTARG ;; s) size=$OPTARG ;; *) usage ;; esac
        number "$option" "$OPTARG"
    done
    need_root
    need mkfs.ext4 e2fsprogs
    need losetup mount
    need_throttle
    losetup --find >/dev/null 2>&1 || impossible "no loop devices"
    claim
    for ((i = 0; i < targets; i++)); do quick_target "target$i" "$rate" "$size"; done
}

quick_target() { # quick_target NAME MBPS MB
    local image=$memory/$1.image mount=$base/$1 loop
    mkdir "$mount"
    fallocate -l "$3M" "$image"
    loop=$(losetup --find --show "$image")
    # Without a journal, which would write beside what the jobs write.
    mkfs.ext4 -q -F -O ^has_journal -E lazy_itable_init=0,nodiscard "$loop"
    limit "$loop" $(($2 * 1000000))
    # Synchronously, or a job would write into memory and the kernel to the device later, for all jobs at once.
    mount -o sync,noatime "$loop" "$mount"
    chmod 1777 "$mount"
}

# ---- gluster: real servers, each behind a link of its own; the clients share a namespace and a bridge

up_gluster() {
    local servers=4 rate=25 clients=1 layout=whole option i
    while getopts t:r:c:l: option; do
        case $option in
        t) servers=$OPTARG ;; r) rate=$OPTARG ;; c) clients=$OPTARG ;; l) layout=$OPTARG ;; *) usage ;;
        esac
        [ "$option" = l ] || number "$option" "$OPTARG"
    done
    case $layout in whole | striped) ;; coded) [ "$servers" -ge 3 ] || fail "coded wants 3 servers or more" ;;
    *) fail "no layout '$layout'; there are whole, striped, coded" ;; esac
    [ "$servers" -le 200 ] || fail "at most 200 servers"
    need_root
    need ip iproute2
    need glusterfsd glusterfs-server glusterfs-client
    [ -e /dev/fuse ] || impossible "no /dev/fuse"
    claim
    ip netns add "$name-clients" || impossible "no network namespaces"
    ip -n "$name-clients" link set lo up
    ip -n "$name-clients" link add bridge type bridge
    ip -n "$name-clients" addr add 10.78.0.1/24 dev bridge
    ip -n "$name-clients" link set bridge mtu 9000 up
    for ((i = 0; i < servers; i++)); do gluster_server "$i" "$rate"; done
    client_volume "$servers" "$layout" >"$base/client.vol"
    for ((i = 0; i < servers; i++)); do
        eventually ip netns exec "$name-clients" bash -c "exec 3<>/dev/tcp/$(address "$i")/24007" ||
            fail "server $i does not answer: $(tail -n 3 "$base/server$i.log")"
    done
    for ((i = 0; i < clients; i++)); do gluster_client "$i"; done
}

address() { echo "10.78.0.$((10 + $1))"; }

gluster_server() { # gluster_server INDEX MBPS
    local space=$name-server$1 link=port$1
    # No packet of a 64 KiB segment may be larger than the bucket, or it never passes.
    local shape=(root tbf rate "$(($2 * 8))mbit" burst 256kb latency 300ms)
    ip netns add "$space"
    ip -n "$name-clients" link add "$link" mtu 9000 type veth peer name eth0 mtu 9000 netns "$space"
    ip -n "$name-clients" link set "$link" master bridge up
    ip -n "$space" addr add "$(address "$1")/24" dev eth0
    ip -n "$space" link set eth0 up
    ip -n "$space" link set lo up
    tc -n "$name-clients" qdisc add dev "$link" "${shape[@]}"
    tc -n "$space" qdisc add dev eth0 "${shape[@]}"
    mkdir "$memory/server$1"
    {
        volume disk storage/posix "directory $memory/server$1"
        volume locks features/locks -- disk
        volume brick performance/io-threads "thread-count 4" -- locks
        volume server protocol/server "transport-type tcp" "transport.socket.bind-address $(address "$1")" \
            "transport.socket.listen-port 24007" "auth.addr.brick.allow *" -- brick
    } >"$base/server$1.vol"
    nsenter --net="/run/netns/$space" glusterfsd -f "$base/server$1.vol" -p "$base/server$1.pid" -l "$base/server$1.log"
}

# volume NAME TYPE OPTION… [-- SUBVOLUME…]: a paragraph of a volume file
volume() {
    printf 'volume %s\n type %s\n' "$1" "$2"
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        printf ' option %s\n' "$1"
        shift
    done
    [ $# -eq 0 ] || printf ' subvolumes %s\n' "${*:2}"
    printf 'end-volume\n'
}

client_volume() { # client_volume SERVERS LAYOUT
    local i all=()
    for ((i = 0; i < $1; i++)); do
        volume "server$i" protocol/client "transport-type tcp" "remote-host $(address "$i")" "remote-port 24007" \
            "remote-subvolume brick"
        all+=("server$i")
    done
    case $2 in
    whole) volume files cluster/distribute -- "${all[@]}" ;;
    coded) volume files cluster/disperse "redundancy 1" -- "${all[@]}" ;;
    striped)
        volume whole cluster/distribute -- "${all[@]}"
        volume files features/shard "shard-block-size 4MB" -- whole
        ;;
    esac
    # Small, so that what a job has written is soon what the storage has.
    volume top performance/write-behind "cache-size 4MB" -- files
}

gluster_client() { # gluster_client INDEX
    local mount=$base/client$1
    mkdir "$mount"
    nsenter --net="/run/netns/$name-clients" glusterfs -f "$base/client.vol" -p "$base/client$1.pid" -l "$base/client$1.log" \
        --direct-io-mode=enable --attribute-timeout=0 --entry-timeout=0 "$mount"
    eventually timeout 5 chmod 1777 "$mount" || fail "no mount $mount: $(tail -n 3 "$base/client$1.log")"
}

# ---- up, down, status

# One testbed of a name: making its directory is what decides who has it.
claim() {
    [ -z "$(leftovers)" ] || fail "$name is there already; 'testbed.sh down' removes it, WEIR_TESTBED names another"
    mkdir "$base" || fail "somebody else is making $name"
    trap 'down; exit 1' EXIT
    trap 'exit 1' INT TERM HUP
    mkdir "$memory"
}

down() {
    local mount loop space process
    set +e
    # First, so that what is still to be written does not take its time.
    for loop in $(loops); do limit "$loop" 0; done
    for mount in $(mounts); do
        timeout 10 umount "$mount" 2>/dev/null || umount --lazy "$mount"
    done
    for loop in $(loops); do losetup --detach "$loop"; done
    for process in $(processes); do kill "$process" 2>/dev/null; done
    eventually no_processes || for process in $(processes); do kill -KILL "$process" 2>/dev/null; done
    for space in $(namespaces); do ip netns delete "$space"; done
    rm -rf --one-file-system "$base" "$memory"
    eventually is_down || { echo "testbed: could not undo all:" && leftovers; } >&2
    is_down
}
no_processes() { [ -z "$(processes)" ]; }
is_down() { [ -z "$(leftovers)" ]; }

status() {
    if is_down; then
        echo "$name: nothing there"
        return 3
    fi
    if [ -e "$complete" ]; then
        echo "$name: up, $(cat "$complete")"
        leftovers
    else
        echo "$name: LEFTOVERS of a run that did not get to its end; 'testbed.sh down' removes them"
        leftovers
        return 4
    fi
}

[ $# -gt 0 ] || usage
case $1 in
up)
    kind=${2:-}
    case $kind in quick | gluster) ;; *) usage ;; esac
    shift 2
    "up_$kind" "$@"
    echo "$kind $*" >"$complete"
    trap - EXIT INT TERM HUP
    mounts
    ;;
down) need_root && down ;;
status) status ;;
*) usage ;;
esac
