// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Checks the uncore PMUs: counts, filters, refusals, multiplexing, task-driven counts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "selftest.h"

#define CMEM_RD 0x1a5

static struct perf_event_attr ev(u64 config, u64 config1, u64 config2)
{
	return (struct perf_event_attr){ .config = config, .config1 = config1,
					 .config2 = config2 };
}

/* Checks the rate of an event over about 200 ms. */
static void expect_rate(const char *pmu, struct perf_event_attr attr, int cpu, u64 want)
{
	int fd = open_event(pmu, attr, -1, cpu, -1);
	struct timed a, b;

	if (fd < 0) {
		check(0, "open %s config %#llx: %s", pmu, (unsigned long long)attr.config,
		      strerror(-fd));
		return;
	}
	a = read_timed(fd);
	usleep(200000);
	b = read_timed(fd);
	close(fd);
	check(at_rate(a, b, want), "%s %#llx/%#llx/%#llx on CPU %d: %llu in %llu us, want %llu per ms",
	      pmu, (unsigned long long)attr.config, (unsigned long long)attr.config1,
	      (unsigned long long)attr.config2, cpu, (unsigned long long)(b.value - a.value),
	      (unsigned long long)(b.after - a.before) / 1000, (unsigned long long)want);
}

static void expect_error(const char *what, int want, const char *pmu,
			 struct perf_event_attr attr, int pid, int cpu)
{
	int fd = open_event(pmu, attr, pid, cpu, -1);

	check(want ? fd == -want : fd >= 0, "%s: %s gives %s, want %s", pmu, what,
	      fd < 0 ? strerror(-fd) : "success", want ? strerror(want) : "success");
	if (fd >= 0)
		close(fd);
}

static void rates(void)
{
	expect_rate("nvidia_scf_pmu_0", ev(CMEM_RD, 0, 0), 0, 1000 + CMEM_RD);
	expect_rate("nvidia_scf_pmu_1", ev(CMEM_RD, 0, 0), 1, 2 * (1000 + CMEM_RD));
	expect_rate("nvidia_scf_pmu_0", ev(1ull << 32, 0, 0), 0, 1000000);
	expect_rate("nvidia_pcie_pmu_0", ev(4, 0x3, 0), 0, 1004 * 0x3);
	expect_rate("nvidia_pcie_pmu_0", ev(4, 0x200, 0), 0, 1004 * 0x200);
	expect_rate("nvidia_pcie_pmu_0", ev(4, 0, 0), 0, 1004 * 0x3ff);
	expect_rate("nvidia_ucf_pmu_0", ev(0x123, 0x102, 0), 0, (1000 + 0x123) * 0x102);
	expect_rate("nvidia_pcie_pmu_0_rc_1", ev(0, 0x1, 0x10), 0, 1000 * 0x10 + 1);
	expect_rate("nvidia_pcie_tgt_pmu_0_rc_0", ev(1 | 0x5 << 3, 0, 0), 0, 1001 * 0x5);
	expect_rate("nvidia_nvlink_c2c_pmu_1", ev(2, 0x2, 0), 1, 1002 * 2 * 2);
	expect_rate("nvidia_uncore_pmu_0", ev(0xf1, 0, 0), 0, (1000 + 0xf1) * 255ull * 256);
	expect_rate("uncore_iio_2", ev(0x0007001000000184, 0, 0), 1,
		    (1000 + 0x184) * 1 * 7 * 2 + 2);
	expect_rate("uncore_iio_2", ev(0x00070ff000000184, 0, 0), 0,
		    (1000 + 0x184) * 0xff * 7 + 2);
}

