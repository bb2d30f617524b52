// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Checks the core PMU: generic events, idle, counters, the user part, and BPF reads. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "selftest.h"

#ifdef __aarch64__
#define CORE "armv8_pmuv3_0"
#define CYCLES 0x11
#define EVENT(n) (0x100 + (n))
#else
#define CORE "cpu"
#define CYCLES 0x3c
#define EVENT(n) (0xb0 + ((n) << 8))
#endif

static struct perf_event_attr ev(u64 config)
{
	return (struct perf_event_attr){ .config = config };
}

static void generic(void)
{
	struct perf_event_attr cycles = { .type = PERF_TYPE_HARDWARE,
					  .config = PERF_COUNT_HW_CPU_CYCLES };
	struct perf_event_attr instructions = { .type = PERF_TYPE_HARDWARE,
						.config = PERF_COUNT_HW_INSTRUCTIONS };
	int a = open_event(NULL, cycles, 0, -1, -1);
	int b = open_event(NULL, instructions, 0, -1, -1);
	struct reading c, i;

	check(a >= 0 && b >= 0, "generic cycles and instructions open per task");
	spin_ms(200);
	c = read_event(a);
	i = read_event(b);
	check(near(c.value, 3 * c.running, 10) && c.running > 100000000,
	      "cycles: %llu in %llu ns of running", (unsigned long long)c.value,
	      (unsigned long long)c.running);
	check(near(i.value, 6 * i.running, 10), "instructions: %llu in %llu ns",
	      (unsigned long long)i.value, (unsigned long long)i.running);
	close(a);
	close(b);
}

static void idle(void)
{
	int fd = open_event(CORE, ev(CYCLES), -1, 1, -1);
	struct reading a, b;
	struct timed c, d;

	pin(0);
	usleep(50000);
	a = read_event(fd);
	usleep(500000);
	b = read_event(fd);
	check(b.value - a.value < (b.enabled - a.enabled) * 3 / 4,
	      "an idle CPU counts little: %llu cycles in %llu ns",
	      (unsigned long long)(b.value - a.value), (unsigned long long)(b.enabled - a.enabled));
	control("idle 1");
	c = read_timed(fd);
	usleep(200000);
	d = read_timed(fd);
	control("idle 0");
	check(at_rate(c, d, 3000000), "idle 1: %llu cycles in %llu us",
	      (unsigned long long)(d.value - c.value),
	      (unsigned long long)(d.after - c.before) / 1000);
	close(fd);
}

static void counters(void)
{
	struct perf_event_attr sampling = ev(CYCLES);
	int fds[9], i, leader = -1, fd, partial = 0, good = 1;

	for (i = 0; i < 6; i++) {
		fds[i] = open_event(CORE, ev(EVENT(i)), -1, 1, leader);
		leader = leader < 0 ? fds[i] : leader;
	}
	fds[6] = open_event(CORE, ev(CYCLES), -1, 1, leader);
	fd = open_event(CORE, ev(EVENT(6)), -1, 1, leader);
	check(fds[5] >= 0 && fds[6] >= 0, "6 events and cycles fit one group");
	check(fd == -EINVAL, "a 7th event does not: %s", fd < 0 ? strerror(-fd) : "opened");
	for (i = 6; i >= 0; i--)
		close(fds[i]);

	sampling.sample_period = 100000;
	fd = open_event(CORE, sampling, -1, 1, -1);
	check(fd == -EOPNOTSUPP, "sampling is refused: %s", fd < 0 ? strerror(-fd) : "opened");

	/* perf's running time includes idle time, so idle time has to count. */
	control("idle 1");
	for (i = 0; i < 9; i++) {
		control("rate %s %d 0 0 %d", CORE, EVENT(i), 1000000 * (i + 1));
		fds[i] = open_event(CORE, ev(EVENT(i)), -1, 1, -1);
	}
	usleep(600000);
	for (i = 0; i < 9; i++) {
		struct reading r = read_event(fds[i]);

		partial += r.running < r.enabled * 95 / 100;
		good &= r.running && near(r.value, (i + 1) * r.running, 30);
		close(fds[i]);
	}
	control("idle 0");
	check(partial >= 3 && good, "9 events on 6 counters: %d ran in part, counts follow running",
	      partial);
}

