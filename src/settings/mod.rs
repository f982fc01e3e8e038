//! Text to quantity and back: durations, sizes, addresses; and faults that name field, value and reason.
