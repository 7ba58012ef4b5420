//! What a client and its agent say to each other.
