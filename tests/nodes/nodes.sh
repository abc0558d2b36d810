#!/bin/sh
# Several nodes on one machine: network namespaces joined by a bridge, each with a host name of its
# own. Needs root.
#
#   nodes.sh up COUNT     nodes $NODES_NET.1 … $NODES_NET.COUNT; the machine itself is $NODES_NET.254
#   nodes.sh down COUNT
#
# NODES is what their namespaces' names begin with, NODES_NET the first three numbers of their addresses.
set -eu

count=$2
name=${NODES:-nodes}
net=${NODES_NET:-10.77.0}

up() {
    ip link add "${name}br" type bridge
    ip addr add "$net.254/24" dev "${name}br"
    ip link set "${name}br" up
    for i in $(seq "$count"); do
        ip netns add "$name$i"
        ip link add "${name}v$i" type veth peer name eth0 netns "$name$i"
        ip link set "${name}v$i" master "${name}br" up
        ip -n "$name$i" addr add "$net.$i/24" dev eth0
        ip -n "$name$i" link set eth0 up
        ip -n "$name$i" link set lo up
    done
}

down() {
    for i in $(seq "$count"); do
        ip netns del "$name$i" 2>/dev/null || true
    done
    ip link del "${name}br" 2>/dev/null || true
}

case $1 in
up) down && up ;;
down) down ;;
esac
