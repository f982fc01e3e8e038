// The part of the CUDA driver API that the checks use. The library is opened at run time, so that the same program runs kernels on a
// GPU and on the fake libcuda of tests/gpu/fake. A call that fails throws std::runtime_error with its name and the error's.
#pragma once
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace check {

using DevicePointer = unsigned long long;

class Device {
  public:
    /// `cuda`: the library to open. `ptx`: the folder of FILE.ptx; empty only on the fake, whose kernels need no PTX.
    /// `slack`: bytes of NaN before and behind each buffer.
    Device(const std::string &cuda, std::string ptx, size_t slack) : ptx_(std::move(ptx)), slack_(slack) {
        library_ = dlopen(cuda.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library_ == nullptr) throw std::runtime_error(std::string("no driver: ") + dlerror());
        call<int(unsigned)>("cuInit", 0u);
        int device = 0;
        call<int(int *, int)>("cuDeviceGet", &device, 0);
        char text[128] = "";
        call<int(char *, int, int)>("cuDeviceGetName", text, int(sizeof text), device);
        name_ = text;
        call<int(int *)>("cuDriverGetVersion", &version_);
        void *context = nullptr;
        call<int(void **, int)>("cuDevicePrimaryCtxRetain", &context, device);
        call<int(void *)>("cuCtxSetCurrent", context);
    }
    ~Device() {
        try {
            for (const auto &module : modules_)
                if (module.second != nullptr) call<int(void *)>("cuModuleUnload", module.second);
            call<int(int)>("cuDevicePrimaryCtxRelease_v2", 0);
        } catch (const std::exception &) {
            // the context is broken: nothing can be released
        }
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    const std::string &name() const { return name_; }
    int version() const { return version_; }
    size_t slack() const { return slack_; }

    DevicePointer allocate(size_t bytes) {
        DevicePointer at = 0;
        call<int(DevicePointer *, size_t)>("cuMemAlloc_v2", &at, bytes);
        return at;
    }
    void free(DevicePointer at) noexcept {
        try {
            call<int(DevicePointer)>("cuMemFree_v2", at);
        } catch (const std::exception &) {
            // the context is broken: the check that broke it has reported the error
        }
    }
    void fill(DevicePointer at, unsigned char value, size_t bytes) {
        if (bytes > 0) call<int(DevicePointer, unsigned char, size_t)>("cuMemsetD8_v2", at, value, bytes);
    }
    void write(DevicePointer at, const void *from, size_t bytes) {
        if (bytes > 0) call<int(DevicePointer, const void *, size_t)>("cuMemcpyHtoD_v2", at, from, bytes);
    }
    void read(void *to, DevicePointer at, size_t bytes) {
        if (bytes > 0) call<int(void *, DevicePointer, size_t)>("cuMemcpyDtoH_v2", to, at, bytes);
    }

    /// Runs kernel `name` of the PTX file `file` (without its extension) and waits for its end.
    void launch(const std::string &file, const std::string &name, unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared,
                const void *args) {
        void *function = this->function(file, name);
        constexpr int MAX_DYNAMIC_SHARED = 8;
        if (shared > 48 * 1024)
            call<int(void *, int, int)>("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, int(shared));
        void *parameters[] = {const_cast<void *>(args)};
        using Launch = int(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
        call<Launch>("cuLaunchKernel", function, grid_x, grid_y, 1u, threads, 1u, 1u, unsigned(shared), static_cast<void *>(nullptr), parameters,
                     static_cast<void **>(nullptr));
        call<int()>("cuCtxSynchronize");
    }

  private:
    template <class Signature, class... Values> void call(const char *symbol, Values... values) {
        const int error = reinterpret_cast<Signature *>(this->symbol(symbol))(values...);
        if (error == 0) return;
        const char *text = "unknown";
        reinterpret_cast<int (*)(int, const char **)>(this->symbol("cuGetErrorName"))(error, &text);
        throw std::runtime_error(std::string(symbol) + ": " + text + " (" + std::to_string(error) + ")");
    }
    void *symbol(const char *name) {
        void *&at = symbols_[name];
        if (at == nullptr) at = dlsym(library_, name);
        if (at == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
        return at;
    }
    void *function(const std::string &file, const std::string &name) {
        void *&function = functions_[file + "/" + name];
        if (function != nullptr) return function;
        void *&module = modules_[file];
        if (module == nullptr) {
            std::string text = "// lapwing-fake: every kernel\n";
            if (!ptx_.empty()) {
                std::ifstream in(ptx_ + "/" + file + ".ptx");
                if (!in) throw std::runtime_error("no file " + ptx_ + "/" + file + ".ptx");
                std::ostringstream all;
                all << in.rdbuf();
                text = all.str();
            }
            call<int(void **, const void *)>("cuModuleLoadData", &module, static_cast<const void *>(text.c_str()));
        }
        call<int(void **, void *, const char *)>("cuModuleGetFunction", &function, module, name.c_str());
        return function;
    }

    void *library_ = nullptr;
    std::string ptx_, name_;
    size_t slack_;
    int version_ = 0;
    std::map<std::string, void *> symbols_, modules_, functions_;
};

/// Device memory between two pieces of slack; all of it is filled with 0xff bytes (NaN) at first.
class Buffer {
  public:
    Buffer(Device &device, size_t bytes) : device_(&device), bytes_(bytes) {
        base_ = device.allocate(total());
        device.fill(base_, 0xff, total());
    }
    Buffer(Buffer &&other) noexcept : device_(other.device_), base_(other.base_), bytes_(other.bytes_) { other.base_ = 0; }
    Buffer &operator=(Buffer &&other) noexcept {
        std::swap(device_, other.device_);
        std::swap(base_, other.base_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Buffer() {
        if (base_ != 0) device_->free(base_);
    }
    size_t bytes() const { return bytes_; }
    DevicePointer at() const { return base_ + device_->slack(); }
    template <class T> T *as() const { return reinterpret_cast<T *>(at()); }

    void write(const void *from, size_t bytes) { device_->write(at(), from, bytes < bytes_ ? bytes : bytes_); }
    /// Returns all bytes. Throws if the slack was written to.
    std::vector<unsigned char> read() const {
        std::vector<unsigned char> all(total());
        device_->read(all.data(), base_, all.size());
        for (size_t i = 0; i < all.size(); ++i)
            if ((i < device_->slack() || i >= device_->slack() + bytes_) && all[i] != 0xff)
                throw std::runtime_error("byte " + std::to_string(ptrdiff_t(i) - ptrdiff_t(device_->slack())) + " outside of a buffer of " +
                                         std::to_string(bytes_) + " bytes was written");
        return std::vector<unsigned char>(all.begin() + ptrdiff_t(device_->slack()), all.begin() + ptrdiff_t(device_->slack() + bytes_));
    }

  private:
    size_t total() const { return bytes_ + 2 * device_->slack() + (bytes_ == 0 && device_->slack() == 0 ? 1 : 0); }
    Device *device_;
    DevicePointer base_ = 0;
    size_t bytes_;
};

} // namespace check
