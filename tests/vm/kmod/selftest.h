/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Helpers of the self-check: opening events, the control files, printing results. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include <linux/perf_event.h>
#include <stdint.h>

typedef uint64_t u64;

struct reading {
	u64 value, enabled, running;
};

/* A count, and CLOCK_MONOTONIC before and after it was read. */
struct timed {
	u64 value, before, after;
};

extern int failures;

/* Prints "ok - MESSAGE" or "not ok - MESSAGE". */
void check(int good, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* a and b differ by at most permille/1000 of b. */
int near(u64 a, u64 b, unsigned int permille);

int pmu_type(const char *name);
/* Opens an event; returns the fd or -errno. Sets attr.type by the PMU's name, if given. */
int open_event(const char *pmu, struct perf_event_attr attr, int pid, int cpu, int group);
struct reading read_event(int fd);
struct timed read_timed(int fd);
/* Whether the count from a to b may be per_ms, given when each was read. */
int at_rate(struct timed a, struct timed b, u64 per_ms);

int control(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* 0 or -errno */
/* A watched process's time on a CPU; column 4: ns, 5: core ns. */
u64 task_ns(int tgid, int cpu, int column);

u64 now_ns(void);
void pin(int cpu);
void spin_ms(int ms);
/* A child pinned to a CPU. It stops, spins for ms once released, and exits. */
struct child {
	int pid, cpu;
};
struct child spinner(int cpu, int ms);
void release(struct child c);
void reap(struct child c);

void test_uncore(void);
void test_core(void);
void test_spe(void);

#endif
