/* A stand-in for NVIDIA's management library, for machines without a card: it tells what the file named by STUB_NVML says.
 *
 *     card MINOR UUID TOTAL-BYTES DIVIDED
 *     process CARD PID BYTES
 *
 * Cards are numbered in their order. "fail" on a line of its own makes every reading fail, "hang" makes it wait for good.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned minor, divided; unsigned long long total; char uuid[80]; } Card;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } Process;
typedef struct { unsigned long long total, free, used; } Memory;

static Card cards[16];
static int count;

static FILE *state(void) { const char *name = getenv("STUB_NVML"); return name ? fopen(name, "r") : NULL; }

int nvmlInit_v2(void) {
    char line[256]; FILE *file = state();
    if (!file) return 9; /* driver not loaded */
    for (count = 0; count < 16 && fgets(line, sizeof line, file);) {
        Card *c = &cards[count];
        if (sscanf(line, "card %u %79s %llu %u", &c->minor, c->uuid, &c->total, &c->divided) == 4) count++;
    }
    fclose(file);
    return 0;
}

const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : code == 6 ? "Not Found" : "Unknown Error"; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if ((int)index >= count) return 6;
    *device = &cards[index];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    for (int i = 0; i < count; i++) if (!strcmp(cards[i].uuid, uuid)) { *device = &cards[i]; return 0; }
    return 6;
}

int nvmlDeviceGetUUID(void *device, char *out, unsigned length) {
    snprintf(out, length, "%s", ((Card *)device)->uuid);
    return 0;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) { *minor = ((Card *)device)->minor; return 0; }

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    memory->total = memory->free = ((Card *)device)->total; memory->used = 0;
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending) {
    if (((Card *)device)->divided > 1) return 3; /* not supported, as on cards that can't be divided */
    *now = *pending = ((Card *)device)->divided;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *rows, Process *out) {
    char line[256]; FILE *file = state(); unsigned most = *rows, card, pid; unsigned long long used;
    if (!file) return 999;
    for (*rows = 0; fgets(line, sizeof line, file);) {
        if (!strncmp(line, "fail", 4)) { fclose(file); return 999; }
        if (!strncmp(line, "hang", 4)) for (;;) pause();
        if (sscanf(line, "process %u %u %llu", &card, &pid, &used) == 3 && &cards[card] == device && *rows < most)
            out[(*rows)++] = (Process){pid, used, 0xFFFFFFFF, 0xFFFFFFFF};
    }
    fclose(file);
    return 0;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *rows, Process *out) {
    (void)device; (void)out; *rows = 0;
    return 3;
}
