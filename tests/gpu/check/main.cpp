// Runs all checks of kernels: on a GPU (--ptx ../kernels/ptx) or on the fake libcuda (--cuda build/libcuda.so.1). They share one context.
// After an illegal address in one check, the context is broken and all later checks fail too; --only NAME runs a single check of --list.
#include <time.h>

#include <algorithm>

#include "check.h"

std::vector<check::Registered> &check::all() {
    static std::vector<Registered> list;
    return list;
}

static double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

int main(int count, char **words) {
    std::string cuda = "libcuda.so.1", ptx, filter, only;
    unsigned long long seed = 1;
    size_t slack = 256;
    bool list = false;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        const bool more = i + 1 < count;
        if (word == "--list") list = true;
        else if (word == "--cuda" && more) cuda = words[++i];
        else if (word == "--ptx" && more) ptx = words[++i];
        else if (word == "--filter" && more) filter = words[++i];
        else if (word == "--only" && more) only = words[++i];
        else if (word == "--seed" && more) seed = strtoull(words[++i], nullptr, 10);
        else if (word == "--slack" && more) slack = strtoull(words[++i], nullptr, 10) / 256 * 256;
        else {
            fprintf(stderr, "usage: check [--cuda LIBCUDA] [--ptx FOLDER] [--filter TEXT] [--only NAME] [--seed NUMBER] [--slack BYTES] [--list]\n");
            return 2;
        }
    }
    std::vector<check::Registered> checks = check::all();
    std::sort(checks.begin(), checks.end(), [](const auto &a, const auto &b) { return strcmp(a.name, b.name) < 0; });
    if (list) {
        for (const auto &one : checks) puts(one.name);
        return 0;
    }
    int passed = 0, failed = 0;
    try {
        check::Device device(cuda, ptx, slack);
        printf("on %s, driver %d, seed %llu\n", device.name().c_str(), device.version(), seed);
        for (const auto &one : checks) {
            if (std::string(one.name).find(filter) == std::string::npos || (!only.empty() && only != one.name)) continue;
            check::Check t(device, seed, one.name);
            const double from = seconds();
            bool well = false;
            try {
                one.run(t);
                well = t.failures() == 0;
            } catch (const std::exception &error) {
                fprintf(stderr, "  %s\n", error.what());
            }
            ++(well ? passed : failed);
            printf("%s %s (%.2f s, worst deviation %.3g of the allowed one)\n", well ? "ok    " : "FAILED", one.name, seconds() - from, t.worst());
            fflush(stdout);
        }
    } catch (const std::exception &error) {
        fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    printf("%d checks passed, %d failed\n", passed, failed);
    return failed > 0 || passed == 0 ? 1 : 0;
}