static void exact(void)
{
	struct perf_event_attr leader = ev(0xf1, 0, 0);
	u64 group[4] = { 0 };
	int a, b;

	check(!control("rate nvidia_scf_pmu_0 0xf0 0 0 0"), "a rate of 0");
	a = open_event("nvidia_scf_pmu_0", ev(0xf0, 0, 0), -1, 0, -1);
	usleep(50000);
	check(!control("add nvidia_scf_pmu_0 0xf0 0 0 123456789012"), "add");
	check(!control("add nvidia_scf_pmu_* 0xf0 0 0 1"), "add to a glob of PMUs");
	check(read_event(a).value == 123456789013ull, "adds are exact: %llu",
	      (unsigned long long)read_event(a).value);
	close(a);
	check(control("add nvidia_scf_pmu_0 0xf0 0 0 1 1") == -ENXIO, "no such box: ENXIO");
	check(control("rate no_such_pmu 0 0 0 1") == -ENODEV, "no such PMU: ENODEV");
	check(control("frobnicate") == -EINVAL, "no such command: EINVAL");

	/* All counts of a group read are from one instant. */
	control("rate nvidia_scf_pmu_0 0xf1 0 0 1000000");
	control("rate nvidia_scf_pmu_0 0xf3 0 0 3000000");
	leader.read_format = PERF_FORMAT_GROUP;
	leader.disabled = 1;
	a = open_event("nvidia_scf_pmu_0", leader, -1, 0, -1);
	b = open_event("nvidia_scf_pmu_0", ev(0xf3, 0, 0), -1, 0, a);
	ioctl(a, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
	usleep(100000);
	if (read(a, group, sizeof(group)) < 0)
		check(0, "group read");
	check(group[1] && group[2] == 3 * group[1], "ratio within a group is exact: %llu / %llu",
	      (unsigned long long)group[2], (unsigned long long)group[1]);
	close(b);
	close(a);
}

static void refusals(void)
{
	struct perf_event_attr a = ev(0, 0, 0), sampling = a, user = a;

	sampling.sample_period = 1000;
	user.exclude_user = 1;
	expect_error("per task", EINVAL, "nvidia_scf_pmu_0", a, getpid(), -1);
	expect_error("per task on a CPU", EINVAL, "nvidia_scf_pmu_0", a, getpid(), 0);
	expect_error("another socket's CPU", EINVAL, "nvidia_scf_pmu_0", a, -1, 1);
	expect_error("sampling", EOPNOTSUPP, "nvidia_scf_pmu_0", sampling, -1, 0);
	expect_error("exclude_user", EINVAL, "nvidia_scf_pmu_0", user, -1, 0);
	expect_error("raw id", 0, "nvidia_scf_pmu_0", ev(0x1c7, 0, 0), -1, 0);
	expect_error("per task", EOPNOTSUPP, "nvidia_cmem_latency_pmu_0", a, getpid(), 0);
	expect_error("id 3", ENOENT, "nvidia_cmem_latency_pmu_0", ev(3, 0, 0), -1, 0);
	expect_error("id 9", ENOENT, "nvidia_nvclink_pmu_0", ev(9, 0, 0), -1, 0);
	expect_error("sampling", EINVAL, "uncore_cha_0", sampling, -1, 0);
	expect_error("per task", EINVAL, "uncore_cha_0", a, getpid(), -1);
	expect_error("exclude_user", EINVAL, "uncore_imc_0", user, -1, 0);
	expect_error("any CPU", 0, "uncore_imc_0", a, -1, 1);
}

/* Opens n events as one group and closes them; returns the first error or 0. */
static int try_group(const char *pmu, const u64 (*config)[3], int n, int cpu)
{
	int fds[16], i, err = 0, leader = -1;

	for (i = 0; i < n && !err; i++) {
		fds[i] = open_event(pmu, ev(config[i][0], config[i][1], config[i][2]), -1, cpu,
				    leader);
		if (fds[i] < 0)
			err = fds[i];
		else if (leader < 0)
			leader = fds[i];
	}
	for (n = err ? i - 1 : i, i = 0; i < n; i++)
		close(fds[i]);
	return err;
}

static void groups(void)
{
	static const u64 nine[9][3] = { { 1 }, { 2 }, { 3 }, { 4 }, { 5 }, { 6 }, { 7 }, { 8 }, { 9 } };
	static const u64 with_cycles[9][3] = { { 1 }, { 2 }, { 3 }, { 4 }, { 5 },
					       { 6 }, { 7 }, { 8 }, { 1ull << 32 } };
	static const u64 occupancy[2][3] = { { 0x136 }, { 0x436 } };
	static const u64 mixed[4][3] = { { 0x135 }, { 0x235 }, { 0x335 }, { 0x136 } };
	static const u64 of_cpu[3][3] = { { 0x183 }, { 0x483 }, { 0x8083 } };
	static const u64 bdf[2][3] = { { 0, 1 << 24 | 0x100 << 8 }, { 1, 1 << 24 | 0x200 << 8 } };
	static const u64 same_bdf[2][3] = { { 0, 1 << 24 | 0x100 << 8 }, { 1 } };

	check(try_group("nvidia_scf_pmu_0", nine, 8, 0) == 0, "8 SCF events fit");
	check(try_group("nvidia_scf_pmu_0", nine, 9, 0) == -EINVAL, "9 SCF events do not");
	check(try_group("nvidia_scf_pmu_0", with_cycles, 9, 0) == 0, "8 and cycles fit");
	check(try_group("uncore_cha_0", occupancy, 2, 0) == -EINVAL,
	      "two TOR_OCCUPANCY events do not fit one CHA");
	check(try_group("uncore_cha_0", mixed, 4, 0) == 0, "three INSERTS then OCCUPANCY fit");
	check(try_group("uncore_iio_0", of_cpu, 2, 1) == 0, "two DATA_REQ_OF_CPU fit");
	check(try_group("uncore_iio_0", of_cpu, 3, 1) == -EINVAL, "three do not");
	check(try_group("nvidia_pcie_pmu_0_rc_0", bdf, 2, 0) == -EINVAL, "two BDF values do not fit");
	check(try_group("nvidia_pcie_pmu_0_rc_0", same_bdf, 2, 0) == 0, "a sibling takes the BDF");
}

/* perf rotates 12 events on 8 counters; the scaled counts are right. */
static void multiplexing(void)
{
	int fds[12], i, partial = 0, good = 1;
	struct reading r;

	for (i = 0; i < 12; i++) {
		control("rate nvidia_scf_pmu_0 %d 0 0 1000000", 0x200 + i);
		fds[i] = open_event("nvidia_scf_pmu_0", ev(0x200 + i, 0, 0), -1, 0, -1);
	}
	usleep(500000);
	for (i = 0; i < 12; i++) {
		r = read_event(fds[i]);
		partial += r.running < r.enabled * 9 / 10;
		good &= r.running && near(r.value, r.running, 30);
		close(fds[i]);
	}
	check(partial >= 4 && good, "12 events on 8 counters: %d ran in part, counts follow running",
	      partial);
}

static void task_driven(void)
{
	struct child c = spinner(1, 200), other = spinner(1, 50);
	u64 count, want;
	int fd;

	control("rate nvidia_scf_pmu_1 0xf2 0 0 0");
	check(!control("taskrate nvidia_scf_pmu_1 0xf2 0 0 1000000"), "a task rate");
	fd = open_event("nvidia_scf_pmu_1", ev(0xf2, 0, 0), -1, 1, -1);
	check(!control("watch tgid %d 3", c.pid), "watch a process");
	check(!control("watch tgid %d 0", getpid()), "watch with weight 0");
	release(other);
	reap(other);
	release(c);
	reap(c);
	want = 3 * task_ns(c.pid, 1, 4);
	count = read_event(fd).value;
	check(count == want && want > 3 * 100000000ull,
	      "task-driven: %llu counted, 3 x on-CPU ns is %llu (exact)", (unsigned long long)count,
	      (unsigned long long)want);
	close(fd);
	control("unwatch");
}

static void unload(void)
{
	int fd = open_event("nvidia_scf_pmu_0", ev(CMEM_RD, 0, 0), -1, 0, -1);
	int err = syscall(SYS_delete_module, "testpmu", O_NONBLOCK) ? errno : 0;

	check(err == EAGAIN || err == EBUSY, "rmmod with an open event is refused: %s",
	      strerror(err));
	close(fd);
}

void test_uncore(void)
{
	rates();
	exact();
	refusals();
	groups();
	multiplexing();
	task_driven();
	unload();
}
