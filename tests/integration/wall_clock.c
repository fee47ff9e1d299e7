/* Preloaded into a daemon: its wall clock is off by as many seconds as the file $WALL_CLOCK_OFFSET says, at any moment. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    const char *path = getenv("WALL_CLOCK_OFFSET");
    long offset_s = 0;
    if (failed == 0 && clock == CLOCK_REALTIME && path != NULL) {
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            if (fscanf(file, "%ld", &offset_s) == 1)
                now->tv_sec += offset_s;
            fclose(file);
        }
    }
    return failed;
}
