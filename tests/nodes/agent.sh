#!/bin/sh
# In the place of ssh: agent.sh [OPTIONS] $NODES_NET.N COMMAND… runs the command on node N.
while [ "${1#-}" != "$1" ]; do shift; done
number=${1##*.}
shift
exec ip netns exec "${NODES:-nodes}$number" unshare --uts sh -c "hostname node$number; $*"
