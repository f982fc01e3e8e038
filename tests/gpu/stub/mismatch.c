// A driver library that does not match the kernel module: cuInit returns CUDA_ERROR_SYSTEM_DRIVER_MISMATCH.
#define START 803
#define VERSION 12080
#define DEVICES 0
#include "stub.h"
