#!/bin/busybox sh
# PID 1 of a test guest: mounts, loads modules, runs each test in its own process and prints its
# result. Lines that begin with @@ are for `cargo xtask vm` (report.rs).
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

# At Debian's default of 3, kernels refuse even CAP_PERFMON.
echo 2 >/proc/sys/kernel/perf_event_paranoid
# Interrupts are slow where each instruction is emulated: the kernel would lower
# perf_event_max_sample_rate, and then refuse what tests sample.
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent

. /etc/vm.env
[ -z "$PMUSCOPE_VM_CONTROLLERS" ] || echo +pids >/sys/fs/cgroup/cgroup.subtree_control
while read -r module; do
    insmod "$module" || echo "@@ died cannot load $module"
done </etc/modules

# Prints the kernel's new messages of level warning and above.
kernel_log() {
    dmesg -cr | sed -n -e '/out-of-tree module taints/d' -e 's/^<[0-4]>/kernel: /p'
}

stop() {
    kernel_log
    echo "@@ end"
    sync
    poweroff -f
    # PID 1's exit is a panic, and -no-reboot then ends QEMU.
    exit 0
}

# Only a panic may print between the lines of tests; other messages are printed after each test.
dmesg -n 1
cd /root

if [ -n "$VM_SHELL" ]; then
    echo "tests are in /tests, test modules in /lib/pmuscope, the kernel's messages in dmesg"
    echo "leave the guest with exit, or with Ctrl-A X"
    setsid cttyhack sh
    stop
fi

# /etc/tests: binary, pattern of the tests of this guest, part that names must contain.
while read -r binary pattern filter; do
    "/tests/$binary" --list --format terse |
        sed -n 's/: test$//p' | grep -E -e "$pattern" | grep -F -e "$filter" |
        sed "s/^/$binary /"
done </etc/tests >/tmp/plan
# Firmware or kernel may have left an unfinished line.
echo
kernel_log
sed 's/^/@@ plan /' /tmp/plan

# Prints what each thread waits for, soon before the run gives up on a test that does not end.
threads() {
    sleep "$VM_HANG_AFTER"
    for task in /proc/[0-9]*/task/*; do
        # Not the kernel's own threads, and not this one.
        [ -n "$(head -c 1 "$task/cmdline" | tr -d '\0')" ] || continue
        [ "${task%/task/*}" = /proc/1 ] && continue
        echo "hangs: $(cat "$task/comm"), $(grep State: "$task/status"), in $(cat "$task/syscall")"
        sed 's/^/hangs:   /' "$task/stack"
    done
    # The calls of each CPU, and of threads that wait for the kernel.
    echo l >/proc/sysrq-trigger
    echo w >/proc/sysrq-trigger
    dmesg -cr | sed 's/^<[0-9]*>/hangs: /'
} 2>/dev/null

while read -r binary name; do
    echo "@@ begin $binary $name"
    threads &
    "/tests/$binary" --exact "$name" --test-threads=1 --nocapture </dev/null 2>&1
    status=$?
    # The test may have left an unfinished line.
    echo
    kernel_log
    echo "@@ exit $status"
    # Processes that the test left must not disturb the next one.
    kill -9 -1 2>/dev/null
done </tmp/plan
stop
