// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* arm_spe_0: open rules, both buffer modes, losses, filters, and the exact account. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "selftest.h"

#define SPE "arm_spe_0"
#define ROWS 256

struct record {
	int tid, class, source, end; /* class: 0 load 1 store 2 branch 3 other; -1: none */
	unsigned int total, issue, xlat, events;
	u64 ts;
};

struct row {
	int tid, class, source;
	u64 samples, total, issue, xlat;
};

struct session {
	int fd;
	struct perf_event_mmap_page *page;
	unsigned char *aux;
	size_t aux_size, data_size;
	/* what drain() found */
	u64 records, bad, chunks, flags, bytes;
	struct record last;
	u64 ts_backwards, no_context, ended_by_end;
	int rows;
	struct row row[ROWS];
};

static u64 le(const unsigned char *p, int n)
{
	u64 v = 0;

	while (n--)
		v = v << 8 | p[n];
	return v;
}

/* A plain packet walker after facts file C; 0 if the 64 bytes are one record. */
static int decode(const unsigned char *p, struct record *r)
{
	int at = 0;

	*r = (struct record){ .tid = -1, .class = -1, .source = -1 };
	while (at < 64) {
		unsigned char h = p[at];
		int n = 1 << (h >> 4 & 3);
		u64 v;

		if (h == 0) {
			at++;
			continue;
		}
		if (h == 1) {
			r->end = 1;
			return r->class < 0;
		}
		if (at + 1 + n > 64)
			return 1;
		v = le(p + at + 1, n);
		if (h == 0x71) {
			r->ts = v;
			return r->class < 0;
		}
		if ((h & 0xfc) == 0x64)
			r->tid = v;
		else if ((h & 0xfc) == 0x48)
			r->class = (h & 3) == 1 ? (int)(v & 1) : (h & 3) == 2 ? 2 : 3;
		else if ((h & 0xcf) == 0x42)
			r->events = v;
		else if ((h & 0xcf) == 0x43)
			r->source = v;
		else if (h == 0x98)
			r->total = v;
		else if (h == 0x99)
			r->issue = v;
		else if (h == 0x9a)
			r->xlat = v;
		else if ((h & 0xf8) != 0xb0)
			return 1;
		at += 1 + n;
	}
	return 1;
}

static struct row *row_of(struct session *s, int tid, int class, int source)
{
	int i;

	for (i = 0; i < s->rows; i++)
		if (s->row[i].tid == tid && s->row[i].class == class && s->row[i].source == source)
			return &s->row[i];
	if (s->rows == ROWS) {
		check(0, "more than %d rows", ROWS);
		exit(1);
	}
	s->row[s->rows] = (struct row){ .tid = tid, .class = class, .source = source };
	return &s->row[s->rows++];
}

static void chunk(struct session *s, u64 offset, u64 size)
{
	struct record r;
	u64 i;

	s->chunks++;
	s->bytes += size;
	for (i = 0; i < size; i += 64) {
		struct row *row;

		if (decode(s->aux + (offset + i) % s->aux_size, &r)) {
			s->bad++;
			continue;
		}
		s->records++;
		s->ts_backwards += r.ts && r.ts < s->last.ts;
		s->no_context += r.tid < 0;
		s->ended_by_end += r.end;
		row = row_of(s, r.tid, r.class, r.source);
		row->samples++;
		row->total += r.total;
		row->issue += r.issue;
		row->xlat += r.xlat;
		s->last = r;
	}
}

