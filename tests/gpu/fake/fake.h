// The fake libcuda: what its files share. Only for tests: it runs kernels through the shim, on the CPU.
//
// Work that is given to a stream runs only when somebody waits for it (or, after LAPWING_FAKE_QUERIES queries, 2 where not set,
// at the next one), in the stream's order and after what events ask for; so a wait that is missing shows as stale results.
// Environment (each also as FAKE_…, for programs that refuse what begins with LAPWING_ and is no setting of theirs):
//   LAPWING_FAKE_DRIVER_VERSION  12080 where not set      LAPWING_FAKE_CAPABILITY  8.0 where not set
//   LAPWING_FAKE_MEMORY          bytes of device memory, 40 GiB where not set
//   LAPWING_FAKE_DELAY_US        work begins by itself, so many microseconds after it was given; not set: never
//   LAPWING_FAKE_QUERIES         how many queries answer NOT_READY
//   LAPWING_FAKE_TRACE           a file for one line for each call that matters
//   LAPWING_FAKE_FAULT           launch:N (the N-th launch of a kernel or a graph makes an illegal access when it runs, and
//                                from then on all calls fail), alloc:N (the N-th allocation finds no memory), sync:N (the N-th
//                                wait fails as a launch that failed, and from then on all calls do); several with commas
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

/// One cuEventRecord: the event's last one is what others wait for.
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
    // Recorded in a capture, as a part of it only:
    std::weak_ptr<Capture> capture;
    Stream *captured_stream = nullptr;
    uint64_t captured_nodes = 0; // how many nodes that stream had then
};

enum class Kind { KERNEL, COPY, FILL, RECORD, WAIT, FREE, HOST };

/// Something to do, in a stream or as a graph's node.
struct Work {
    Kind kind = Kind::KERNEL;
    uint64_t number = 0;
    const shim::Kernel *kernel = nullptr;
    unsigned grid_x = 0, grid_y = 0, threads = 0;
    size_t shared = 0;
    std::vector<unsigned char> args;      // also: what was staged from pageable memory
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
    bool blocking = true; // waits for the null stream, and it for this one
    std::deque<Work> work;
    int queries = 0;
    std::shared_ptr<Capture> capture;
    uint64_t captured = 0; // its nodes
    bool joined = true;    // the capture's first stream waits for all of its nodes
};

struct Graph { std::vector<Work> nodes; };
struct Capture {
    Stream *origin = nullptr;
    int mode = 0; // 0 global, 1 of the thread, 2 relaxed
    std::thread::id thread;
    bool broken = false;
    std::vector<Stream *> streams;
    std::unique_ptr<Graph> graph = std::make_unique<Graph>();
};

struct Function {
    const shim::Kernel *kernel;
    size_t shared; // most dynamic shared memory that a launch may ask for
};
struct Module { std::map<std::string, std::unique_ptr<Function>> functions; };

struct State {
    std::recursive_mutex mutex;
    bool initialized = false;
    int context = 0;             // its address is the primary context's handle
    int retained = 0;
    Error broken = OK;           // from then on, what all calls answer
    uint64_t number = 0;         // of work given
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
/// What the environment has under this name, or under it without LAPWING_; null where nothing.
const char *variable(const char *name);
/// A number from the environment.
unsigned long long option(const char *name, unsigned long long otherwise);
/// Counts one more `what` (launch, alloc, sync): whether this one is to fail.
bool fault(const char *what);

/// The error of a call that may not be made while somebody captures; it breaks the capture.
Error unsafe_in_capture();

std::shared_ptr<Stream> stream_of(void *handle); // null: no such stream
/// Gives work to the stream, or to its capture.
Error submit(Stream &stream, Work work);
/// Runs the stream's work up to that number. The error is the context's.
Error run(const std::shared_ptr<Stream> &stream, uint64_t up_to);
Error run_all();

size_t device_memory();
unsigned most_shared();
/// Whether these bytes lie in one allocation.
bool is_device(uintptr_t at, size_t bytes);
bool is_pinned(uintptr_t at, size_t bytes);
Error release_device(uintptr_t at);

} // namespace fake
