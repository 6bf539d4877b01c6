/* Counts fsync and fdatasync, and makes each take SLOW_SYNC_US microseconds longer. For LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
static long count;
long slow_sync_count(void) { return __atomic_load_n(&count, __ATOMIC_SEQ_CST); }
static int slowly(const char *name, int file) {
    int answer = ((int (*)(int))dlsym(RTLD_NEXT, name))(file);
    __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    const char *delay = getenv("SLOW_SYNC_US");
    if (delay && atoi(delay) > 0) usleep(atoi(delay));
    return answer;
}
int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
