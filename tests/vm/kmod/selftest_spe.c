// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Checks arm_spe_0: open rules, both buffer modes, losses, filters, the exact account. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "selftest_aux.h"

/* Checks that the module's account equals the decoded records, row by row. */
static void compare(struct session *s, const char *what)
{
	static const char *const names[] = { "load", "store", "branch", "other" };
	FILE *f = fopen("/sys/kernel/debug/testpmu/spe_truth", "r");
	u64 samples = 0, wrong = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		unsigned long long n, total, issue, xlat;
		char class[16], source[16];
		int cpu, tid, tgid, c;
		struct row *r;

		if (sscanf(line, "%d %d %d %15s %15s %llu %llu %llu %llu", &cpu, &tid, &tgid,
			   class, source, &n, &total, &issue, &xlat) != 9)
			continue;
		for (c = 0; c < 4 && strcmp(names[c], class); c++)
			;
		r = find_row(s, tid, c, *source == '-' ? -1 : (int)strtol(source, NULL, 0));
		wrong += r->samples != n || r->total != total || r->issue != issue ||
			 r->xlat != xlat;
		samples += n;
	}
	if (f)
		fclose(f);
	check(samples > 100 && !wrong && samples == s->records && !s->bad,
	      "%s: %llu records decoded, the account says %llu, %llu rows differ, %llu bad", what,
	      (unsigned long long)s->records, (unsigned long long)samples,
	      (unsigned long long)wrong, (unsigned long long)s->bad);
}

static void open_rules(void)
{
	struct perf_event_attr a = spe_attr(4096, 0), b;
	int fd, other;

	b = a;
	b.freq = 1;
	fd = open_event(SPE, b, -1, 1, -1);
	check(fd == -EINVAL, "freq gives %s", strerror(-fd));
	b = a;
	b.exclude_idle = 1;
	fd = open_event(SPE, b, -1, 1, -1);
	check(fd == -EOPNOTSUPP, "exclude_idle gives %s", strerror(-fd));
	b = a;
	b.config1 = 1;
	fd = open_event(SPE, b, -1, 1, -1);
	check(fd == -EOPNOTSUPP, "a reserved event bit gives %s", strerror(-fd));
	fd = open_event(SPE, a, -1, 1, -1);
	other = open_event(SPE, a, 0, -1, -1);
	check(fd >= 0 && other == -EBUSY, "cpu-wide and per-task do not mix: %s", strerror(-other));
	close(fd);
}

static void normal(const char *what, u64 config, int writable)
{
	struct session s;

	if (start(&s, spe_attr(65536, config), -1, 1, 256, writable))
		return;
	spin_on(1, 150);
	stop(&s);
	drain(&s, 1);
	compare(&s, what);
	check(s.flags == (writable ? 0u : PERF_AUX_FLAG_OVERWRITE) && !s.ts_backwards,
	      "%s: flags %#llx, %llu timestamps go back", what, (unsigned long long)s.flags,
	      (unsigned long long)s.ts_backwards);
	check(config & 1 ? !s.ended_by_end : s.ended_by_end == s.records,
	      "%s: %llu of %llu end by END", what, (unsigned long long)s.ended_by_end,
	      (unsigned long long)s.records);
	finish(&s);
}

/* A small buffer in overwrite mode never fills up; each chunk is half a buffer. */
static void overwrite(void)
{
	struct session s;
	u64 page = sysconf(_SC_PAGESIZE);

	if (start(&s, spe_attr(8192, 1), -1, 1, 4, 0))
		return;
	spin_on(1, 150);
	stop(&s);
	check(spe_stat("chunks") >= 5 && spe_stat("no_space") == 0 && spe_stat("lost_data") == 0 &&
	      spe_stat("bytes") == 64 * spe_stat("written"),
	      "overwrite: %llu chunks, %llu bytes, %llu records", (unsigned long long)spe_stat("chunks"),
	      (unsigned long long)spe_stat("bytes"), (unsigned long long)spe_stat("written"));
	drain(&s, 0);
	check(s.bytes == spe_stat("bytes") && s.chunks == spe_stat("chunks") &&
	      s.bytes / s.chunks <= 2 * page && s.page->aux_head <= 4 * page,
	      "overwrite: records say %llu chunks of at most %llu bytes",
	      (unsigned long long)s.chunks, (unsigned long long)(2 * page));
	finish(&s);
}

/*
 * Kernels without "perf/aux: Properly launch pending disable flow" (LKML 2025-06-25) fail
 * to disable a truncated event (6.12.95: never do; 6.1: not on CPU 0). Then ENABLE alone
 * has no effect; DISABLE and then ENABLE works on all kernels.
 */
