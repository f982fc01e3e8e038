// The fake libcuda's streams and events: how work is submitted, when it runs, and captures.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

namespace fake {

thread_local void *current_context = nullptr;

State &state() {
    // never destroyed: calls may come while the process exits
    static State *all = new State;
    return *all;
}

const char *variable(const char *name) {
    const char *text = getenv(name);
    return text != nullptr ? text : getenv(name + strlen("LAPWING_"));
}

unsigned long long option(const char *name, unsigned long long otherwise) {
    const char *text = variable(name);
    return text != nullptr && *text != 0 ? strtoull(text, nullptr, 10) : otherwise;
}

void trace(const char *format, ...) {
    static FILE *const file = [] {
        const char *path = variable("LAPWING_FAKE_TRACE");
        return path != nullptr && *path != 0 ? fopen(path, "a") : nullptr;
    }();
    if (file == nullptr) return;
    va_list list;
    va_start(list, format);
    vfprintf(file, format, list);
    va_end(list);
    fputc('\n', file);
    fflush(file);
}

static std::map<std::string, unsigned long long> counts, faults;
static void read_faults(const char *text) {
    faults.clear();
    counts.clear();
    std::string rest = text != nullptr ? text : "";
    while (!rest.empty()) {
        const size_t comma = rest.find(','), colon = rest.find(':');
        if (colon != std::string::npos && colon < comma) faults[rest.substr(0, colon)] = strtoull(rest.c_str() + colon + 1, nullptr, 10);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
}
bool fault(const char *what) {
    static const bool once = (read_faults(variable("LAPWING_FAKE_FAULT")), true);
    (void)once;
    const auto wanted = faults.find(what);
    if (++counts[what] != (wanted == faults.end() ? 0 : wanted->second)) return false;
    trace("fault %s", what);
    return true;
}
/// For several tests in one process: sets new faults, resets their counters and repairs a broken context.
API void lapwing_fake_fault(const char *text) {
    std::lock_guard<std::recursive_mutex> lock(state().mutex);
    fault("none");
    read_faults(text);
    state().broken = OK;
}

Call::Call(bool needs_context) : lock(state().mutex), error(OK) {
    if (!state().initialized) error = NOT_INITIALIZED;
    else if (needs_context && current_context == nullptr) error = INVALID_CONTEXT;
    else if (needs_context) error = state().broken;
}

Error unsafe_in_capture() {
    Error error = OK;
    for (const auto &capture : state().captures)
        if (capture->mode == 0 || (capture->mode == 1 && capture->thread == std::this_thread::get_id())) {
            capture->broken = true;
            error = CAPTURE_UNSUPPORTED;
        }
    return error;
}

std::shared_ptr<Stream> stream_of(void *handle) {
    if (reinterpret_cast<uintptr_t>(handle) <= 2) return state().null_stream; // null, legacy, per thread
    const auto found = state().streams.find(static_cast<Stream *>(handle));
    return found == state().streams.end() ? nullptr : found->second;
}

static void delayed() {
    for (const unsigned long long wait = option("LAPWING_FAKE_DELAY_US", 0);;) {
        usleep(useconds_t(wait));
        std::lock_guard<std::recursive_mutex> lock(state().mutex);
        if (state().broken == OK) run_all();
    }
}

Error submit(Stream &stream, Work work) {
    if (stream.capture != nullptr) {
        if (stream.capture->broken) return CAPTURE_INVALIDATED;
        stream.capture->graph->nodes.push_back(std::move(work));
        ++stream.captured;
        stream.joined = &stream == stream.capture->origin;
        return OK;
    }
    static const bool by_itself = [] {
        if (option("LAPWING_FAKE_DELAY_US", 0) == 0) return false;
        std::thread(delayed).detach();
        return true;
    }();
    (void)by_itself;
    work.number = ++state().number;
    if (work.kind == Kind::RECORD) work.record->number = work.number;
    stream.work.push_back(std::move(work));
    stream.queries = 0;
    return OK;
}

static Error execute(Work &work) {
    switch (work.kind) {
    case Kind::KERNEL:
        if (work.faulty) return ILLEGAL_ADDRESS;
        return Error(shim::launch(*work.kernel, work.grid_x, work.grid_y, work.threads, work.shared, work.args.data()));
    case Kind::COPY: memmove(work.to, work.args.empty() ? work.from : work.args.data(), work.bytes); return OK;
    case Kind::FILL:
        for (size_t i = 0; i < work.bytes; ++i) memcpy(static_cast<char *>(work.to) + i * work.width, &work.value, work.width);
        return OK;
    case Kind::RECORD: {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        work.record->time = double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
        work.record->done = true;
        return OK;
    }
    case Kind::WAIT: return work.record->done ? OK : run(work.record->stream, work.record->number);
    case Kind::FREE: return release_device(reinterpret_cast<uintptr_t>(work.to));
    case Kind::HOST: work.host(work.to); return OK;
    }
    return OK;
}

Error run(const std::shared_ptr<Stream> &stream, uint64_t up_to) {
    State &all = state();
    while (all.broken == OK && !stream->work.empty() && stream->work.front().number <= up_to) {
        Work work = std::move(stream->work.front());
        stream->work.pop_front();
        if (stream == all.null_stream) {
            const auto others = all.streams;
            for (const auto &other : others)
                if (other.second->blocking) run(other.second, work.number);
        } else if (stream->blocking) run(all.null_stream, work.number);
        if (all.broken != OK) break;
        const Error error = execute(work);
        if (error != OK && all.broken == OK) {
            trace("broken %d", int(error));
            all.broken = error;
        }
    }
    return all.broken;
}

Error run_all() {
    const auto streams = state().streams;
    for (const auto &stream : streams) run(stream.second, state().number);
    return run(state().null_stream, state().number);
}

} // namespace fake

using namespace fake;

static Error waited(void *handle) { return fault("sync") ? state().broken = LAUNCH_FAILED : run(stream_of(handle), state().number); }

API int cuStreamCreateWithPriority(void **stream, unsigned flags, int) {
    Call call;
    if (call.error) return call.error;
    auto made = std::make_shared<Stream>();
    made->blocking = (flags & 1) == 0;
    state().streams[made.get()] = made;
    *stream = made.get();
    return OK;
}
API int cuStreamCreate(void **stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
API int cuStreamDestroy_v2(void *handle) {
    Call call;
    const auto stream = stream_of(handle);
    if (stream == nullptr || stream == state().null_stream) return INVALID_HANDLE;
    const Error error = run(stream, state().number);
    state().streams.erase(stream.get());
    return error;
}
API int cuStreamGetFlags(void *handle, unsigned *flags) {
    Call call;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    *flags = stream->blocking ? 0 : 1;
    return OK;
}
API int cuStreamGetPriority(void *, int *priority) { return *priority = 0; }
API int cuStreamSynchronize(void *handle) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    if (const Error error = unsafe_in_capture()) return error;
    if (stream->capture) return stream->capture->broken = true, CAPTURE_UNSUPPORTED;
    trace("sync stream");
    return waited(handle);
}
API int cuStreamQuery(void *handle) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    if (const Error error = unsafe_in_capture()) return error;
    if (stream->capture) return stream->capture->broken = true, CAPTURE_UNSUPPORTED;
    if (stream->work.empty()) return OK;
    if (++stream->queries <= (int)option("LAPWING_FAKE_QUERIES", 2)) return NOT_READY;
    return run(stream, state().number);
}
API int cuCtxSynchronize() {
    Call call;
    if (call.error) return call.error;
    if (!state().captures.empty()) {
        for (const auto &capture : state().captures) capture->broken = true;
        return CAPTURE_UNSUPPORTED;
    }
    trace("sync context");
    if (fault("sync")) return state().broken = LAUNCH_FAILED;
    return run_all();
}
API int cuLaunchHostFunc(void *handle, void (*function)(void *), void *data) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(handle);
    if (stream == nullptr) return INVALID_HANDLE;
    Work work;
    work.kind = Kind::HOST;
    work.host = function;
    work.to = data;
    return submit(*stream, std::move(work));
}

