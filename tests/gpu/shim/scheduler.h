// What the twins need of the scheduler (scheduler.cpp).
#pragma once
#include <stddef.h>

namespace shim {

/// What a whole warp does together.
enum class Meeting { SYNC_WARP, SHUFFLE, SHUFFLE_INT, LDMATRIX_X4, LDMATRIX_X4_TRANS, LDMATRIX_X2, MMA_F16, MMA_TF32, MMA_S8 };

/// Waits until all 32 lanes are here with the same meeting; then the last one computes for all. operands[lane] is what each
/// lane gave.
void meet(Meeting meeting, void *operands, void (*compute)(void *const *operands));

/// The thread that runs, for the copies that it has under way.
unsigned current_thread();
/// Fails unless these bytes are the block's shared memory, at an address that is a multiple of `aligned`.
void check_shared(const void *at, size_t bytes, size_t aligned, const char *what);
/// Fails unless the address is a multiple of `aligned`.
void check_aligned(const void *at, size_t aligned, const char *what);
/// A block begins: no copies are under way (twins.cpp).
void reset_copies(unsigned threads);

} // namespace shim
