/* A program whose addresses are known: it prints one for each line that it reads. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* As a C++ compiler names load::hot(int). */
int hot(int n) __asm__("_ZN4load3hotEi");

__attribute__((noinline)) int hot(int n) {
    volatile int sum = 0;
    for (int i = 0; i < n; i++)
        sum += i * n;
    return sum;
}

static __attribute__((noinline)) int cold(int n) { return hot(n) + 1; }

static int answer(void) {
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        void *address = 0;
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "hot"))
            address = (void *)hot;
        else if (!strcmp(line, "cold"))
            address = (void *)cold;
        else if (!strcmp(line, "burn"))
            for (int i = 0; i < 2000; i++)
                cold(100000);
        else if (!strcmp(line, "jit")) {
            address = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char path[64];
            snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
            FILE *map = fopen(path, "w");
            fprintf(map, "%lx 20 old\n%lx 40 Main::run(int) [tier 2]\n", (long)address, (long)address);
            fclose(map);
#ifdef LOADS
        } else {
            void *library = dlopen(line, RTLD_NOW);
            address = library ? dlsym(library, "in_library") : 0;
#endif
        }
        printf("%lx\n", (unsigned long)address);
        fflush(stdout);
    }
    return 0;
}

#ifdef LEAVES
/* The first thread ends, and another one answers. */
static void *thread(void *nothing) {
    answer();
    return nothing;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, 0, thread, 0);
    pthread_exit(0);
}
#else
int main(void) { return answer(); }
#endif
