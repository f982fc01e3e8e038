// The fake libcuda's captures and graphs, and launches of kernels.
#include <algorithm>
#include <set>
#include <stdio.h>

#include "fake.h"

using namespace fake;

namespace {
struct Exec { std::vector<Work> nodes; };
std::set<Graph *> graphs;
std::set<Exec *> execs;
} // namespace

API int cuStreamBeginCapture_v2(void *handle, int mode) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    if (stream == state().null_stream) return CAPTURE_UNSUPPORTED;
    if (stream->capture != nullptr) return 401; // ILLEGAL_STATE
    auto capture = std::make_shared<Capture>();
    capture->origin = stream.get();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->streams.push_back(stream.get());
    stream->capture = capture;
    stream->captured = 0;
    stream->joined = true;
    state().captures.push_back(capture);
    trace("capture begin mode %d", mode);
    return OK;
}
API int cuStreamEndCapture(void *handle, void **graph) {
    Call call;
    *graph = nullptr;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    const auto capture = stream->capture;
    if (capture == nullptr) return 401;
    if (capture->origin != stream.get()) return CAPTURE_UNMATCHED;
    if (capture->mode != 2 && capture->thread != std::this_thread::get_id()) return CAPTURE_WRONG_THREAD;
    bool joined = true;
    for (const auto &one : state().streams)
        if (one.second->capture == capture) {
            joined = joined && one.second->joined;
            one.second->capture = nullptr;
        }
    auto &all = state().captures;
    all.erase(std::find(all.begin(), all.end(), capture));
    trace("capture end nodes %zu%s", capture->graph->nodes.size(), capture->broken ? " broken" : "");
    if (call.error) return call.error;
    if (capture->broken) return CAPTURE_INVALIDATED;
    if (!joined) return CAPTURE_UNJOINED;
    graphs.insert(capture->graph.get());
    *graph = capture->graph.release();
    return OK;
}
API int cuStreamIsCapturing(void *handle, int *status) {
    Call call;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    *status = stream->capture == nullptr ? 0 : stream->capture->broken ? 2 : 1;
    return OK;
}
API int cuStreamGetCaptureInfo_v2(void *handle, int *status, unsigned long long *id, void **graph, const void **nodes, size_t *count) {
    if (id != nullptr) *id = 1;
    if (graph != nullptr) *graph = nullptr;
    if (nodes != nullptr) *nodes = nullptr;
    if (count != nullptr) *count = 0;
    return cuStreamIsCapturing(handle, status);
}
API int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0; }

API int cuGraphGetNodes(void *handle, void **nodes, size_t *count) {
    Call call(false);
    Graph *graph = static_cast<Graph *>(handle);
    if (graphs.count(graph) == 0) return INVALID_VALUE;
    const size_t room = *count;
    if (nodes != nullptr)
        for (size_t i = 0; i < room; ++i) nodes[i] = i < graph->nodes.size() ? &graph->nodes[i] : nullptr;
    *count = nodes != nullptr ? std::min(room, graph->nodes.size()) : graph->nodes.size();
    return OK;
}
API int cuGraphNodeGetType(void *node, int *type) {
    switch (static_cast<Work *>(node)->kind) {
    case Kind::KERNEL: *type = 0; break;
    case Kind::COPY: *type = 1; break;
    case Kind::FILL: *type = 2; break;
    case Kind::HOST: *type = 3; break;
    case Kind::WAIT: *type = 6; break;
    case Kind::RECORD: *type = 7; break;
    case Kind::FREE: *type = 11; break;
    }
    return OK;
}
API int cuGraphInstantiateWithFlags(void **exec, void *handle, unsigned long long flags) {
    Call call;
    if (call.error) return call.error;
    if (graphs.count(static_cast<Graph *>(handle)) == 0 || (flags & ~0xfull) != 0 || ((flags & 1) && (flags & 4))) return INVALID_VALUE;
    auto *made = new Exec{static_cast<Graph *>(handle)->nodes};
    execs.insert(made);
    *exec = made;
    trace("graph instantiate nodes %zu", made->nodes.size());
    return OK;
}
API int cuGraphUpload(void *exec, void *) {
    Call call;
    if (call.error) return call.error;
    return execs.count(static_cast<Exec *>(exec)) ? OK : INVALID_VALUE;
}
API int cuGraphLaunch(void *handle, void *stream_handle) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(stream_handle);
    if (stream == nullptr || execs.count(static_cast<Exec *>(handle)) == 0) return INVALID_VALUE;
    if (stream->capture != nullptr) return NOT_SUPPORTED;
    const Exec &exec = *static_cast<Exec *>(handle);
    trace("graph launch nodes %zu", exec.nodes.size());
    bool faulty = fault("launch");
    if (faulty && exec.nodes.empty()) return state().broken = ILLEGAL_ADDRESS;
    for (Work work : exec.nodes) {
        if (work.kind == Kind::RECORD) {
            work.event->last = work.record = std::make_shared<Record>();
            work.event->capture.reset();
            work.record->stream = stream;
        }
        if (faulty && work.kind == Kind::KERNEL) {
            work.faulty = true;
            faulty = false;
        }
        submit(*stream, std::move(work));
    }
    return OK;
}
API int cuGraphExecDestroy(void *exec) {
    Call call;
    if (execs.erase(static_cast<Exec *>(exec)) == 0) return INVALID_VALUE;
    delete static_cast<Exec *>(exec);
    trace("graph exec destroy");
    return call.error;
}
API int cuGraphDestroy(void *graph) {
    Call call;
    if (graphs.erase(static_cast<Graph *>(graph)) == 0) return INVALID_VALUE;
    delete static_cast<Graph *>(graph);
    return call.error;
}

API int cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads, unsigned block_y, unsigned block_z,
                       unsigned shared, void *stream_handle, void **parameters, void **extra) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(stream_handle);
    if (stream == nullptr || handle == nullptr) return INVALID_HANDLE;
    const Function &function = *static_cast<Function *>(handle);
    if (extra != nullptr) return NOT_SUPPORTED;
    if (grid_x == 0 || grid_y == 0 || grid_z != 1 || grid_x > 0x7fffffffu || grid_y > 65535 || block_y != 1 || block_z != 1 ||
        threads != function.kernel->threads || shared > function.shared || parameters == nullptr || parameters[0] == nullptr) {
        fprintf(stderr, "fake libcuda: kernel %s cannot be launched with a grid of %u x %u x %u, blocks of %u x %u x %u and %u bytes of shared "
                "memory: it has blocks of %u threads and %zu bytes of shared memory\n", function.kernel->name, grid_x, grid_y, grid_z, threads,
                block_y, block_z, shared, function.kernel->threads, function.shared);
        return INVALID_VALUE;
    }
    Work work;
    work.kernel = function.kernel;
    work.grid_x = grid_x;
    work.grid_y = grid_y;
    work.threads = threads;
    work.shared = shared;
    const auto *args = static_cast<const unsigned char *>(parameters[0]);
    work.args.assign(args, args + function.kernel->args);
    const bool captured = stream->capture != nullptr;
    trace("launch %s grid %u x %u threads %u shared %u%s", function.kernel->name, grid_x, grid_y, threads, shared, captured ? " captured" : "");
    if (!captured) work.faulty = fault("launch");
    return submit(*stream, std::move(work));
}
API int cuLaunchCooperativeKernel(...) { return NOT_SUPPORTED; }
