/* A libnvidia-ml.so.1 that answers from a text file, for tests of the real nvidia-ml-py and our driver on top of it.
 *
 * The file is named by NLS_NVML_STUB_SCRIPT and read again at each call. Lines:
 *   gpu UUID TOTAL RESERVED BASE_USED UTILISATION     a GPU; its number is its place in the file
 *   mig PARENT UUID TOTAL RESERVED BASE_USED          a slice of GPU number PARENT, which is then in MIG mode
 *   process UUID PID BYTES|hidden [graphics|both]     shown while the process exists
 *   fail FUNCTION CODE [UUID]                         that function fails with CODE, for that GPU only if one is named
 *   nvlink UUID UUID                                  these two are joined by NVLink
 *   ancestor UUID UUID LEVEL                          what these two have in common in PCIe's tree; others: the system
 *   numa UUID NODE                                    the memory that it is next to; others: it does not say
 *   mode UUID NUMBER                                  its compute mode; others: any number of processes
 *   xid UUID NUMBER [INSTANCE]                        an Xid, told once to whoever listens to that GPU
 * Memory limits that are set are appended to the script as comments: # limit UUID CGROUP SOFT HARD
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 32
#define HIDDEN 0xffffffffffffffffULL
#define NOT_FOUND 6
#define TOO_SMALL 7
#define TIMEOUT 10
#define XID_EVENT 8ULL
#define WHOLE_GPU 0xffffffffu
#define NVLINK 1000u
#define SYSTEM 50u
#define NOT_SUPPORTED 3

struct device { char uuid[96]; unsigned long long total, reserved, used; unsigned utilisation; int parent; };
struct process { char uuid[96]; unsigned pid; unsigned long long bytes; int compute, graphics; };
struct failure { char function[96], uuid[96]; int code; };
struct memory_v1 { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process_info { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
struct utilisation { unsigned gpu, memory; };
struct xid { char uuid[96]; unsigned number, instance; };
struct event { struct device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
struct set_limits { const char *cgroup; unsigned long long soft, hard; };
struct get_limits { const char *cgroup; unsigned long long soft, hard, used; };

struct pair { char one[96], other[96]; unsigned level; };
struct node { char uuid[96]; unsigned number; };

static struct pair pairs[MOST];
static struct node nodes[MOST], modes[MOST];
static int pair_count, node_count, mode_count;
static struct device devices[MOST];
static struct process processes[MOST];
static struct failure failures[MOST];
static struct xid xids[MOST];
static char listened[MOST][96];
static int device_count, process_count, failure_count, xid_count, listened_count, told_count, the_event_set;

static void read_script(void) {
    char line[512], word[32], size[64], how[32];
    const char *path = getenv("NLS_NVML_STUB_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    device_count = process_count = failure_count = xid_count = pair_count = node_count = mode_count = 0;
    while (file && fgets(line, sizeof line, file)) {
        struct device *d = &devices[device_count];
        struct process *p = &processes[process_count];
        struct failure *f = &failures[failure_count];
        if (sscanf(line, "%31s", word) != 1) continue;
        if (!strcmp(word, "gpu") && device_count < MOST) {
            d->parent = -1;
            if (sscanf(line, "%*s %95s %llu %llu %llu %u", d->uuid, &d->total, &d->reserved, &d->used, &d->utilisation) == 5)
                device_count++;
        } else if (!strcmp(word, "mig") && device_count < MOST) {
            d->utilisation = 0;
            if (sscanf(line, "%*s %d %95s %llu %llu %llu", &d->parent, d->uuid, &d->total, &d->reserved, &d->used) == 5)
                device_count++;
        } else if (!strcmp(word, "process") && process_count < MOST) {
            how[0] = 0;
            if (sscanf(line, "%*s %95s %u %63s %31s", p->uuid, &p->pid, size, how) < 3) continue;
            if (kill((pid_t)p->pid, 0) != 0) continue;
            p->bytes = strcmp(size, "hidden") ? strtoull(size, NULL, 10) : HIDDEN;
            p->graphics = !strcmp(how, "graphics") || !strcmp(how, "both");
            p->compute = strcmp(how, "graphics") != 0;
            process_count++;
        } else if (!strcmp(word, "fail") && failure_count < MOST) {
            f->uuid[0] = 0;
            if (sscanf(line, "%*s %95s %d %95s", f->function, &f->code, f->uuid) >= 2) failure_count++;
        } else if ((!strcmp(word, "nvlink") || !strcmp(word, "ancestor")) && pair_count < MOST) {
            struct pair *l = &pairs[pair_count];
            l->level = 0;
            if (sscanf(line, "%*s %95s %95s %u", l->one, l->other, &l->level) < 2) continue;
            if (!strcmp(word, "nvlink")) l->level = NVLINK;
            pair_count++;
        } else if (!strcmp(word, "numa") && node_count < MOST) {
            struct node *n = &nodes[node_count];
            if (sscanf(line, "%*s %95s %u", n->uuid, &n->number) == 2) node_count++;
        } else if (!strcmp(word, "mode") && mode_count < MOST) {
            struct node *m = &modes[mode_count];
            if (sscanf(line, "%*s %95s %u", m->uuid, &m->number) == 2) mode_count++;
        } else if (!strcmp(word, "xid") && xid_count < MOST) {
            struct xid *x = &xids[xid_count];
            x->instance = WHOLE_GPU;
            if (sscanf(line, "%*s %95s %u %u", x->uuid, &x->number, &x->instance) >= 2) xid_count++;
        }
    }
    if (file) fclose(file);
}

static int failing(const char *function, const struct device *device) {
    read_script();
    for (int i = 0; i < failure_count; i++)
        if (!strcmp(failures[i].function, function) &&
            (!failures[i].uuid[0] || (device && !strcmp(failures[i].uuid, device->uuid))))
            return failures[i].code;
    return 0;
}

#define ASK(device) do { int code_ = failing(__func__, device); if (code_) return code_; } while (0)

static struct device *nth(int parent, unsigned index) {
    for (int i = 0; i < device_count; i++)
        if (devices[i].parent == parent && index-- == 0) return &devices[i];
    return NULL;
}

static int number_of(const struct device *device) {
    int number = 0;
    for (int i = 0; &devices[i] != device; i++) number += devices[i].parent == -1;
    return number;
}

static unsigned long long used_of(const struct device *device) {
    unsigned long long used = device->used;
    for (int i = 0; i < process_count; i++)
        if (!strcmp(processes[i].uuid, device->uuid) && processes[i].bytes != HIDDEN) used += processes[i].bytes;
    return used;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; ASK(NULL); listened_count = told_count = 0; return 0; }
int nvmlShutdown(void) { ASK(NULL); return 0; }
const char *nvmlErrorString(int code) { (void)code; return "scripted failure"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    ASK(NULL);
    *count = 0;
    while (nth(-1, *count)) ++*count;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device) {
    read_script();
    *device = nth(-1, index);
    if (!*device) return NOT_FOUND;
    ASK(*device);
    return 0;
}

int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned length) {
    ASK(device);
    snprintf(uuid, length, "%s", device->uuid);
    return 0;
}

int nvmlDeviceGetName(struct device *device, char *name, unsigned length) {
    ASK(device);
    snprintf(name, length, "%s", device->parent < 0 ? "Stub H200" : "Stub H200 MIG 1g.18gb");
    return 0;
}

int nvmlDeviceGetMemoryInfo(struct device *device, struct memory_v1 *memory) {
    ASK(device);
    memory->total = device->total;
    memory->used = used_of(device) + device->reserved;
    memory->free = memory->total - memory->used;
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory) {
    ASK(device);
    memory->total = device->total;
    memory->reserved = device->reserved;
    memory->used = used_of(device);
    memory->free = memory->total - memory->reserved - memory->used;
    return 0;
}

static int list(const struct device *device, int graphics, unsigned *count, struct process_info *out) {
    unsigned room = out ? *count : 0, found = 0;
    for (int i = 0; i < process_count; i++) {
        const struct process *p = &processes[i];
        if (strcmp(p->uuid, device->uuid) || !(graphics ? p->graphics : p->compute)) continue;
        if (found < room) out[found] = (struct process_info){p->pid, p->bytes, 0, 0};
        found++;
    }
    *count = found;
    return found > room ? TOO_SMALL : 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process_info *out) {
    ASK(device);
    return list(device, 0, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(struct device *device, unsigned *count, struct process_info *out) {
    ASK(device);
    return list(device, 1, count, out);
}

struct process_use { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; };

int nvmlDeviceGetProcessUtilization(
    struct device *device, struct process_use *out, unsigned *count, unsigned long long since
) {
    (void)since;
    ASK(device);
    unsigned room = out ? *count : 0, found = 0;
    for (int i = 0; i < process_count; i++) {
        if (strcmp(processes[i].uuid, device->uuid) || !processes[i].compute) continue;
        if (found < room) out[found] = (struct process_use){processes[i].pid, 1, device->utilisation, 0, 0, 0};
        found++;
    }
    *count = found;
    if (!found) return NOT_FOUND;
    return found > room ? TOO_SMALL : 0;
}

int nvmlDeviceGetUtilizationRates(struct device *device, struct utilisation *rates) {
    ASK(device);
    *rates = (struct utilisation){device->utilisation, 0};
    return 0;
}

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending) {
    ASK(device);
    *current = *pending = nth(number_of(device), 0) != NULL;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count) {
    ASK(device);
    *count = 7;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **part) {
    ASK(device);
    *part = nth(number_of(device), index);
    return *part ? 0 : NOT_FOUND;
}

static struct device *named(const char *uuid) {
    for (int i = 0; i < device_count; i++)
        if (!strcmp(devices[i].uuid, uuid)) return &devices[i];
    return NULL;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device) {
    read_script();
    *device = named(uuid);
    if (!*device) return NOT_FOUND;
    ASK(*device);
    return 0;
}

int nvmlDeviceGetGpuInstanceId(struct device *device, unsigned *instance) {
    ASK(device);
    *instance = 0;
    for (int i = 0; &devices[i] != device; i++) *instance += devices[i].parent == device->parent;
    return 0;
}

int nvmlDeviceGetPersistenceMode(struct device *device, unsigned *mode) {
    ASK(device);
    *mode = 1;
    return 0;
}

int nvmlDeviceGetComputeMode(struct device *device, unsigned *mode) {
    ASK(device);
    *mode = 0;
    for (int i = 0; i < mode_count; i++)
        if (!strcmp(modes[i].uuid, device->uuid)) *mode = modes[i].number;
    return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    ASK(NULL);
    snprintf(version, length, "615.71");
    return 0;
}

int nvmlEventSetCreate(void **set) { ASK(NULL); *set = &the_event_set; return 0; }
int nvmlEventSetFree(void *set) { (void)set; ASK(NULL); return 0; }

int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, void *set) {
    (void)set;
    ASK(device);
    if (types & XID_EVENT && listened_count < MOST) strcpy(listened[listened_count++], device->uuid);
    return 0;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms) {
    (void)set, (void)timeout_ms;
    ASK(NULL);
    while (told_count < xid_count) {
        const struct xid *x = &xids[told_count++];
        for (int i = 0; i < listened_count; i++)
            if (!strcmp(listened[i], x->uuid)) {
                *event = (struct event){named(x->uuid), XID_EVENT, x->number, x->instance, WHOLE_GPU};
                return 0;
            }
    }
    return TIMEOUT;
}

int nvmlDeviceGetMemoryLimits_v1(struct device *device, struct get_limits *limits) {
    ASK(device);
    limits->soft = limits->used = 0;
    limits->hard = ~0ULL;
    return 0;
}

int nvmlDeviceSetMemoryLimits_v1(struct device *device, struct set_limits *limits) {
    ASK(device);
    FILE *file = fopen(getenv("NLS_NVML_STUB_SCRIPT"), "a");
    if (!file) return NOT_FOUND;
    fprintf(file, "# limit %s %s %llu %llu\n", device->uuid, limits->cgroup, limits->soft, limits->hard);
    fclose(file);
    return 0;
}

static const struct pair *joined(const struct device *one, const struct device *other, int by_nvlink) {
    for (int i = 0; i < pair_count; i++) {
        const struct pair *p = &pairs[i];
        int these = (!strcmp(p->one, one->uuid) && !strcmp(p->other, other->uuid)) ||
                    (!strcmp(p->one, other->uuid) && !strcmp(p->other, one->uuid));
        if (these && (p->level == NVLINK) == by_nvlink) return p;
    }
    return NULL;
}

int nvmlDeviceGetP2PStatus(struct device *one, struct device *other, int capability, int *status) {
    ASK(one);
    *status = capability == 2 && joined(one, other, 1) ? 0 : 5;
    return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(struct device *one, struct device *other, unsigned *level) {
    ASK(one);
    const struct pair *pair = joined(one, other, 0);
    *level = pair ? pair->level : SYSTEM;
    return 0;
}

int nvmlDeviceGetMemoryAffinity(struct device *device, unsigned words, unsigned long *set, unsigned scope) {
    (void)scope;
    ASK(device);
    memset(set, 0, words * sizeof *set);
    for (int i = 0; i < node_count; i++)
        if (!strcmp(nodes[i].uuid, device->uuid)) {
            set[nodes[i].number / 64] = 1UL << nodes[i].number % 64;
            return 0;
        }
    return NOT_SUPPORTED;
}

int nvmlDeviceGetNumaNodeId(struct device *device, unsigned *node) { (void)node; ASK(device); return NOT_SUPPORTED; }
