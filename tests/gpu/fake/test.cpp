// Tests of the fake libcuda, linked in, through its entry points: order, captures, faults, accounting. The kernels are those of
// primitives.cu.
#include <stdio.h>
#include <stdlib.h>

#include <thread>

#include "fake.h"
using fake::Pointer;

// Declarations as in the driver's header.
extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxSetCurrent(void *);
int cuCtxSynchronize();
int cuMemAlloc_v2(Pointer *, size_t);
int cuMemAllocAsync(Pointer *, size_t, void *);
int cuMemFree_v2(Pointer);
int cuMemFreeAsync(Pointer, void *);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemFreeHost(void *);
int cuMemHostGetDevicePointer_v2(Pointer *, void *, unsigned);
int cuMemcpyHtoDAsync_v2(Pointer, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, Pointer, size_t, void *);
int cuMemcpyDtoH_v2(void *, Pointer, size_t);
int cuMemcpyHtoD_v2(Pointer, const void *, size_t);
int cuMemsetD32Async(Pointer, unsigned, size_t, void *);
int cuStreamCreate(void **, unsigned);
int cuStreamDestroy_v2(void *);
int cuStreamSynchronize(void *);
int cuStreamQuery(void *);
int cuStreamWaitEvent(void *, void *, unsigned);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuStreamIsCapturing(void *, int *);
int cuEventCreate(void **, unsigned);
int cuEventDestroy_v2(void *);
int cuEventRecord(void *, void *);
int cuEventRecordWithFlags(void *, void *, unsigned);
int cuEventQuery(void *);
int cuEventSynchronize(void *);
int cuEventElapsedTime(float *, void *, void *);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphLaunch(void *, void *);
int cuGraphGetNodes(void *, void **, size_t *);
int cuGraphNodeGetType(void *, int *);
int cuGraphExecDestroy(void *);
int cuGraphDestroy(void *);
int cuModuleLoadData(void **, const void *);
int cuModuleUnload(void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuFuncSetAttribute(void *, int, int);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
void lapwing_fake_fault(const char *);
}

static int failed = 0;
static void is(const char *what, long long got, long long want) {
    if (got == want) return;
    printf("FAILED %s: %lld, not %lld\n", what, got, want);
    ++failed;
}
#define IS(call, want) is(#call, (long long)(call), (long long)(want))

struct Args { // PeakArgs
    void *data, *out;
    long long count;
};

