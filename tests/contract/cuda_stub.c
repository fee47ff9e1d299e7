/* A libcuda.so.1 for tests of what happens when the driver says no; it passes the contract in cuda_contract.py.
 *
 * Memory is only counted. The file named by NLS_CUDA_STUB_SCRIPT is read again at each call. Lines:
 *   devices NUMBER                  how many there are (1)
 *   memory BYTES                    of each (1 GiB)
 *   fail FUNCTION CODE              that function fails with CODE
 *   sticky CODE                     whatever needs the context fails with CODE from now on, for good
 * Managed memory is a mapping of a file beside it with the name of the driver's, and so is one that is the driver's own.
 * The state of each process that was locked or checkpointed is in a file beside it, SCRIPT.PID.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 1024
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
       ILLEGAL_STATE = 401, IS_MANAGED = 8 };
enum state { RUNNING, LOCKED, CHECKPOINTED, FAILED };

static int initialised, current, lost;
static size_t sizes[MOST];

static long long asked(const char *word, const char *name, long long fallback) {
    char line[256], key[32], told[64];
    const char *path = getenv("NLS_CUDA_STUB_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    long long found = fallback, value;
    while (file && fgets(line, sizeof line, file)) {
        if (name ? sscanf(line, "%31s %63s %lld", key, told, &value) == 3 && !strcmp(told, name)
                 : sscanf(line, "%31s %lld", key, &value) == 2)
            if (!strcmp(key, word)) found = value;
    }
    if (file) fclose(file);
    return found;
}

/* What every call begins with: the error that was ordered, or that the process has not come so far. */
static int refused(const char *function, int needs_context) {
    int code = (int)asked("fail", function, OK);
    if (code) return code;
    if (!initialised) return NOT_INITIALIZED;
    if (!needs_context) return OK;
    if (!lost) lost = (int)asked("sticky", NULL, OK);
    return lost ? lost : current ? OK : INVALID_CONTEXT;
}
#define BEGIN(needs_context) do { int code = refused(__func__, needs_context); if (code) return code; } while (0)

static size_t used(void) {
    size_t sum = 0;
    for (int i = 0; i < MOST; i++) sum += sizes[i];
    return sum;
}

int cuInit(unsigned flags) {
    int code = (int)asked("fail", __func__, OK);
    if (code || flags) return code ? code : INVALID_VALUE;
    initialised = 1;
    return OK;
}

int cuDriverGetVersion(int *version) { *version = 13000; return OK; }

int cuDeviceGetCount(int *count) { BEGIN(0); *count = (int)asked("devices", NULL, 1); return OK; }

int cuDeviceGet(int *device, int number) {
    BEGIN(0);
    if (number < 0 || number >= asked("devices", NULL, 1)) return INVALID_DEVICE;
    *device = number;
    return OK;
}

static void *mapped(size_t size) {
    char path[512], *slash;
    const char *script = getenv("NLS_CUDA_STUB_SCRIPT");
    snprintf(path, sizeof path, "%s", script ? script : "/tmp/");
    slash = strrchr(path, '/');
    snprintf(slash, sizeof path - (size_t)(slash - path), "/nvidia-uvm");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size)) return MAP_FAILED;
    void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return found;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    BEGIN(0);
    (void)device;
    if (mapped(1 << 21) == MAP_FAILED) return OUT_OF_MEMORY;
    *context = &current;
    return OK;
}

static unsigned long long managed;

int cuMemAllocManaged(unsigned long long *pointer, size_t size, unsigned flags) {
    BEGIN(1);
    void *found = flags == 1 ? mapped(size) : MAP_FAILED;
    if (found == MAP_FAILED) return INVALID_VALUE;
    *pointer = managed = (unsigned long long)found;
    return OK;
}

int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer) {
    BEGIN(0);
    if (attribute != IS_MANAGED || !managed || pointer != managed) return INVALID_VALUE;
    *(unsigned char *)data = 1;
    return OK;
}

int cuCtxSetCurrent(void *context) { BEGIN(0); current = context != NULL; return OK; }

int cuCtxSynchronize(void) { BEGIN(1); return OK; }

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    BEGIN(1);
    *total = (size_t)asked("memory", NULL, 1LL << 30);
    *free = *total - used();
    return OK;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t size) {
    BEGIN(1);
    if (!size) return INVALID_VALUE;
    if (used() + size > (size_t)asked("memory", NULL, 1LL << 30)) return OUT_OF_MEMORY;
    for (int i = 0; i < MOST; i++)
        if (!sizes[i]) { sizes[i] = size; *pointer = (unsigned long long)(i + 1) << 32; return OK; }
    return OUT_OF_MEMORY;
}

int cuMemFree_v2(unsigned long long pointer) {
    BEGIN(1);
    unsigned long long number = pointer >> 32;
    if (!number || number > MOST || !sizes[number - 1]) return INVALID_VALUE;
    sizes[number - 1] = 0;
    return OK;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == OK ? "CUDA_SUCCESS" : code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
        : code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == NOT_INITIALIZED ? "CUDA_ERROR_NOT_INITIALIZED"
        : code == INVALID_DEVICE ? "CUDA_ERROR_INVALID_DEVICE" : code == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
        : code == ILLEGAL_STATE ? "CUDA_ERROR_ILLEGAL_STATE" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : NULL;
    return *name ? OK : INVALID_VALUE;
}

static void place(char *path, size_t size, int pid) {
    const char *script = getenv("NLS_CUDA_STUB_SCRIPT");
    snprintf(path, size, "%s.%d", script ? script : "/nowhere/nls", pid);
}

static int state_of(int pid) {
    char path[512];
    int state = RUNNING;
    place(path, sizeof path, pid);
    FILE *file = fopen(path, "r");
    if (file) { if (fscanf(file, "%d", &state) != 1) state = FAILED; fclose(file); }
    return state;
}

static int go(int pid, enum state from, enum state to) {
    char path[512];
    if (state_of(pid) != (int)from) return ILLEGAL_STATE;
    place(path, sizeof path, pid);
    if (to == RUNNING) { unlink(path); return OK; }
    FILE *file = fopen(path, "w");
    if (!file) return INVALID_VALUE;
    fprintf(file, "%d", to);
    fclose(file);
    return OK;
}

int cuCheckpointProcessGetState(int pid, int *state) { BEGIN(0); *state = state_of(pid); return OK; }
int cuCheckpointProcessLock(int pid, void *how) { BEGIN(0); (void)how; return go(pid, RUNNING, LOCKED); }
int cuCheckpointProcessCheckpoint(int pid, void *how) { BEGIN(0); (void)how; return go(pid, LOCKED, CHECKPOINTED); }
int cuCheckpointProcessRestore(int pid, void *how) { BEGIN(0); (void)how; return go(pid, CHECKPOINTED, LOCKED); }
int cuCheckpointProcessUnlock(int pid, void *how) { BEGIN(0); (void)how; return go(pid, LOCKED, RUNNING); }