/* Reads every PERF_RECORD_AUX and, if `consume`, frees what it covered. */
static void drain(struct session *s, int consume)
{
	unsigned char *data = (unsigned char *)s->page + sysconf(_SC_PAGESIZE);
	u64 head = __atomic_load_n(&s->page->data_head, __ATOMIC_ACQUIRE), tail = s->page->data_tail;

	while (tail < head) {
		struct perf_event_header *h = (void *)(data + tail % s->data_size);

		/* 24-byte bodies on 8-byte alignment: read word by word, they may wrap. */
		if (h->type == PERF_RECORD_AUX) {
			u64 w[3];
			int i;

			for (i = 0; i < 3; i++)
				memcpy(&w[i], data + (tail + 8 + 8 * i) % s->data_size, 8);
			s->flags |= w[2];
			/* In overwrite mode the offset is the chunk's end. */
			chunk(s, w[2] & PERF_AUX_FLAG_OVERWRITE ? w[0] - w[1] : w[0], w[1]);
		}
		tail += h->size;
	}
	__atomic_store_n(&s->page->data_tail, tail, __ATOMIC_RELEASE);
	if (consume)
		__atomic_store_n(&s->page->aux_tail,
				 __atomic_load_n(&s->page->aux_head, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
}

static struct perf_event_attr attr(u64 period, u64 config)
{
	return (struct perf_event_attr){ .config = config, .sample_period = period, .disabled = 1 };
}

static int start(struct session *s, struct perf_event_attr a, int pid, int cpu, int aux_pages,
		 int writable)
{
	size_t page = sysconf(_SC_PAGESIZE);

	memset(s, 0, sizeof(*s));
	control("spe reset");
	s->fd = open_event(SPE, a, pid, cpu, -1);
	if (s->fd < 0) {
		check(0, "open " SPE ": %s", strerror(-s->fd));
		return -1;
	}
	s->data_size = 16 * page;
	s->aux_size = aux_pages * page;
	s->page = mmap(NULL, s->data_size + page, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	s->page->aux_offset = s->data_size + page;
	s->page->aux_size = s->aux_size;
	s->aux = mmap(NULL, s->aux_size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED,
		      s->fd, s->page->aux_offset);
	if (s->page == MAP_FAILED || s->aux == MAP_FAILED) {
		check(0, "mmap: %s", strerror(errno));
		return -1;
	}
	ioctl(s->fd, PERF_EVENT_IOC_ENABLE, 0);
	return 0;
}

static void stop(struct session *s)
{
	ioctl(s->fd, PERF_EVENT_IOC_DISABLE, 0);
}

static void finish(struct session *s)
{
	munmap(s->aux, s->aux_size);
	munmap(s->page, s->data_size + sysconf(_SC_PAGESIZE));
	close(s->fd);
}

static void spin_on(int cpu, int ms)
{
	struct child c = spinner(cpu, ms);

	release(c);
	reap(c);
}

static u64 stat(const char *name)
{
	char head[256], line[256], *h, *l, *hs, *ls;
	FILE *f = fopen("/sys/kernel/debug/testpmu/spe_stats", "r");
	u64 sum = 0;

	if (!f || !fgets(head, sizeof(head), f))
		return 0;
	while (fgets(line, sizeof(line), f)) {
		char copy[256];

		strcpy(copy, head);
		for (h = strtok_r(copy, " \n", &hs), l = strtok_r(line, " \n", &ls); h && l;
		     h = strtok_r(NULL, " \n", &hs), l = strtok_r(NULL, " \n", &ls))
			if (!strcmp(h, name))
				sum += strtoull(l, NULL, 10);
	}
	fclose(f);
	return sum;
}

/* Every row of the module's account equals what was decoded, and nothing is left over. */
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
		r = row_of(s, tid, c, *source == '-' ? -1 : (int)strtol(source, NULL, 0));
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
	struct perf_event_attr a = attr(4096, 0), b;
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

	if (start(&s, attr(65536, config), -1, 1, 256, writable))
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

/* A small buffer in overwrite mode runs for ever, half a buffer per chunk. */
static void overwrite(void)
{
	struct session s;
	u64 page = sysconf(_SC_PAGESIZE);

	if (start(&s, attr(8192, 1), -1, 1, 4, 0))
		return;
	spin_on(1, 150);
	stop(&s);
	check(stat("chunks") >= 5 && stat("no_space") == 0 && stat("lost_data") == 0 &&
	      stat("bytes") == 64 * stat("written"),
	      "overwrite: %llu chunks, %llu bytes, %llu records", (unsigned long long)stat("chunks"),
	      (unsigned long long)stat("bytes"), (unsigned long long)stat("written"));
	drain(&s, 0);
	check(s.bytes == stat("bytes") && s.chunks == stat("chunks") &&
	      s.bytes / s.chunks <= 2 * page && s.page->aux_head <= 4 * page,
	      "overwrite: records say %llu chunks of at most %llu bytes",
	      (unsigned long long)s.chunks, (unsigned long long)(2 * page));
	finish(&s);
}

/*
 * Kernels without "perf/aux: Fix pending disable flow when the AUX ring buffer
 * overruns" mean to disable a truncated event but do not (6.12: never; 6.1: not on
 * CPU 0). ENABLE alone then does nothing, while DISABLE and ENABLE works on all.
 */
static void truncation(void)
{
	u64 first, enabled;
	struct session s;

	if (start(&s, attr(2048, 1), -1, 1, 4, 1))
		return;
	spin_on(1, 150);
	drain(&s, 0);
	first = stat("written");
	check((s.flags & PERF_AUX_FLAG_TRUNCATED) && stat("no_space") == 1 &&
	      first * 64 <= s.aux_size,
	      "unread buffer: TRUNCATED after %llu records, flags %#llx",
	      (unsigned long long)first, (unsigned long long)s.flags);
	enabled = read_event(s.fd).enabled;
	spin_on(1, 50);
	check(stat("written") == first, "... and no more is written; perf %s the event",
	      read_event(s.fd).enabled == enabled ? "disabled" : "did not disable");
	drain(&s, 1);
	stop(&s);
	ioctl(s.fd, PERF_EVENT_IOC_ENABLE, 0);
	spin_on(1, 50);
	check(stat("written") > first, "... until it was read, disabled and enabled");
	finish(&s);
}

static void flagged(void)
{
	struct session s;

	control("spe collision_every 1");
	if (start(&s, attr(8192, 1), -1, 1, 4, 0))
		return;
	spin_on(1, 150);
	stop(&s);
	drain(&s, 0);
	check((s.flags & PERF_AUX_FLAG_COLLISION) && stat("collided") >= 4,
	      "collisions flagged %llu times, event goes on", (unsigned long long)stat("collided"));
	finish(&s);
	control("spe collision_every 0");

	control("spe loss_every 1");
	if (start(&s, attr(8192, 1), -1, 1, 4, 0))
		return;
	spin_on(1, 150);
	stop(&s);
	drain(&s, 0);
	check((s.flags & 5) == 5 && stat("lost_data") == 1 && stat("chunks") == 1,
	      "data loss: flags %#llx after %llu chunks, event disabled",
	      (unsigned long long)s.flags, (unsigned long long)stat("chunks"));
	finish(&s);
	control("spe loss_every 0");
}

static void filters(void)
{
	struct perf_event_attr a = attr(65536, 1 | 1ull << 33);
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
	check(s.records > 50 && !other && stat("filtered") + stat("written") == stat("taken"),
	      "load, latency and event filters: %llu records of %llu samples, %d rows wrong",
	      (unsigned long long)s.records, (unsigned long long)stat("taken"), other);
	finish(&s);
}

static void settings(void)
{
	struct session s;
	int i, rows = 0;
	struct child c;

	control("spe context 0");
	if (start(&s, attr(65536, 1), -1, 1, 256, 1))
		return;
	spin_on(1, 50);
	stop(&s);
	drain(&s, 1);
	check(s.records > 50 && s.no_context == s.records, "context 0: no context packets");
	finish(&s);
	control("spe context 2");

	control("spe garbage_every 10");
	if (start(&s, attr(65536, 1), -1, 1, 256, 1))
		return;
	spin_on(1, 150);
	stop(&s);
	drain(&s, 1);
	check(stat("garbage") == stat("written") / 10 && stat("garbage") > 10 &&
	      s.records + s.bad == stat("written"),
	      "every 10th record is garbage: %llu", (unsigned long long)stat("garbage"));
	finish(&s);
	control("spe garbage_every 0");

	/* A process with a mix of its own, measured by a per-task event. */
	c = spinner(0, 150);
	check(!control("spe op %d 3 load 0 0xe 300 0 5 2 0x31e", c.pid), "a mix per process");
	control("spe op %d 1 store 1 - 7 0 1 1 0x16", c.pid);
	control("spe source_bytes 2");
	control("spe packed 1");
	if (start(&s, attr(65536, 0), c.pid, -1, 256, 1))
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
