#!/bin/bash
# A third of the time a mix of twenty stressors, then class after class of them, beside a loop of gcc. Argument: minutes.
#
# Lines that begin with `=` are for who judges the run (src/long_run.rs); all others are for people:
#   =state WHEN NAME NUMBER     what must be as it was: WHEN is before or after
#   =compiled GOOD BAD          how often gcc made the program that it should, and how often not
#   =failed WHAT                a stressor that failed
#   =missed NUMBER COUNT NAME WHY
minutes=$1
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
mkdir -p /tmp/stress /tmp/compile
# What fills the disk on purpose must not make a compiler fail.
mount -t tmpfs -o size=300M compile /tmp/compile
export TMPDIR=/tmp/compile

state() {
    sync
    echo 3 > /proc/sys/vm/drop_caches
    sleep 3
    echo 3 > /proc/sys/vm/drop_caches
    awk -v when="$1" '/^(MemFree|Slab|PageTables|KernelStack|Shmem):/ { sub(":", "", $1); print "=state", when, $1, $2 }' /proc/meminfo
    echo "=state $1 files $(cut -f 1 /proc/sys/fs/file-nr)"
    echo "=state $1 processes $(ls -d /proc/[0-9]* | wc -l)"
    echo "=state $1 mounts $(wc -l < /proc/self/mounts)"
    echo "=state $1 objects of System V $(cat /proc/sysvipc/{shm,sem,msg} | wc -l)"
}

# Sockets of the Internet, other protocols, swap, and netlink beyond routes and devices are not there. oom-pipe takes all memory, and with it whoever is beside it.
absent=dccp,icmp-flood,ping-sock,rawudp,rawpkt,rawsock,sctp,sock,sockabuse,sockmany,udp,udp-flood,netlink-proc,netlink-task,swap,oom-pipe

stress() {
    stress-ng "$@" --verify --oomable --temp-path . > /tmp/stress.log 2>&1
    local status=$?
    echo "stress-ng $1 $2: status $status at $SECONDS s"
    # 3: a stressor found that the kernel has not what it wants; 124: the time was over.
    grep -E ' fail: |unsuccessful' /tmp/stress.log | sort -u | head -20
    # What a stressor found wrong counts, whatever the others made of the status.
    grep -oE ' fail: +\[[0-9]+\] .*' /tmp/stress.log | sed -E 's/^ fail: +\[[0-9]+\] /=failed /' | sort -u | head -20
    case $status in 0 | 3 | 124) ;; *) grep -oE 'process \[[0-9]+\] \([a-z0-9-]+\) terminated with an error' /tmp/stress.log | grep -oE '\([a-z0-9-]+\)' | sort -u | sed "s/^/=failed $2 /" ;; esac
}

{
    for ((i = 0; i < 1500; i++)); do
        echo "static int f$i(int a, int b) { int s = 0; for (int i = 0; i < a; i++) s += (i ^ b) * $((i + 1)) % 97; return s; }"
    done
    echo '#include <stdio.h>'
    echo 'int main(void) { long t = 0;'
    for ((i = 0; i < 1500; i++)); do
        echo "t += f$i($((i % 13)), $((i % 7)));"
    done
    echo 'printf("%ld\n", t); return 0; }'
} > /tmp/compile/long.c

cd /tmp/stress || exit
# A first round: what is only made once is there before anything is counted.
stress --vforkmany 2 --fork 2 --vm 1 --vm-bytes 64M --hdd 1 --hdd-bytes 16M -t 5
gcc -O1 -o /tmp/compile/first /tmp/compile/long.c && wanted=$(/tmp/compile/first)
state before

end=$((SECONDS + minutes * 60))
(
    good=0 bad=0
    while [ $SECONDS -lt $end ]; do
        if gcc -O1 -o /tmp/compile/again /tmp/compile/long.c 2> /tmp/compile/errors && [ "$(/tmp/compile/again)" = "$wanted" ]; then
            good=$((good + 1))
        else
            bad=$((bad + 1))
            echo "gcc failed at $SECONDS s"
            head -5 /tmp/compile/errors
        fi
    done
    echo "=compiled $good $bad"
) &
stress --cpu 1 --vm 1 --vm-bytes 64M --pipe 1 --switch 1 --fork 1 --clone 1 --futex 1 --hdd 1 --hdd-bytes 16M --dentry 1 --mmap 1 --mmap-bytes 32M \
    --sem 1 --msg 1 --shm 1 --timer 1 --sigq 1 --inotify 1 --epoll 1 --dir 1 --splice 1 --vforkmany 1 -t $((minutes * 20))
while [ $SECONDS -lt $end ]; do
    for class in scheduler memory pipe interrupt os cpu filesystem vm io device; do
        left=$((end - SECONDS))
        [ $left -gt 0 ] || break
        stress --class $class --sequential 2 -t 3 --exclude $absent &
        # Whole stressors are as long as they are: the last one is stopped.
        stressed=$!
        while kill -0 $stressed 2> /dev/null && [ $SECONDS -lt $end ]; do sleep 1; done
        pkill -INT -x stress-ng
        wait $stressed
    done
done
wait
rm -rf /tmp/stress/* /tmp/compile/again /tmp/compile/errors
# Stacks and slabs that nobody uses go within some ten seconds.
sleep 60
state after
sed 's/^/=missed /' /proc/starling/missing_syscalls
