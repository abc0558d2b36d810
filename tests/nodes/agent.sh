#!/bin/sh
# In the place of ssh: agent.sh [OPTIONS] 10.77.0.N COMMAND… runs the command on node N.
while [ "${1#-}" != "$1" ]; do shift; done
number=${1##*.}
shift
exec ip netns exec "nodes$number" unshare --uts sh -c "hostname node$number; $*"