static void parts(void)
{
	struct perf_event_attr user = ev(EVENT(20)), kernel = user;
	int fds[3];
	u64 v[3];
	int i;

	user.exclude_kernel = 1;
	kernel.exclude_user = 1;
	check(!control("split 700"), "split 700");
	control("rate %s %d 0 0 1000000", CORE, EVENT(20));
	fds[0] = open_event(CORE, ev(EVENT(20)), 0, -1, -1);
	fds[1] = open_event(CORE, user, 0, -1, -1);
	fds[2] = open_event(CORE, kernel, 0, -1, -1);
	spin_ms(1000);
	for (i = 0; i < 3; i++) {
		v[i] = read_event(fds[i]).value;
		close(fds[i]);
	}
	check(near(v[1] * 10, v[0] * 7, 20) && near(v[2] * 10, v[0] * 3, 20),
	      "user and kernel parts: %llu + %llu of %llu", (unsigned long long)v[1],
	      (unsigned long long)v[2], (unsigned long long)v[0]);
	control("split 1000");
}

static int bpf(int cmd, union bpf_attr *attr)
{
	return syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

static int map(int type, int value, int entries)
{
	union bpf_attr a = { .map_type = type, .key_size = 4, .value_size = value,
			     .max_entries = entries };

	return bpf(BPF_MAP_CREATE, &a);
}

#define R(op, d, s, o, i) ((struct bpf_insn){ .code = (op), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOV(d, s) R(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define SET(d, i) R(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ADD(d, i) R(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define CALL(f) R(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define LOAD(d, s, o) R(BPF_LDX | BPF_MEM | BPF_DW, d, s, o, 0)
#define STORE(d, s, o) R(BPF_STX | BPF_MEM | BPF_DW, d, s, o, 0)
#define MAPFD(d, fd) R(BPF_LD | BPF_IMM | BPF_DW, d, BPF_PSEUDO_MAP_FD, 0, fd), R(0, 0, 0, 0, 0)
#define JMP(op, d, i, o) R(BPF_JMP | (op) | BPF_K, d, 0, o, i)

/*
 * Loads a program that on each sched_switch of CPU 1 reads the counter and charges the
 * difference to the previous task. sums[0] is the last reading, [1] the watched process,
 * [2] idle, [3] all other tasks.
 */
static int load(int events, int sums, int tgid)
{
	struct bpf_insn prog[] = {
		CALL(BPF_FUNC_get_smp_processor_id),
		JMP(BPF_JNE, 0, 1, 36),
		MAPFD(1, events), SET(2, 1), MOV(3, 10), ADD(3, -24), SET(4, 24),
		CALL(BPF_FUNC_perf_event_read_value),
		JMP(BPF_JNE, 0, 0, 28),
		CALL(BPF_FUNC_get_current_pid_tgid),
		R(BPF_ALU64 | BPF_RSH | BPF_K, 0, 0, 0, 32),
		SET(6, 8),
		JMP(BPF_JEQ, 0, tgid, 3),
		SET(6, 16),
		JMP(BPF_JEQ, 0, 0, 1),
		SET(6, 24),
		R(BPF_ST | BPF_MEM | BPF_W, 10, 0, -28, 0),
		MAPFD(1, sums), MOV(2, 10), ADD(2, -28),
		CALL(BPF_FUNC_map_lookup_elem),
		JMP(BPF_JEQ, 0, 0, 10),
		LOAD(3, 10, -24), LOAD(4, 0, 0), STORE(0, 3, 0),
		JMP(BPF_JEQ, 4, 0, 6),
		R(BPF_ALU64 | BPF_SUB | BPF_X, 3, 4, 0, 0),
		R(BPF_ALU64 | BPF_AND | BPF_K, 6, 0, 0, 24),
		R(BPF_ALU64 | BPF_ADD | BPF_X, 0, 6, 0, 0),
		LOAD(4, 0, 0),
		R(BPF_ALU64 | BPF_ADD | BPF_X, 4, 3, 0, 0),
		STORE(0, 4, 0),
		SET(0, 0), R(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
		SET(0, 0), R(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	static char log[65536];
	union bpf_attr a = { .prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT, .insns = (u64)(long)prog,
			     .insn_cnt = sizeof(prog) / sizeof(*prog), .license = (u64)(long)"GPL",
			     .log_buf = (u64)(long)log, .log_size = sizeof(log), .log_level = 1 };
	int fd, n = sizeof(prog) / sizeof(*prog) - 2, i;

	/* All early exits jump to the last pair of instructions. */
	for (i = 0; i < n; i++)
		if ((prog[i].code == (BPF_JMP | BPF_JNE | BPF_K)))
			prog[i].off = n - i - 1;
	fd = bpf(BPF_PROG_LOAD, &a);
	if (fd < 0)
		printf("%s\n", log);
	return fd;
}

static void bpf_reads(void)
{
	int events = map(BPF_MAP_TYPE_PERF_EVENT_ARRAY, 4, 2), sums = map(BPF_MAP_TYPE_ARRAY, 32, 1);
	struct child c = spinner(1, 300), other = spinner(1, 300), first = spinner(1, 10);
	int key = 1, zero = 0, fd, prog, tp, i, found = 0;
	u64 v[4] = { 0 }, want = 0;
	union bpf_attr a;

	control("rate %s %d 0 0 1000000", CORE, CYCLES);
	fd = open_event(CORE, ev(CYCLES), -1, 1, -1);
	a = (union bpf_attr){ .map_fd = events, .key = (u64)(long)&key, .value = (u64)(long)&fd };
	check(!bpf(BPF_MAP_UPDATE_ELEM, &a), "the event goes into a perf event array");
	prog = load(events, sums, c.pid);
	check(prog >= 0, "a program that reads it loads");
	a = (union bpf_attr){ .raw_tracepoint = { .name = (u64)(long)"sched_switch", .prog_fd = prog } };
	tp = bpf(BPF_RAW_TRACEPOINT_OPEN, &a);
	check(tp >= 0, "... and attaches to sched_switch");
	/* The program drops the slice after a reading of 0, which must not be a watched one. */
	release(first);
	reap(first);
	usleep(50000);
	control("watch tgid %d 0", c.pid);
	/* Two spinners share the CPU, so that there are many switches. */
	release(other);
	release(c);
	reap(c);
	reap(other);
	/* On a slow emulated CPU, the last switch of a reaped child may still be pending. */
	for (i = 0; i < 100; i++) {
		a = (union bpf_attr){ .map_fd = sums, .key = (u64)(long)&zero,
				      .value = (u64)(long)v };
		found = !bpf(BPF_MAP_LOOKUP_ELEM, &a);
		want = task_ns(c.pid, 1, 5);
		if (v[1] == want)
			break;
		usleep(10000);
	}
	check(found, "read the sums");
	check(v[1] == want && want > 100000000, "BPF charged %llu, the module says %llu (exact)",
	      (unsigned long long)v[1], (unsigned long long)want);
	check(v[2] == 0, "idle was charged %llu", (unsigned long long)v[2]);
	check(v[3] > 100000000, "the rest was charged %llu", (unsigned long long)v[3]);
	close(tp);
	close(prog);
	close(fd);
	control("rate %s %d 0 0 3000000", CORE, CYCLES);
	control("unwatch");
}

void test_core(void)
{
	generic();
	idle();
	counters();
	parts();
	bpf_reads();
}
