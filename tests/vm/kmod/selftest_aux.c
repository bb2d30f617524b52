// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Opens arm_spe_0, drains its buffer and decodes the records. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "selftest_aux.h"

static u64 le(const unsigned char *p, int n)
{
	u64 v = 0;

	while (n--)
		v = v << 8 | p[n];
	return v;
}

/*
 * Decodes the packets of a 64-byte record (Arm ARM, DDI 0487, "Statistical Profiling
 * Extension Sample Record Specification"); returns 0 if it is a whole record.
 */
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

struct row *find_row(struct session *s, int tid, int class, int source)
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

static void decode_chunk(struct session *s, u64 offset, u64 size)
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
		row = find_row(s, r.tid, r.class, r.source);
		row->samples++;
		row->total += r.total;
		row->issue += r.issue;
		row->xlat += r.xlat;
		s->last = r;
	}
}

void drain(struct session *s, int consume)
{
	unsigned char *data = (unsigned char *)s->page + sysconf(_SC_PAGESIZE);
	u64 head = __atomic_load_n(&s->page->data_head, __ATOMIC_ACQUIRE), tail = s->page->data_tail;

	while (tail < head) {
		struct perf_event_header *h = (void *)(data + tail % s->data_size);

		/* The 24-byte body may wrap at any multiple of 8 bytes: read word by word. */
		if (h->type == PERF_RECORD_AUX) {
			u64 w[3];
			int i;

			for (i = 0; i < 3; i++)
				memcpy(&w[i], data + (tail + 8 + 8 * i) % s->data_size, 8);
			s->flags |= w[2];
			/* In overwrite mode the offset is the chunk's end. */
			decode_chunk(s, w[2] & PERF_AUX_FLAG_OVERWRITE ? w[0] - w[1] : w[0], w[1]);
		}
		tail += h->size;
	}
	__atomic_store_n(&s->page->data_tail, tail, __ATOMIC_RELEASE);
	if (consume)
		__atomic_store_n(&s->page->aux_tail,
				 __atomic_load_n(&s->page->aux_head, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
}

struct perf_event_attr spe_attr(u64 period, u64 config)
{
	return (struct perf_event_attr){ .config = config, .sample_period = period, .disabled = 1 };
}

int start(struct session *s, struct perf_event_attr a, int pid, int cpu, int aux_pages,
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

void stop(struct session *s)
{
	ioctl(s->fd, PERF_EVENT_IOC_DISABLE, 0);
}

void finish(struct session *s)
{
	munmap(s->aux, s->aux_size);
	munmap(s->page, s->data_size + sysconf(_SC_PAGESIZE));
	close(s->fd);
}

void spin_on(int cpu, int ms)
{
	struct child c = spinner(cpu, ms);

	release(c);
	reap(c);
}

u64 spe_stat(const char *name)
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
