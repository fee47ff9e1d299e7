/* A libcuda.so.1 with the driver's process checkpoint, for tests of the real cuda-core and our driver on top of it.
 *
 * NLS_CUDA_STUB_SCRIPT names a text file that is read again at each call. Lines:
 *   version NUMBER          what cuDriverGetVersion says; 13050 without
 *   fail FUNCTION CODE      that function fails with CODE and changes nothing
 *   breaks FUNCTION CODE    the same, and the process is in the state `failed` from then on
 *   state NUMBER            what every process is in, if it is asked
 * Each call is appended to the script as a comment: # FUNCTION PID
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
enum { MOST = 64, ILLEGAL_STATE = 401, NOT_FOUND = 500 };

static struct { int pid, state; } known[MOST];

static int *state_of(int pid) {
    int i;
    for (i = 0; i < MOST - 1 && known[i].pid != 0 && known[i].pid != pid; i++) continue;
    known[i].pid = pid;
    return &known[i].state;
}

static int scripted(const char *function, int pid) {
    const char *path = getenv("NLS_CUDA_STUB_SCRIPT");
    char word[16], name[96], line[256];
    int code, found = 0;
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (line[0] != '#' && sscanf(line, "%15s %95s %d", word, name, &code) == 3 && strcmp(name, function) == 0) {
            found = code;
            if (strcmp(word, "breaks") == 0 && pid) *state_of(pid) = FAILED;
        }
    fclose(file);
    file = fopen(path, "a");
    if (file != NULL) { fprintf(file, "# %s %d\n", function, pid); fclose(file); }
    return found;
}

static int step(const char *function, int pid, int from, int to) {
    int *state = state_of(pid), code = scripted(function, pid);
    if (code) return code;
    if (*state != from) return ILLEGAL_STATE;
    *state = to;
    return 0;
}

int cuInit(unsigned flags) { (void)flags; return scripted("cuInit", 0); }

static int number(const char *line_of, int otherwise) {
    const char *path = getenv("NLS_CUDA_STUB_SCRIPT");
    char line[256];
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    if (file == NULL) return otherwise;
    while (fgets(line, sizeof line, file) != NULL) sscanf(line, line_of, &otherwise);
    fclose(file);
    return otherwise;
}

int cuDriverGetVersion(int *version) { *version = number("version %d", 13050); return 0; }

int cuCheckpointProcessGetState(int pid, int *state) {
    *state = number("state %d", *state_of(pid));
    return scripted("GetState", pid);
}
int cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) { *tid = pid; return 0; }
int cuCheckpointProcessLock(int pid, void *args) { (void)args; return step("Lock", pid, RUNNING, LOCKED); }
int cuCheckpointProcessCheckpoint(int pid, void *args) {
    (void)args;
    return step("Checkpoint", pid, LOCKED, CHECKPOINTED);
}
int cuCheckpointProcessRestore(int pid, void *args) { (void)args; return step("Restore", pid, CHECKPOINTED, LOCKED); }
int cuCheckpointProcessUnlock(int pid, void *args) { (void)args; return step("Unlock", pid, LOCKED, RUNNING); }

/* Memory of this process alone, for what a trial writes and reads. */
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return scripted("DeviceGet", 0); }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = known; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuMemAlloc_v2(unsigned long long *memory, size_t size) {
    *memory = (unsigned long long)malloc(size);
    return *memory ? 0 : 2;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) {
    memcpy(to, (void *)from, size);
    if (scripted("DtoH", 0)) *(char *)to ^= 1;
    return 0;
}

int cuGetErrorName(int error, const char **text) { (void)error; *text = "CUDA_ERROR_OF_THE_STUB"; return 0; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "the stub was told so"; return 0; }

/* By the name without its version, as the driver's own does. */
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found) {
    static void *self;
    char versioned[128];
    (void)version; (void)flags;
    if (self == NULL) self = dlopen("libcuda.so.1", RTLD_NOW);
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *function = dlsym(self, versioned);
    if (*function == NULL) *function = dlsym(self, name);
    if (found != NULL) *found = *function == NULL;
    return *function == NULL ? NOT_FOUND : 0;
}
int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
