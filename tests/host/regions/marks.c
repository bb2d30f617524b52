/* A program with markers, for tests/host/regions: it waits for the end of its input, then does what
 * its first word says. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pmuscope.h"

static double a[1000], b[1000];

static void nested(void)
{
	pmuscope_tag_addr("a", a, a + 1000);
	pmuscope_tag_addr("b", b, b + 1000);
	pmuscope_start("solve");
	pmuscope_start("triad");
	pmuscope_stop();
	pmuscope_stop();
	pmuscope_stop();
	pmuscope_start("left open");
}

/* Tags and phases by one marker after another, as fast as they go. */
static void many(int count)
{
	static char memory[16];
	char name[32];

	for (int at = 0; at < count; at++) {
		char *start = memory + 16ul * at;

		snprintf(name, sizeof(name), "tag %d", at);
		pmuscope_tag_addr(name, start, start + 16);
	}
}

static int rounds;

static void *phases(void *name)
{
	for (int at = 0; at < rounds; at++) {
		pmuscope_start(name);
		pmuscope_start("inner");
		pmuscope_stop();
		pmuscope_stop();
	}
	return NULL;
}

static void threads(int count)
{
	pthread_t all[64];
	char names[64][16];

	for (int at = 0; at < count; at++) {
		snprintf(names[at], sizeof(names[at]), "t%d", at);
		pthread_create(&all[at], NULL, phases, names[at]);
	}
	for (int at = 0; at < count; at++)
		pthread_join(all[at], NULL);
}

/* The child has the tags and is in the phase of its parent, until it executes another program. */
static void forks(char *program)
{
	pmuscope_tag_addr("a", a, a + 1000);
	pmuscope_start("parent");
	if (fork() == 0) {
		pmuscope_stop();
		pmuscope_start("child");
		pmuscope_tag_addr("only child", b, b + 10);
		execl(program, program, "quiet", NULL);
		_exit(1);
	}
	wait(NULL);
	pmuscope_stop();
}

/* Names on a page that nobody has read yet, across two of them, nowhere, and too long. */
static void names(void)
{
	char path[] = "/tmp/pmuscope-names-XXXXXX", text[200];
	int file = mkstemp(path);
	char *page;

	unlink(path);
	if (ftruncate(file, 8192) || pwrite(file, "unread", 7, 100) != 7 ||
	    pwrite(file, "across", 7, 4093) != 7)
		exit(1);
	page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, file, 0);
	madvise(page, 8192, MADV_RANDOM);
	pmuscope_start(page + 100);
	pmuscope_start(page + 4093);
	pmuscope_start((char *)8);
	memset(text, 'x', sizeof(text));
	text[199] = 0;
	pmuscope_start(text);
	pmuscope_start("");
}

int main(int count, char **words)
{
	printf("%p %p\n", (void *)a, (void *)b);
	fflush(stdout);
	if (count < 2)
		return 2;
	while (getchar() != EOF)
		;
	if (!strcmp(words[1], "nested"))
		nested();
	else if (!strcmp(words[1], "many"))
		many(atoi(words[2]));
	else if (!strcmp(words[1], "threads")) {
		rounds = atoi(words[3]);
		threads(atoi(words[2]));
	} else if (!strcmp(words[1], "forks"))
		forks(words[0]);
	else if (!strcmp(words[1], "names"))
		names();
	return 0;
}
