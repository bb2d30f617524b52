// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Self-check of testpmu.ko, run as root in a guest with two CPUs and debugfs
 * mounted: selftest uncore|core|spe ... Prints ok / not ok lines, exits 1 on failure.
 * Build: CC -static -O2 -o selftest selftest*.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "selftest.h"

#define DEBUG "/sys/kernel/debug/testpmu/"

int failures;

void check(int good, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("%s - ", good ? "ok" : "not ok");
	vprintf(fmt, ap);
	printf("\n");
	fflush(stdout);
	va_end(ap);
	failures += !good;
}

int near(u64 a, u64 b, unsigned int permille)
{
	u64 d = a > b ? a - b : b - a;

	return d <= b / 1000 * permille + 1;
}

int pmu_type(const char *name)
{
	char path[128];
	int type = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/type", name);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%d", &type) != 1)
			type = -1;
		fclose(f);
	}
	return type;
}

int open_event(const char *pmu, struct perf_event_attr attr, int pid, int cpu, int group)
{
	int fd;

	attr.size = sizeof(attr);
	if (pmu) {
		int type = pmu_type(pmu);

		if (type < 0)
			return -ENODEV;
		attr.type = type;
	}
	if (!attr.read_format)
		attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED |
				   PERF_FORMAT_TOTAL_TIME_RUNNING;
	fd = syscall(SYS_perf_event_open, &attr, pid, cpu, group, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

struct reading read_event(int fd)
{
	struct reading r = { 0 };

	if (read(fd, &r, sizeof(r)) != sizeof(r))
		check(0, "read of an event: %s", strerror(errno));
	return r;
}

struct timed read_timed(int fd)
{
	struct timed t;

	t.before = now_ns();
	t.value = read_event(fd).value;
	t.after = now_ns();
	return t;
}

int at_rate(struct timed a, struct timed b, u64 per_ms)
{
	u64 count = (b.value - a.value) * 1000;
	u64 least = per_ms * ((b.before - a.after) / 1000);
	u64 most = per_ms * ((b.after - a.before) / 1000);

	/* Allows for rounding, and 0.1% for clock adjustments. */
	return count + count / 1000 + 2000 >= least && count <= most + most / 1000 + 2000;
}

int control(const char *fmt, ...)
{
	char line[256];
	int fd, err = 0;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fd = open(DEBUG "control", O_WRONLY);
	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		err = -errno;
	close(fd);
	return err;
}

u64 task_ns(int tgid, int cpu, int column)
{
	unsigned long long id, weight, v[2];
	char line[256], kind[16];
	FILE *f = fopen(DEBUG "tasks", "r");
	u64 sum = 0;
	int on;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%15s %llu %llu %d %llu %llu", kind, &id, &weight, &on, &v[0],
			   &v[1]) == 6 &&
		    id == tgid && on == cpu)
			sum += v[column - 4];
	if (f)
		fclose(f);
	return sum;
}

u64 now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

void spin_ms(int ms)
{
	u64 end = now_ns() + ms * 1000000ull;

	while (now_ns() < end)
		;
}

/* Runs on a CPU for a moment: then a task that was leaving it has left. */
static void wait_for_switch(int cpu)
{
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	pin(cpu);
	sched_setaffinity(0, sizeof(set), &set);
}

struct child spinner(int cpu, int ms)
{
	struct child c = { .pid = fork(), .cpu = cpu };

	if (!c.pid) {
		pin(cpu);
		raise(SIGSTOP);
		spin_ms(ms);
		_exit(0);
	}
	/* Its time up to here must not be measured. */
	waitpid(c.pid, NULL, WUNTRACED);
	wait_for_switch(cpu);
	return c;
}

void release(struct child c)
{
	if (kill(c.pid, SIGCONT))
		check(0, "releasing a child");
}

void reap(struct child c)
{
	waitpid(c.pid, NULL, 0);
	/* A zombie still runs for a moment. */
	wait_for_switch(c.cpu);
}

int main(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "uncore"))
			test_uncore();
		else if (!strcmp(argv[i], "core"))
			test_core();
		else if (!strcmp(argv[i], "spe"))
			test_spe();
		else
			check(0, "unknown part %s", argv[i]);
	}
	printf("%d failed\n", failures);
	return failures != 0;
}