API int cuEventCreate(void **event, unsigned flags) {
    Call call;
    if (call.error) return call.error;
    auto *made = new Event;
    made->timed = (flags & 2) == 0;
    *event = made;
    return OK;
}
API int cuEventDestroy_v2(void *event) {
    Call call;
    delete static_cast<Event *>(event);
    return call.error;
}
API int cuEventRecordWithFlags(void *handle, void *stream_handle, unsigned flags) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(stream_handle);
    if (stream == nullptr || handle == nullptr) return INVALID_HANDLE;
    Event &event = *static_cast<Event *>(handle);
    Work work;
    work.kind = Kind::RECORD;
    // Without the flag for external events, it only marks a place in the capture.
    if (stream->capture != nullptr && (flags & 1) == 0) {
        if (stream->capture->broken) return CAPTURE_INVALIDATED;
        event.capture = stream->capture;
        event.captured_stream = stream.get();
        event.captured_nodes = stream->captured;
        return OK;
    }
    // With the flag it becomes a node: each launch of the graph records the event.
    if (stream->capture != nullptr) {
        work.event = &event;
        trace("event captured");
        return submit(*stream, std::move(work));
    }
    if ((flags & 1) != 0) return INVALID_VALUE; // an external event outside of a capture
    event.capture.reset();
    event.last = work.record = std::make_shared<Record>();
    work.record->stream = stream;
    return submit(*stream, std::move(work));
}
API int cuEventRecord(void *event, void *stream) { return cuEventRecordWithFlags(event, stream, 0); }
API int cuStreamWaitEvent(void *stream_handle, void *handle, unsigned flags) {
    Call call;
    if (call.error) return call.error;
    const auto stream = stream_of(stream_handle);
    if (stream == nullptr || handle == nullptr) return INVALID_HANDLE;
    if (flags != 0) return NOT_SUPPORTED;
    Event &event = *static_cast<Event *>(handle);
    // An event that was recorded in a capture: this stream joins the capture.
    if (const auto capture = event.capture.lock()) {
        if (stream->capture != nullptr && stream->capture != capture) return CAPTURE_MERGE;
        if (stream->capture == nullptr) {
            stream->capture = capture;
            stream->captured = 0;
            stream->joined = false;
            capture->streams.push_back(stream.get());
        }
        if (stream.get() == capture->origin && event.captured_stream->captured == event.captured_nodes) event.captured_stream->joined = true;
        return OK;
    }
    if (stream->capture != nullptr) return stream->capture->broken = true, Error(905); // it would depend on work outside of the capture
    if (event.last == nullptr) return OK;
    Work work;
    work.kind = Kind::WAIT;
    work.record = event.last;
    return submit(*stream, std::move(work));
}
static Error event_ready(void *handle, bool wait) {
    Call call;
    if (call.error) return call.error;
    if (handle == nullptr) return INVALID_HANDLE;
    Event &event = *static_cast<Event *>(handle);
    if (const Error error = unsafe_in_capture()) return error;
    if (!event.capture.expired()) return CAPTURED_EVENT;
    if (wait) trace("sync event");
    if (wait && fault("sync")) return state().broken = LAUNCH_FAILED;
    if (event.last == nullptr || event.last->done) return OK;
    if (!wait && ++event.last->queries <= (int)option("LAPWING_FAKE_QUERIES", 2)) return NOT_READY;
    return run(event.last->stream, event.last->number);
}
API int cuEventSynchronize(void *event) { return event_ready(event, true); }
API int cuEventQuery(void *event) { return event_ready(event, false); }
API int cuEventElapsedTime(float *milliseconds, void *first, void *last) {
    Call call;
    if (call.error) return call.error;
    if (first == nullptr || last == nullptr) return INVALID_HANDLE;
    const Event &a = *static_cast<Event *>(first), &b = *static_cast<Event *>(last);
    if (!a.timed || !b.timed || a.last == nullptr || b.last == nullptr) return INVALID_HANDLE;
    if (!a.last->done || !b.last->done) return NOT_READY;
    *milliseconds = float((b.last->time - a.last->time) * 1e3);
    return OK;
}
// Drivers before 12.8 do not have it.
#ifndef LAPWING_FAKE_OLD
API int cuEventElapsedTime_v2(float *milliseconds, void *first, void *last) {
    if (option("LAPWING_FAKE_DRIVER_VERSION", 12080) < 12080) {
        fprintf(stderr, "fake libcuda: cuEventElapsedTime_v2 does not exist before 12.8\n");
        abort();
    }
    return cuEventElapsedTime(milliseconds, first, last);
}
#endif
