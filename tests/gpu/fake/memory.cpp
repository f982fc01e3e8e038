// The fake libcuda's memory and copies. Device memory is host memory, filled with NaN when it is allocated.
#include <stdio.h>
#include <stdlib.h>

#include "fake.h"

namespace fake {

size_t device_memory() { return size_t(option("LAPWING_FAKE_MEMORY", 40ull << 30)); }

static bool within(const std::map<uintptr_t, size_t> &all, uintptr_t at, size_t bytes) {
    auto found = all.upper_bound(at);
    if (found == all.begin()) return false;
    --found;
    return at - found->first <= found->second && bytes <= found->second - (at - found->first);
}
bool is_device(uintptr_t at, size_t bytes) { return within(state().device, at, bytes); }
bool is_pinned(uintptr_t at, size_t bytes) { return within(state().host, at, bytes); }

Error release_device(uintptr_t at) {
    const auto found = state().device.find(at);
    if (found == state().device.end()) return INVALID_VALUE;
    state().used -= found->second;
    // a read after the release gives NaN
    memset(reinterpret_cast<void *>(at), 0xff, found->second);
    free(reinterpret_cast<void *>(at));
    state().device.erase(found);
    return OK;
}

static Error allocate(Pointer *to, size_t bytes, const char *how) {
    if (bytes == 0) return INVALID_VALUE;
    if (const Error error = unsafe_in_capture()) return error;
    trace("alloc %s %zu", how, bytes);
    void *memory = nullptr;
    if (fault("alloc") || bytes > device_memory() - state().used || posix_memalign(&memory, 256, bytes) != 0) return OUT_OF_MEMORY;
    memset(memory, 0xff, bytes);
    state().device[reinterpret_cast<uintptr_t>(memory)] = bytes;
    state().used += bytes;
    *to = reinterpret_cast<uintptr_t>(memory);
    return OK;
}

enum Way { TO_DEVICE, TO_HOST, WITHIN };

// A copy in a stream, or at once. As in CUDA, a copy from pageable memory reads the bytes during the call, and a copy to pageable
// memory waits for its end.
static Error copy(void *to, const void *from, size_t bytes, Way way, Stream *stream) {
    if (bytes == 0) return OK;
    const uintptr_t target = reinterpret_cast<uintptr_t>(to), source = reinterpret_cast<uintptr_t>(from);
    const bool target_known = is_device(target, bytes) || is_pinned(target, bytes);
    const bool source_known = is_device(source, bytes) || is_pinned(source, bytes);
    if ((way != TO_HOST && !target_known) || (way != TO_DEVICE && !source_known)) {
        fprintf(stderr, "fake libcuda: a copy of %zu bytes is not within one allocation\n", bytes);
        return INVALID_VALUE;
    }
    const char *const ways[] = {"h2d", "d2h", "d2d"};
    const bool pageable = (way == TO_DEVICE && !source_known) || (way == TO_HOST && !target_known);
    const bool captured = stream != nullptr && stream->capture != nullptr;
    trace("memcpy %s %zu %s %s%s", ways[way], bytes, stream ? "async" : "sync", pageable ? "pageable" : "pinned", captured ? " captured" : "");
    Work work;
    work.kind = Kind::COPY;
    work.to = to;
    work.from = from;
    work.bytes = bytes;
    if (stream == nullptr) {
        if (const Error error = unsafe_in_capture()) return error;
        Error error = submit(*state().null_stream, std::move(work));
        return error ? error : run(state().null_stream, state().number);
    }
    if (pageable && !captured && way == TO_DEVICE) work.args.assign(static_cast<const unsigned char *>(from), static_cast<const unsigned char *>(from) + bytes);
    const Error error = submit(*stream, std::move(work));
    if (error || !pageable || captured || way != TO_HOST) return error;
    const auto shared = stream == state().null_stream.get() ? state().null_stream : state().streams[stream];
    return run(shared, state().number);
}

static Error copy_async(void *to, const void *from, size_t bytes, Way way, void *handle) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    return copy(to, from, bytes, way, stream.get());
}
static Error copy_now(void *to, const void *from, size_t bytes, Way way) {
    Call call;
    return call.error ? call.error : copy(to, from, bytes, way, nullptr);
}
static void *pointer(Pointer at) { return reinterpret_cast<void *>(at); }

static Error fill(Pointer at, unsigned value, size_t count, size_t width, void *handle, bool async) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    if (count == 0) return OK;
    if (!is_device(at, count * width) && !is_pinned(at, count * width)) return INVALID_VALUE;
    trace("memset %zu%s%s", count * width, async ? " async" : "", stream->capture ? " captured" : "");
    Work work;
    work.kind = Kind::FILL;
    work.to = pointer(at);
    work.bytes = count;
    work.width = width;
    work.value = value;
    if (!async)
        if (const Error error = unsafe_in_capture()) return error;
    return submit(*stream, std::move(work));
}

} // namespace fake

using namespace fake;

