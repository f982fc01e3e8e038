// The fake libcuda's device, context, modules and error names. The device's attributes are roughly those of an A100.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

#include "fake.h"

using namespace fake;

static int capability() {
    const char *text = variable("LAPWING_FAKE_CAPABILITY");
    const double number = text != nullptr && *text != 0 ? atof(text) : 8.0;
    return int(number * 10 + 0.5);
}
unsigned fake::most_shared() { return capability() >= 90 ? 232448 : 166912; }

API int cuInit(unsigned) {
    std::lock_guard<std::recursive_mutex> lock(state().mutex);
    state().initialized = true;
    return OK;
}
API int cuDriverGetVersion(int *version) { return *version = int(option("LAPWING_FAKE_DRIVER_VERSION", 12080)), OK; }
API int cuDeviceGetCount(int *count) {
    Call call(false);
    *count = 1;
    return call.error;
}
API int cuDeviceGet(int *device, int ordinal) {
    Call call(false);
    *device = 0;
    return call.error ? call.error : ordinal == 0 ? OK : INVALID_DEVICE;
}
API int cuDeviceGetName(char *name, int room, int) {
    snprintf(name, size_t(room), "lapwing-emulated");
    return OK;
}
API int cuDeviceGetUuid_v2(unsigned char *uuid, int) {
    memcpy(uuid, "lapwing-emulated", 16);
    return OK;
}
API int cuDeviceGetUuid(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
API int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = device_memory(), OK; }
API int cuDeviceGetPCIBusId(char *text, int room, int) { return snprintf(text, size_t(room), "0000:00:00.0"), OK; }
API int cuDeviceComputeCapability(int *major, int *minor, int) { return *major = capability() / 10, *minor = capability() % 10, OK; }
API int cuDeviceCanAccessPeer(int *can, int, int) { return *can = 0, OK; }
API int cuDeviceGetAttribute(int *value, int attribute, int) {
    static const std::map<int, int> answers = {
        {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 0x7fffffff}, {6, 65535}, {7, 65535}, // threads of a block, blocks of a grid
        {8, 49152}, {9, 65536}, {10, 32}, {12, 65536}, {13, 1410000}, {16, 108}, // shared, constant, warp, registers, kHz, multiprocessors
        {19, 1}, {31, 1}, {36, 1215000}, {37, 5120}, {38, 40 << 20}, {39, 2048}, {40, 3}, {41, 1}, // memory's kHz, bits; L2; engines
        {78, 1}, {79, 1}, {80, 1}, {81, 167936}, {82, 65536}, {83, 1}, {95, 1}, {106, 32}, {108, 30 << 20}, {111, 1024}, {115, 1}};
    if (attribute == 75) *value = capability() / 10;
    else if (attribute == 76) *value = capability() % 10;
    else if (attribute == 97) *value = int(most_shared());
    else if (attribute == 81 && capability() >= 90) *value = 233472;
    else *value = answers.count(attribute) ? answers.at(attribute) : 0;
    return OK;
}

API int cuDevicePrimaryCtxRetain(void **context, int) {
    Call call(false);
    if (call.error) return call.error;
    ++state().retained;
    *context = &state().context;
    trace("context retain");
    return OK;
}
API int cuDevicePrimaryCtxRelease_v2(int) {
    Call call(false);
    if (state().retained == 0) return INVALID_CONTEXT;
    trace("context release");
    // The context is destroyed, with its error and with the memory that was not freed.
    if (--state().retained == 0) {
        run_all();
        if (!state().device.empty() || !state().host.empty())
            trace("leak device %zu host %zu", state().device.size(), state().host.size());
        while (!state().device.empty()) release_device(state().device.begin()->first);
        state().broken = OK;
    }
    return OK;
}
API int cuDevicePrimaryCtxReset_v2(int) { return OK; }
API int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return OK; }
API int cuDevicePrimaryCtxGetState(int, unsigned *flags, int *active) { return *flags = 0, *active = state().retained > 0, OK; }
API int cuCtxSetCurrent(void *context) {
    Call call(false);
    if (call.error) return call.error;
    if (context != nullptr && (context != &state().context || state().retained == 0)) return INVALID_CONTEXT;
    current_context = context;
    return OK;
}
API int cuCtxGetCurrent(void **context) { return *context = current_context, OK; }
API int cuCtxPushCurrent_v2(void *context) { return cuCtxSetCurrent(context); }
API int cuCtxPopCurrent_v2(void **context) {
    if (context != nullptr) *context = current_context;
    current_context = nullptr;
    return OK;
}
API int cuCtxGetDevice(int *device) { return *device = 0, current_context ? OK : INVALID_CONTEXT; }
API int cuCtxSetFlags(unsigned) { return OK; }
API int cuCtxGetFlags(unsigned *flags) { return *flags = 0, OK; }
API int cuCtxSetLimit(int, size_t) { return OK; }
API int cuCtxGetLimit(size_t *value, int) { return *value = 0, OK; }
API int cuCtxSetCacheConfig(int) { return OK; }
API int cuCtxGetCacheConfig(int *value) { return *value = 0, OK; }
API int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, OK; }
API int cuCtxGetApiVersion(void *, unsigned *version) { return *version = 3020, OK; }
API int cuProfilerStart() { return OK; }
API int cuProfilerStop() { return OK; }

