/* A libcuda.so.1 that is none: it counts, remembers and answers what FAKE_CUDA asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int asked(const char *what) {
    const char *text = getenv("FAKE_CUDA");
    return text && strcmp(text, what) == 0;
}

static void say(const char *call, unsigned long long value) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *out = path ? fopen(path, "a") : NULL;
    if (out) {
        fprintf(out, "%s %llu\n", call, value);
        fclose(out);
    }
}

int cuInit(unsigned flags) { return asked("old") ? 803 : (int)flags; }
int cuDriverGetVersion(int *v) { *v = 13010; return 0; }
int cuDeviceGetCount(int *n) { *n = asked("none") ? 0 : 1; return 0; }
int cuDeviceGet(int *device, int n) { *device = n + 7; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
    return device == 7 ? (snprintf(name, size, "Fake GPU"), 0) : 101;
}
int cuDeviceGetAttribute(int *v, int what, int device) {
    if (device != 7 || (what != 75 && what != 76)) return 1;
    *v = what == 75 ? 12 : 1;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **c, int device) { *c = (void *)0x99; return device != 7; }
int cuCtxSetCurrent(void *c) { return c != (void *)0x99; }
int cuCtxSynchronize(void) { return asked("fault") ? 700 : 0; }
int cuModuleLoadData(void **m, const char *image) {
    if (memcmp(image, "ab\0cd", 5)) return 209;
    *m = (void *)0x1234567890;
    return 0;
}
int cuModuleUnload(void *m) { say("unload", (unsigned long long)m); return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) {
    if (m != (void *)0x1234567890 || strcmp(name, "kernel")) return 500;
    *f = (void *)0x2345678901;
    return 0;
}
int cuModuleGetGlobal_v2(unsigned long long *at, size_t *size, void *m, const char *name) {
    *at = 0x7f0000000000ull + strlen(name);
    *size = 12;
    return m != (void *)0x1234567890;
}
int cuFuncSetAttribute(void *f, int what, int value) {
    say("shared", value);
    return f != (void *)0x2345678901 || what != 8;
}
int cuMemAlloc_v2(unsigned long long *at, size_t size) {
    *at = (unsigned long long)malloc(size);
    say("alloc", size);
    return 0;
}
int cuMemFree_v2(unsigned long long at) { free((void *)at); say("free", 0); return 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) {
    memcpy((void *)to, from, size);
    return 0;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) {
    memcpy(to, (void *)from, size);
    return 0;
}
/* The kernel: (int *out, struct {int a; int b; int c;}) puts a sum and the launch's sizes. */
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
    int *out, three[3];
    if (f != (void *)0x2345678901 || stream || extra) return 1;
    memcpy(&out, arguments[0], 8);
    memcpy(three, arguments[1], 12);
    unsigned sizes[7] = {gx, gy, gz, bx, by, bz, shared};
    out[0] = three[0] + three[1] + three[2];
    for (int i = 0; i < 7; i++) out[i + 1] = (int)sizes[i];
    return 0;
}
int cuGetErrorName(int code, const char **text) {
    *text = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : code == 803 ? "CUDA_ERROR_MISMATCH" : NULL;
    return 0;
}
int cuGetErrorString(int code, const char **text) { *text = "in words"; return code != 700; }
