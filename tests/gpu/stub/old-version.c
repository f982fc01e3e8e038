// A driver that is too old: 11.0. All other calls would succeed, up to the creation of the context.
#define START 0
#define VERSION 11000
#define DEVICES 1
#include "stub.h"