int main() {
    void *context, *module, *function, *a, *b, *event, *other, *graph, *exec;
    IS(cuStreamCreate(&a, 1), 3);
    IS(cuInit(0), 0);
    IS(cuStreamCreate(&a, 1), 201);
    IS(cuDevicePrimaryCtxRetain(&context, 0), 0);
    IS(cuCtxSetCurrent(context), 0);
    IS(cuStreamCreate(&a, 1), 0);
    IS(cuStreamCreate(&b, 1), 0);
    IS(cuEventCreate(&event, 0), 0);
    IS(cuEventCreate(&other, 0), 0);

    // Modules.
    IS(cuModuleLoadData(&module, "nothing"), 200);
    IS(cuModuleLoadData(&module, ".version 8.0\n.visible .entry no_such_kernel(\n"), 500);
    IS(cuModuleLoadData(&module, ".version 8.0\n.visible .entry primitive_load_16(\n.param .align 8 .b8 p[32]\n)"), 218);
    IS(cuModuleLoadData(&module, ".version 8.0\n.visible .entry primitive_load_16(\n.param .align 8 .b8 p[24]\n)"), 0);
    IS(cuModuleGetFunction(&function, module, "primitive_shuffle"), 500);
    IS(cuModuleGetFunction(&function, module, "primitive_load_16"), 0);

    // Memory and its accounting; work that runs late.
    size_t before, now, total;
    IS(cuMemGetInfo_v2(&before, &total), 0);
    Pointer in, out, mapped;
    void *host;
    IS(cuMemAlloc_v2(&in, 2048), 0);
    IS(cuMemAllocAsync(&out, 2048, a), 0);
    IS(cuMemHostAlloc(&host, 4096, 2), 0);
    IS(cuMemHostGetDevicePointer_v2(&mapped, host, 0), 0);
    is("mapped", (long long)mapped, (long long)(uintptr_t)host);
    IS(cuMemGetInfo_v2(&now, &total), 0);
    is("used", (long long)(before - now), 4096);
    unsigned *words = static_cast<unsigned *>(host), got[512];
    IS(cuMemcpyDtoH_v2(got, in, 2048), 0);
    is("new memory", got[7], 0xffffffffu);
    IS(cuMemcpyDtoH_v2(got, in, 2049), 1);
    for (unsigned i = 0; i < 512; ++i) words[i] = i;
    IS(cuMemcpyHtoDAsync_v2(in, host, 2048, a), 0);
    words[3] = 33; // the copy has not run yet: it reads this
    Args args = {reinterpret_cast<void *>(in), reinterpret_cast<void *>(out), 0};
    void *parameters[] = {&args};
    IS(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, a, parameters, nullptr), 1);
    IS(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 50000, a, parameters, nullptr), 1);
    IS(cuFuncSetAttribute(function, 8, 200000), 1);
    IS(cuFuncSetAttribute(function, 8, 100000), 0);
    IS(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 50000, a, parameters, nullptr), 0);
    IS(cuMemcpyDtoHAsync_v2(words + 512, out, 2048, a), 0);
    is("not yet", words[512 + 508], 0xffffffffu);
    IS(cuStreamQuery(a), 600);
    IS(cuStreamQuery(a), 600);
    is("not yet", words[512 + 508], 0xffffffffu);
    IS(cuStreamQuery(a), 0);
    is("ran", words[512 + 511], 33);
    is("ran", words[512 + 510], 2);

    // Another stream waits for an event only after cuStreamWaitEvent.
    IS(cuMemsetD32Async(in, 5, 512, a), 0);
    IS(cuEventRecord(event, a), 0);
    IS(cuMemcpyDtoHAsync_v2(words, in, 4, b), 0);
    IS(cuStreamSynchronize(b), 0);
    is("stale", words[0], 0);
    IS(cuStreamWaitEvent(b, event, 0), 0);
    IS(cuMemcpyDtoHAsync_v2(words, in, 4, b), 0);
    IS(cuEventQuery(event), 600);
    IS(cuStreamSynchronize(b), 0);
    is("fresh", words[0], 5);
    IS(cuEventQuery(event), 0);
    IS(cuEventRecord(other, a), 0);
    float milliseconds;
    IS(cuEventElapsedTime(&milliseconds, event, other), 600);
    IS(cuEventSynchronize(other), 0);
    IS(cuEventElapsedTime(&milliseconds, event, other), 0);

    // A capture with a second stream and an event node, and a graph made from it.
    int status;
    IS(cuStreamBeginCapture_v2(a, 1), 0);
    IS(cuStreamIsCapturing(a, &status), 0);
    is("capturing", status, 1);
    IS(cuMemcpyHtoDAsync_v2(in, host, 2048, a), 0);
    IS(cuEventRecord(event, a), 0);
    IS(cuStreamWaitEvent(b, event, 0), 0);
    IS(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, b, parameters, nullptr), 0);
    IS(cuEventRecord(event, b), 0);
    IS(cuStreamWaitEvent(a, event, 0), 0);
    IS(cuMemcpyDtoHAsync_v2(words + 512, out, 2048, a), 0);
    IS(cuEventRecordWithFlags(other, a, 1), 0);
    IS(cuStreamEndCapture(b, &graph), 903);
    IS(cuStreamEndCapture(a, &graph), 0);
    size_t count = 0;
    IS(cuGraphGetNodes(graph, nullptr, &count), 0);
    is("nodes", (long long)count, 4);
    void *nodes[4];
    IS(cuGraphGetNodes(graph, nodes, &count), 0);
    int type, types = 0;
    for (void *node : nodes) cuGraphNodeGetType(node, &type), types = types * 10 + type;
    is("types", types, 1017);
    IS(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    for (unsigned turn = 100; turn < 103; ++turn) {
        words[0] = turn;
        IS(cuGraphLaunch(exec, a), 0);
        IS(cuEventQuery(other), 600);
        IS(cuEventSynchronize(other), 0);
        is("replay", words[512 + 508], turn);
    }
    IS(cuGraphExecDestroy(exec), 0);
    IS(cuGraphExecDestroy(exec), 1);
    IS(cuGraphDestroy(graph), 0);

    // Calls that are forbidden during a capture.
    Pointer more;
    for (int way = 0; way < 4; ++way) {
        IS(cuStreamBeginCapture_v2(a, 1), 0);
        switch (way) {
        case 0: IS(cuMemAlloc_v2(&more, 16), 900); break;
        case 1: IS(cuStreamSynchronize(a), 900); break;
        case 2: IS(cuMemcpyDtoH_v2(got, in, 4), 900); break;
        case 3: IS(cuCtxSynchronize(), 900); break;
        }
        IS(cuStreamIsCapturing(a, &status), 0);
        is("broken", status, 2);
        IS(cuStreamEndCapture(a, &graph), 901);
    }
    IS(cuStreamBeginCapture_v2(a, 1), 0);
    // Another thread may make them, because the capture is local to this thread.
    std::thread([&] {
        cuCtxSetCurrent(context);
        IS(cuMemAlloc_v2(&more, 16), 0);
        IS(cuMemFree_v2(more), 0);
    }).join();
    IS(cuStreamEndCapture(a, &graph), 0);
    IS(cuGraphDestroy(graph), 0);
    IS(cuStreamBeginCapture_v2(a, 1), 0);
    IS(cuEventRecord(event, a), 0);
    IS(cuStreamWaitEvent(b, event, 0), 0);
    IS(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, b, parameters, nullptr), 0);
    IS(cuStreamEndCapture(a, &graph), 904);

    // Faults.
    lapwing_fake_fault("alloc:2");
    IS(cuMemAlloc_v2(&more, 16), 0);
    IS(cuMemFree_v2(more), 0);
    IS(cuMemAlloc_v2(&more, 16), 2);
    IS(cuMemAlloc_v2(&more, 16), 0);
    IS(cuMemFree_v2(more), 0);
    lapwing_fake_fault("launch:2");
    for (int i = 0; i < 2; ++i) IS(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, a, parameters, nullptr), 0);
    IS(cuStreamSynchronize(a), 700);
    IS(cuMemAlloc_v2(&more, 16), 700);
    IS(cuStreamQuery(a), 700);
    lapwing_fake_fault("sync:1");
    IS(cuCtxSynchronize(), 719);
    IS(cuCtxSynchronize(), 719);
    lapwing_fake_fault("");
    IS(cuCtxSynchronize(), 0);

    // Memory that is freed in a stream's order stays allocated until the stream gets there.
    IS(cuMemcpyDtoHAsync_v2(words, out, 4, a), 0);
    IS(cuMemFreeAsync(out, a), 0);
    IS(cuMemGetInfo_v2(&now, &total), 0);
    is("used", (long long)(before - now), 4096);
    IS(cuStreamSynchronize(a), 0);
    IS(cuMemFree_v2(in), 0);
    IS(cuMemFree_v2(in), 1);
    IS(cuMemFreeHost(host), 0);
    IS(cuMemGetInfo_v2(&now, &total), 0);
    is("used", (long long)(before - now), 0);
    IS(cuEventDestroy_v2(event), 0);
    IS(cuEventDestroy_v2(other), 0);
    IS(cuStreamDestroy_v2(a), 0);
    IS(cuStreamDestroy_v2(b), 0);
    IS(cuModuleUnload(module), 0);
    IS(cuDevicePrimaryCtxRelease_v2(0), 0);
    printf(failed ? "fake libcuda: %d failed\n" : "fake libcuda: as it should be\n", failed);
    return failed != 0;
}
