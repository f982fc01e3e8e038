// Fibers: stacks that a thread switches between by hand, for the threads of a block. On x86-64 a switch is six pushes and pops;
// elsewhere ucontext does it. AddressSanitizer is told of every switch.
#pragma once
#include <stddef.h>

namespace shim {

struct Fiber {
    void *stack_pointer = nullptr; // while it does not run; elsewhere than on x86-64: its ucontext
    void *bottom = nullptr;        // of its stack; of the host's: known from the first switch away from it
    size_t size = 0;
    void *fake_stack = nullptr;    // AddressSanitizer's
};

/// Gives the fiber a stack (once); `which` shifts its top, for stacks at equal places would share few lines of the caches.
void fiber_create(Fiber &fiber, unsigned which);
/// Lets it begin anew at `entry`, which never returns.
void fiber_reset(Fiber &fiber, void (*entry)(), unsigned which);
/// Goes on with `to` until somebody switches back to `from`. `ends`: `from` will not go on.
void fiber_switch(Fiber &from, Fiber &to, bool ends);
/// The first thing that an entry calls; `from` is who switched to it.
void fiber_entered(Fiber &from);

} // namespace shim
