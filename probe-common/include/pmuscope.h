/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Markers for pmuscope: a program names its memory and its phases, and
 * `pmuscope mem record --regions` says which of them is accessed, how often and at what latency
 * (docs/regions.md). Include it where they are called; nothing is linked.
 *
 *     pmuscope_tag_addr("a", a, a + n);      // from now on these addresses are the region "a"
 *     pmuscope_start("triad");               // this thread begins a phase; phases nest
 *     ...
 *     pmuscope_stop();                       // and ends the phase that it began last
 *
 *     pmuscope_tag_addr(NULL, a, a + n);     // before free(a): ends what was tagged in there
 *     pmuscope_tag_addr("a", NULL, NULL);    // ends all of "a"
 *
 * They are functions that return at once. pmuscope observes their calls from the kernel, so the
 * program must keep their names: link without -s, or put them into a shared library.
 */
#ifndef PMUSCOPE_H
#define PMUSCOPE_H

/* One function of each in a program, however many files call it, called as it is written. */
#if defined(__clang__)
#define PMUSCOPE_MARKER __attribute__((weak, used, noinline, optnone, visibility("default")))
#else
#define PMUSCOPE_MARKER __attribute__((weak, used, noipa, visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

PMUSCOPE_MARKER void pmuscope_tag_addr(const char *name, const void *start, const void *end)
{
	__asm__ volatile("" : : "r"(name), "r"(start), "r"(end) : "memory");
}

PMUSCOPE_MARKER void pmuscope_start(const char *name)
{
	__asm__ volatile("" : : "r"(name) : "memory");
}

PMUSCOPE_MARKER void pmuscope_stop(void)
{
	__asm__ volatile("" : : : "memory");
}

#ifdef __cplusplus
}
#endif

#undef PMUSCOPE_MARKER
#endif
