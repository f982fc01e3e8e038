// Switching stacks; see fiber.h.
#include "fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define WITH_ASAN 0
#endif
#if defined(__x86_64__) && !defined(LAPWING_UCONTEXT)
#define BY_HAND 1
#else
#define BY_HAND 0
#include <ucontext.h>
#endif

namespace shim {
namespace {
// Stack frames are several times larger with AddressSanitizer.
constexpr size_t STACK = WITH_ASAN ? 512 << 10 : 128 << 10;
constexpr size_t GUARD = 4096;
} // namespace

#if BY_HAND
extern "C" void lapwing_fiber_switch(void **save, void *stack_pointer);
asm(R"(
.text
.p2align 4
.hidden lapwing_fiber_switch
.globl lapwing_fiber_switch
.type lapwing_fiber_switch, @function
lapwing_fiber_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size lapwing_fiber_switch, . - lapwing_fiber_switch
)");
#endif

void fiber_create(Fiber &fiber, unsigned which) {
    (void)which;
    void *memory = mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, GUARD, PROT_NONE) != 0) {
        perror("shim: no stack for a thread");
        abort();
    }
    fiber.bottom = static_cast<char *>(memory) + GUARD;
    fiber.size = STACK;
}

void fiber_reset(Fiber &fiber, void (*entry)(), unsigned which) {
#if WITH_ASAN
    // a failed launch leaves poisoned frames on the stack
    __asan_unpoison_memory_region(fiber.bottom, fiber.size);
    fiber.fake_stack = nullptr;
#endif
#if BY_HAND
    char *top = static_cast<char *>(fiber.bottom) + fiber.size - which % 64 * 320 % 8192;
    void **stack = reinterpret_cast<void **>(top) - 2;
    // The switch returns to `entry`. The word above it stands for the return address, so that the alignment is that of a call.
    stack[0] = reinterpret_cast<void *>(entry);
    stack[1] = nullptr;
    stack -= 6;
    for (int i = 0; i < 6; ++i) stack[i] = nullptr;
    fiber.stack_pointer = stack;
#else
    (void)which;
    if (fiber.stack_pointer == nullptr) fiber.stack_pointer = new ucontext_t;
    ucontext_t *context = static_cast<ucontext_t *>(fiber.stack_pointer);
    getcontext(context);
    context->uc_stack.ss_sp = fiber.bottom;
    context->uc_stack.ss_size = fiber.size;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
#endif
}

void fiber_switch(Fiber &from, Fiber &to, bool ends) {
    (void)ends;
#if WITH_ASAN
    __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.bottom, to.size);
#endif
#if BY_HAND
    lapwing_fiber_switch(&from.stack_pointer, to.stack_pointer);
#else
    if (from.stack_pointer == nullptr) from.stack_pointer = new ucontext_t;
    swapcontext(static_cast<ucontext_t *>(from.stack_pointer), static_cast<ucontext_t *>(to.stack_pointer));
#endif
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void fiber_entered(Fiber &from) {
    (void)from;
#if WITH_ASAN
    const void *bottom = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (from.bottom == nullptr) {
        from.bottom = const_cast<void *>(bottom);
        from.size = size;
    }
#endif
}

} // namespace shim
