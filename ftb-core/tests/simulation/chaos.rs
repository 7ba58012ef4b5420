//! Random faults from a seed.