// A module has the kernels that its PTX names: each `.entry NAME` must be a kernel of the shim whose argument struct has the size that
// the PTX declares. The text "lapwing-fake: every kernel" makes a module with all kernels of the shim.
static Error load(void **module, const char *text) {
    if (const Error error = unsafe_in_capture()) return error;
    auto made = std::make_unique<Module>();
    const auto add = [&](const shim::Kernel &kernel) { made->functions[kernel.name].reset(new Function{&kernel, 48 * 1024}); };
    if (strstr(text, "lapwing-fake: every kernel") != nullptr)
        for (const shim::Kernel &kernel : shim::kernels()) add(kernel);
    else if (strstr(text, ".version") == nullptr) return INVALID_IMAGE;
    for (const char *at = text; (at = strstr(at, ".entry")) != nullptr;) {
        at += strlen(".entry");
        while (*at == ' ' || *at == '\t' || *at == '\n') ++at;
        const size_t length = strcspn(at, " \t\r\n({");
        const std::string name(at, length);
        const shim::Kernel *kernel = shim::find(name.c_str());
        if (kernel == nullptr) {
            fprintf(stderr, "fake libcuda: kernel %s of the PTX is not in the shim\n", name.c_str());
            return NOT_FOUND;
        }
        const char *size = at + strcspn(at, "[{");
        if (*size == '[' && strtoull(size + 1, nullptr, 10) != kernel->args) {
            fprintf(stderr, "fake libcuda: kernel %s takes %s bytes in the PTX, %zu in the shim\n", name.c_str(),
                    std::string(size + 1, strcspn(size + 1, "]")).c_str(), kernel->args);
            return INVALID_PTX;
        }
        add(*kernel);
    }
    trace("module load kernels %zu", made->functions.size());
    *module = made.release();
    return OK;
}
API int cuModuleLoadData(void **module, const void *image) {
    Call call;
    return call.error ? call.error : load(module, static_cast<const char *>(image));
}
API int cuModuleLoadDataEx(void **module, const void *image, unsigned, int *, void **) { return cuModuleLoadData(module, image); }
API int cuModuleUnload(void *module) {
    Call call;
    run_all();
    delete static_cast<Module *>(module);
    trace("module unload");
    return call.error;
}
API int cuModuleGetFunction(void **function, void *module, const char *name) {
    Call call;
    if (call.error) return call.error;
    const auto &all = static_cast<Module *>(module)->functions;
    const auto found = all.find(name);
    if (found == all.end()) return NOT_FOUND;
    *function = found->second.get();
    return OK;
}
API int cuFuncGetName(const char **name, void *function) { return *name = static_cast<Function *>(function)->kernel->name, OK; }
API int cuFuncGetModule(void **, void *) { return NOT_SUPPORTED; }
API int cuFuncSetCacheConfig(void *, int) { return OK; }
API int cuFuncGetAttribute(int *value, int attribute, void *handle) {
    const Function &function = *static_cast<Function *>(handle);
    switch (attribute) {
    case 0: *value = int(function.kernel->threads); break;
    case 4: *value = 64; break;
    case 5: case 6: *value = 80; break;
    case 8: *value = int(function.shared); break;
    default: *value = 0;
    }
    return OK;
}
API int cuFuncSetAttribute(void *handle, int attribute, int value) {
    Call call;
    if (call.error) return call.error;
    if (attribute == 8 && (value < 0 || unsigned(value) > most_shared())) return INVALID_VALUE;
    if (attribute == 8) static_cast<Function *>(handle)->shared = std::max(size_t(value), size_t(48 * 1024));
    return OK;
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *, int threads, size_t shared, unsigned) {
    *blocks = std::min({2048 / std::max(threads, 1), int((most_shared() + 1024) / (shared + 1024)), 32});
    return OK;
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

static const std::map<int, const char *> names = {
    {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {218, "CUDA_ERROR_INVALID_PTX"}, {400, "CUDA_ERROR_INVALID_HANDLE"}, {401, "CUDA_ERROR_ILLEGAL_STATE"}, {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"}, {801, "CUDA_ERROR_NOT_SUPPORTED"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}, {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"}, {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"}, {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"}, {907, "CUDA_ERROR_CAPTURED_EVENT"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"}};
API int cuGetErrorName(int error, const char **text) {
    const auto found = names.find(error);
    *text = found == names.end() ? nullptr : found->second;
    return found == names.end() ? INVALID_VALUE : OK;
}
API int cuGetErrorString(int error, const char **text) { return cuGetErrorName(error, text); }
