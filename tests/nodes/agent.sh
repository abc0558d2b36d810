#!/bin/sh
# In the place of ssh: agent.sh [OPTIONS] $NODES_NET.N COMMAND… runs the command on node N.
while [ "${1#-}" != "$1" ]; do shift; done
number=${1##*.}
shift
# Memory that processes share is a node's own.
exec ip netns exec "${NODES:-nodes}$number" unshare --uts --mount \
    sh -c "hostname node$number; mount -t tmpfs none /dev/shm; $*"
