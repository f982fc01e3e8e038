// Shared by the stub libraries: a libcuda.so.1 that can be loaded and whose initialisation fails in one way. Only for tests.
#define API __attribute__((visibility("default")))
static const char *name_of(int error) {
    switch (error) {
    case 3: return "CUDA_ERROR_NOT_INITIALIZED";
    case 100: return "CUDA_ERROR_NO_DEVICE";
    case 803: return "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    default: return "CUDA_ERROR_UNKNOWN";
    }
}
API int cuGetErrorName(int error, const char **text) { return *text = name_of(error), 0; }
API int cuGetErrorString(int error, const char **text) { return *text = name_of(error), 0; }
API int cuInit(unsigned flags) { return (void)flags, START; }
API int cuDriverGetVersion(int *version) { return *version = VERSION, 0; }
API int cuDeviceGetCount(int *count) { return *count = DEVICES, START; }
API int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, START ? 3 : ordinal < DEVICES ? 0 : 101; }
API int cuDeviceGetName(char *name, int room, int device) { return (void)device, room > 0 ? name[0] = 0 : 0, START ? 3 : 0; }
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 8 : 0;
    return (void)device, START ? 3 : 0;
}
API int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = 0, (void)device, START ? 3 : 999; }
API int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, START ? 3 : 0; }
API int cuCtxSetCurrent(void *context) { return (void)context, START ? 3 : 0; }
API int cuCtxGetCurrent(void **context) { return *context = 0, START ? 3 : 0; }
