// Fibers: each thread of a block has its own stack, and one host thread switches between the stacks. On x86-64 a switch is six
// pushes and pops; other architectures use ucontext. AddressSanitizer is notified of every switch.
#pragma once
#include <stddef.h>

namespace shim {

struct Fiber {
    // The saved stack pointer while the fiber does not run; except on x86-64, its ucontext.
    void *stack_pointer = nullptr;
    // The lowest address of its stack. The host's is known after the first switch away from it.
    void *bottom = nullptr;
    size_t size = 0;
    // AddressSanitizer's handle.
    void *fake_stack = nullptr;
};

/// Allocates the fiber's stack; called once for each fiber. `which` is the fiber's number.
void fiber_create(Fiber &fiber, unsigned which);
/// Restarts the fiber at `entry`, which never returns. `which` shifts the top of the stack: stacks that all begin at the same offset
/// would compete for the same cache lines.
void fiber_reset(Fiber &fiber, void (*entry)(), unsigned which);
/// Runs `to` until another fiber switches back to `from`. `ends`: `from` never runs again.
void fiber_switch(Fiber &from, Fiber &to, bool ends);
/// Every entry calls this first; `from` is the fiber that switched to it.
void fiber_entered(Fiber &from);

} // namespace shim
