//! Assembles every module's own configuration; loads, checks and prints it.
