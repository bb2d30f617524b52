#!/bin/busybox sh
# PID 1 of a test guest: mounts, loads modules, runs each test in a process of its own and says
# how it ended. Lines that begin with @@ are for `cargo xtask vm` (report.rs).
/bin/busybox mkdir -p /proc /sys /dev /tmp /root /sbin /usr/bin /usr/sbin
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debugfs /sys/kernel/debug
ip link set lo up

# Debian's kernels refuse even CAP_PERFMON at their default of 3.
echo 2 >/proc/sys/kernel/perf_event_paranoid

. /etc/vm.env
[ -z "$PMUSCOPE_VM_CONTROLLERS" ] || echo +pids >/sys/fs/cgroup/cgroup.subtree_control
while read -r module; do
    insmod "$module" || echo "@@ died cannot load $module"
done </etc/modules

# What the kernel has said since the last time, from warnings up.
kernel_log() {
    dmesg -cr | sed -n -e '/out-of-tree module taints/d' -e 's/^<[0-4]>/kernel: /p'
}

stop() {
    kernel_log
    echo "@@ end"
    sync
    poweroff -f
    # The end of PID 1 is a panic, and -no-reboot ends QEMU then.
    exit 0
}

# Only a panic may write into the lines of the tests; the rest is shown after each test.
dmesg -n 1
cd /root

if [ -n "$VM_SHELL" ]; then
    echo "tests are in /tests, test modules in /lib/pmuscope, the kernel's messages in dmesg"
    echo "leave the guest with exit, or with Ctrl-A X"
    setsid cttyhack sh
    stop
fi

# /etc/tests: binary, pattern of the tests that run here, part of a name that was asked for.
while read -r binary pattern filter; do
    "/tests/$binary" --list --format terse |
        sed -n 's/: test$//p' | grep -E -e "$pattern" | grep -F -e "$filter" |
        sed "s/^/$binary /"
done </etc/tests >/tmp/plan
# Firmware or kernel may have left half a line.
echo
kernel_log
sed 's/^/@@ plan /' /tmp/plan

while read -r binary name; do
    echo "@@ begin $binary $name"
    "/tests/$binary" --exact "$name" --test-threads=1 --nocapture </dev/null 2>&1
    status=$?
    # A test that printed half a line.
    echo
    kernel_log
    echo "@@ exit $status"
    # Whatever the test left running must not disturb the next one.
    kill -9 -1 2>/dev/null
done </tmp/plan
stop
