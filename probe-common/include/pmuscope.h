/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Markers for pmuscope: a program names its memory and its phases, and `pmuscope mem record
 * --regions` shows how often and at what latency each is accessed (docs/reference/regions.md). Include this
 * file where markers are called; it needs no library.
 *
 *     pmuscope_tag_addr("a", a, a + n);      // from now on these addresses are the region "a"
 *     pmuscope_start("triad");               // this thread begins a phase; phases nest
 *     ...
 *     pmuscope_stop();                       // this thread ends its innermost phase
 *
 *     pmuscope_tag_addr(NULL, a, a + n);     // before free(a): ends all tags of these addresses
 *     pmuscope_tag_addr("a", NULL, NULL);    // ends all of region "a"
 *
 * Markers are functions that return at once. pmuscope observes their calls from the kernel, so the
 * program must keep their symbols: link without -s, or put them into a shared library.
 */
#ifndef PMUSCOPE_H
#define PMUSCOPE_H

/* A program has one function for each marker, whichever files call it; calls are not inlined. */
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
