// A driver without a device: cuInit returns CUDA_ERROR_NO_DEVICE.
#define START 100
#define VERSION 12080
#define DEVICES 0
#include "stub.h"