API int cuMemAlloc_v2(Pointer *to, size_t bytes) {
    Call call;
    return call.error ? call.error : allocate(to, bytes, "sync");
}
API int cuMemAllocAsync(Pointer *to, size_t bytes, void *stream) {
    Call call;
    if (call.error) return call.error;
    return stream_of(stream) == nullptr ? INVALID_HANDLE : allocate(to, bytes, "async");
}
API int cuMemAllocFromPoolAsync(Pointer *to, size_t bytes, void *, void *stream) { return cuMemAllocAsync(to, bytes, stream); }
API int cuMemAllocManaged(Pointer *to, size_t bytes, unsigned) { return cuMemAlloc_v2(to, bytes); }
API int cuMemFree_v2(Pointer at) {
    Call call;
    if (at == 0) return OK;
    if (const Error error = unsafe_in_capture()) return error;
    run_all(); // as in CUDA, this call waits for all work
    const Error error = release_device(at);
    trace("free");
    return call.error ? call.error : error;
}
API int cuMemFreeAsync(Pointer at, void *handle) {
    Call call;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    if (state().device.count(at) == 0) return INVALID_VALUE;
    if (call.error) return release_device(at), call.error;
    if (stream->capture) return stream->capture->broken = true, CAPTURE_UNSUPPORTED;
    trace("free async");
    Work work;
    work.kind = Kind::FREE;
    work.to = pointer(at);
    return submit(*stream, std::move(work));
}
API int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    Call call;
    if (call.error) return call.error;
    *total = device_memory();
    *free_bytes = *total - state().used;
    return OK;
}
API int cuMemHostAlloc(void **to, size_t bytes, unsigned flags) {
    Call call;
    if (call.error) return call.error;
    if (const Error error = unsafe_in_capture()) return error;
    trace("alloc host %zu flags %u", bytes, flags);
    if (bytes == 0) return INVALID_VALUE;
    if (fault("alloc") || posix_memalign(to, 4096, bytes) != 0) return OUT_OF_MEMORY;
    memset(*to, 0xff, bytes);
    state().host[reinterpret_cast<uintptr_t>(*to)] = bytes;
    return OK;
}
API int cuMemAllocHost_v2(void **to, size_t bytes) { return cuMemHostAlloc(to, bytes, 0); }
API int cuMemFreeHost(void *at) {
    Call call;
    if (const Error error = unsafe_in_capture()) return error;
    run_all();
    if (state().host.erase(reinterpret_cast<uintptr_t>(at)) == 0) return INVALID_VALUE;
    free(at);
    trace("free host");
    return call.error;
}
API int cuMemHostGetDevicePointer_v2(Pointer *to, void *at, unsigned) {
    Call call;
    if (call.error) return call.error;
    if (!is_pinned(reinterpret_cast<uintptr_t>(at), 1)) return INVALID_VALUE;
    *to = reinterpret_cast<uintptr_t>(at);
    return OK;
}
API int cuMemHostGetFlags(unsigned *flags, void *at) {
    Call call;
    *flags = 2;
    return is_pinned(reinterpret_cast<uintptr_t>(at), 1) ? OK : INVALID_VALUE;
}
API int cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes) { return copy_now(pointer(to), from, bytes, TO_DEVICE); }
API int cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes) { return copy_now(to, pointer(from), bytes, TO_HOST); }
API int cuMemcpyDtoD_v2(Pointer to, Pointer from, size_t bytes) { return copy_now(pointer(to), pointer(from), bytes, WITHIN); }
API int cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, void *stream) { return copy_async(pointer(to), from, bytes, TO_DEVICE, stream); }
API int cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, void *stream) { return copy_async(to, pointer(from), bytes, TO_HOST, stream); }
API int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void *stream) { return copy_async(pointer(to), pointer(from), bytes, WITHIN, stream); }
API int cuMemsetD8_v2(Pointer at, unsigned char value, size_t count) { return fill(at, value, count, 1, nullptr, false); }
API int cuMemsetD32_v2(Pointer at, unsigned value, size_t count) { return fill(at, value, count, 4, nullptr, false); }
API int cuMemsetD8Async(Pointer at, unsigned char value, size_t count, void *stream) { return fill(at, value, count, 1, stream, true); }
API int cuMemsetD32Async(Pointer at, unsigned value, size_t count, void *stream) { return fill(at, value, count, 4, stream, true); }

// There is only one pool. It keeps no freed memory and ignores attributes.
API int cuDeviceGetDefaultMemPool(void **pool, int) { return *pool = &state().used, OK; }
API int cuDeviceGetMemPool(void **pool, int) { return *pool = &state().used, OK; }
API int cuDeviceSetMemPool(int, void *) { return OK; }
API int cuMemPoolSetAttribute(void *, int, void *) { return OK; }
API int cuMemPoolGetAttribute(void *, int, void *value) { return *static_cast<unsigned long long *>(value) = 0, OK; }
API int cuMemPoolTrimTo(void *, size_t) { return OK; }
API int cuMemPoolDestroy(void *) { return OK; }
