// The part of the scheduler (scheduler.cpp) that the twins use.
#pragma once
#include <stddef.h>

namespace shim {

/// Operations that a whole warp executes together.
enum class Meeting { SYNC_WARP, SHUFFLE, SHUFFLE_INT, LDMATRIX_X4, LDMATRIX_X4_TRANS, LDMATRIX_X2, MMA_F16, MMA_TF32, MMA_S8 };

/// Waits until all 32 lanes have called this with the same meeting; the last one then computes for all. operands[lane] is the
/// pointer that the lane passed.
void meet(Meeting meeting, void *operands, void (*compute)(void *const *operands));

/// The index of the running thread in its block; the twins keep the copies in flight by it.
unsigned current_thread();
/// Fails the launch unless these bytes lie in the block's shared memory and the address is a multiple of `aligned`.
void check_shared(const void *at, size_t bytes, size_t aligned, const char *what);
/// Fails the launch unless the address is a multiple of `aligned`.
void check_aligned(const void *at, size_t aligned, const char *what);
/// Called when a block begins: discards all copies in flight (twins.cpp).
void reset_copies(unsigned threads);

} // namespace shim
