#!/bin/sh
# Several nodes on one machine: network namespaces joined by a bridge, each with a host name of its
# own. Needs root.
#
#   nodes.sh up COUNT     nodes 10.77.0.1 … 10.77.0.COUNT; the machine itself is 10.77.0.254
#   nodes.sh down COUNT
set -eu

count=$2
bridge=nodesbr

up() {
    ip link add "$bridge" type bridge
    ip addr add 10.77.0.254/24 dev "$bridge"
    ip link set "$bridge" up
    for i in $(seq "$count"); do
        ip netns add "nodes$i"
        ip link add "nodesv$i" type veth peer name eth0 netns "nodes$i"
        ip link set "nodesv$i" master "$bridge" up
        ip -n "nodes$i" addr add "10.77.0.$i/24" dev eth0
        ip -n "nodes$i" link set eth0 up
        ip -n "nodes$i" link set lo up
    done
}

down() {
    for i in $(seq "$count"); do
        ip netns del "nodes$i" 2>/dev/null || true
    done
    ip link del "$bridge" 2>/dev/null || true
}

case $1 in
up) down && up ;;
down) down ;;
esac