static void truncation(void)
{
	u64 first, enabled;
	struct session s;

	if (start(&s, spe_attr(2048, 1), -1, 1, 4, 1))
		return;
	spin_on(1, 150);
	drain(&s, 0);
	first = spe_stat("written");
	check((s.flags & PERF_AUX_FLAG_TRUNCATED) && spe_stat("no_space") == 1 &&
	      first * 64 <= s.aux_size,
	      "unread buffer: TRUNCATED after %llu records, flags %#llx",
	      (unsigned long long)first, (unsigned long long)s.flags);
	enabled = read_event(s.fd).enabled;
	spin_on(1, 50);
	check(spe_stat("written") == first, "... and no more is written; perf %s the event",
	      read_event(s.fd).enabled == enabled ? "disabled" : "did not disable");
	drain(&s, 1);
	stop(&s);
	ioctl(s.fd, PERF_EVENT_IOC_ENABLE, 0);
	spin_on(1, 50);
	check(spe_stat("written") > first, "... until it was read, disabled and enabled");
	finish(&s);
}

static void flagged(void)
{
	struct session s;

	control("spe collision_every 1");
	if (start(&s, spe_attr(8192, 1), -1, 1, 4, 0))
		return;
	spin_on(1, 150);
	stop(&s);
	drain(&s, 0);
	check((s.flags & PERF_AUX_FLAG_COLLISION) && spe_stat("collided") >= 4,
	      "collisions flagged %llu times, event goes on", (unsigned long long)spe_stat("collided"));
	finish(&s);
	control("spe collision_every 0");

	control("spe loss_every 1");
	if (start(&s, spe_attr(8192, 1), -1, 1, 4, 0))
		return;
	spin_on(1, 150);
	stop(&s);
	drain(&s, 0);
	check((s.flags & 5) == 5 && spe_stat("lost_data") == 1 && spe_stat("chunks") == 1,
	      "data loss: flags %#llx after %llu chunks, event disabled",
	      (unsigned long long)s.flags, (unsigned long long)spe_stat("chunks"));
	finish(&s);
	control("spe loss_every 0");
}

static void filters(void)
{
	struct perf_event_attr a = spe_attr(65536, 1 | 1ull << 33);
	struct session s;
	int i, other = 0;

	a.config2 = 60;
	a.config1 = 1 << 1 | 1 << 3;
	if (start(&s, a, -1, 1, 256, 1))
		return;
	spin_on(1, 250);
	stop(&s);
	drain(&s, 1);
	for (i = 0; i < s.rows; i++)
		other += s.row[i].class != 0 || s.row[i].total < 60 * s.row[i].samples ||
			 (s.row[i].source != 0xb && s.row[i].source != 0xd && s.row[i].source != 0xe);
	check(s.records > 50 && !other && spe_stat("filtered") + spe_stat("written") == spe_stat("taken"),
	      "load, latency and event filters: %llu records of %llu samples, %d rows wrong",
	      (unsigned long long)s.records, (unsigned long long)spe_stat("taken"), other);
	finish(&s);
}

static void settings(void)
{
	struct session s;
	int i, rows = 0;
	struct child c;

	control("spe context 0");
	if (start(&s, spe_attr(65536, 1), -1, 1, 256, 1))
		return;
	spin_on(1, 50);
	stop(&s);
	drain(&s, 1);
	check(s.records > 50 && s.no_context == s.records, "context 0: no context packets");
	finish(&s);
	control("spe context 2");

	control("spe garbage_every 10");
	if (start(&s, spe_attr(65536, 1), -1, 1, 256, 1))
		return;
	spin_on(1, 150);
	stop(&s);
	drain(&s, 1);
	check(spe_stat("garbage") == spe_stat("written") / 10 && spe_stat("garbage") > 10 &&
	      s.records + s.bad == spe_stat("written"),
	      "every 10th record is garbage: %llu", (unsigned long long)spe_stat("garbage"));
	finish(&s);
	control("spe garbage_every 0");

	/* A per-task event on a process with its own mix. */
	c = spinner(0, 150);
	check(!control("spe op %d 3 load 0 0xe 300 0 5 2 0x31e", c.pid), "a mix per process");
	control("spe op %d 1 store 1 - 7 0 1 1 0x16", c.pid);
	control("spe source_bytes 2");
	control("spe packed 1");
	if (start(&s, spe_attr(65536, 0), c.pid, -1, 256, 1))
		return;
	release(c);
	reap(c);
	stop(&s);
	drain(&s, 1);
	compare(&s, "per task, packed, 2-byte sources");
	for (i = 0; i < s.rows; i++) {
		rows += s.row[i].tid == c.pid && s.row[i].samples;
		if (s.row[i].source == 0xe)
			check(near(s.row[i].samples * 4, s.records * 3, 80),
			      "3 of 4 are DRAM loads: %llu of %llu",
			      (unsigned long long)s.row[i].samples, (unsigned long long)s.records);
	}
	check(rows == 2 && s.rows == 2, "only that process's operations: %d rows", s.rows);
	finish(&s);
	control("spe source_bytes 1");
	control("spe packed 0");
}

void test_spe(void)
{
	pin(0);
	open_rules();
	normal("normal mode", 1 | 2, 1);
	normal("no timestamps", 0, 1);
	normal("overwrite mode, not full", 1, 0);
	overwrite();
	truncation();
	flagged();
	filters();
	settings();
}
