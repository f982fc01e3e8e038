// The fake libcuda: declarations that its files share. Only for tests: it runs kernels on the CPU, through the shim.
//
// Work that is submitted to a stream runs only when a caller waits for it, or at the first query after LAPWING_FAKE_QUERIES
// unsuccessful ones. It runs in the stream's order and after the events that it waits for. So a missing wait shows as stale results.
// Environment variables; each may also be named FAKE_…, for programs that reject unknown variables that begin with LAPWING_:
//   LAPWING_FAKE_DRIVER_VERSION  default 12080            LAPWING_FAKE_CAPABILITY  default 8.0
//   LAPWING_FAKE_MEMORY          bytes of device memory; default 40 GiB
//   LAPWING_FAKE_DELAY_US        work also starts unprompted, at intervals of this many microseconds; default: never
//   LAPWING_FAKE_QUERIES         how many queries answer NOT_READY; default 2
//   LAPWING_FAKE_TRACE           a file that gets one line for each traced call
//   LAPWING_FAKE_FAULT           launch:N (the N-th launch of a kernel or a graph makes an illegal access when it runs, and
//                                all later calls fail), alloc:N (the N-th allocation reports that no memory is left), sync:N (the
//                                N-th wait reports a failed launch, and all later calls fail); several are separated by commas
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../shim/shim.h"

#define API extern "C" __attribute__((visibility("default")))

namespace fake {

using Pointer = unsigned long long;

enum Error {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
    INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_MERGE = 902, CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904, CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD = 908
};

struct Stream;
struct Capture;

/// One cuEventRecord. A wait for an event waits for the event's last record.
struct Record {
    std::shared_ptr<Stream> stream;
    uint64_t number = 0; // of the work
    bool done = false;
    double time = 0; // seconds
    int queries = 0;
};
struct Event {
    bool timed = true;
    std::shared_ptr<Record> last;
    // Set if it was recorded in a capture and is not a node of the graph:
    std::weak_ptr<Capture> capture;
    Stream *captured_stream = nullptr;
    uint64_t captured_nodes = 0; // the stream's nodes at that time
};

enum class Kind { KERNEL, COPY, FILL, RECORD, WAIT, FREE, HOST };

/// One item of work, in a stream or as a node of a graph.
struct Work {
    Kind kind = Kind::KERNEL;
    uint64_t number = 0;
    const shim::Kernel *kernel = nullptr;
    unsigned grid_x = 0, grid_y = 0, threads = 0;
    size_t shared = 0;
    std::vector<unsigned char> args;      // for a COPY: bytes staged from pageable memory
    void *to = nullptr;
    const void *from = nullptr;
    size_t bytes = 0, width = 1;          // FILL: elements, bytes of one
    unsigned value = 0;
    std::shared_ptr<Record> record;
    Event *event = nullptr;               // RECORD as a node
    void (*host)(void *) = nullptr;
    bool faulty = false;
};

struct Stream {
    bool blocking = true; // it and the null stream wait for each other
    std::deque<Work> work;
    int queries = 0;
    std::shared_ptr<Capture> capture;
    uint64_t captured = 0; // its nodes in the capture
    bool joined = true;    // the capture's origin waits for all of its nodes
};

struct Graph { std::vector<Work> nodes; };
struct Capture {
    Stream *origin = nullptr;
    int mode = 0; // 0 global, 1 thread-local, 2 relaxed
    std::thread::id thread;
    bool broken = false;
    std::vector<Stream *> streams;
    std::unique_ptr<Graph> graph = std::make_unique<Graph>();
};

struct Function {
    const shim::Kernel *kernel;
    size_t shared; // the most dynamic shared memory that a launch may request, bytes
};
struct Module { std::map<std::string, std::unique_ptr<Function>> functions; };

struct State {
    std::recursive_mutex mutex;
    bool initialized = false;
    int context = 0;             // its address is the primary context's handle
    int retained = 0;
    Error broken = OK;           // once set, the answer of all calls
    uint64_t number = 0;         // of the work submitted last
    std::map<uintptr_t, size_t> device, host; // allocations
    size_t used = 0;
    std::map<Stream *, std::shared_ptr<Stream>> streams;
    std::shared_ptr<Stream> null_stream = std::make_shared<Stream>();
    std::vector<std::shared_ptr<Capture>> captures;
};
State &state();
extern thread_local void *current_context;

/// Holds the lock for a call. `error`: why the call cannot be done at all.
struct Call {
    std::lock_guard<std::recursive_mutex> lock;
    Error error;
    explicit Call(bool needs_context = true);
};

void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
/// The environment variable of this name, or of this name without LAPWING_; null if neither is set.
const char *variable(const char *name);
/// A number from the environment, or `otherwise`.
unsigned long long option(const char *name, unsigned long long otherwise);
/// Counts one more `what` (launch, alloc, sync) and returns whether this one must fail.
bool fault(const char *what);

/// For calls that are forbidden during a capture: returns their error and breaks the capture, if there is one.
Error unsafe_in_capture();

/// The stream, or null if there is none with this handle.
std::shared_ptr<Stream> stream_of(void *handle);
/// Submits work to the stream, or adds it to the stream's capture.
Error submit(Stream &stream, Work work);
/// Runs the stream's work up to this number. Returns the context's error.
Error run(const std::shared_ptr<Stream> &stream, uint64_t up_to);
Error run_all();

size_t device_memory();
unsigned most_shared();
/// Whether these bytes lie in one allocation.
bool is_device(uintptr_t at, size_t bytes);
bool is_pinned(uintptr_t at, size_t bytes);
Error release_device(uintptr_t at);

} // namespace fake
