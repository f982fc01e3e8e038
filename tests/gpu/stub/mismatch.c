// A driver library that does not fit the kernel's driver: cuInit says CUDA_ERROR_SYSTEM_DRIVER_MISMATCH.
#define START 803
#define VERSION 12080
#define DEVICES 0
#include "stub.h"
